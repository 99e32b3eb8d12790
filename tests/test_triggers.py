"""Events become triggers, or are refused by the name of their bad field before anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from reconciler import clock
from reconciler.errors import InvalidTrigger, VerbUnavailable
from reconciler.settings import Settings
from reconciler.triggers import VERBS, parse_trigger
from tests.kit import delivered, environ, everything, grants, numbered, watched
from tests.world import NIGHT, World, event

NOTHING: Any = ...
SETTINGS = Settings.from_env(environ())
NOW_MS = clock.parse_ms(f"{NIGHT}T02:00:05Z")
PLACEHOLDER = "<aws.scheduler.scheduled-time>"


def operator(**changes: Any) -> dict[str, Any]:
    """A Rerun as a person sends it; a change to NOTHING leaves a field out."""
    detail = {"interval": "2026-11-28", "requested_by": "ada", "reason": "a bad import", "from": "start"}
    sent = {"source": "operator", "detail-type": "Rerun", "id": "rerun-1", "detail": detail} | changes
    return {name: value for name, value in sent.items() if value is not NOTHING}


def scheduled(**changes: Any) -> dict[str, Any]:
    sent = event("nightly") | {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in sent.items() if value is not NOTHING}


def at(time: Any) -> dict[str, Any]:
    return scheduled(time=time)


def verb(name: Any) -> dict[str, Any]:
    return operator(**{"detail-type": name})


def cases(field: str, sent: Callable[[Any], object], *values: Any) -> list[Any]:
    """One refusal, naming `field`, for each value."""
    return [pytest.param(sent(value), field, id=f"{field} {value!r}") for value in values]


REFUSED = [
    *cases("event", lambda value: value, None, "nightly", 7, [], [event()], True),
    *cases("source", lambda value: scheduled(source=value), NOTHING, None, "", "aws.s3", "Aws.Scheduler", 7, ["x"], {}),
    *cases("detail-type", lambda value: scheduled(detail_type=value), NOTHING, None, "", "scheduled event", 7, []),
    *cases("detail", lambda value: scheduled(detail=value), NOTHING, None, "nightly", []),
    *cases("detail.trigger", event, None, "", "Nightly", "operator", 7, []),
    *cases("detail.trigger", lambda value: scheduled(detail=value), {}, {"trigger": "watchdog"}),
    *cases("time", at, NOTHING, None, "", 1_795_917_600, ["2026-11-29T02:00:00Z"], "now"),
    *cases("time", at, "2026-11-29", "2026-11-29T02:00:00", "2026-11-29 02:00"),
    *cases("time", at, "2026-02-30T02:00:00Z", "2026-11-29T25:00Z", "29.11.2026 02:00Z"),
    *cases("time", at, PLACEHOLDER, f" {PLACEHOLDER}", "<aws.scheduler.execution-id>"),
    *cases("time", at, "2026-11-29T02:05:05.001Z", "2026-11-30T02:00:00Z"),
    *cases("time", at, "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"),
    *cases("time", at, "0999-12-31T00:00:00Z", "1969-12-31T23:59:59Z"),
    *cases("detail-type", verb, NOTHING, None, "", "rerun", "Delete", 7, []),
    *cases("id", lambda value: operator(id=value), NOTHING, None, "", " ", 7, [], "<aws.scheduler.execution-id>"),
    *cases("detail", lambda value: operator(detail=value), NOTHING, None, "x"),
    *cases("detail.requested_by", lambda value: operator(detail={"requested_by": value, "reason": "x"}), None, " ", 7),
    *cases("detail.reason", lambda value: operator(detail={"requested_by": "ada", "reason": value}), None, " ", 7),
]


@pytest.fixture(scope="module")
def settled() -> Iterator[tuple[World, dict[str, Any]]]:
    """A deployed job that has had a night, and every row it has."""
    with mock_aws(), pytest.MonkeyPatch.context() as monkeypatch:
        world = World(boto3.client("dynamodb"))
        grants(world, *numbered(3))
        with world.deployed(monkeypatch):
            delivered(world, event("nightly"))
            yield world, everything(world)


def refuse(settled: tuple[World, dict[str, Any]], sent: object, error: type[Exception]) -> Exception:
    """Deliver an event that must be refused, without a request sent or a row changed."""
    world, before = settled
    world.clock.wall_ms = NOW_MS - world.clock.step_ms
    with watched(world.client) as requests, pytest.raises(error) as refused:
        delivered(world, sent)
    assert requests == []
    assert everything(world) == before
    return refused.value


@pytest.mark.parametrize(("sent", "field"), REFUSED)
def test_a_bad_event_is_refused_by_the_name_of_its_field_and_changes_nothing(
    settled: tuple[World, dict[str, Any]], sent: object, field: str
) -> None:
    refused = refuse(settled, sent, InvalidTrigger)
    assert isinstance(refused, InvalidTrigger)
    assert refused.field == field
    assert str(refused).startswith(f"invalid trigger: {field}: ")


def test_a_placeholder_is_told_as_what_it_is(settled: tuple[World, dict[str, Any]]) -> None:
    assert f"{PLACEHOLDER} was not substituted" in str(refuse(settled, scheduled(time=PLACEHOLDER), InvalidTrigger))


@pytest.mark.parametrize("name", VERBS)
def test_an_operator_event_is_understood_and_refused_as_unavailable(
    settled: tuple[World, dict[str, Any]], name: str
) -> None:
    sent = verb(name)
    trigger = parse_trigger(sent, now_ms=NOW_MS, settings=SETTINGS)
    assert (trigger.kind, trigger.slot, trigger.verb) == ("operator", "operator#rerun-1", name)
    assert f"{name} is not available" in str(refuse(settled, sent, VerbUnavailable))


@pytest.mark.parametrize("kind", ["nightly", "tick", "watchdog"])
def test_the_slot_is_the_kind_and_the_scheduled_time(kind: str) -> None:
    trigger = parse_trigger(event(kind), now_ms=NOW_MS, settings=SETTINGS)
    assert (trigger.kind, trigger.slot, trigger.interval_id) == (kind, f"{kind}#2026-11-29T02:00:00.000Z", NIGHT)


@pytest.mark.parametrize(
    "told",
    [
        "2026-11-29T02:00:00Z",
        "2026-11-29T02:00:00.000Z",
        "2026-11-29T02:00Z",
        "2026-11-29T02:00:00+00:00",
        "2026-11-29T03:00:00+01:00",
        "2026-11-28T21:00:00-05:00",
        "2026-11-29T07:45:00+05:45",
    ],
)
def test_one_moment_is_one_slot_however_it_is_written(told: str) -> None:
    trigger = parse_trigger(event("nightly", told), now_ms=NOW_MS, settings=SETTINGS)
    assert (trigger.slot, trigger.interval_id) == ("nightly#2026-11-29T02:00:00.000Z", NIGHT)


def test_a_time_one_tick_ahead_is_the_last_that_is_taken() -> None:
    trigger = parse_trigger(event("tick", "2026-11-29T02:05:05Z"), now_ms=NOW_MS, settings=SETTINGS)
    assert trigger.time_ms == NOW_MS + SETTINGS.tick_ms


def test_a_time_long_past_is_still_a_trigger() -> None:
    """What is due comes from the calendar; a delivery may be late."""
    assert parse_trigger(event("tick", "2020-01-01T00:00:00Z"), now_ms=NOW_MS, settings=SETTINGS).kind == "tick"


def test_the_event_of_a_plain_rule_counts_as_a_tick() -> None:
    rule = {
        "version": "0",
        "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "123456789012",
        "time": "2026-11-29T02:00:00Z",
        "region": "eu-west-1",
        "resources": ["arn:aws:events:eu-west-1:123456789012:rule/every-five-minutes"],
        "detail": {},
    }
    trigger = parse_trigger(rule, now_ms=NOW_MS, settings=SETTINGS)
    assert (trigger.kind, trigger.slot) == ("tick", "tick#2026-11-29T02:00:00.000Z")


WORDS = st.sampled_from(["aws.scheduler", "aws.events", "operator", "Scheduled Event", "Rerun", "nightly", PLACEHOLDER])
MOMENTS = st.datetimes(timezones=st.none() | st.timezones()).map(lambda moment: moment.isoformat())
LEAVES = st.none() | st.integers() | st.text(max_size=5) | WORDS | MOMENTS
NAMES = ("source", "detail-type", "time", "id", "detail", "trigger", "requested_by", "reason")
ANYTHING = st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from(NAMES), inner), max_leaves=12)
NEARLY = st.fixed_dictionaries(
    {"source": WORDS, "detail-type": WORDS, "time": MOMENTS, "detail": st.fixed_dictionaries({"trigger": WORDS})}
)


@given(ANYTHING | NEARLY)
def test_whatever_comes_it_is_a_trigger_or_refused(sent: object) -> None:
    with suppress(InvalidTrigger):
        assert parse_trigger(sent, now_ms=NOW_MS, settings=SETTINGS).slot
