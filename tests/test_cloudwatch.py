"""The judges of alarms, judged: data points of log lines, whom a composite alarm tells and when, what AWS refuses."""

from __future__ import annotations

import io
import json
import time
from contextlib import redirect_stdout
from typing import Any

import pytest

from reconciler import app
from reconciler.observability import WATCHDOG_METRICS
from tests.alarms import Stack
from tests.cloudwatch import ALARM, INSUFFICIENT_DATA, OK, Alarm, Unacceptable, composite, told
from tests.emf import Datapoint, NotEmf, datapoints
from tests.kit import lambda_context
from tests.world import JOB, World, event

LINE: dict[str, Any] = {
    "_aws": {
        "Timestamp": 1_700_000_000_000,
        "CloudWatchMetrics": [
            {"Namespace": "N", "Dimensions": [["a"], ["a", "b"]], "Metrics": [{"Name": "m", "Unit": "Seconds"}]}
        ],
    },
    "a": "1",
    "b": "2",
    "m": [3, 4.5],
    "free": "text",
}


def test_every_value_counts_once_for_each_dimension_set() -> None:
    narrow, wide = frozenset({("a", "1")}), frozenset({("a", "1"), ("b", "2")})
    assert datapoints([json.dumps(LINE)]) == [
        Datapoint("N", "m", dimensions, 1_700_000_000_000, value, "Seconds")
        for dimensions in (narrow, wide)
        for value in (3, 4.5)
    ]
    assert {point.at_ms for point in datapoints([json.dumps(LINE)], at_ms=7)} == {7}


@pytest.mark.parametrize("line", ["", "START RequestId: 1", "[1]", "3", '{"message": "m"}', '{"_aws"'])
def test_a_line_without_metrics_makes_no_data_point(line: str) -> None:
    assert datapoints([line]) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"_aws": {}}, "Timestamp"),
        ({"_aws": {"Timestamp": "now", "CloudWatchMetrics": []}}, "Timestamp"),
        ({"_aws": {"Timestamp": 1, "CloudWatchMetrics": {}}}, "CloudWatchMetrics"),
        ({"a": None}, "dimension a"),
        ({"a": 1}, "dimension a"),
        ({"m": "3"}, "m has no number"),
        ({"m": None}, "m has no number"),
        ({"m": [True]}, "m has no number"),
        ({"m": [0] * 101}, "more than 100 values"),
        ({"free": "x" * 1024 * 1024}, "longer than"),
    ],
)
def test_a_line_that_cloudwatch_would_drop_without_a_word_is_an_error(change: dict[str, Any], why: str) -> None:
    with pytest.raises(NotEmf, match=why):
        datapoints([json.dumps(LINE | change)])


def test_the_real_lines_carry_the_time_at_which_they_were_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_ms, output = time.time() * 1000, io.StringIO()
    with world.deployed(monkeypatch), redirect_stdout(output):
        app.watchdog(event("watchdog"), lambda_context(world))
    points = datapoints(output.getvalue().splitlines())
    assert {point.name for point in points} == set(WATCHDOG_METRICS)
    assert {point.dimensions for point in points} == {frozenset({("service", JOB)})}
    assert all(before_ms - 1 <= point.at_ms <= time.time() * 1000 for point in points)


# ------------------------------------------------------------------------------------------------------- what AWS takes

LATE = Stack().alarms["LateAlarm"]


@pytest.mark.parametrize(
    "change",
    [
        {"DatapointsToAlarm": 2},
        {"Period": 30},
        {"Period": 90},
        {"Period": 600, "EvaluationPeriods": 145, "DatapointsToAlarm": 1},
        {"TreatMissingData": "NotBreaching"},
    ],
)
@pytest.mark.field("B59")
def test_an_alarm_that_aws_refuses_is_refused(change: dict[str, Any]) -> None:
    """Neither moto nor cfn-lint looks at these."""
    with pytest.raises(Unacceptable):
        Alarm.of(LATE | change)


def test_what_is_not_modelled_is_not_passed_over() -> None:
    with pytest.raises(NotImplementedError, match="Unit"):
        Alarm.of(LATE | {"Unit": "Seconds"})
    with pytest.raises(NotImplementedError, match="not modelled"):
        composite('ALARM("a") OR ALARM("b")', {"a": [], "b": []})


@pytest.mark.parametrize(
    ("name", "dimensions", "seen"),
    [
        ("SecondsPastDeadline", {("service", JOB)}, True),
        ("secondsPastDeadline", {("service", JOB)}, False),
        ("SecondsPastDeadline", {("service", "other")}, False),
        ("SecondsPastDeadline", {("Service", JOB)}, False),
        ("SecondsPastDeadline", {("service", JOB), ("function_name", "watchdog")}, False),
        ("SecondsPastDeadline", set(), False),
    ],
)
def test_an_alarm_sees_its_own_metric_and_no_other(name: str, dimensions: set[tuple[str, str]], seen: bool) -> None:
    point = Datapoint("ScheduledReconciler", name, frozenset(dimensions), 0, 1.0)
    assert Alarm.of(LATE).sees(point) is seen
    assert not Alarm.of(LATE).sees(Datapoint("Other", name, frozenset(dimensions), 0, 1.0))


# ------------------------------------------------------------------------------------------------- whom composites tell


def test_a_composite_alarm_is_in_alarm_exactly_while_its_child_is() -> None:
    child = [(0, INSUFFICIENT_DATA), (60, ALARM), (120, INSUFFICIENT_DATA), (180, OK), (240, ALARM)]
    assert composite('ALARM("a")', {"a": child}) == [(0, OK), (60, ALARM), (120, OK), (240, ALARM)]


@pytest.mark.parametrize(
    ("suppressor", "said"),
    [
        pytest.param([], [(160, ALARM), (400, OK)], id="none rings: after the wait"),
        pytest.param([(130, ALARM)], [], id="one rings in the wait: nothing"),
        pytest.param([(50, ALARM)], [], id="one rings before: nothing"),
        pytest.param([(50, ALARM), (200, OK)], [(230, ALARM), (400, OK)], id="it ends: after the extension"),
        pytest.param([(50, ALARM), (80, OK)], [(160, ALARM), (400, OK)], id="it ended before: after the wait"),
        pytest.param([(170, ALARM)], [(160, ALARM), (400, OK)], id="it rings too late"),
        pytest.param([(50, ALARM), (390, OK)], [], id="the extension outlasts the alarm"),
    ],
)
def test_a_composite_alarm_waits_for_its_suppressor(suppressor: list[tuple[int, str]], said: list[Any]) -> None:
    changes = [(0, OK), (100, ALARM), (400, OK)]
    assert told(changes, until_s=1000, wait_s=60, extension_s=30, suppressor=suppressor) == said


def test_an_alarm_that_ends_while_it_waits_tells_nobody() -> None:
    assert told([(100, ALARM), (150, OK)], until_s=1000, wait_s=60) == []
    assert told([(100, ALARM)], until_s=1000, wait_s=60) == [(160, ALARM)]
