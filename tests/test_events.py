"""The samples in events/: one for every trigger and verb, refused until their placeholders are filled in."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.commands import FIELDS, VERBS
from reconciler.errors import InvalidTrigger
from reconciler.settings import Settings
from reconciler.triggers import SCHEDULED, Trigger, parse_trigger
from tests.kit import environ
from tools.invoke import stamped

EVENTS = {path.stem: path for path in sorted((Path(__file__).parents[1] / "events").glob("*.json"))}
OF_AN_OPERATOR = [name for name, path in EVENTS.items() if '"operator"' in path.read_text("utf-8")]
NOW = datetime(2026, 11, 29, 17, 38, 12, tzinfo=UTC)
PLACEHOLDERS = {"time": "<aws.scheduler.scheduled-time>", "id": "<unique>", "detail.interval": "<last-night>"}


def sample(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(EVENTS[name].read_text("utf-8"))
    return event


def parsed(event: object) -> Trigger:
    return parse_trigger(event, now_ms=round(NOW.timestamp() * 1000), settings=Settings.from_env(environ()))


def filled(name: str) -> dict[str, Any]:
    return stamped(sample(name), environ(), NOW)


def flat(event: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event by the names that messages give them."""
    detail = {f"detail.{name}": value for name, value in event["detail"].items()}
    return {name: value for name, value in event.items() if name != "detail"} | detail


def test_every_schedule_and_every_verb_has_a_sample() -> None:
    scheduled = {sample(name)["detail"]["trigger"] for name in EVENTS if name not in OF_AN_OPERATOR}
    assert scheduled == set(SCHEDULED)
    assert {sample(name)["detail-type"] for name in OF_AN_OPERATOR} == set(VERBS)


@pytest.mark.parametrize("name", EVENTS)
def test_a_stamped_sample_is_understood(name: str) -> None:
    event = filled(name)
    assert not re.search("[<>]", json.dumps(event))
    trigger = parsed(event)
    if name in OF_AN_OPERATOR:
        assert trigger.command is not None
        assert trigger.command.verb == event["detail-type"]
        assert trigger.slot == f"operator#{event['id']}"
        if "interval" in FIELDS[trigger.command.verb]:
            assert trigger.command.interval == "2026-11-29", "the last night that was due"
    else:
        assert trigger.slot == f"{name}#{trigger_time(name)}"


def trigger_time(name: str) -> str:
    return "2026-11-29T02:00:00.000Z" if name == "nightly" else "2026-11-29T17:38:12.000Z"


@pytest.mark.parametrize("name", OF_AN_OPERATOR)
def test_every_stamp_is_another_command(name: str) -> None:
    assert filled(name)["id"] != filled(name)["id"]


@pytest.mark.parametrize("name", OF_AN_OPERATOR)
def test_a_stamp_changes_nothing_but_the_placeholders(name: str) -> None:
    before, after = flat(sample(name)), flat(filled(name))
    changed = {field for field in before | after if before.get(field) != after.get(field)}
    assert changed == {field for field, value in before.items() if value == PLACEHOLDERS.get(field)}


@pytest.mark.parametrize("name", EVENTS)
def test_a_sample_that_nobody_stamped_is_refused_by_the_name_of_its_field(name: str) -> None:
    event = sample(name)
    placeholders = [field for field, value in flat(event).items() if value == PLACEHOLDERS.get(field)]
    assert placeholders
    for field in placeholders:
        one_left = filled(name)
        holder, _, leaf = field.rpartition(".")
        (one_left[holder] if holder else one_left)[leaf] = PLACEHOLDERS[field]
        with pytest.raises(InvalidTrigger) as refused:
            parsed(one_left)
        assert refused.value.field == field
        assert PLACEHOLDERS[field] in str(refused.value)


def test_the_sample_for_a_stop_by_the_guard_states_a_bound() -> None:
    assert sample("rerun-after-guard")["detail"]["revocation_bound"] > 0
    assert "revocation_bound" not in sample("rerun")["detail"]
