"""Rerun: an interval again, under its own name, with its history kept and every earlier holder shut out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reconciler import clock, keys
from reconciler.commit import commit
from reconciler.errors import LeaseRowMissing, TransientFailure
from reconciler.records import COMPLETED, NEEDS_REPAIR, RUNNING, SKIPPED
from reconciler.scan import Sides
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from tests.faults import NEVER_SENT, PASS, Wire, Writer, meanwhile
from tests.kit import (
    command,
    delivered,
    everything,
    give_up,
    grants,
    hold,
    killed,
    numbered,
    ordered,
    overtaken,
    refused,
    ticked,
    wait,
)
from tests.world import JOB, NIGHT, World, event

NEXT = "2026-11-30"
FIRST_RUN, SECOND_RUN = f"{JOB}/{NIGHT}/1", f"{JOB}/{NIGHT}/2"
INTERVAL = keys.interval(NIGHT)


def prepared(world: World) -> World:
    """Six accounts to grant, two a page and a range."""
    world.set(range_size=2, page_size=2)
    grants(world, *numbered(6))
    return world


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with live.deployed(monkeypatch):
        yield prepared(live)


@pytest.fixture
def completed(night: World) -> World:
    """The night is over, and its source has changed since."""
    assert delivered(night, event("nightly"))["outcome"] == "completed"
    for name in numbered(6):
        night.account(name, plan="silver")
    return night


@pytest.fixture
def broken(night: World) -> World:
    """The night committed one of three ranges and needs repair."""
    give_up(night)
    return night


def rows_of(world: World, event: str, interval_id: str = NIGHT) -> list[dict[str, Any]]:
    return [row for row in world.audit(interval_id) if row["event"] == event]


# -------------------------------------------------------------------------------------------------- a pass of its own


def test_a_forced_rerun_that_is_killed_is_resumed_in_its_own_pass(completed: World) -> None:
    first_started_at = completed.interval()["first_started_at"]
    told = ordered(completed, "Rerun", interval=NIGHT, force=True)
    assert (told["run_id"], told["pass"], told["from"]) == (SECOND_RUN, 2, "start")
    killed(completed, Wire(completed.client), "commit", 2, kind="tick", owner="the dead")
    assert completed.progress(pass_no=2)["checkpoint"] == "acct-0001"
    wait(completed)
    assert ticked(completed) == [(NIGHT, "completed")]
    row = completed.interval()
    assert (row["state"], row["run_id"], row["pass"], row["rerun"]) == (COMPLETED, SECOND_RUN, 2, 1)
    assert (row["accounts"], row["changed"], row["ranges"]) == (6, 6, 3), "of the whole pass, each account once"
    assert row["checksum"] == completed.view_checksum()
    assert row["first_started_at"] == first_started_at
    assert set(completed.versions().values()) == {2}
    assert {row["run_id"] for row in completed.scan("EntitlementsTable")} == {SECOND_RUN}
    assert completed.progress(pass_no=1)["checkpoint"] == "acct-0005", "the first pass stays on record"
    again = ["RERUN", "STARTED", "TAKEOVER", "COMPLETED"]
    assert completed.events() == ["OBSERVED", "STARTED", "COMPLETED", *again]
    (takeover,) = rows_of(completed, "TAKEOVER")
    assert (takeover["run_id"], takeover["loser"], takeover["checkpoint"]) == (SECOND_RUN, "the dead", "acct-0001")


def test_a_rerun_from_the_start_is_a_new_pass_and_keeps_the_old_totals_in_the_audit(completed: World) -> None:
    before = completed.interval()
    ordered(completed, "Rerun", interval=NIGHT, force=True)
    row = completed.interval()
    assert (row["state"], row["segments"], row["revoked"]) == (RUNNING, {}, 0)
    assert not {"checksum", "accounts", "granted", "view_rows", "completed_at", "late_by_s"} & set(row)
    for kept in ("first_observed_at", "first_started_at", "scheduled_at", "deadline_at", "segment_count"):
        assert row[kept] == before[kept]
    (told,) = rows_of(completed, "RERUN")
    assert told["before"] == before
    assert (told["before"]["checksum"], told["before"]["granted"]) == (completed.view_checksum(), 6)
    assert ticked(completed) == [(NIGHT, "completed")]
    assert rows_of(completed, "RERUN") == [told]


def test_the_audit_alone_tells_who_reran_what_when_and_why(completed: World) -> None:
    asked_ms = completed.clock.wall_ms
    ordered(completed, "Rerun", "r-1", interval=NIGHT, force=True, requested_by="bea", reason="a bad import")
    killed(completed, Wire(completed.client), "commit", 2, kind="tick", owner="worker-2")
    wait(completed)
    ticked(completed)
    audit = sorted(completed.audit(), key=lambda row: (row["at"], row["sk"]))
    (told,) = [row for row in audit if row["event"] == "RERUN"]
    assert (told["actor"], told["reason"], told["event_id"], told["verb"]) == ("bea", "a bad import", "r-1", "Rerun")
    assert (told["run_id"], told["pass"], told["rerun"], told["from"]) == (SECOND_RUN, 2, 1, "start")
    assert (told["why"], told["state_before"]) == (f"{NIGHT} is COMPLETED", COMPLETED)
    assert told["fenced"] == [{"segment": "000", "generation": 2}]
    assert told["asked"] == {"interval": NIGHT, "force": True}
    assert 0 <= clock.parse_ms(told["at"]) - asked_ms < 1000
    after = audit[audit.index(told) + 1 :]
    assert [(row["event"], row["run_id"], row["generation"]) for row in after] == [
        ("STARTED", SECOND_RUN, 3),
        ("TAKEOVER", SECOND_RUN, 4),
        ("COMPLETED", SECOND_RUN, 4),
    ]


def test_the_answer_tells_what_the_next_tick_will_do(broken: World) -> None:
    assert delivered(broken, command("Rerun", "r-1", interval=NIGHT)) == {
        "trigger": "operator",
        "slot": "operator#r-1",
        "verb": "Rerun",
        "asked": {"interval": NIGHT},
        "outcome": "done",
        "result": {
            "interval": NIGHT,
            "run_id": FIRST_RUN,
            "pass": 1,
            "rerun": 1,
            "from": "checkpoint",
            "why": "no later interval has committed since",
            "state_before": NEEDS_REPAIR,
            "revocation_bound": None,
            "paused": False,
            "added": [],
        },
    }
    assert ticked(broken, 1) == [(NIGHT, "completed")]
    assert broken.interval()["accounts"] == 6
    assert set(broken.versions().values()) == {1}, "what was committed is not committed again"


# -------------------------------------------------------------------------------------------- nobody of an earlier pass


def test_a_rerun_is_refused_while_any_segment_is_held(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = prepared(World(live.client, {"SegmentCount": 2}))
    with world.deployed(monkeypatch):
        delivered(world, event("nightly"))
        world.clock.set(f"{NEXT}T02:00:05Z")
        wire = Wire(world.client)
        killed(world, wire, "complete", 2, owner="worker-7")
        lease = world.lease("001")
        until = clock.text(lease["expires_at_ms"])
        why = refused(world, "Rerun", interval=NIGHT, force=True)
        assert f"worker-7 holds segment 001 until {until}" in why
        assert "ReleaseLease" in why
        world.clock.step_ms = 0
        world.clock.advance((lease["expires_at_ms"] + world.settings.skew_ms - world.clock.wall_ms) / 1000)
        refused(world, "Rerun", interval=NIGHT, force=True)
        world.clock.advance(0.001)
        assert ordered(world, "Rerun", interval=NIGHT, force=True)["pass"] == 2


@pytest.mark.parametrize("token", ["same", "other"])
@pytest.mark.parametrize("moment", ["before it begins", "while it works", "when it is over"])
def test_a_completion_of_the_earlier_pass_is_refused_after_the_rerun(
    live: World, monkeypatch: pytest.MonkeyPatch, moment: str, token: str
) -> None:
    """And so is each of its commits, whether the service remembers them or not."""
    prepared(live)
    wire = Wire(live.client)
    with live.deployed(monkeypatch):
        delivered(live, event("nightly"))
        earlier = [*wire.requests("acquire"), *wire.requests("commit"), *wire.requests("complete")]
        assert len(earlier) == 5
        ordered(live, "Rerun", interval=NIGHT, force=True)
        if moment == "while it works":
            killed(live, wire, "commit", 2, kind="tick")
        elif moment == "when it is over":
            assert ticked(live) == [(NIGHT, "completed")]
        resent(live, earlier, token)
        if moment != "when it is over":
            wait(live)
            assert ticked(live) == [(NIGHT, "completed")]
    assert live.interval()["run_id"] == SECOND_RUN


@pytest.mark.parametrize("place", ["start", "checkpoint"])
@pytest.mark.parametrize("writer", ["commit", "complete", "end"])
def test_a_write_that_arrives_only_after_the_rerun_is_refused(
    live: World, monkeypatch: pytest.MonkeyPatch, writer: Writer, place: str
) -> None:
    prepared(live)
    wire = Wire(live.client)
    if writer == "end":
        wire.next("commit", meanwhile(lambda: live.clock.advance(100)))
    for lost in ("end", writer):
        wire.next(lost, *([PASS] if lost == "commit" else []), then=NEVER_SENT)
    with live.deployed(monkeypatch):
        with suppress(TransientFailure):
            delivered(live, event("nightly"))
        late = wire.requests(writer)[-1:]
        for lost in ("end", writer):
            wire.next(lost)
        wait(live)
        ordered(live, "Rerun", interval=NIGHT, **{"from": place})
        resent(live, late, "other")
        assert ticked(live) == [(NIGHT, "completed")]
        resent(live, late, "other")
    assert live.interval()["run_id"] == (SECOND_RUN if place == "start" else FIRST_RUN)
    assert set(live.versions().values()) == {1}


def test_a_delay_that_is_noted_only_after_the_rerun_is_refused(night: World) -> None:
    ordered(night, "Pause")
    wire = Wire(night.client)
    ticked(night, 0)
    late = wire.requests("delay")
    assert set(night.interval()["delays"]) == {"paused"}
    ordered(night, "Resume")
    ordered(night, "Rerun", interval=NIGHT)
    resent(night, late, "other")
    assert night.interval()["delays"] == {}


def test_a_late_holder_that_commits_just_in_time_keeps_its_lease_from_a_rerun(night: World) -> None:
    night.run(remaining_s=60)
    late = hold(night, "late")
    wait(night)
    invocation = night.invocation("late")
    sides = Sides(AccountsTable(invocation), EntitlementsTable(invocation), "000", 2)
    renew = meanwhile(lambda: commit(sides.between(None, "acct-0001"), late, invocation=invocation))
    Wire(night.client).next("verb", renew)
    assert "late holds segment 000" in overtaken(night, "Rerun", interval=NIGHT)
    assert (night.interval()["rerun"], night.lease()["owner"]) == (0, "late")


def test_a_rerun_that_meets_a_skip_is_decided_anew(night: World) -> None:
    ticked(night, remaining_s=60)
    Wire(night.client).next("verb", meanwhile(lambda: ordered(night, "Skip", interval=NIGHT)))
    assert ordered(night, "Rerun", interval=NIGHT)["state_before"] == SKIPPED
    assert "skip" not in night.interval()


def resent(world: World, requests: list[dict[str, Any]], token: str) -> None:
    """Requests that come late, and change nothing."""
    before = everything(world)
    for index, request in enumerate(requests):
        if token == "same":
            world.client.transact_write_items(**request)  # the service remembers its first answer
        else:
            with pytest.raises(ClientError, match="TransactionCanceledException"):
                world.client.transact_write_items(**request | {"ClientRequestToken": f"another-{index}"})
    assert everything(world) == before


# ------------------------------------------------------------------------------------------------- a fresh beginning


def test_a_rerun_takes_away_what_is_no_longer_true_and_nothing_else(broken: World) -> None:
    broken.clock.advance(5)
    broken.put_control(INTERVAL, delays={"paused": "2026-11-29T02:00:00.000Z"})
    ordered(broken, "Acknowledge", interval=NIGHT)
    before = broken.interval()
    ordered(broken, "Rerun", interval=NIGHT, requested_by="bea")
    after = broken.interval()
    assert set(before) - set(after) == {"last_error", "acknowledged_at", "acknowledged_by", "acknowledged_in"}
    assert after == {name: before[name] for name in after if name in before} | {
        "state": RUNNING,
        "rerun": 1,
        "rerun_at": after["rerun_at"],
        "repair_owner": "bea",
        "delays": {},
    }
    (told,) = rows_of(broken, "RERUN")
    assert told["before"]["acknowledged_by"] == "ada"


def test_attempts_and_their_backoff_start_anew(broken: World) -> None:
    broken.set(backoff_seconds=3600, range_size=64, page_size=64)
    assert broken.progress()["attempts"] == broken.settings.max_attempts
    ordered(broken, "Rerun", interval=NIGHT)
    killed(broken, Wire(broken.client), "commit", kind="tick")
    assert (broken.progress()["attempts"], broken.progress()["rerun"]) == (1, 1)
    ordered(broken, "ReleaseLease", segment="000")
    assert ticked(broken) == [(NIGHT, "needs_repair")], "the limit counts again"
    ordered(broken, "Rerun", interval=NIGHT)
    assert ticked(broken, 1) == [(NIGHT, "completed")]
    assert broken.interval()["ranges"] == 2, "the rest is one range of full size"


def test_the_person_owns_the_repair_until_a_resuming_holder_takes_over(broken: World) -> None:
    ordered(broken, "Rerun", interval=NIGHT, requested_by="bea")
    killed(broken, Wire(broken.client), "commit", kind="tick", owner="worker-8")
    assert broken.interval()["repair_owner"] == "bea", "the first holder of a rerun repairs for her"
    broken.set(max_attempts=5)
    wait(broken)
    broken.run(owner="worker-9")
    assert broken.interval()["repair_owner"] == "worker-9"
    assert broken.interval()["state"] == COMPLETED


def test_a_rerun_of_an_old_interval_is_found_by_the_next_tick(completed: World) -> None:
    """Whatever the window says: a person asked for it."""
    completed.clock.set("2026-12-24T02:00:05Z")
    delivered(completed, event("nightly", "2026-12-24T02:00:00Z"))
    assert ticked(completed) == []
    open_from = completed.row("CONTROL")["open_from"]
    assert open_from > NIGHT
    ordered(completed, "Rerun", interval=NIGHT, force=True)
    assert completed.row("CONTROL")["open_from"] == NIGHT
    assert ticked(completed) == [(NIGHT, "completed")]


def test_a_younger_interval_does_not_raise_what_an_older_one_keeps_open(broken: World) -> None:
    broken.clock.set(f"{NEXT}T02:00:05Z")
    assert ticked(broken) == [(NEXT, "completed")]
    assert broken.row("CONTROL")["open_from"] == NIGHT
    ordered(broken, "Rerun", interval=NEXT, force=True)
    assert broken.row("CONTROL")["open_from"] == NIGHT


def test_every_lease_gets_a_new_generation_and_names_who_was_fenced(
    live: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = prepared(World(live.client, {"SegmentCount": 3}))
    with world.deployed(monkeypatch):
        killed(world, Wire(world.client), "commit", owner="the dead")
        before = {segment: world.lease(segment) for segment in keys.segments(3)}
        wait(world)
        ordered(world, "Rerun", interval=NIGHT)
    after = {segment: world.lease(segment) for segment in keys.segments(3)}
    assert [after[one]["generation"] - before[one]["generation"] for one in after] == [1, 1, 1]
    assert all(after[one]["token"] != before[one]["token"] for one in after)
    assert not any({"owner", "expires_at_ms"} & set(row) for row in after.values())
    (told,) = rows_of(world, "RERUN")
    seen_at = clock.text(before["000"]["acquired_at_ms"])
    dead = {"loser": "the dead", "loser_generation": 1, "loser_seen_at": seen_at}
    assert told["fenced"] == [
        {"segment": "000", "generation": 2, **dead},
        {"segment": "001", "generation": 1},
        {"segment": "002", "generation": 1},
    ]


def test_without_a_lease_row_nothing_is_rerun(broken: World) -> None:
    broken.delete_control("LEASE#000")
    before = everything(broken)
    with pytest.raises(LeaseRowMissing, match="ReleaseLease"):
        delivered(broken, command("Rerun", interval=NIGHT))
    assert everything(broken) == before
    ordered(broken, "ReleaseLease", segment="000")
    ordered(broken, "Rerun", interval=NIGHT)
    assert ticked(broken) == [(NIGHT, "completed")]
