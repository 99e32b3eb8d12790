"""Each alarm of the template, judged by what the functions really emit: it tells when it must, ends after, else none.

A story is played once through the handlers. Every test that takes a `stack` judges it by the alarms of that stack; the
last part of this module takes the template, spoils one property after the other, and sees that one of them fails.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.observability import WATCHDOG_METRICS, WORKER_METRICS
from tests.alarms import ENABLED, IN_FLIGHT_S, SUPPRESSION, TOPIC_PARAMETER, Stack, Story, physical
from tests.cloudwatch import ALARM, OK, RULE, TELLING
from tests.stage import EVERY_S, LATE_S
from tests.stories import HOUR, MINUTE, STORIES, played
from tests.world import JOB, TEMPLATE

ROOT = Path(__file__).parents[1]
README, OPERATIONS = (
    " ".join((ROOT / name).read_text("utf-8").split()) for name in ("README.md", "docs/operations.md")
)

LATE, SKIPPED, REPAIR, UNDELIVERED, ERRORS = (
    f"{name}Alarm" for name in ("Late", "Skipped", "NeedsRepair", "Undelivered", "Errors")
)
SILENT = "WatchdogSilentAlarm"
TOLD = {LATE, SKIPPED, REPAIR, UNDELIVERED, ERRORS, SILENT}
UNTOLD = {"WatchdogQuietAlarm", "NeverAlarm"}


@pytest.fixture
def stack() -> Stack:
    return Stack()


def promised(text: str, pattern: str) -> list[int]:
    """The minutes that a document promises, in seconds."""
    found = re.search(pattern, text)
    assert found, pattern
    return [int(number) * MINUTE for number in found.groups()]


def only(stack: Stack, story: Story, *names: str) -> None:
    """Nobody is told anything by any other alarm."""
    for name in set(stack.alarms) - set(names):
        for way in stack.told(name, story):
            assert way == [], f"{name}: {way}"


def once(stack: Stack, name: str, story: Story) -> Iterator[tuple[float, float]]:
    """When an alarm told of its ALARM, and when of its OK, each once, in every way that it may be."""
    for way in stack.told(name, story):
        assert [state for _, state in way] == [ALARM, OK], f"{name}: {way}"
        yield way[0][0], way[1][0]


def stays(stack: Stack, name: str, story: Story) -> Iterator[float]:
    """When an alarm told of an ALARM that lasts."""
    for way in stack.told(name, story):
        assert [state for _, state in way] == [ALARM], f"{name}: {way}"
        yield way[0][0]


def rings_and_ends(stack: Stack, name: str, story: Story, metric: str, done: str) -> None:
    """It tells at the first report that has something to tell, and stops telling within what operations says."""
    (ends_s,) = promised(OPERATIONS, r"it ends within (\d+) minutes after its cause has")
    seen = next(point.at_ms / 1000 for point in story.points if point.name == metric and point.value)
    for rang, ended in once(stack, name, story):
        assert 0 < rang - seen <= max(IN_FLIGHT_S) + MINUTE
        assert 0 <= ended - story.moments[done] <= ends_s
    assert min(way[0][0] for way in stack.told(name, story)) - seen <= MINUTE


def lasts(stack: Stack, name: str, story: Story, until: float) -> None:
    """It goes on telling when nothing is reported any more from a moment on."""
    points = tuple(point for point in story.points if point.at_ms / 1000 < until)
    assert len(list(stays(stack, name, Story(points, story.since_s, story.until_s + 6 * HOUR)))) > 0


# -------------------------------------------------------------------------------------------------------- what tells


@pytest.mark.field("B55")
def test_a_job_that_never_runs_is_late_at_its_first_deadline(stack: Stack) -> None:
    story = played("idle_job")
    assert min(value for value in story.values("SecondsPastDeadline") if value) < 1, "a look just after the deadline"
    assert max(story.values("UnfinishedIntervals")) == 2
    rings_and_ends(stack, LATE, story, "SecondsPastDeadline", "done")
    (rings_s,) = promised(README, r"Late rings within (\d+) minutes of")
    assert max(IN_FLIGHT_S) + MINUTE + EVERY_S + LATE_S <= rings_s, "even when the deadline is just after a look"
    only(stack, story, LATE)


@pytest.mark.field("B61")
def test_a_late_night_stays_late_while_the_watchdog_is_silent_and_that_is_told_too(stack: Stack) -> None:
    story = played("silent_while_late")
    for rang in stays(stack, LATE, story):
        assert rang < story.moments["last word"]
    for rang in stays(stack, SILENT, story):
        in_time(rang - story.moments["last word"])
    only(stack, story, LATE, SILENT)


def in_time(delay_s: float) -> None:
    earliest_s, latest_s = promised(README, r"alarms (\d+) to (\d+) minutes after the last report")
    assert earliest_s <= delay_s <= latest_s


@pytest.mark.field("B55", "B61")
def test_a_watchdog_that_cannot_read_is_told_after_its_last_word_and_until_its_next(stack: Stack) -> None:
    story = played("silent")
    assert "watchdog" in story.failed
    for rang, ended in once(stack, SILENT, story):
        in_time(rang - story.moments["last word"])
        assert 0 <= ended - story.moments["speaks"] <= 3 * MINUTE, "at its next report"
    only(stack, story, SILENT, ERRORS)


def test_a_watchdog_that_never_gets_anywhere_is_told_by_a_new_deployment(stack: Stack) -> None:
    story = played("never_a_word")
    for rang in stays(stack, SILENT, story):
        assert 10 * MINUTE <= rang - story.since_s <= 15 * MINUTE
    only(stack, story, SILENT, ERRORS)


def test_one_skipped_night_is_told_until_a_person_acknowledges_it(stack: Stack) -> None:
    story = played("skipped")
    assert max(story.values("SkippedIntervals")) == 1
    rings_and_ends(stack, SKIPPED, story, "SkippedIntervals", "acknowledged")
    only(stack, story, SKIPPED, LATE)
    lasts(stack, SKIPPED, story, story.moments["acknowledged"])


def test_a_night_without_progress_needs_repair_until_it_is_run_again(stack: Stack) -> None:
    story = played("attempts")
    assert max(story.values("IntervalsNeedingRepair")) == 1
    rings_and_ends(stack, REPAIR, story, "IntervalsNeedingRepair", "done")
    only(stack, story, REPAIR, ERRORS)
    lasts(stack, REPAIR, story, story.moments["done"] - 10 * MINUTE)


def test_failures_in_a_row_are_told_at_the_third_and_end_when_they_do(stack: Stack) -> None:
    story = played("attempts")
    failures = [p.at_ms / 1000 for p in story.points if p.name == "Errors" and p.value]
    assert len(failures) == 5
    for rang, ended in once(stack, ERRORS, story):
        assert 0 < rang - failures[2] <= 5 * MINUTE
        assert 30 * MINUTE <= ended - failures[-3] <= 35 * MINUTE
    quiet = played("two_failures")
    assert quiet.failed == ("reconcile", "reconcile")
    only(stack, quiet)


def test_errors_end_though_nothing_is_invoked_any_more(stack: Stack) -> None:
    """That nothing is invoked is another alarm's business: lateness, and the watchdog's silence."""
    whole = played("attempts")
    failures = [p.at_ms / 1000 for p in whole.points if p.name == "Errors" and p.value]
    points = tuple(p for p in whole.points if p.at_ms / 1000 <= failures[2])
    for way in stack.told(ERRORS, Story(points, whole.since_s, whole.until_s + 6 * HOUR)):
        assert (way[0][1], way[-1][1]) == (ALARM, OK)


def test_a_night_that_the_guard_stopped_needs_repair_and_is_no_error(stack: Stack) -> None:
    story = played("guarded")
    rings_and_ends(stack, REPAIR, story, "IntervalsNeedingRepair", "done")
    only(stack, story, REPAIR)


def test_an_undelivered_trigger_is_told_until_its_message_is_deleted(stack: Stack) -> None:
    """A queue that was idle for six hours reports up to 15 minutes late (SQS Developer Guide)."""
    story = played("undelivered")
    for rang, ended in once(stack, UNDELIVERED, story):
        assert 0 < rang - story.moments["arrived"] <= 20 * MINUTE
        assert 0 < ended - story.moments["deleted"] <= 8 * MINUTE
    left = played("left_undelivered")
    assert all(rang - left.moments["arrived"] <= 4 * MINUTE for rang in stays(stack, UNDELIVERED, left))


def test_a_rerun_of_an_old_night_is_late_at_once_until_it_completes(stack: Stack) -> None:
    story = played("rerun_of_an_old_night")
    rings_and_ends(stack, LATE, story, "SecondsPastDeadline", "done")
    only(stack, story, LATE)


# ------------------------------------------------------------------------------------------------- what does not tell


@pytest.mark.field("B55")
def test_a_fresh_deployment_tells_nobody(stack: Stack) -> None:
    story = played("fresh")
    assert set(story.values("SecondsPastDeadline")) == {0.0}
    assert max(story.values("UnfinishedIntervals")) == 0
    only(stack, story)


def test_disabled_schedules_alarm_nobody(stack: Stack) -> None:
    assert Stack(stack.template, {**ENABLED, "ScheduleState": "DISABLED"}).alarms == {}
    assert set(stack.alarms) == TOLD | UNTOLD


@pytest.mark.field("B61")
def test_the_suppressor_rings_in_no_story(stack: Stack) -> None:
    """It would hide the watchdog's silence."""
    suppressor = stack.alarms[SILENT]["ActionsSuppressor"].removeprefix(f"arn:{JOB}-").partition("-")[0]
    for name in STORIES:
        for way in stack.changes(suppressor, played(name)):
            assert [state for _, state in way] == [OK], name


