"""Every row of "Reading an answer", for every writer it applies to. Named after what the writer makes of the answer.

The night of these tests has five accounts in three ranges, [a b] [c d] [e]: a and e to grant, b to change, c to revoke.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from reconciler.attempt import Result
from reconciler.errors import LeaseRowMissing, RowMissing, SchemaTooNew, TransientFailure
from reconciler.invocation import Invocation
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.faults import (
    LOST,
    NEVER_SENT,
    PASS,
    REPEATED,
    WRITERS,
    Fault,
    Wire,
    Writer,
    answered,
    cancelled,
    meanwhile,
)
from tests.world import NIGHT, Slow, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

LEASE, PROGRESS, INTERVAL = "LEASE#000", f"PROGRESS#{NIGHT}#1#000", f"INTERVAL#{NIGHT}"
OUTCOME = {"acquire": "completed", "commit": "completed", "complete": "completed", "end": "yielded"}
OUTCOME["trip"] = "tripped"
FAILED = "ConditionalCheckFailed"
BEFORE: dict[str, dict[str, Any]] = {"b": {"plan": "silver"}, "c": {"plan": "gold"}, "d": {"plan": "gold"}}
AFTER: dict[str, dict[str, Any]] = {name: {"plan": "gold"} for name in "abde"} | {"c": {}}


def seeded(world: World, **changes: Any) -> Wire:
    """The night's accounts, two a range; every setting may be changed. Returns the wire to spoil it on."""
    for name in "abde":
        world.account(name, plan="gold")
    for name, entitlements in BEFORE.items():
        world.view_row(name, **entitlements)
    world.set(**{"range_size": 2, **changes})
    return Wire(world.client)


def run_through(writer: Writer, world: World, wire: Wire, *faults: Fault, **about: Any) -> Result:
    """A night in which that writer writes, with the faults: a commit's second range, or how the night ends."""
    wire.next(writer, *([PASS] if writer == "commit" else []), *faults)
    if writer == "end":
        wire.next("commit", meanwhile(lambda: world.clock.advance(100)))
    if writer == "trip":
        world.set(max_revocations=0)
    result = world.run("nightly", **about)[-1]
    assert not wire.unused()
    return result


def everything(world: World) -> dict[str, Any]:
    """Every control row, exactly, and every view row."""
    return world.control() | {row["account_id"]: row for row in world.scan("EntitlementsTable")}


def lasting(world: World) -> dict[str, Any]:
    """What does not depend on when it happened: rows without times and tokens, and the names of the events."""

    def kept(row: Mapping[str, Any]) -> dict[str, Any]:
        moments = {name for name in row if name.endswith(("_at", "_ms"))} | {"token", "pause", "last_error"}
        return {name: value for name, value in row.items() if name not in moments}

    rows = {name: kept(row) for name, row in everything(world).items() if not name.startswith("AUDIT#")}
    return rows | {"events": world.events()}


UNDISTURBED: dict[str, dict[str, Any]] = {}


def undisturbed(writer: Writer, client: DynamoDBClient) -> dict[str, Any]:
    """What lasts of a night in which nothing happened to that writer."""
    if writer not in UNDISTURBED:
        world = World(client)
        run_through(writer, world, seeded(world), PASS)
        UNDISTURBED[writer] = lasting(world)
    return UNDISTURBED[writer]


def assert_completed(world: World, generation: int) -> None:
    """The night ended well, every account was written at most once, and the record says so."""
    row = world.interval()
    assert row["state"] == "COMPLETED"
    assert world.view() == AFTER
    assert world.versions() == {"a": 1, "b": 2, "c": 2, "d": 1, "e": 1}
    assert (row["accounts"], row["granted"], row["changed"], row["revoked"]) == (5, 2, 1, 1)
    assert row["checksum"] == world.view_checksum()
    assert (world.lease()["generation"], "owner" in world.lease()) == (generation, False)


def failing_source(world: World) -> Callable[[Invocation], Job]:
    """A job whose source breaks after the first page of two accounts."""

    def fails(after: str | None) -> None:
        if after is not None:
            raise ZeroDivisionError("a defect in the source")

    def job(invocation: Invocation) -> Job:
        return Job(Slow(AccountsTable(invocation), world.clock, fails=fails), EntitlementsTable(invocation))

    return job


@pytest.fixture
def world(live: World) -> World:
    """The emulator: its transactions are atomic, and it honours request tokens, as AWS does."""
    return live


