"""Verify: whether the view still is as a completed run left it, and who came after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from reconciler import clock, keys
from reconciler.errors import OutOfTime
from tests.faults import PASS, Wire, meanwhile
from tests.kit import command, delivered, everything, give_up, grants, killed, numbered, ordered, refused, ticked, wait
from tests.world import JOB, NIGHT, World, event

NEXT = "2026-11-30"
ANOTHER = "another writer"


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Six accounts to grant, two a page and a range."""
    with live.deployed(monkeypatch):
        live.set(range_size=2, page_size=2)
        grants(live, *numbered(6))
        yield live


@pytest.fixture
def completed(night: World) -> World:
    assert delivered(night, event("nightly"))["outcome"] == "completed"
    night.clock.advance(60)
    return night


def live_write(world: World, name: str = "acct-0003", plan: str = "platinum") -> None:
    """A live writer that keeps the contract: it raises the version and sets the time, and leaves the rest."""
    found = [row for row in world.scan("EntitlementsTable") if row["account_id"] == name]
    row: dict[str, Any] = found[0] if found else {"segment": "000", "account_id": name}
    stamp = {"version": row.get("version", 0) + 1, "updated_at": clock.text(world.clock.wall_ms)}
    world.put_row("EntitlementsTable", **row | {"entitlements": {"plan": plan}} | stamp)


def test_a_view_that_nobody_touched_matches(completed: World) -> None:
    row = completed.interval()
    assert ordered(completed, "Verify", interval=NIGHT) == {
        "interval": NIGHT,
        "run_id": f"{JOB}/{NIGHT}/1",
        "matches": True,
        "checksum": row["checksum"],
        "view_checksum": row["checksum"],
        "view_rows": 6,
        "view_rows_now": 6,
        "touched": 0,
        "first": [],
    }


def test_what_a_live_writer_changed_after_the_run_is_named(completed: World) -> None:
    live_write(completed)
    told = ordered(completed, "Verify", interval=NIGHT)
    assert (told["matches"], told["view_checksum"]) == (False, completed.view_checksum())
    assert (told["touched"], told["view_rows_now"]) == (1, 6)
    (touched,) = told["first"]
    updated_at = clock.text(completed.clock.wall_ms)
    assert (touched["account_id"], touched["by"], touched["updated_at"][:19]) == ("acct-0003", ANOTHER, updated_at[:19])


def test_what_a_live_writer_made_after_the_run_is_named(completed: World) -> None:
    live_write(completed, "new")
    told = ordered(completed, "Verify", interval=NIGHT)
    assert (told["matches"], told["view_rows"], told["view_rows_now"]) == (False, 6, 7)
    assert [(row["account_id"], row["by"]) for row in told["first"]] == [("new", ANOTHER)]


def test_what_a_live_writer_changed_and_changed_back_is_named_though_the_checksum_matches(completed: World) -> None:
    live_write(completed)
    live_write(completed, plan="gold")
    told = ordered(completed, "Verify", interval=NIGHT)
    assert (told["matches"], told["touched"]) == (True, 1)


def test_a_live_writer_before_the_run_is_nobody(night: World) -> None:
    live_write(night, "acct-0003", "gold")
    live_write(night, "acct-0004", "silver")
    night.clock.advance(1)
    delivered(night, event("nightly"))
    told = ordered(night, "Verify", interval=NIGHT)
    assert (told["matches"], told["touched"]) == (True, 0)


@pytest.mark.parametrize(("account", "matches"), [("acct-0001", False), ("acct-0005", True)])
def test_a_live_writer_during_the_run_is_named_whether_the_run_saw_it_or_not(
    night: World, account: str, matches: bool
) -> None:
    """Before the second range is committed: the first one is behind, the last one still to be read."""

    def write() -> None:
        night.account(account, plan="platinum")
        live_write(night, account)

    Wire(night.client).next("commit", PASS, meanwhile(write))
    night.clock.step_ms = 10
    delivered(night, event("nightly"))
    told = ordered(night, "Verify", interval=NIGHT)
    assert (told["matches"], [(row["account_id"], row["by"]) for row in told["first"]]) == (
        matches,
        [(account, ANOTHER)],
    )