# ------------------------------------------------------------------------------------------------------ whom they tell


def test_every_alarm_tells_the_address_and_the_topic_of_both_ways(stack: Stack) -> None:
    everybody = [physical("AlarmTopic"), TOPIC_PARAMETER]
    for name in TOLD:
        assert stack.alarms[name].get("AlarmActions") == stack.alarms[name].get("OKActions") == everybody, name
    nobody = Stack(stack.template, {"ScheduleState": "ENABLED"})
    for name in UNTOLD:
        assert not set(stack.alarms[name]) & {"AlarmActions", "OKActions"}, name
    assert nobody.telling == []


def test_every_alarm_says_what_to_do(stack: Stack) -> None:
    for name, alarm in stack.alarms.items():
        said = alarm.get("AlarmDescription", "")
        assert JOB in said, name
        assert len(said) <= 1024, "CloudWatch keeps no more"
        assert ("reconcilectl" in said or physical("Undelivered") in said) == (name in TOLD), name


def test_the_rule_of_every_alarm_is_the_one_that_operations_tells(stack: Stack) -> None:
    """Its table holds every property that decides, so that none changes without a word to the person on call."""
    rows = re.findall(r"^\| (\w+) \| `(.+)` \|$", (ROOT / "docs/operations.md").read_text("utf-8"), re.MULTILINE)
    assert {f"{name}Alarm": rule for name, rule in rows} == {name: ruled(a) for name, a in stack.alarms.items()}