@pytest.fixture(params=["moto", "emulator"])
def either(request: pytest.FixtureRequest) -> World:
    """moto forgets request tokens, so that a repeat meets its own effect, as on AWS after ten minutes."""
    return World(request.getfixturevalue("client")) if request.param == "moto" else request.getfixturevalue("live")


# landed, its answer was lost


@pytest.mark.field("B13")
@pytest.mark.parametrize("lost", ["repeated by the SDK", "resent", "read once"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_write_that_landed_without_an_answer_counts_once(either: World, writer: Writer, lost: str) -> None:
    wire = seeded(either)
    too_late_to_resend = Fault(meanwhile=lambda: either.clock.advance(20), lost=LOST.lost)
    fault = {"repeated by the SDK": REPEATED, "resent": LOST, "read once": too_late_to_resend}[lost]
    result = run_through(writer, either, wire, fault)

    assert (result.outcome, result.generation) == (OUTCOME[writer], 1)
    assert not {"LeaseLost", "LeaseContended", "RangeConflicts"} & set(either.counted())
    assert lasting(either) == undisturbed(writer, either.client)


@pytest.mark.parametrize("writer", ["acquire", "commit", "complete"])
def test_a_write_that_never_landed_stops_the_attempt_and_the_next_tick_goes_on(world: World, writer: Writer) -> None:
    wire = seeded(world)
    wire.next(writer, then=NEVER_SENT)
    with pytest.raises(TransientFailure):
        world.run("nightly")
    wire.next(writer)
    world.clock.advance(60)
    (result,) = world.run()
    assert result.outcome == "completed"
    assert_completed(world, generation=1 if writer == "acquire" else 2)


@pytest.mark.parametrize("when", ["before the attempt ends", "after it"])
def test_a_commit_that_lands_late_is_either_adopted_or_refused(world: World, when: str) -> None:
    wire = seeded(world)
    wire.next("commit", PASS, then=NEVER_SENT)

    def it_lands() -> None:
        wire.next("commit")
        world.client.transact_write_items(**wire.requests("commit")[-1])

    if when == "before the attempt ends":
        wire.next("end", meanwhile(it_lands))
    with pytest.raises(TransientFailure):
        world.run("nightly")
    if when == "after it":
        before = everything(world)
        with pytest.raises(ClientError):
            it_lands()
        assert everything(world) == before
    world.clock.advance(60)
    (result,) = world.run()
    assert result.resumed_after == ("d" if when == "before the attempt ends" else "b")
    assert_completed(world, generation=2)


@pytest.mark.parametrize(("writer", "tries"), [("end", 1), ("trip", 2)])
def test_an_attempt_that_cannot_be_ended_leaves_the_lease_to_expire(world: World, writer: Writer, tries: int) -> None:
    """A trip is tried again without the leases of the other segments."""
    wire = seeded(world)
    unsent = Fault(meanwhile=lambda: world.clock.advance(20), unsent=NEVER_SENT.unsent)
    run_through(writer, world, wire, *[unsent] * tries)
    assert world.lease()["owner"] == "worker-1"
    world.set(max_revocations=500)
    world.expire_lease()
    (result,) = world.run(owner="worker-2")
    assert result.outcome == "completed"
    assert_completed(world, generation=2)


def test_a_trip_that_lands_while_it_is_tried_again_is_read_as_success(world: World) -> None:
    wire = seeded(world)
    unsent = Fault(meanwhile=lambda: world.clock.advance(20), unsent=NEVER_SENT.unsent)

    def first_one_lands() -> None:
        world.client.transact_write_items(**wire.requests("trip")[0])

    result = run_through("trip", world, wire, unsent, meanwhile(first_one_lands))
    assert result.outcome == "tripped"
    assert "LeaseLost" not in world.counted()
    assert (world.interval()["state"], world.lease()["paused"]) == ("NEEDS_REPAIR", 1)


# paused


def pause(world: World) -> None:
    world.put_control("CONTROL", pause={"who": "operator"}, pause_no=1)
    world.put_control(LEASE, paused=1)


def resume(world: World) -> None:
    world.put_control("CONTROL", pause=..., pause_no=2)
    world.put_control(LEASE, paused=...)


def test_an_acquire_that_meets_a_pause_takes_nothing(world: World) -> None:
    wire = seeded(world)
    result = run_through("acquire", world, wire, meanwhile(lambda: pause(world)))
    assert result.outcome == "paused"
    assert (world.lease()["generation"], world.interval()["state"]) == (0, "EXPECTED")
    assert set(world.interval()["delays"]) == {"paused"}
    assert world.events() == ["OBSERVED", "DELAYED"]
    assert "LeaseLost" not in world.counted()


def test_a_commit_that_meets_a_pause_yields_and_gives_its_attempt_back(world: World) -> None:
    wire = seeded(world)
    result = run_through("commit", world, wire, meanwhile(lambda: pause(world)))
    assert result.outcome == "paused"
    assert world.versions() == {"a": 1, "b": 2, "c": 1, "d": 1}, "only the first range"
    assert (world.progress()["attempts"], world.progress()["checkpoint"]) == (0, "b")
    assert ("owner" in world.lease(), world.lease()["paused"]) == (False, 1)
    assert "LeaseLost" not in world.counted()
    resume(world)
    assert world.run()[0].resumed_after == "b"
    assert_completed(world, generation=2)


@pytest.mark.parametrize("writer", ["complete", "end"])
def test_a_pause_does_not_keep_a_holder_from_ending(world: World, writer: Writer) -> None:
    wire = seeded(world)
    result = run_through(writer, world, wire, meanwhile(lambda: pause(world)))
    assert result.outcome == OUTCOME[writer]
    assert ("owner" in world.lease(), world.lease()["paused"]) == (False, 1)


# lost, or taken by another


TAKEN: dict[str, dict[str, Any]] = {
    "taken": {"generation": 2, "token": "theirs", "owner": "worker-2"},
    "taken and paused": {"generation": 2, "token": "theirs", "owner": "worker-2", "paused": 1},
    "released": {"token": "a fresh one", "owner": ...},
    "released by an operator": {"generation": 2, "token": "a fresh one", "owner": ...},
    "restored above every generation": {"generation": 42},
}


@pytest.mark.field("B07")
@pytest.mark.parametrize(
    ("writer", "how"),
    [("commit", how) for how in TAKEN] + [(writer, "released") for writer in ("complete", "end", "trip")],
)
def test_a_holder_that_lost_its_lease_writes_nothing_more(world: World, writer: Writer, how: str) -> None:
    theirs = TAKEN[how]
    wire = seeded(world)
    then: dict[str, Any] = {}

    def lose() -> None:
        world.put_control(LEASE, **theirs)
        then.update(everything(world))

    result = run_through(writer, world, wire, meanwhile(lose))
    assert result.outcome == "lost"
    assert everything(world) == then
    assert world.counted()["LeaseLost"] == 1


def test_an_acquire_that_loses_the_race_records_a_delay_and_nothing_else(world: World) -> None:
    wire = seeded(world)
    until_ms = world.clock.wall_ms + world.settings.lease_ms
    theirs = {"generation": 1, "token": "theirs", "owner": "worker-2", "expires_at_ms": until_ms}
    result = run_through("acquire", world, wire, meanwhile(lambda: world.put_control(LEASE, **theirs)))
    assert result.outcome == "delayed"
    assert {name: world.lease()[name] for name in theirs} == theirs
    assert world.events() == ["OBSERVED", "DELAYED"]
    assert world.counted()["LeaseContended"] == 1


@pytest.mark.field("B11")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_lease_row_that_vanished_fails_closed_and_tells_how_to_restore_it(world: World, writer: Writer) -> None:
    wire = seeded(world)
    with pytest.raises(LeaseRowMissing, match=r"LEASE#000 is missing.*ReleaseLease"):
        run_through(writer, world, wire, meanwhile(lambda: world.delete_control(LEASE)))
    assert not world.has(LEASE)


# PROGRESS failed in a commit


def test_a_commit_adopts_the_checkpoint_that_an_earlier_one_left(world: World) -> None:
    wire = seeded(world)
    landed = {"checkpoint": "d", "accounts": 4, "ranges": 2}
    result = run_through("commit", world, wire, meanwhile(lambda: world.put_control(PROGRESS, **landed)))
    assert result.outcome == "completed"
    assert world.versions() == {"a": 1, "b": 2, "c": 1, "d": 1, "e": 1}, "c was somebody's business already"
    assert (world.interval()["accounts"], world.interval()["ranges"]) == (5, 3)
    assert (result.accounts, result.ranges) == (5, 3)
    assert (world.counted()["AccountsScanned"], world.counted()["RangesCommitted"]) == (5, 3)


# PROGRESS or INTERVAL failed otherwise


def test_an_acquire_plans_again_when_the_progress_moved(world: World) -> None:
    wire = seeded(world)
    run_through("end", world, wire, PASS)
    result = run_through("acquire", world, wire, meanwhile(lambda: world.put_control(PROGRESS, attempts=3)))
    assert result.outcome == "completed"
    assert [row["attempt"] for row in world.audit() if row["event"] == "RESUMED"] == [4]
    assert_completed(world, generation=2)


@pytest.mark.parametrize(
    ("moved", "outcome", "generation"),
    [
        ({"rerun": 1, "state": "RUNNING"}, "completed", 1),
        ({"state": "NEEDS_REPAIR"}, "moved", 0),
        ({"state": "SKIPPED"}, "moved", 0),
    ],
    ids=["rerun", "needs repair", "skipped"],
)
def test_an_acquire_plans_again_when_the_interval_moved(
    world: World, moved: dict[str, Any], outcome: str, generation: int
) -> None:
    wire = seeded(world)
    result = run_through("acquire", world, wire, meanwhile(lambda: world.put_control(INTERVAL, **moved)))
    assert (result.outcome, world.lease()["generation"]) == (outcome, generation)
    if outcome == "moved":
        assert world.interval()["state"] == moved["state"]
        assert world.versions() == {"b": 1, "c": 1, "d": 1}
    else:
        assert_completed(world, generation)


def test_an_acquire_plans_again_when_a_running_interval_was_rerun(world: World) -> None:
    wire = seeded(world)
    run_through("end", world, wire, PASS)
    result = run_through("acquire", world, wire, meanwhile(lambda: world.put_control(INTERVAL, rerun=1)))
    assert (result.outcome, world.progress()["rerun"]) == ("completed", 1)
    assert_completed(world, generation=2)


@pytest.mark.parametrize(("already", "outcome"), [(4, "completed"), (5, "tripped")])
def test_a_commit_counts_revocations_anew_when_another_segment_revoked(
    world: World, already: int, outcome: str
) -> None:
    wire = seeded(world, max_revocations=5)
    result = run_through("commit", world, wire, meanwhile(lambda: world.put_control(INTERVAL, revoked=already)))
    assert result.outcome == outcome
    assert world.view()["c"] == ({} if outcome == "completed" else BEFORE["c"])
    assert "RangeConflicts" not in world.counted()


@pytest.mark.parametrize(
    ("moved", "state"),
    [({}, "COMPLETED"), ({"state": "NEEDS_REPAIR", "segments": {}}, "NEEDS_REPAIR")],
    ids=["the other completed", "the other needs repair"],
)
def test_a_completion_keeps_what_another_segment_wrote_meanwhile(
    client: DynamoDBClient, moved: dict[str, Any], state: str
) -> None:
    world = World(client, {"SegmentCount": 2})
    wire = Wire(client)
    for name in "abcdef":
        world.account(name, plan="gold")
    theirs = {"accounts": 7, "checksum": f"{1:064x}"}
    change = {"segments": {"001": theirs}} | moved
    result = run_through("complete", world, wire, meanwhile(lambda: world.put_control(INTERVAL, **change)))
    row = world.interval()
    assert result.outcome in ("completed", "moved")
    assert row["state"] == state
    assert row["segments"].keys() == {"000"} | change["segments"].keys()
    if state == "COMPLETED":
        assert row["accounts"] == 7 + row["segments"]["000"]["accounts"]
        assert int(row["checksum"], 16) == 1 + int(row["segments"]["000"]["checksum"], 16)


def test_a_completion_goes_on_from_a_checkpoint_that_moved(world: World) -> None:
    wire = seeded(world)
    landed = {"checkpoint": "f", "accounts": 6}
    result = run_through("complete", world, wire, meanwhile(lambda: world.put_control(PROGRESS, **landed)))
    assert result.outcome == "completed"
    assert (world.interval()["accounts"], world.progress()["checkpoint"]) == (6, "f")
    assert (result.accounts, world.counted()["AccountsScanned"]) == (6, 6)


@pytest.mark.field("B23")
@pytest.mark.parametrize("writer", ["acquire", "commit", "complete"])
def test_an_interval_row_that_vanished_is_said_to_be_gone_and_leaves_no_ghost(world: World, writer: Writer) -> None:
    wire = seeded(world)
    with pytest.raises(RowMissing, match=f"INTERVAL#{NIGHT} is gone"):
        run_through(writer, world, wire, meanwhile(lambda: world.delete_control(INTERVAL)))
    assert not world.has(INTERVAL)
    assert "owner" not in world.lease()
    world.clock.advance(60)
    assert world.run()[0].outcome == "completed"
    assert_completed(world, generation=1 if writer == "acquire" else 2)


def test_an_attempt_ends_by_the_checkpoint_that_it_finds(world: World) -> None:
    wire = seeded(world)
    moved = {"checkpoint": "d", "attempts": 0}
    result = run_through("end", world, wire, meanwhile(lambda: world.put_control(PROGRESS, **moved)))
    assert result.outcome == "yielded"
    assert (world.progress()["checkpoint"], world.progress()["attempts"]) == ("d", 0)
    assert "owner" not in world.lease()


@pytest.mark.parametrize("writer", ["commit", "complete", "end"])
def test_a_progress_row_that_vanished_is_said_to_be_gone_and_leaves_no_ghost(world: World, writer: Writer) -> None:
    wire = seeded(world)
    with pytest.raises(RowMissing, match=f"{PROGRESS} is gone"):
        run_through(writer, world, wire, meanwhile(lambda: world.delete_control(PROGRESS)))
    assert not world.has(PROGRESS)
    assert world.interval()["state"] == "RUNNING"


def test_a_progress_row_that_vanished_before_the_first_range_is_not_made_by_its_commit(world: World) -> None:
    wire = seeded(world)
    wire.next("commit", meanwhile(lambda: world.delete_control(PROGRESS)))
    with pytest.raises(RowMissing, match=f"{PROGRESS} is gone"):
        world.run("nightly")
    assert not world.has(PROGRESS)
    assert world.view() == BEFORE


def test_a_failed_attempt_ends_without_its_interval_row_and_leaves_no_ghost(world: World) -> None:
    wire = seeded(world, page_size=2)
    wire.next("end", meanwhile(lambda: world.delete_control(INTERVAL)))
    with pytest.raises(ZeroDivisionError):
        world.run("nightly", job=failing_source(world))
    assert not world.has(INTERVAL)
    assert "owner" not in world.lease()


def test_a_guard_trip_pauses_on_top_of_the_pause_that_it_finds(world: World) -> None:
    wire = seeded(world)
    result = run_through("trip", world, wire, meanwhile(lambda: world.put_control("CONTROL", pause_no=7)))
    assert result.outcome == "tripped"
    assert (world.row("CONTROL")["pause_no"], world.lease()["paused"]) == (8, 8)
    assert world.events().count("NEEDS_REPAIR") == 1


def test_a_row_of_a_newer_schema_is_never_adopted(world: World) -> None:
    wire = seeded(world)
    newer = {"schema": 2, "checkpoint": "d"}
    with pytest.raises(SchemaTooNew, match="PROGRESS"):
        run_through("commit", world, wire, meanwhile(lambda: world.put_control(PROGRESS, **newer)))


# an effect failed


def write_live(world: World, name: str, plan: str, **row: Any) -> None:
    """A live writer: the source first, then the view, with a new version."""
    world.account(name, plan=plan)
    world.put("EntitlementsTable", name, entitlements={"plan": plan}, **row)


@pytest.mark.parametrize(
    ("found", "theirs", "plan"),
    [
        (None, {"version": 1}, "platinum"),
        ({"version": 1}, {"version": 2}, "platinum"),
        ({"version": 1}, {"version": 2}, "silver"),
        ({}, {}, "platinum"),
        ({}, {"version": 1}, "silver"),
        ({"version": 1}, {}, "platinum"),
    ],
    ids=["made", "changed", "confirmed", "changed without version", "confirmed with a version", "version dropped"],
)
def test_a_row_that_a_live_writer_touched_is_read_again_and_never_overwritten(
    world: World, found: dict[str, Any] | None, theirs: dict[str, Any], plan: str
) -> None:
    world.account("a", plan="gold")
    if found is not None:
        world.put("EntitlementsTable", "a", entitlements={"plan": "silver"}, **found)
    wire = Wire(world.client)
    wire.next("commit", meanwhile(lambda: write_live(world, "a", plan, **theirs)))
    (result,) = world.run("nightly")
    (row,) = world.scan("EntitlementsTable")
    assert (result.outcome, row["entitlements"]) == ("completed", {"plan": plan})
    assert row.get("version") == theirs.get("version"), "no further write"
    assert "run_id" not in row
    assert world.counted()["RangeConflicts"] == 1
    assert world.interval()["changed"] == 0


@pytest.mark.parametrize("version", [None, 1], ids=["without version", "with version"])
def test_a_row_that_was_deleted_meanwhile_is_made_again_from_the_source(world: World, version: int | None) -> None:
    world.account("a", plan="gold")
    world.view_row("a", version=version, plan="silver")
    wire = Wire(world.client)
    wire.next("commit", meanwhile(lambda: world.delete("EntitlementsTable", "a")))
    assert world.run("nightly")[0].outcome == "completed"
    assert (world.view(), world.versions()) == ({"a": {"plan": "gold"}}, {"a": 1})


def test_an_account_that_vanished_from_both_sides_meanwhile_is_passed(world: World) -> None:
    wire = seeded(world)
    conflict = cancelled({"e": FAILED}).instead
    wire.next("commit", PASS, PASS, Fault(meanwhile=lambda: world.delete("AccountsTable", "e"), instead=conflict))
    (result,) = world.run("nightly")
    assert (result.outcome, result.accounts) == ("completed", 4)
    assert (world.interval()["state"], world.progress()["checkpoint"]) == ("COMPLETED", "d")


@pytest.mark.parametrize(
    ("times", "ranges", "reason"),
    [(1, 1, None), (2, 1, None), (3, 3, None), (4, 3, "a live writer changes it faster than it can be read")],
    ids=["read again", "read again twice", "alone", "alone in vain"],
)
def test_an_account_under_steady_change_is_isolated_and_then_rejected_while_the_others_go_on(
    world: World, times: int, ranges: int, reason: str | None
) -> None:
    wire = seeded(world, range_size=5)
    versions = iter(range(2, 99))

    def touch() -> None:
        write = next(versions)
        world.put("EntitlementsTable", "b", entitlements={"plan": f"theirs {write}"}, version=write)

    faults = [meanwhile(touch)] * min(times, 3)
    wire.next("commit", *faults, *([PASS, meanwhile(touch)] if times > 3 else []))
    (result,) = world.run("nightly")
    assert (result.outcome, result.ranges, result.accounts) == ("completed", ranges, 5)
    rejected = [row for row in world.audit() if row["event"] == "REJECTED"]
    assert [(row["account_id"], row["reason"]) for row in rejected] == ([("b", reason)] if reason else [])
    assert world.view() == AFTER | ({"b": {"plan": "theirs 5"}} if reason else {})
    assert world.interval()["rejected"] == len(rejected)
    assert world.counted()["RangeConflicts"] == times
    assert world.progress()["checkpoint"] == "e"


# an effect cannot be stored


def test_an_effect_that_cannot_be_stored_is_rejected_by_its_position(world: World) -> None:
    wire = seeded(world, range_size=5)
    wire.next("commit", cancelled({"b": "ValidationError"}))
    (result,) = world.run("nightly")
    assert (result.outcome, result.ranges, result.accounts) == ("completed", 1, 5)
    assert world.view() == AFTER | {"b": BEFORE["b"]}
    assert [row["account_id"] for row in world.audit() if row["event"] == "REJECTED"] == ["b"]
    assert world.interval()["rejected"] == 1
    assert world.interval()["checksum"] == world.view_checksum()


@pytest.mark.parametrize("name", ["0", "ab", "z"], ids=["first", "in the middle", "last"])
def test_an_effect_refused_without_a_position_is_found_and_rejected_alone(either: World, name: str) -> None:
    seeded(either, range_size=6)
    either.account(name, plan="x" * 150_000)
    either.put("EntitlementsTable", name, entitlements={}, version=1, notes="x" * 300_000)
    (result,) = either.run("nightly")
    assert (result.outcome, result.accounts) == ("completed", 6)
    assert either.view() == AFTER | {name: {}}
    rejected = [row for row in either.audit() if row["event"] == "REJECTED"]
    assert [(row["account_id"], row["reason"]) for row in rejected] == [(name, "DynamoDB cannot store its content")]
    assert either.interval()["checksum"] == either.view_checksum()


@pytest.mark.parametrize("writer", WRITERS)
def test_a_request_refused_as_invalid_without_an_effect_is_a_defect(world: World, writer: Writer) -> None:
    wire = seeded(world)
    if writer == "commit":
        for name, entitlements in AFTER.items():
            world.view_row(name, **entitlements)
    with pytest.raises(ClientError, match="ValidationException"):
        run_through(writer, world, wire, answered("ValidationException"))
    assert world.interval()["state"] != "COMPLETED"


def test_a_rejection_that_cannot_be_stored_is_a_defect_and_not_tried_for_ever(world: World) -> None:
    world.put("AccountsTable", "a", status="active", entitlements={"x": ["a list"]})
    wire = Wire(world.client)
    wire.next("commit", then=answered("ValidationException"))
    with pytest.raises(ClientError, match="ValidationException"):
        world.run("nightly")
    assert len(wire.requests("commit")) == 1


def test_a_rejected_account_with_an_endless_name_still_fits_its_audit_row(world: World) -> None:
    world.put("AccountsTable", "a", status="active", entitlements={"\x01" * 150_000: ["a list"]})
    assert world.run("nightly")[0].outcome == "completed"
    (row,) = [row for row in world.audit() if row["event"] == "REJECTED"]
    assert row["reason"].startswith("source entitlement")
    assert len(row["reason"]) < 1000


# nothing applied now


NOT_NOW = {
    "conflict": cancelled({"LEASE": "TransactionConflict"}),
    "conflict further down": cancelled({"PROGRESS": "TransactionConflict", "c": "TransactionConflict"}),
    "throttled item": cancelled({"LEASE": "ThrottlingError"}),
    "exhausted item": cancelled({"PROGRESS": "ProvisionedThroughputExceeded"}),
    "in progress": answered("TransactionInProgressException"),
    "throttled": answered("ThrottlingException"),
    "exhausted": answered("ProvisionedThroughputExceededException"),
    "limited": answered("RequestLimitExceeded"),
}
UNKNOWN = {
    "5xx": answered("InternalServerError", status=500),
    "503": answered("ServiceUnavailable", status=503),
    "no connection": NEVER_SENT,
    "time-out": Fault(unsent=LOST.lost),
}


@pytest.mark.parametrize(
    ("writer", "fault"),
    [("commit", fault) for fault in NOT_NOW | UNKNOWN]
    + [(writer, fault) for writer in WRITERS if writer != "commit" for fault in ("conflict", "throttled", "5xx")],
)
def test_a_request_that_was_not_taken_now_is_sent_again_unchanged(world: World, writer: Writer, fault: str) -> None:
    wire = seeded(world)
    result = run_through(writer, world, wire, (NOT_NOW | UNKNOWN)[fault])
    assert result.outcome == OUTCOME[writer]
    requests = wire.requests(writer)
    first = 1 if writer == "commit" else 0
    assert requests[first] == requests[first + 1]
    assert world.events().count("STARTED") == 1
    assert not {"LeaseLost", "LeaseContended", "RangeConflicts"} & set(world.counted())


@pytest.mark.field("B25")
@pytest.mark.parametrize("fault", ["throttled", "conflict", "5xx"])
@pytest.mark.parametrize("writer", ["acquire", "commit", "complete"])
def test_resending_ends_within_one_call_budget_and_gives_the_attempt_back(
    world: World, writer: Writer, fault: str
) -> None:
    wire = seeded(world)
    wire.next(writer, *([PASS] if writer == "commit" else []), then=(NOT_NOW | UNKNOWN)[fault])
    started = world.clock.monotonic()
    with pytest.raises(TransientFailure):
        world.run("nightly")
    waited = world.clock.monotonic() - started
    assert waited <= world.settings.call_budget_s + 1, "one bounded round of resending, the rest is quick"
    assert 4 < len(wire.requests(writer)) < 60
    if writer == "acquire":
        assert world.lease()["generation"] == 0
    else:
        assert "owner" not in world.lease()
        assert world.progress()["attempts"] == 0
        assert world.events()[-1] == "FAILED"


@pytest.mark.parametrize("fault", ["throttled", "5xx"])
def test_resending_stops_when_one_more_call_could_outlast_the_invocation(world: World, fault: str) -> None:
    wire = seeded(world)
    wire.next("commit", then=(NOT_NOW | UNKNOWN)[fault])

    def slow(invocation: Invocation) -> Job:
        return Job(Slow(AccountsTable(invocation), world.clock, seconds=60), EntitlementsTable(invocation))

    began = world.clock.monotonic()
    (result,) = world.run("nightly", remaining_s=80, job=slow)
    assert result.outcome == "yielded"
    assert 64 < world.clock.monotonic() - began < 80 - world.settings.call_budget_s + 1.1
    wire.next("commit")
    world.expire_lease()
    assert world.run()[0].outcome == "completed"
    assert_completed(world, generation=2)


# an answer without reasons


@pytest.mark.field("B17")
@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
@pytest.mark.parametrize("writer", ["acquire", "commit", "complete"])
def test_a_cancellation_without_reasons_is_settled_by_one_read(world: World, writer: Writer, landed: bool) -> None:
    wire = seeded(world)
    nothing_said = answered("TransactionCanceledException")

    def it_lands() -> None:
        wire.next(writer)
        world.client.transact_write_items(**wire.requests(writer)[-1])

    fault = Fault(meanwhile=it_lands if landed else None, instead=nothing_said.instead)
    if landed:
        assert run_through(writer, world, wire, fault).outcome == "completed"
        assert_completed(world, generation=1)
        return
    with pytest.raises(TransientFailure):
        run_through(writer, world, wire, fault)
    world.clock.advance(60)
    assert world.run()[0].outcome == "completed"
    assert_completed(world, generation=1 if writer == "acquire" else 2)


# anything else


DEFECTS = {
    "token of another body": answered("IdempotentParameterMismatchException"),
    "denied": answered("AccessDeniedException"),
    "no table": answered("ResourceNotFoundException"),
    "unknown reason": cancelled({"PROGRESS": "ItemCollectionSizeLimitExceeded"}),
    "our own row unstorable": cancelled({"PROGRESS": "ValidationError"}),
}


@pytest.mark.field("B19")
@pytest.mark.parametrize(
    ("writer", "defect"),
    [("commit", defect) for defect in DEFECTS]
    + [(writer, "token of another body") for writer in WRITERS if writer != "commit"],
)
def test_any_other_answer_is_a_defect_and_is_raised(world: World, writer: Writer, defect: str) -> None:
    wire = seeded(world)
    with pytest.raises(ClientError):
        run_through(writer, world, wire, DEFECTS[defect])
    assert len(wire.requests(writer)) == (2 if writer == "commit" else 1), "not sent again"
    assert world.interval()["state"] in ("EXPECTED", "RUNNING")


# several reasons at once: the first that says something


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ({"LEASE": FAILED, "PROGRESS": FAILED, "c": FAILED}, "lost"),
        ({"PROGRESS": FAILED, "INTERVAL": FAILED, "c": FAILED}, "completed"),
        ({"INTERVAL": FAILED, "c": FAILED}, "completed"),
        ({"LEASE": "TransactionConflict", "c": FAILED}, "completed"),
    ],
    ids=["lost before all", "adopted before counted", "counted before conflict", "conflict with a live writer"],
)
def test_of_several_reasons_the_first_by_position_is_read(world: World, codes: dict[str, str], outcome: str) -> None:
    wire = seeded(world)
    theirs = {"sk": LEASE, "generation": 2, "token": "theirs"}

    def rows() -> dict[str, Mapping[str, Any]]:
        stands = {"LEASE": world.lease() | theirs, "PROGRESS": world.progress(), "INTERVAL": world.interval()}
        return {name: stands[name] for name in codes if codes[name] == FAILED and name in stands}

    fault = Fault(instead=lambda actions: (cancelled(codes, rows()).instead or dict)(actions))
    assert run_through("commit", world, wire, fault).outcome == outcome
    conflicts = world.counted().get("RangeConflicts", 0)
    assert conflicts == (1 if "TransactionConflict" in codes.values() else 0)
    if outcome == "completed":
        assert_completed(world, generation=1)
    else:
        assert world.versions() == {"a": 1, "b": 2, "c": 1, "d": 1}


@pytest.mark.parametrize(
    ("codes", "rejected"),
    [({"a": FAILED, "b": "ValidationError"}, []), ({"a": "ValidationError", "b": FAILED}, ["a"])],
    ids=["conflict first", "unstorable first"],
)
def test_of_several_refused_effects_the_first_is_dealt_with_first(
    world: World, codes: dict[str, str], rejected: list[str]
) -> None:
    wire = seeded(world)
    wire.next("commit", cancelled(codes))
    assert world.run("nightly")[0].outcome == "completed"
    assert [row["account_id"] for row in world.audit() if row["event"] == "REJECTED"] == rejected