def test_what_a_later_interval_changed_is_named_by_its_run(completed: World) -> None:
    completed.account("acct-0002", plan="silver")
    completed.clock.set(f"{NEXT}T02:00:05Z")
    assert ticked(completed, 0) == [(NEXT, "completed")]
    told = ordered(completed, "Verify", interval=NIGHT)
    assert not told["matches"]
    assert [(row["account_id"], row["by"]) for row in told["first"]] == [("acct-0002", f"{JOB}/{NEXT}/1")]
    later = ordered(completed, "Verify", interval=NEXT)
    assert (later["matches"], later["touched"]) == (True, 0), "what the night before wrote is no offence"
    completed.clock.advance(1)
    live_write(completed, "acct-0002")
    told = ordered(completed, "Verify", interval=NIGHT)
    assert [row["by"] for row in told["first"]] == [ANOTHER], "the last one counts"


def test_after_a_rerun_only_what_came_since_its_pass_began_is_named(completed: World) -> None:
    live_write(completed)
    completed.account("acct-0003", plan="platinum")
    completed.clock.advance(60)
    ordered(completed, "Rerun", interval=NIGHT, force=True)
    assert ticked(completed) == [(NIGHT, "completed")]
    told = ordered(completed, "Verify", interval=NIGHT)
    assert (told["run_id"], told["matches"], told["touched"]) == (f"{JOB}/{NIGHT}/2", True, 0)


def test_a_resumed_run_accuses_none_of_its_own_attempts(night: World) -> None:
    give_up(night)
    ordered(night, "Rerun", interval=NIGHT)
    killed(night, Wire(night.client), "commit", 2, kind="tick")
    wait(night)
    assert ticked(night) == [(NIGHT, "completed")]
    told = ordered(night, "Verify", interval=NIGHT)
    assert (told["matches"], told["touched"]) == (True, 0)


def test_a_deleted_row_is_missed_though_nobody_can_be_named(completed: World) -> None:
    completed.delete("EntitlementsTable", "acct-0002")
    told = ordered(completed, "Verify", interval=NIGHT)
    assert (told["matches"], told["view_rows"], told["view_rows_now"], told["touched"]) == (False, 6, 5, 0)


@pytest.mark.parametrize(
    ("stamp", "by"),
    [
        ({}, []),
        ({"version": 9}, []),
        ({"updated_at": f"{NIGHT}T03:00:00.000Z"}, [ANOTHER]),
        ({"updated_at": f"{NIGHT}T03:00:00+00:00", "version": 1, "run_id": "job/2026-11-28/1"}, ["job/2026-11-28/1"]),
        ({"run_id": f"{JOB}/{NIGHT}/1", "version": 2, "run_version": 1}, [ANOTHER]),
    ],
    ids=["without a stamp", "with a version", "with a time", "with a strange name", "with the name of the run"],
)
def test_a_row_that_was_replaced_is_named_as_far_as_it_tells(
    completed: World, stamp: dict[str, Any], by: list[str]
) -> None:
    completed.put_row(
        "EntitlementsTable", segment="000", account_id="acct-0002", entitlements={"plan": "gold"}, **stamp
    )
    told = ordered(completed, "Verify", interval=NIGHT)
    assert told["matches"], "the same entitlements"
    assert [row["by"] for row in told["first"]] == by


@pytest.mark.parametrize(
    "updated_at",
    [7, 1.5, True, None, "", "yesterday", "2026-11-29T03:00:00", {"s"}, b"bytes", [], {"at": "now"}],
    ids=repr,
)
def test_whatever_another_writer_put_into_a_row_is_told_and_stops_nothing(completed: World, updated_at: Any) -> None:
    if isinstance(updated_at, float):
        updated_at = Decimal(str(updated_at))
    row: dict[str, Any] = {"segment": "000", "account_id": "acct-0002", "run_id": f"{JOB}/{NIGHT}/1", "run_version": 1}
    completed.put_row("EntitlementsTable", **row, version="x", entitlements=7, updated_at=updated_at)
    completed.put_row("EntitlementsTable", segment="000", account_id="zz", updated_at=updated_at, run_id=[])
    told = ordered(completed, "Verify", "v-1", interval=NIGHT)
    assert not told["matches"]
    assert [one["account_id"] for one in told["first"]] == ["acct-0002"]
    again = delivered(completed, command("Verify", "v-1", interval=NIGHT))
    assert again["first"]["result"]["touched"] == 1


@pytest.mark.parametrize("whose", ["the run's", "a later run's"])
def test_rows_of_a_run_that_noted_no_run_version_are_not_taken_for_another_writers(
    completed: World, whose: str
) -> None:
    if whose == "a later run's":
        completed.clock.set(f"{NEXT}T02:00:05Z")
        completed.account("acct-0003", plan="silver")
        ticked(completed)
    for row in completed.scan("EntitlementsTable"):
        del row["run_version"]
        completed.put_row("EntitlementsTable", **row)
    told = ordered(completed, "Verify", interval=NIGHT)
    later = [("acct-0003", f"{JOB}/{NEXT}/1")] if whose == "a later run's" else []
    assert [(one["account_id"], one["by"]) for one in told["first"]] == later


