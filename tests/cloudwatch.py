"""CloudWatch's published rules of when an alarm rings, and whom it tells, as pure functions.

From the CloudWatch User Guide: "Alarm evaluation" says how often an alarm is evaluated and over which windows,
"Configuring how CloudWatch alarms treat missing data" holds the table of states that `evaluate` computes, and
"Suppressing composite alarm actions" what `told` does. What none of them decides is a NotImplementedError here, never
a guess.

    metric             namespace, name and exactly this set of dimensions: one more or less is another metric
    period             length of a window, in whole minutes; a window with no sample is a missing data point
    evaluation range   the windows that are looked at: more than the alarm's evaluation periods, so that older data
                       points may stand in for missing ones. Published is 5 for periods of 5 minutes and 3 evaluations
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.emf import Datapoint, Dimensions

OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"

PUBLISHED_RANGE = {(300, 3): 5}
"""(period in seconds, evaluation periods) → data points in the evaluation range."""

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "Average": lambda values: sum(values) / len(values),
    "Maximum": max,
    "Minimum": min,
    "SampleCount": len,
    "Sum": sum,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}

RULE = {
    *("Namespace", "MetricName", "Dimensions", "Statistic", "Period", "EvaluationPeriods", "DatapointsToAlarm"),
    *("ComparisonOperator", "Threshold", "TreatMissingData"),
}
TELLING = {"Tags", "AlarmDescription", "AlarmActions", "OKActions"}
"""Properties of an alarm that do not decide its state."""

Changes = list[tuple[int, str]]
"""Every change of an alarm's state, as (second, new state)."""


