"""The template's alarms as one deployment has them: conditions decided, references resolved, silence composed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

from tests.cloudwatch import TELLING, Alarm, Changes, Sample, Unacceptable, composite, states, told
from tests.emf import Datapoint
from tests.world import JOB, TEMPLATE

TOPIC_PARAMETER = "arn:aws:sns:eu-west-1:123456789012:mine"
ENABLED = {"ScheduleState": "ENABLED", "AlarmEmail": "on-call@example.com", "AlarmTopicArn": TOPIC_PARAMETER}

RANGES = (1, 2, 3, 5, 8)
"""Of alarms with one evaluation period no evaluation range is published: what is promised must hold with any."""

IN_FLIGHT_S = (0, 120)
"""What CloudWatch may take, at the least and at the most, to make a data point of a log line."""

SUPPRESSION = {"AlarmRule", "ActionsSuppressor", "ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod"}


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """All that CloudWatch got, from the first second to the last, and when what happened; seconds since the epoch.

    `failed` are the handlers of the invocations that raised, in their order.
    """

    points: tuple[Datapoint, ...]
    since_s: int
    until_s: int
    moments: Mapping[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    def values(self, name: str) -> list[float]:
        """Every value of a metric, in order."""
        return [point.value for point in self.points if point.name == name]


def physical(logical_id: str) -> str:
    """The name that CloudFormation would give to a resource of the stack."""
    return f"{JOB}-{logical_id}-1A2B3C"


def resolved(value: Any, parameters: Mapping[str, str], template: Mapping[str, Any]) -> Any:
    """What CloudFormation makes of a value; what AWS::NoValue removes is gone."""
    again = [parameters, template]
    match value:
        case {"Ref": "AWS::StackName"}:
            return JOB
        case {"Ref": str(name)}:
            return parameters.get(name, physical(name))
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return physical(name) if attribute.endswith("Name") else f"arn:{physical(name)}"
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([\w:.]+)\}", lambda found: _substituted(found[1], *again), text)
        case {"Fn::If": [condition, yes, no]}:
            return resolved(yes if resolved(template["Conditions"][condition], *again) else no, *again)
        case {"Fn::Equals": [left, right]}:
            return resolved(left, *again) == resolved(right, *again)
        case {"Fn::Not": [inner]}:
            return not resolved(inner, *again)
        case dict():
            return {name: resolved(inner, *again) for name, inner in value.items()}
        case list():
            return [resolved(inner, *again) for inner in value if not _removed(inner, *again)]
    return value


def _substituted(name: str, *again: Any) -> str:
    head, _, attribute = name.partition(".")
    return str(resolved({"Fn::GetAtt": [head, attribute]} if attribute else {"Ref": head}, *again))


def _removed(value: Any, parameters: Mapping[str, str], template: Mapping[str, Any]) -> bool:
    match value:
        case {"Fn::If": [condition, yes, no]}:
            decided = resolved(template["Conditions"][condition], parameters, template)
            return _removed(yes if decided else no, parameters, template)
    return bool(value == {"Ref": "AWS::NoValue"})


@dataclass(frozen=True)
class Stack:
    """What is deployed of a template with these parameters."""

    template: Mapping[str, Any] = field(default_factory=lambda: TEMPLATE)
    given: Mapping[str, str] = field(default_factory=lambda: ENABLED)

    @cached_property
    def parameters(self) -> dict[str, str]:
        defaults = {name: str(body["Default"]) for name, body in self.template["Parameters"].items()}
        return defaults | dict(self.given)

    @cached_property
    def alarms(self) -> dict[str, dict[str, Any]]:
        """Logical id → resolved properties of every alarm that exists, composite ones included."""
        found = {}
        for name, body in self.template["Resources"].items():
            condition = body.get("Condition")
            exists = condition is None or self._resolved(self.template["Conditions"][condition])
            if exists and body["Type"] in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"):
                found[name] = self._resolved(body["Properties"])
        return found

    def _resolved(self, value: Any) -> Any:
        return resolved(value, self.parameters, self.template)

    @property
    def telling(self) -> list[str]:
        """The alarms that have anybody to tell of their ALARM."""
        return [name for name, alarm in self.alarms.items() if alarm.get("AlarmActions")]

    def changes(self, name: str, story: Story) -> list[Changes]:
        """Every change of a metric alarm's state in a story, one list for each way that it may be.

        They differ in what is not published or not certain: the evaluation range, and how long a data point travels.
        """
        return _changes(Alarm.of(self.alarms[name]), story)

    def told(self, name: str, story: Story) -> list[Changes]:
        """What an alarm's actions tell in a story, and when, one list for each way that it may be."""
        properties = self.alarms[name]
        if "AlarmRule" not in properties:
            every = self.changes(name, story)
            return [self._heard(properties, told(changes, until_s=story.until_s)) for changes in every]
        if unknown := set(properties) - SUPPRESSION - TELLING:
            raise NotImplementedError(f"not modelled: {sorted(unknown)}")
        children = {physical(child): child for child in self.alarms if "AlarmRule" not in self.alarms[child]}
        named = next((child for full, child in children.items() if f'"{full}"' in properties["AlarmRule"]), None)
        if named is None:
            raise Unacceptable(f"AlarmRule names no alarm of the stack: {properties['AlarmRule']}")
        suppressors: Iterable[Changes] = [[]]
        wait: dict[str, int] = {}
        if arn := properties.get("ActionsSuppressor"):
            hushing = children[arn.removeprefix("arn:")]
            suppressors = self.changes(hushing, story)
            if lacking := SUPPRESSION - set(properties):
                raise Unacceptable(f"a suppressor needs {sorted(lacking)}, too")
            wait["wait_s"] = properties["ActionsSuppressorWaitPeriod"]
            wait["extension_s"] = properties["ActionsSuppressorExtensionPeriod"]
        return [
            self._heard(
                properties,
                told(
                    composite(properties["AlarmRule"], {physical(named): changes}),
                    until_s=story.until_s,
                    suppressor=suppressor,
                    **wait,
                ),
            )
            for changes, suppressor in product(self.changes(named, story), suppressors)
        ]

    @staticmethod
    def _heard(properties: Mapping[str, Any], said: Changes) -> Changes:
        """What reaches anybody of what an alarm tells."""
        heard = {"ALARM": properties.get("AlarmActions"), "OK": properties.get("OKActions")}
        return [(at_s, state) for at_s, state in said if heard[state]]


@cache
def _changes(alarm: Alarm, story: Story) -> list[Changes]:
    seen = [(point.at_ms / 1000, point.value) for point in story.points if alarm.sees(point)]
    ranges = [alarm.evaluation_range] if alarm.evaluation_range else RANGES
    return [
        list(
            states(
                replace(alarm, evaluation_range=each),
                [Sample(at_s, value, in_flight_s) for at_s, value in seen],
                since_s=story.since_s,
                until_s=story.until_s,
            )
        )
        for each, in_flight_s in product(ranges, IN_FLIGHT_S)
    ]