def test_the_answer_stays_small_and_is_remembered_however_long_the_names_are(completed: World) -> None:
    """100 names of 1000 control characters are 600 kB of JSON, and an item holds 400."""
    completed.set(page_size=100)
    for name in numbered(100):
        completed.put("EntitlementsTable", "\x01" * 1000 + name, updated_at=f"{NIGHT}T03:00:00.000Z")
    answer = delivered(completed, command("Verify", "v-1", interval=NIGHT))
    assert answer["result"]["touched"] == 100
    assert 0 < len(answer["result"]["first"]) < 100
    assert len(json.dumps(answer)) < 250_000
    assert delivered(completed, command("Verify", "v-1", interval=NIGHT))["first"] == answer


def test_rows_beyond_the_first_hundred_are_counted_only(completed: World) -> None:
    completed.set(page_size=100)
    for name in numbered(160):
        completed.put("EntitlementsTable", f"new-{name}", updated_at=f"{NIGHT}T03:00:00.000Z")
    told = ordered(completed, "Verify", interval=NIGHT)
    assert (told["touched"], len(told["first"]), told["view_rows_now"]) == (160, 100, 166)
    assert told["first"][0]["account_id"] == "new-acct-0000"


def test_rejected_and_revoked_accounts_are_verified_too(night: World) -> None:
    night.put("AccountsTable", "acct-0002", status="active", entitlements="no map")
    night.view_row("acct-0002", plan="old")
    night.view_row("gone", plan="gold")
    delivered(night, event("nightly"))
    assert (night.interval()["rejected"], night.interval()["revoked"]) == (1, 1)
    told = ordered(night, "Verify", interval=NIGHT)
    assert (told["matches"], told["touched"], told["view_rows"]) == (True, 0, 7)


def test_every_segment_is_read(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(live.client, {"SegmentCount": 3})
    grants(world, *numbered(12))
    with world.deployed(monkeypatch):
        delivered(world, event("nightly"))
        told = ordered(world, "Verify", interval=NIGHT)
        assert (told["matches"], told["view_rows_now"]) == (True, 12)
        world.clock.advance(1)
        for segment in keys.segments(3):
            world.put_row("EntitlementsTable", segment=segment, account_id="zz", updated_at=f"{NIGHT}T03:00:00Z")
        assert ordered(world, "Verify", interval=NIGHT)["touched"] == 3


def unfinished(world: World) -> None:
    give_up(world)


def skipped(world: World) -> None:
    ordered(world, "Skip", interval=NIGHT)


def rerun(world: World) -> None:
    delivered(world, event("nightly"))
    ordered(world, "Rerun", interval=NIGHT, force=True)


@pytest.mark.parametrize(("prepare", "state"), [(unfinished, "NEEDS_REPAIR"), (skipped, "SKIPPED"), (rerun, "RUNNING")])
def test_only_a_completed_interval_can_be_verified(night: World, prepare: Callable[[World], None], state: str) -> None:
    prepare(night)
    assert f"{NIGHT} is {state}: there is no checksum" in refused(night, "Verify", interval=NIGHT)
    assert "is not on record" in refused(night, "Verify", interval="2026-11-20")


def test_verifying_writes_nothing_but_its_audit_row(completed: World) -> None:
    live_write(completed)
    before = everything(completed)
    told = ordered(completed, "Verify", "v-1", interval=NIGHT, requested_by="bea", reason="an audit")
    after = everything(completed)
    (new,) = [row for row in after["ControlTable"] if row not in before["ControlTable"]]
    assert len(after["ControlTable"]) == len(before["ControlTable"]) + 1
    assert (new["event"], new["actor"], new["reason"], new["event_id"]) == ("VERIFIED", "bea", "an audit", "v-1")
    assert {name: new[name] for name in told if name != "first"} == {
        name: value for name, value in told.items() if name != "first"
    }
    assert [after[name] for name in ("AccountsTable", "EntitlementsTable")] == [
        before[name] for name in ("AccountsTable", "EntitlementsTable")
    ]


def test_a_view_too_large_for_the_time_is_an_error_and_no_half_answer(completed: World) -> None:
    before = everything(completed)
    with pytest.raises(OutOfTime):
        delivered(completed, command("Verify", interval=NIGHT), remaining_s=75)
    assert everything(completed) == before
