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
from reconciler.commands import FIELDS, REQUIRED, VERBS
from reconciler.errors import InvalidTrigger
from reconciler.settings import Settings
from reconciler.triggers import parse_trigger
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


def asking(verb: str, /, **changes: Any) -> dict[str, Any]:
    """A command of that verb with what it needs; changes are to its detail, NOTHING leaves a field out."""
    needed = {"interval": "2026-11-28", "segment": "000"}
    detail = {"requested_by": "ada", "reason": "a bad import"}
    detail |= {name: value for name, value in needed.items() if name == REQUIRED.get(verb)} | changes
    detail = {name: value for name, value in detail.items() if value is not NOTHING}
    return {"source": "operator", "detail-type": verb, "id": "command-1", "detail": detail}


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
    *cases("id", lambda value: operator(id=value), "x" * 257, "\ud800"),
]


NO_TEXT: list[Any] = [7, True, [], {}, ["x"]]
NO_DATE: list[Any] = [*NO_TEXT, "", " ", "x", "28.11.2026", "2026-11-31", "2026-11-28 ", " 2026-11-28", "20261128"]
NO_DATE += ["2026-W48-6", "2026-11-28T02:00:00Z", "2026-11", "٢٠٢٦-١١-٢٨", PLACEHOLDER]

BAD_FIELDS: dict[str, list[Any]] = {
    "interval": [*NO_DATE, "2026-11-30", "9999-12-31"],
    "through": [*NO_DATE, "2026-11-27", "2027-02-26", "0001-01-01", "9999-12-31"],
    "from": [*NO_TEXT, "", "Start", "end", "checkpoint "],
    "force": ["", "true", "false", 0, 1, [], {}],
    "revocation_bound": [*NO_TEXT[1:], "", "5", -1, 1.0, 1.5, 1_000_000_001],
    "segment": [*NO_TEXT, "", "0", "00", "001", "0000", "-01", "000 "],
    "after": [*NO_TEXT, "\ud800", "x" * 1025, "é" * 513],
    "requested_by": [*NO_TEXT, None, NOTHING, "", "  ", "x" * 257, "\udfff"],
    "reason": [*NO_TEXT, None, NOTHING, "", "\n", "x" * 2001, "\ud800x"],
}
"""Field → what it must never be, whatever the verb."""

GOOD_FIELDS: dict[str, list[Any]] = {
    "interval": ["2026-11-28", "2026-11-29", "2024-02-29", "0001-01-01"],
    "through": ["2026-11-28", "2026-11-29", "2027-02-25"],
    "from": ["checkpoint", "start"],
    "force": [True, False],
    "revocation_bound": [0, 1, 1_000_000_000],
    "segment": ["000"],
    "after": ["", "acct-1", "ä", "\U0001f600", "x" * 1024],
}


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


@pytest.mark.parametrize("verb", VERBS)
def test_every_field_of_a_command_is_checked_before_anything_is_done(
    settled: tuple[World, dict[str, Any]], verb: str
) -> None:
    for field in ("requested_by", "reason", *FIELDS[verb]):
        for value in BAD_FIELDS[field]:
            sent = asking(verb, **{field: value})
            with pytest.raises(InvalidTrigger) as refused:
                parse_trigger(sent, now_ms=NOW_MS, settings=SETTINGS)
            assert refused.value.field == f"detail.{field}", (field, value)
        refuse(settled, sent, InvalidTrigger)


@pytest.mark.parametrize("verb", VERBS)
def test_a_field_that_a_verb_does_not_know_is_refused_and_not_ignored(verb: str) -> None:
    """A misspelt `from` must not become a rerun from wherever."""
    strange = {"From", "intervals", "note", "", *GOOD_FIELDS} - set(FIELDS[verb])
    for field in sorted(strange):
        for value in (GOOD_FIELDS.get(field, ["x"])[0], None):
            with pytest.raises(InvalidTrigger, match=f"{verb} has no such field, only requested_by, reason") as refused:
                parse_trigger(asking(verb, **{field: value}), now_ms=NOW_MS, settings=SETTINGS)
            assert refused.value.field == f"detail.{field}"


@pytest.mark.parametrize("verb", REQUIRED)
@pytest.mark.parametrize("value", [None, NOTHING])
def test_a_command_without_the_field_it_needs_is_refused(verb: str, value: Any) -> None:
    with pytest.raises(InvalidTrigger, match=f"{verb} needs it") as refused:
        parse_trigger(asking(verb, **{REQUIRED[verb]: value}), now_ms=NOW_MS, settings=SETTINGS)
    assert refused.value.field == f"detail.{REQUIRED[verb]}"


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_is_understood_with_each_of_its_fields(verb: str) -> None:
    for field in FIELDS[verb]:
        for value in GOOD_FIELDS[field]:
            trigger = parse_trigger(asking(verb, **{field: value}), now_ms=NOW_MS, settings=SETTINGS)
            command = trigger.command
            assert command is not None
            assert (trigger.kind, trigger.slot, trigger.time_ms) == ("operator", "operator#command-1", NOW_MS)
            assert (command.verb, command.id, command.requested_by) == (verb, "command-1", "ada")
            assert command.asked[field] == value
            assert command.interval == command.asked.get("interval", "")
    optional = [field for field in FIELDS[verb] if field != REQUIRED.get(verb)]
    trigger = parse_trigger(asking(verb, **dict.fromkeys(optional)), now_ms=NOW_MS, settings=SETTINGS)
    assert trigger.command
    assert set(trigger.command.asked) == {*filter(None, [REQUIRED.get(verb)])}, "null is as good as left out"


def test_a_command_may_name_an_interval_up_to_one_tick_ahead() -> None:
    """So that a clock that is a little slow refuses nobody."""
    sent = asking("Skip", interval=NIGHT)
    due_ms = clock.parse_ms(f"{NIGHT}T02:00:00Z")
    assert parse_trigger(sent, now_ms=due_ms - SETTINGS.tick_ms, settings=SETTINGS).command
    with pytest.raises(InvalidTrigger, match=f"detail.interval: {NIGHT} lies in the future"):
        parse_trigger(sent, now_ms=due_ms - SETTINGS.tick_ms - 1, settings=SETTINGS)


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


VALUES = st.sampled_from(
    [value for values in (BAD_FIELDS | GOOD_FIELDS).values() for value in values if value is not NOTHING]
)
DETAILS = st.dictionaries(st.sampled_from([*BAD_FIELDS, "else"]), LEAVES | VALUES, max_size=5)
COMMANDS = st.builds(asking, st.sampled_from(VERBS)).flatmap(
    lambda sent: DETAILS.map(lambda detail: sent | {"detail": sent["detail"] | detail})
)


@given(ANYTHING | NEARLY | COMMANDS)
def test_whatever_comes_it_is_a_trigger_or_refused(sent: object) -> None:
    with suppress(InvalidTrigger):
        assert parse_trigger(sent, now_ms=NOW_MS, settings=SETTINGS).slot