def ruled(alarm: dict[str, Any]) -> str:
    """An alarm's rule in one line; a property that is left out is a KeyError."""
    if "AlarmRule" in alarm:
        rule = alarm["AlarmRule"].replace(physical("WatchdogQuietAlarm"), "WatchdogQuiet")
        waits = f"{alarm['ActionsSuppressorWaitPeriod']} s, then {alarm['ActionsSuppressorExtensionPeriod']} s"
        hushed = alarm["ActionsSuppressor"].replace(f"arn:{physical('NeverAlarm')}", "Never")
        return f"{rule}; suppressor {hushed}: {waits}"
    ((name, value),) = [(each["Name"], each["Value"]) for each in alarm["Dimensions"]]
    named = {JOB: "stack", physical("Undelivered"): "Undelivered", physical("ReconcileFunction"): "ReconcileFunction"}
    return (
        f"{alarm['Namespace']} {alarm['MetricName']} {{{name}={named[value]}}}: {alarm['Statistic']} "
        f"{SIGNS[alarm['ComparisonOperator']]} {alarm['Threshold']} in {alarm['Period']} s, "
        f"{alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}, missing: {alarm['TreatMissingData']}"
    )


SIGNS = {"GreaterThanThreshold": ">", "GreaterThanOrEqualToThreshold": ">=", "LessThanThreshold": "<"}