class Unacceptable(ValueError):
    """PutMetricAlarm would refuse this alarm; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A metric alarm's rule. `evaluation_range` is in data points, None where it is not published."""

    namespace: str
    metric: str
    dimensions: Dimensions
    period_s: int
    evaluation_periods: int
    datapoints_to_alarm: int
    missing: str
    statistic: str
    comparison: str
    threshold: float
    evaluation_range: int | None

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Alarm:
        """The rule of an AWS::CloudWatch::Alarm whose references are resolved; what is left out has AWS's default.

        Raises Unacceptable for what AWS refuses, NotImplementedError for a property that is not modelled.
        """
        if unknown := set(properties) - RULE - TELLING:
            raise NotImplementedError(f"not modelled: {sorted(unknown)}")
        lacking = {"Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "ComparisonOperator"}
        if absent := (lacking | {"Threshold"}) - set(properties):
            raise Unacceptable(f"needed for an alarm on one metric: {sorted(absent)}")
        period_s, periods = properties["Period"], properties["EvaluationPeriods"]
        alarm = cls(
            namespace=properties["Namespace"],
            metric=properties["MetricName"],
            dimensions=frozenset((each["Name"], str(each["Value"])) for each in properties.get("Dimensions", [])),
            period_s=period_s,
            evaluation_periods=periods,
            datapoints_to_alarm=properties.get("DatapointsToAlarm", periods),
            missing=properties.get("TreatMissingData", "missing"),
            statistic=properties["Statistic"],
            comparison=properties["ComparisonOperator"],
            threshold=properties["Threshold"],
            evaluation_range=PUBLISHED_RANGE.get((period_s, periods)),
        )
        alarm._check()
        return alarm

    def _check(self) -> None:
        if not 1 <= self.datapoints_to_alarm <= self.evaluation_periods:
            raise Unacceptable("DatapointsToAlarm must be from 1 to EvaluationPeriods")
        if self.period_s < 60 or self.period_s % 60:
            raise Unacceptable("Period must be whole minutes: 10, 20 and 30 seconds are for high resolution metrics")
        if self.period_s * self.evaluation_periods > (86_400 if self.period_s < 3_600 else 604_800):
            raise Unacceptable("the windows together may last a day, or 7 days with periods of an hour and more")
        if self.missing not in ("breaching", "notBreaching", "ignore", "missing"):
            raise Unacceptable(f"TreatMissingData cannot be {self.missing}")

    def sees(self, point: Datapoint) -> bool:
        """Whether a data point is of this alarm's metric."""
        mine = (self.namespace, self.metric, self.dimensions)
        return mine == (point.namespace, point.name, point.dimensions)

    def breaches(self, samples: Sequence[float]) -> bool | None:
        """Whether one window's samples breach the threshold; None when there are none."""
        if not samples:
            return None
        return COMPARISONS[self.comparison](STATISTICS[self.statistic](samples), self.threshold)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value and when it was sent; an alarm sees it `in_flight_s` later. Times in seconds."""

    sent_s: float
    value: float
    in_flight_s: float = 0


def evaluate(points: Sequence[bool | None], *, of: int, needed: int, missing: str, now: str) -> str:
    """The state after one look at the data points of the evaluation range, oldest first.

    A point is True when it breaches, None when it is missing; `of` are the evaluation periods, `needed` the data points
    to alarm, `missing` the treatment of missing data, `now` the state so far.
    """
    real = [point for point in points if point is not None]
    if len(real) >= of:
        return ALARM if sum(real[-of:]) >= needed else OK
    if sum(real) >= needed:
        return ALARM
    if missing == "notBreaching":
        return OK
    if not real:
        return {"missing": INSUFFICIENT_DATA, "ignore": now, "breaching": ALARM}[missing]
    if all(real):
        age = len(points) - points.index(True)
        if age < needed:
            raise NotImplementedError(f"not published: breaching points only, the oldest {age} periods old")
        return now if missing == "ignore" else ALARM
    filled = of - len(real) if missing == "breaching" else 0
    return ALARM if sum(real) + filled >= needed else OK


def states(
    alarm: Alarm, samples: Iterable[Sample], *, until_s: int, since_s: int = 0, start: str = INSUFFICIENT_DATA
) -> Iterator[tuple[int, str]]:
    """Each change of state as (second, new state), for an alarm that is evaluated at every whole minute.

    At the end of a minute the windows end with that minute: a 5 minute window is minutes 1 to 5, a minute later 2 to 6.
    """
    if alarm.evaluation_range is None:
        raise NotImplementedError("the evaluation range of this alarm is not published: give it one")
    sent = sorted(samples, key=lambda sample: sample.sent_s)
    minutes = [sample.sent_s // 60 * 60 for sample in sent]
    longest_s = max((sample.in_flight_s for sample in sent), default=0)
    complete: dict[int, bool | None] = {}
    state = start
    for now_s in range(since_s, until_s + 1, 60):
        points = []
        for back in reversed(range(alarm.evaluation_range)):
            end_s = now_s - back * alarm.period_s
            if end_s in complete:
                points.append(complete[end_s])
                continue
            within = sent[bisect_left(minutes, end_s - alarm.period_s) : bisect_left(minutes, end_s)]
            points.append(alarm.breaches([s.value for s in within if s.sent_s + s.in_flight_s <= now_s]))
            if end_s + longest_s <= now_s:
                complete[end_s] = points[-1]
        new = evaluate(
            points, of=alarm.evaluation_periods, needed=alarm.datapoints_to_alarm, missing=alarm.missing, now=state
        )
        if new != state:
            state = new
            yield now_s, state


def composite(rule: str, children: Mapping[str, Changes]) -> Changes:
    """The changes of a composite alarm with a rule `ALARM("name")`; `children` are the changes of each alarm."""
    found = re.fullmatch(r'ALARM\("([^"]+)"\)', rule)
    if found is None:
        raise NotImplementedError(f"not modelled: {rule}")
    changes: Changes = []
    state = INSUFFICIENT_DATA
    for at_s, child in children[found[1]]:
        new = ALARM if child == ALARM else OK
        if new != state:
            state = new
            changes.append((at_s, state))
    return changes


def told(
    changes: Iterable[tuple[int, str]],
    *,
    until_s: int,
    wait_s: int = 0,
    extension_s: int = 0,
    suppressor: Iterable[tuple[int, str]] = (),
) -> Changes:
    """What an alarm's actions tell of its changes: (second, ALARM or OK), each ALARM once, and OK only after it.

    A composite alarm that goes into ALARM waits `wait_s` for its suppressor to do the same and tells when that has not
    happened; while the suppressor is in ALARM it tells nothing, and `extension_s` after that it does, if it still is in
    ALARM. Whether an OK is told of an ALARM that nobody was told of is not asked here.
    """
    blocked = _spans(suppressor, until_s)
    said: Changes = []
    for began_s, ended_s in _spans(changes, until_s):
        at_s = began_s + wait_s
        for from_s, to_s in blocked:
            if from_s <= at_s and to_s + extension_s > began_s:
                at_s = max(at_s, to_s + extension_s)
        if at_s <= ended_s:
            said.append((at_s, ALARM))
            if ended_s < until_s:
                said.append((ended_s, OK))
    return said


def _spans(changes: Iterable[tuple[int, str]], until_s: int) -> list[tuple[int, int]]:
    """When an alarm was in ALARM, as (from, to); `until_s` when it still is."""
    spans: list[tuple[int, int]] = []
    since_s: int | None = None
    for at_s, state in [*changes, (until_s, "")]:
        if since_s is not None:
            spans.append((since_s, at_s))
        since_s = at_s if state == ALARM else None
    return spans
