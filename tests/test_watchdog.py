"""The watchdog: it looks, says every number every time, and turns late by itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import app, keys
from reconciler.errors import TransientFailure
from reconciler.observability import WATCHDOG_METRICS
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED
from reconciler.watchdog import Seen, look, measure
from tests.faults import Wire
from tests.kit import (
    delivered,
    emitted,
    everything,
    give_up,
    grants,
    killed,
    lambda_context,
    numbered,
    ordered,
    refusal,
    watched,
)
from tests.world import JOB, NIGHT, World, event
from tools.tables import load_template

if TYPE_CHECKING:
    from types_boto3_cloudwatch import CloudWatchClient

QUIET = dict.fromkeys(WATCHDOG_METRICS, 0.0)
HOUR = 3600


def seen(world: World) -> dict[str, float]:
    """What the watchdog finds now, without the milliseconds that looking takes."""
    return {name: round(value, 1) for name, value in look(invocation=world.invocation()).items()}


def test_on_empty_tables_everything_is_zero_until_a_night_is_due(world: World) -> None:
    world.clock.set("2026-11-29T01:00:00Z")
    assert seen(world) == QUIET


@pytest.mark.field("B55")
@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param("2026-11-29T01:59:59Z", {}, id="nothing was due yet"),
        pytest.param("2026-11-29T06:00:00Z", {"OldestUnfinishedAge": 4 * HOUR, "UnfinishedIntervals": 1}, id="in time"),
        pytest.param(
            "2026-11-29T06:00:01Z",
            {"OldestUnfinishedAge": 4 * HOUR + 1, "UnfinishedIntervals": 1, "SecondsPastDeadline": 1},
            id="a second late",
        ),
        pytest.param(
            "2026-11-30T06:00:00Z",
            {"OldestUnfinishedAge": 28 * HOUR, "UnfinishedIntervals": 2, "SecondsPastDeadline": 24 * HOUR},
            id="two nights",
        ),
    ],
)
def test_a_stack_that_never_ran_turns_late_after_its_first_deadline(
    world: World, now: str, expected: dict[str, float]
) -> None:
    world.clock.set(now)
    assert seen(world) == QUIET | expected


def test_looking_writes_nothing(world: World) -> None:
    grants(world, *numbered(3))
    killed(world, Wire(world.client), "commit")
    before = everything(world)
    world.clock.advance(9 * HOUR)
    with watched(world.client) as sent:
        seen(world)
    assert {name.partition(" ")[0] for name in sent} <= {"GetItem", "Query", "DescribeTable"}
    assert everything(world) == before


def test_a_completed_night_is_quiet_however_late_it_was(world: World) -> None:
    world.clock.set("2026-11-29T09:00:00Z")
    world.run("tick")
    assert world.interval()["late_by_s"] == 3 * HOUR
    assert seen(world) == QUIET


def test_a_running_night_tells_how_long_ago_it_got_on(world: World) -> None:
    world.set(range_size=1, page_size=2)
    grants(world, *numbered(4))
    killed(world, Wire(world.client), "commit", 2)
    world.clock.set("2026-11-29T03:00:05Z")
    assert seen(world)["SecondsSinceProgress"] == HOUR
    world.put_control(keys.progress(NIGHT, 1, "000"), checkpoint_at=...)  # before the first commit it is the start
    assert seen(world)["SecondsSinceProgress"] == HOUR


@pytest.mark.parametrize("place", ["checkpoint", "start"])
def test_a_night_that_is_rerun_days_later_gets_on_from_that_moment(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    world.set(range_size=2, page_size=2)
    grants(world, *numbered(6))
    give_up(world)
    world.clock.set("2026-12-01T01:00:00Z")
    with world.deployed(monkeypatch):
        ordered(world, "Rerun", interval=NIGHT, **{"from": place})
    world.clock.set("2026-12-01T01:10:00Z")
    assert seen(world)["SecondsSinceProgress"] == pytest.approx(600, abs=1)
    killed(world, Wire(world.client), "commit", 2, kind="tick")
    world.clock.set("2026-12-01T01:40:00Z")
    assert seen(world)["SecondsSinceProgress"] == pytest.approx(1800, abs=1), "and then from its checkpoints"


def test_the_newest_checkpoint_of_all_segments_counts(client: Any) -> None:
    world = World(client, SEGMENT_COUNT=2)
    world.set(range_size=1, page_size=2)
    grants(world, *numbered(8))
    killed(world, Wire(world.client), "commit", 2)
    world.put_control(keys.progress(NIGHT, 1, "001"), checkpoint_at=f"{NIGHT}T02:30:05.000Z", done=False)
    world.clock.set("2026-11-29T03:00:05Z")
    assert seen(world)["SecondsSinceProgress"] == HOUR / 2


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (EXPECTED, {"SecondsPastDeadline": HOUR, "OldestUnfinishedAge": 5 * HOUR, "UnfinishedIntervals": 1}),
        (
            NEEDS_REPAIR,
            {
                "SecondsPastDeadline": HOUR,
                "OldestUnfinishedAge": 5 * HOUR,
                "UnfinishedIntervals": 1,
                "IntervalsNeedingRepair": 1,
            },
        ),
        (SKIPPED, {"SkippedIntervals": 1}),
        (COMPLETED, {}),
    ],
)
def test_each_state_has_its_numbers_and_an_acknowledged_one_none(
    world: World, state: str, expected: dict[str, float]
) -> None:
    killed(world, Wire(world.client), "acquire")
    world.put_control(keys.interval(NIGHT), state=state)
    world.clock.set("2026-11-29T07:00:00Z")
    assert seen(world) == QUIET | expected
    world.put_control(keys.interval(NIGHT), acknowledged_at="2026-11-29T06:30:00.000Z", acknowledged_by="ada")
    assert seen(world) == QUIET


def test_an_acknowledged_night_hides_no_other(world: World) -> None:
    killed(world, Wire(world.client), "acquire")
    world.put_control(keys.interval(NIGHT), state=SKIPPED, acknowledged_at="2026-11-29T06:30:00.000Z")
    world.clock.set("2026-11-30T07:00:00Z")
    assert seen(world)["SecondsPastDeadline"] == HOUR
    assert seen(world)["UnfinishedIntervals"] == 1


def test_lateness_is_judged_by_the_deadline_of_the_time(world: World) -> None:
    """Changing the parameter does not move the deadline of a night already recorded."""
    killed(world, Wire(world.client), "acquire")
    world.set(deadline_minutes=1_440)
    world.clock.set("2026-11-29T07:00:00Z")
    assert seen(world)["SecondsPastDeadline"] == HOUR


def test_all_metrics_are_emitted_every_time_and_returned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for now in ("2026-11-29T01:00:00Z", "2026-11-29T09:00:00Z"):
        world.clock.set(now)
        with world.deployed(monkeypatch), emitted() as numbers:
            answer = app.watchdog(event("watchdog"), lambda_context(world))
        assert set(answer) == set(WATCHDOG_METRICS)
        assert numbers == {name: [value] for name, value in answer.items()}


@pytest.mark.parametrize("sent", [None, {}, "now", event("nightly")])
def test_the_event_does_not_matter_to_the_watchdog(world: World, monkeypatch: pytest.MonkeyPatch, sent: object) -> None:
    with world.deployed(monkeypatch), emitted() as numbers:
        app.watchdog(sent, lambda_context(world))
    assert set(numbers) == set(WATCHDOG_METRICS)


def test_a_watchdog_that_cannot_read_says_nothing_rather_than_zero(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence is an alarm of its own."""

    def unavailable(_: str) -> None:
        raise refusal("InternalServerError", 500)

    down = watched(world.client, unavailable)
    with world.deployed(monkeypatch), emitted() as numbers, down, pytest.raises(TransientFailure):
        app.watchdog(event("watchdog"), lambda_context(world))
    assert numbers == {}