# ----------------------------------------------------------------------------------------------- where they are emitted


def test_the_functions_emit_where_the_template_says_that_the_alarms_look(stack: Stack) -> None:
    variables = stack.template["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["POWERTOOLS_SERVICE_NAME"] == {"Ref": "AWS::StackName"}
    for name in STORIES:
        for point in played(name).points:
            if not point.namespace.startswith("AWS/"):
                assert point.namespace == variables["POWERTOOLS_METRICS_NAMESPACE"]
                assert point.dimensions == {("service", JOB)}
                assert point.unit == (WATCHDOG_METRICS | WORKER_METRICS)[point.name].value


def test_one_dimension_more_or_less_is_another_metric(stack: Stack) -> None:
    story = played("idle_job")
    for dimensions in (frozenset(), frozenset({("service", JOB), ("function_name", "watchdog")})):
        points = tuple(
            p if p.namespace.startswith("AWS/") else type(p)(p.namespace, p.name, dimensions, p.at_ms, p.value)
            for p in story.points
        )
        blind = Story(points, story.since_s, story.until_s)
        assert not any(stack.told(LATE, blind))
        assert len(list(stays(stack, SILENT, blind))) > 0


# ------------------------------------------------------------------------------------- no property may change unnoticed

JUDGES: dict[str, Callable[[Stack], None]] = {
    name: judge
    for name, judge in list(globals().items())
    if name.startswith("test_") and list(inspect.signature(judge).parameters) == ["stack"]
}
PINNED = "test_the_rule_of_every_alarm_is_the_one_that_operations_tells"

OTHERS: dict[str, list[Any]] = {
    "Namespace": ["AWS/Lambda", "scheduledReconciler"],
    "MetricName": ["OldestUnfinishedAge", "Invocations"],
    "Statistic": ["Minimum", "Maximum", "Sum", "SampleCount", "Average"],
    "Period": [60, 300, 600, 1200, 1800, 3600],
    "EvaluationPeriods": [1, 2, 3, 4, 6],
    "DatapointsToAlarm": [1, 2, 3],
    "ComparisonOperator": [*SIGNS, "LessThanOrEqualToThreshold"],
    "Threshold": [-1, 0, 1, 2, 3, 4],
    "TreatMissingData": ["missing", "ignore", "breaching", "notBreaching"],
    "Dimensions": [
        [],
        [{"Name": "Service", "Value": {"Ref": "AWS::StackName"}}],
        [{"Name": "service", "Value": "another-stack"}],
        [{"Name": "QueueName", "Value": {"Fn::GetAtt": ["Failed", "QueueName"]}}],
        [{"Name": "FunctionName", "Value": {"Ref": "WatchdogFunction"}}],
        [{"Name": "service", "Value": {"Ref": "AWS::StackName"}}, {"Name": "Resource", "Value": "more"}],
    ],
    "AlarmDescription": ["An alarm."],
    "AlarmActions": [[], [{"Ref": "AlarmTopic"}]],
    "OKActions": [[], [{"Ref": "AlarmTopic"}]],
    "AlarmRule": [{"Fn::Sub": f'ALARM("${{{name}}}")'} for name in ("NeverAlarm", "LateAlarm")],
    "ActionsSuppressor": [{"Fn::GetAtt": ["WatchdogQuietAlarm", "Arn"]}, {"Fn::GetAtt": ["LateAlarm", "Arn"]}],
    "ActionsSuppressorWaitPeriod": [0, 60, 1200],
    "ActionsSuppressorExtensionPeriod": [0, 3600],
}
REMOVED = object()


def spoilt() -> Iterator[Any]:
    """Every property of every alarm but its tags, removed and altered; and each alarm's condition."""
    for name, body in TEMPLATE["Resources"].items():
        if "::Alarm" not in body["Type"] and "CompositeAlarm" not in body["Type"]:
            continue
        properties = {prop: now for prop, now in body["Properties"].items() if prop != "Tags"}
        assert set(properties) <= RULE | TELLING | SUPPRESSION, f"{name} has a property that nobody spoils"
        yield pytest.param(name, None, REMOVED, id=f"{name}-without-Condition")
        for prop, now in properties.items():
            yield pytest.param(name, prop, REMOVED, id=f"{name}-without-{prop}")
            others = OTHERS[prop][:2] if name == "NeverAlarm" else OTHERS[prop]
            for number, other in enumerate(others):
                if other != now:
                    yield pytest.param(name, prop, other, id=f"{name}-{prop}-{number}")


def failing(template: dict[str, Any], *besides: str) -> Iterator[str]:
    """The tests of this module, `besides` some, that a template does not pass."""
    for name, judge in JUDGES.items():
        if name not in besides:
            try:
                judge(stack=Stack(template))  # type: ignore[call-arg]  # each takes it by this name
            except (AssertionError, KeyError, NotImplementedError, ValueError):
                yield name


SAME = {
    r"\w+-without-DatapointsToAlarm": "AWS takes EvaluationPeriods then",
    r"(Late|Skipped|NeedsRepair|Undelivered)Alarm-Statistic-[24]": "no value is below 0: Sum and Average follow it",
    r"WatchdogQuietAlarm-MetricName-0": "every report holds every metric, and only its coming counts",
    r"WatchdogQuietAlarm-(ComparisonOperator-0|Threshold-[01])": "no report breaches, and missing is what does",
    r"ErrorsAlarm-.*TreatMissingData.*": "the sum is below 3 before the window is empty",
    r"NeverAlarm-.+": "no count is below 0, of whatever metric, in whatever window",
    r"WatchdogSilentAlarm-ActionsSuppressorExtensionPeriod-.": "it follows the suppressor's ALARM, and there is none",
}
"""Changes that no story can tell, since they change nothing that happens: for them the documented rule is the judge."""


@pytest.mark.parametrize(("alarm", "prop", "other"), list(spoilt()))
def test_no_property_of_an_alarm_can_change_unnoticed(
    alarm: str, prop: str | None, other: Any, request: pytest.FixtureRequest
) -> None:
    template = copy.deepcopy(TEMPLATE)
    body = template["Resources"][alarm]
    if prop is None:
        del body["Condition"]
    elif other is REMOVED:
        del body["Properties"][prop]
    else:
        body["Properties"][prop] = other
    if next(failing(template, PINNED), None) is None:
        assert any(re.fullmatch(each, request.node.callspec.id) for each in SAME)
        assert PINNED in failing(template)


@pytest.mark.parametrize("variable", ["POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_SERVICE_NAME"])
def test_no_other_name_can_be_emitted_under_unnoticed(variable: str) -> None:
    template = copy.deepcopy(TEMPLATE)
    template["Globals"]["Function"]["Environment"]["Variables"][variable] = "Other"
    assert list(failing(template)) == ["test_the_functions_emit_where_the_template_says_that_the_alarms_look"]


def test_the_template_as_it_is_passes_every_judge() -> None:
    assert list(failing(TEMPLATE)) == []
