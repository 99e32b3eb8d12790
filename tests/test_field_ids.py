"""Account ids that look like numbers, hold separators, or cannot be ids at all."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import keys
from reconciler.errors import InvalidTrigger, SourceOrderError
from reconciler.merge import Page
from reconciler.settings import Settings
from reconciler.source import SourceRecord
from reconciler.triggers import parse_trigger
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.faults import PASS, Wire, meanwhile
from tests.kit import Killed, Rows, grants, keys_as_dynamodb_takes_them, kill, killed, later, wait
from tests.world import World

LOOK_LIKE_NUMBERS = ("012345670123", "000000000001", "1e10", "0x10", "null", "true", "NaN", "2026-11-29", " 7")
WITH_SEPARATORS = ("A", "A#", "A#B", "#B", "B", "a/b", "a|b", "a b", "AUDIT#", "é", "\u00e9\u0301", "💡", "\uffff")
TOO_LONG = "x" * 1_000 + "é" * 50  # 1,100 bytes
NO_IDS = ("", TOO_LONG)


@pytest.mark.field("B33")
def test_an_id_that_looks_like_a_number_stays_the_text_it_is(world: World) -> None:
    world.set(range_size=2, page_size=2)
    grants(world, *LOOK_LIKE_NUMBERS)
    killed(world, Wire(world.client), "commit", 3)
    (result,) = later(world)
    assert result.outcome == "completed"
    assert world.versions() == dict.fromkeys(LOOK_LIKE_NUMBERS, 1)
    assert result.resumed_after == sorted(LOOK_LIKE_NUMBERS)[3]


@pytest.mark.field("B33")
@pytest.mark.parametrize("number", [12345670123, 0, 1.5])
@pytest.mark.parametrize("beside", [(), ("a",)])
def test_an_id_that_is_no_text_is_refused_by_name_and_never_made_one(
    world: World, number: Any, beside: tuple[str, ...]
) -> None:
    class Numbers(Rows[SourceRecord]):
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
            return Page(tuple(self.rows), None)

    source = Numbers([SourceRecord(name, "active", {"plan": "gold"}) for name in (*beside, number)])
    with pytest.raises(SourceOrderError, match=f"{number!r} is not text"):
        world.run("nightly", job=lambda invocation: Job(source, EntitlementsTable(invocation)))
    assert world.view() == {}


@pytest.mark.field("B33")
def test_a_name_in_the_environment_that_looks_like_a_number_stays_the_text_it_is(world: World) -> None:
    settings = Settings.from_env(world.environ | {"JOB_NAME": "012345670123"})
    assert settings.job_name == "012345670123"


@pytest.mark.field("B33")
def test_an_event_with_a_bare_number_for_an_id_is_refused_by_name(world: World) -> None:
    text = '{"source": "operator", "detail-type": "Rerun", "id": 12, "detail": {}}'
    with pytest.raises(InvalidTrigger, match=r"id: must be a text.*not 12") as refused:
        parse_trigger(json.loads(text), now_ms=0, settings=world.settings)
    assert refused.value.field == "id"


@pytest.mark.field("B35")
def test_ids_with_separators_are_distinct_accounts(world: World) -> None:
    for index, name in enumerate(WITH_SEPARATORS):
        world.account(name, seats=index)
    (result,) = world.run("nightly")
    assert (result.outcome, result.accounts) == ("completed", len(WITH_SEPARATORS))
    assert world.view() == {name: {"seats": index} for index, name in enumerate(WITH_SEPARATORS)}


@pytest.mark.field("B35")
def test_rejected_ids_with_separators_have_a_row_each(world: World) -> None:
    for name in WITH_SEPARATORS:
        world.put("AccountsTable", name, status="active", entitlements="no map")
    world.run("nightly")
    rejected = [row["account_id"] for row in world.audit() if row["event"] == "REJECTED"]
    assert sorted(rejected) == sorted(WITH_SEPARATORS)


@pytest.mark.field("B35")
@pytest.mark.parametrize("range_size", [100, 1])
def test_an_id_that_cannot_be_stored_is_recorded_and_the_rest_goes_on(world: World, range_size: int) -> None:
    """Only a source of another kind can hold such an id; the sample tables cannot."""
    world.client.meta.events.register("provide-client-params.dynamodb.Query", keys_as_dynamodb_takes_them)
    world.set(range_size=range_size, page_size=3)
    names = sorted((*NO_IDS, "a", "w", "x", "y", "z"))
    source = Rows([SourceRecord(name, "active", {"plan": "gold"}) for name in names])
    world.view_row("xx", plan="gold")  # sorts before the long one; nobody's, so to be revoked
    world.view_row("xy", plan="gold")  # sorts behind it
    wire = Wire(world.client)
    for _ in range(10):  # a kill after every range, so that a run resumes behind each of the two
        wire.next("commit", PASS, meanwhile(kill))
        with suppress(Killed):
            world.run("nightly", job=lambda invocation: Job(source, EntitlementsTable(invocation)))
        wait(world)
    assert (world.interval()["state"], world.interval()["accounts"]) == ("COMPLETED", 9)
    assert world.versions() == dict.fromkeys("awxyz", 1) | {"xx": 2, "xy": 2}
    reasons = {row["account_id"]: row["reason"] for row in world.audit() if row["event"] == "REJECTED"}
    assert reasons[""] == "account_id is empty"
    assert reasons[TOO_LONG.encode()[:1024].decode("utf-8", "ignore")] == "account_id is longer than 1024 bytes"


@pytest.mark.field("B35")
@given(st.text(min_size=1, max_size=12), st.integers(1, 24))
def test_the_floor_of_an_id_has_the_same_rows_above_and_below(tail: str, cut: int) -> None:
    stem = "x" * (1024 - cut)
    floor = keys.floor(stem + tail)
    assert floor <= stem + tail
    assert len(floor.encode()) <= 1024
    for row in (stem, stem + tail[:1], stem + tail[:6], stem + "a", stem + "\U0010ffff", floor, floor + "\x00"):
        if len(row.encode()) <= 1024:
            assert (row <= stem + tail) == (row <= floor)