@pytest.mark.field("B57")
@pytest.mark.parametrize("trouble", ["the source is down", "the lease is held", "nothing answers the job"])
def test_the_age_of_a_night_is_told_whatever_becomes_of_its_run(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A killed run is in test_field_killed."""
    grants(world, *numbered(3))
    world.clock.set("2026-11-29T07:00:00Z")
    wire = Wire(world.client)

    def down(sent: str) -> None:
        if trouble == "nothing answers the job" or sent == "Query AccountsTable":
            raise refusal("InternalServerError", 500)

    with world.deployed(monkeypatch):
        if trouble == "the lease is held":
            killed(world, wire, "commit")
            assert delivered(world, event("tick"))["outcome"] == "delayed"
        else:
            with watched(world.client, down), pytest.raises(TransientFailure):
                delivered(world, event("tick"))
        with emitted() as numbers:
            app.watchdog(event("watchdog"), lambda_context(world))
    assert set(numbers) == set(WATCHDOG_METRICS)
    assert numbers["SecondsPastDeadline"][0] >= HOUR


@pytest.mark.field("B55", "B73")
def test_the_late_alarm_rings_by_itself_when_nothing_runs_for_two_nights(
    live: World, emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an emulator that evaluates alarms: the template's own alarm, fed with what the watchdog emits."""
    cloudwatch: CloudWatchClient = boto3.client("cloudwatch", endpoint_url=emulator_url)
    late = load_template()["Resources"]["LateAlarm"]["Properties"]
    dimensions: Any = [{"Name": "service", "Value": JOB}]
    told = ("AlarmDescription", "AlarmActions", "OKActions", "Dimensions", "Tags")
    definition: Any = {name: value for name, value in late.items() if name not in told}
    cloudwatch.put_metric_alarm(AlarmName="late", Dimensions=dimensions, **definition)

    def state_at(now: str) -> str:
        live.clock.set(now)
        with live.deployed(monkeypatch), emitted() as numbers:
            app.watchdog(event("watchdog"), lambda_context(live))
        (value,) = numbers[late["MetricName"]]
        data: Any = [{"MetricName": late["MetricName"], "Dimensions": dimensions, "Value": value}]
        cloudwatch.put_metric_data(Namespace=late["Namespace"], MetricData=data)
        (alarm,) = cloudwatch.describe_alarms(AlarmNames=["late"])["MetricAlarms"]
        return alarm["StateValue"]

    assert state_at("2026-11-29T01:00:00Z") == "OK", "freshly deployed"
    assert state_at("2026-11-29T05:00:00Z") == "OK", "due, and in time"
    assert state_at("2026-11-30T12:00:00Z") == "ALARM", "two nights without a trigger"


TEST_FIRE = "test_notification.py"
"""The one module that sets an alarm, as the documents tell people to; it reads what arrives, not the state."""


@pytest.mark.field("B73")
def test_no_test_believes_an_alarm_that_nobody_evaluates() -> None:
    """moto changes the state of an alarm only when it is told to."""
    for path in Path(__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
        on_moto = any(isinstance(node, ast.Name) and node.id == "mock_aws" for node in nodes)
        assert "set_alarm_state" not in called or (path.name == TEST_FIRE and "StateValue" not in texts), path
        assert not (on_moto and "describe_alarms" in called), path


states = st.sampled_from([EXPECTED, RUNNING, COMPLETED, NEEDS_REPAIR, SKIPPED])
sightings = st.builds(
    lambda state, scheduled, deadline, progress: Seen(state, scheduled, scheduled + deadline, progress),
    states,
    st.integers(0, 10**9),
    st.integers(60_000, 10**8),
    st.none() | st.integers(0, 10**9),
)


@given(st.lists(sightings, max_size=6), sightings, st.integers(0, 2 * 10**9))
def test_one_more_unfinished_night_never_makes_a_number_smaller(some: list[Seen], one: Seen, now_ms: int) -> None:
    before, after = measure(some, now_ms), measure([*some, one], now_ms)
    assert set(before) == set(WATCHDOG_METRICS)
    assert all(value >= 0 for value in before.values())
    assert all(after[name] >= before[name] for name in before)


@given(st.lists(sightings, max_size=6), st.integers(0, 2 * 10**9))
def test_late_is_exactly_what_is_unfinished_past_its_deadline(some: list[Seen], now_ms: int) -> None:
    late = [one for one in some if one.state in (EXPECTED, RUNNING, NEEDS_REPAIR) and one.deadline_ms < now_ms]
    assert (measure(some, now_ms)["SecondsPastDeadline"] > 0) == bool(late)
