"""Commit and complete: effects, checkpoint and fence together or not at all; the last write closes the interval."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from reconciler import clock, keys
from reconciler.acquire import acquire
from reconciler.checksum import MODULUS, digest, hex_text
from reconciler.commit import Adopted, Committed, commit
from reconciler.complete import Completed, complete
from reconciler.decisions import Decision
from reconciler.diff import decide
from reconciler.errors import LeaseLost
from reconciler.invocation import Invocation
from reconciler.leases import Holding
from reconciler.records import read_interval
from reconciler.release import Ending, end_attempt
from reconciler.scan import Sides
from reconciler.source import AccountsTable, SourceRecord
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.conftest import live_client
from tests.faults import PASS, Wire, cancelled, meanwhile
from tests.kit import Rows, everything, grants, killed, numbered
from tests.world import NIGHT, Slow, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

INTERVAL = f"INTERVAL#{NIGHT}"


@pytest.fixture
def night(live: World) -> World:
    """A night of six accounts to grant in three ranges; due and observed, on the emulator."""
    grants(live, *"abcdef")
    live.set(range_size=2)
    live.run("nightly", remaining_s=60)
    return live


def hold(world: World, owner: str = "worker-1") -> tuple[Holding, Invocation]:
    """Take the night's segment without working on it."""
    invocation = world.invocation(owner)
    holding = acquire(read_interval(NIGHT, invocation=invocation), "000", invocation=invocation)
    assert isinstance(holding, Holding)
    return holding, invocation


def decisions(invocation: Invocation, after: str | None, upto: str) -> list[Decision]:
    sides = Sides(AccountsTable(invocation), EntitlementsTable(invocation), "000", 100)
    return sides.between(after, upto)


def committed(world: World, wire: Wire, **about: Any) -> list[int]:
    """Run the night; how many accounts each of its commits had."""
    reached: list[int] = []

    def look() -> None:
        reached.append(world.progress().get("accounts", 0))

    wire.next("commit", then=meanwhile(look))
    assert world.run("nightly", **about)[-1].outcome == "completed"
    return [after - before for before, after in pairwise([*reached, world.progress()["accounts"]])]


# the checkpoint


def test_every_commit_strictly_advances_the_checkpoint(night: World) -> None:
    grants(night, *numbered(10))
    wire = Wire(night.client)
    seen: list[str] = []
    look = meanwhile(lambda: seen.append(night.progress().get("checkpoint", "")))
    conflict = cancelled({"acct-0004": "ConditionalCheckFailed"})
    wire.next("commit", look, look, conflict, conflict, conflict, then=look)
    assert night.run()[0].outcome == "completed"
    seen.append(night.progress()["checkpoint"])
    assert seen == sorted(set(seen))
    assert (seen[0], seen[-1]) == ("", "f")
    assert len(seen) == 1 + night.progress()["ranges"]


def test_a_page_without_accounts_commits_nothing(live: World) -> None:
    wire = Wire(live.client)
    assert live.run("nightly")[0].outcome == "completed"
    assert wire.requests("commit") == []
    assert "checkpoint" not in live.progress()
    assert (live.interval()["accounts"], live.interval()["checksum"]) == (0, "0" * 64)


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_killed_run_resumes_after_its_last_committed_range(night: World, lost: int) -> None:
    killed(night, Wire(night.client), "commit" if lost < 3 else "complete", lost + 1 if lost < 3 else 1)
    night.expire_lease()
    (result,) = night.run()
    assert result.resumed_after == [None, "b", "d", "f"][lost]
    assert (result.outcome, result.accounts) == ("completed", 6 - 2 * lost)
    assert set(night.versions().values()) == {1}
    assert night.interval()["checksum"] == night.view_checksum()


# the fence


@pytest.mark.field("B07")
def test_a_stale_holder_cannot_commit(night: World) -> None:
    wire = Wire(night.client)
    then: dict[str, Any] = {}

    def overtaken() -> None:
        night.expire_lease()
        assert night.run(owner="worker-2")[0].outcome == "completed"
        night.account("c", plan="newer")
        then.update(everything(night))

    wire.next("commit", PASS, meanwhile(overtaken))
    (result,) = night.run(owner="worker-1")
    assert (result.outcome, result.generation, result.accounts) == ("lost", 1, 2)
    assert everything(night) == then
    assert night.lease()["generation"] == 2
    assert night.counted()["LeaseLost"] == 1


@pytest.mark.parametrize("write", ["commit", "complete", "end"])
def test_a_former_holder_changes_nothing_though_nobody_holds_the_lease_now(night: World, write: str) -> None:
    stale, invocation = hold(night, "stale")
    late = decisions(invocation, None, "b")
    night.expire_lease()
    fresh, other = hold(night, "fresh")
    assert end_attempt(fresh, Ending("yielded", "enough"), invocation=other)
    before = everything(night)
    writes: dict[str, Callable[[], object]] = {
        "commit": lambda: commit(late, stale, invocation=invocation),
        "complete": lambda: complete(stale, invocation=invocation),
        "end": lambda: end_attempt(stale, Ending("failed", "late"), invocation=invocation),
    }
    with pytest.raises(LeaseLost):
        writes[write]()
    assert everything(night) == before


def test_a_late_holder_that_nobody_replaced_may_still_commit(night: World) -> None:
    holding, invocation = hold(night)
    night.clock.advance(600)
    assert isinstance(commit(decisions(invocation, None, "b"), holding, invocation=invocation), Committed)
    assert night.versions() == {"a": 1, "b": 1}
    assert night.lease()["expires_at_ms"] > night.clock.wall_ms


def test_a_late_holder_that_nobody_replaced_may_still_complete(night: World) -> None:
    holding, invocation = hold(night)
    result = commit(decisions(invocation, None, "f"), holding, invocation=invocation)
    assert isinstance(result, Committed)
    night.clock.advance(600)
    assert isinstance(complete(result.holding, invocation=invocation), Completed)
    assert night.interval()["state"] == "COMPLETED"


def test_a_holder_that_lives_without_committing_does_not_move_its_expiry(night: World) -> None:
    seen: list[tuple[int, str | None]] = []

    def looks(after: str | None) -> None:
        seen.append((night.lease()["expires_at_ms"], night.progress().get("checkpoint")))

    def slow(invocation: Invocation) -> Job:
        source = Slow(AccountsTable(invocation), night.clock, seconds=20, fails=looks)
        return Job(source, Slow(EntitlementsTable(invocation), night.clock, seconds=20, fails=looks))

    night.set(page_size=2, range_size=2)
    night.run(job=slow)
    expiries: dict[str | None, set[int]] = {}
    for expires_at_ms, checkpoint in seen:
        expiries.setdefault(checkpoint, set()).add(expires_at_ms)
    assert [len(values) for values in expiries.values()] == [1] * 4, "it moves with the checkpoint and not otherwise"
    moves = [values.pop() for values in expiries.values()]
    assert all(later - earlier >= 20_000 for earlier, later in pairwise(moves))


def test_a_commit_renews_the_lease_from_when_it_was_sent(night: World) -> None:
    holding, invocation = hold(night)
    wire = Wire(night.client)
    sent_ms = night.clock.wall_ms
    wire.next("commit", meanwhile(lambda: night.clock.advance(10)))
    commit(decisions(invocation, None, "b"), holding, invocation=invocation)
    row = night.lease()
    assert row["expires_at_ms"] - night.settings.lease_ms == row["progress_at_ms"]
    assert sent_ms < row["progress_at_ms"] < sent_ms + 1000


# repeated messages


@pytest.mark.parametrize("token", ["same", "other"])
@pytest.mark.parametrize("when", ["between commits", "after the release", "under the next holder", "after the end"])
def test_a_commit_that_arrives_again_changes_nothing(night: World, when: str, token: str) -> None:
    wire = Wire(night.client)

    def arrive_again() -> None:
        before = everything(night)
        for request in wire.requests("commit")[:2]:
            if token == "same":
                night.client.transact_write_items(**request)
                continue
            with pytest.raises(ClientError, match="TransactionCanceledException"):
                night.client.transact_write_items(**request | {"ClientRequestToken": f"{len(wire.sent)}"})
        assert everything(night) == before

    again = meanwhile(arrive_again)
    if when == "between commits":
        wire.next("commit", PASS, PASS, again, PASS)
    elif when != "after the end":
        wire.next("commit", PASS, meanwhile(lambda: night.clock.advance(100)))
        assert night.run()[0].outcome == "yielded"
        wire.next("commit", *([again] if when == "under the next holder" else [PASS]))
        if when == "after the release":
            arrive_again()
    assert night.run()[0].outcome == "completed"
    if when == "after the end":
        arrive_again()
    assert set(night.versions().values()) == {1}
    assert night.interval()["accounts"] == 6


def test_an_adopted_checkpoint_brings_the_counts_of_the_commit_that_landed(night: World) -> None:
    holding, invocation = hold(night)
    late = decisions(invocation, None, "b")
    assert isinstance(commit(late, holding, invocation=invocation), Committed)
    night.clock.advance(1)
    result = commit(late, holding, invocation=invocation)
    assert isinstance(result, Adopted)
    assert (result.holding.progress.checkpoint, result.holding.progress.totals.accounts) == ("b", 2)
    assert set(night.versions().values()) == {1}


# the size of a range


@pytest.mark.parametrize(
    ("kinds", "ranges"),
    [
        ("." * 250, [250]),
        ("g" * 200, [98, 98, 4]),
        ("r" * 200, [97, 97, 6]),
        ("x" * 120, [98, 22]),
        ("g" * 97 + "r" + "g" * 10, [97, 11]),
        ("g" * 98 + "r" + "g" * 10, [98, 11]),
        ("r" + "g" * 100, [97, 4]),
        ("g." * 120, [196, 44]),
        (("g" * 40 + "x" * 40 + ".") * 2, [99, 63]),
    ],
    ids=[
        *("no effects", "grants", "revocations", "rejections"),
        *("a revocation at last", "a revocation too many", "a revocation at first", "every other", "mixed"),
    ],
)
def test_a_range_holds_no_more_than_one_transaction_can(live: World, kinds: str, ranges: list[int]) -> None:
    """`.` an account that is as it should be, `g` to grant, `r` to revoke, `x` unreadable."""
    ids = numbered(len(kinds))
    status = {"x": "unheard of"}
    source = [
        SourceRecord(name, status.get(kind, "active"), {"plan": "gold"} if kind == "g" else {})
        for name, kind in zip(ids, kinds, strict=True)
    ]
    live.set(max_revocations=1000)
    for name, kind in zip(ids, kinds, strict=True):
        if kind == "r":
            live.view_row(name, plan="gold")

    def job(invocation: Invocation) -> Job:
        return Job(Rows(source), EntitlementsTable(invocation))

    assert committed(live, Wire(live.client), job=job) == ranges
    row = live.interval()
    assert (row["granted"], row["revoked"], row["rejected"]) == tuple(map(kinds.count, "grx"))
    assert row["checksum"] == live.view_checksum()


def test_a_range_holds_no_more_than_three_and_a_half_megabytes(live: World) -> None:
    source = [SourceRecord(name, "active", {"plan": "x" * 380_000}) for name in numbered(12)]
    assert committed(live, Wire(live.client), job=lambda i: Job(Rows(source), EntitlementsTable(i))) == [9, 3]
    assert len(live.view()) == 12


def test_entitlements_that_a_condition_repeats_count_twice(live: World) -> None:
    """A row without a version is conditioned on its entitlements as read, which travel with the request.

    The view is read ahead by two pages of 1 MB, three rows each: the sixth account is the first horizon.
    """
    source = [SourceRecord(name, "active", {"plan": "y" * 300_000}) for name in numbered(8)]
    for name in numbered(8):
        live.view_row(name, version=None, plan="x" * 300_000)
    assert committed(live, Wire(live.client), job=lambda i: Job(Rows(source), EntitlementsTable(i))) == [5, 1, 2]
    assert set(live.versions().values()) == {1}


# completion


def test_the_last_segment_closes_the_interval_in_the_same_write(live: World, emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 3})
    grants(world, *numbered(12))
    wire = Wire(world.client)
    states: list[tuple[str, set[str]]] = []
    wire.next(
        "complete",
        then=meanwhile(lambda: states.append((world.interval()["state"], set(world.interval()["segments"])))),
    )
    world.run("nightly")
    assert states == [("RUNNING", set()), ("RUNNING", {"000"}), ("RUNNING", {"000", "001"})]
    assert [writer for writer, _ in wire.sent][-2:] == ["complete", "advance"]
    row = world.interval()
    assert (row["state"], set(row["segments"])) == ("COMPLETED", {"000", "001", "002"})
    closed = [event["interval_closed"] for event in world.audit() if event["event"] == "COMPLETED"]
    assert sorted(closed) == [False, False, True]
    assert {world.progress(segment)["done"] for segment in row["segments"]} == {True}


@pytest.mark.parametrize("segments", [2, 5])
def test_segments_that_complete_at_the_same_moment_close_the_interval_once(emulator_url: str, segments: int) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": segments}, RANGE_SIZE=7)
    grants(world, *numbered(60))
    world.run("nightly", remaining_s=60)
    barrier = Barrier(segments, timeout=20)

    def work(segment: str, client: DynamoDBClient) -> Completed | Adopted:
        Wire(client).next("complete", meanwhile(barrier.wait))
        invocation = world.invocation(f"worker-{segment}", client=client)
        holding: Any = acquire(read_interval(NIGHT, invocation=invocation), segment, invocation=invocation)
        while not isinstance(holding, Holding):  # another segment's acquire moved the interval
            holding = acquire(read_interval(NIGHT, invocation=invocation), segment, invocation=invocation)
        sides = Sides(AccountsTable(invocation), EntitlementsTable(invocation), segment, 1000)
        for page in sides.pages(None):
            result = commit([decide(pair) for pair in page], holding, invocation=invocation)
            assert isinstance(result, Committed)
            holding = result.holding
        return complete(holding, invocation=invocation)

    names = keys.segments(segments)
    with ThreadPoolExecutor(segments) as pool:
        working = [pool.submit(work, name, live_client(emulator_url)) for name in names]
    assert all(isinstance(worker.result(), Completed) for worker in working)
    row = world.interval()
    assert (row["state"], set(row["segments"])) == ("COMPLETED", set(names))
    closed = [event["interval_closed"] for event in world.audit() if event["event"] == "COMPLETED"]
    assert sorted(closed) == [False] * (segments - 1) + [True]
    assert (row["accounts"], row["granted"], row["view_rows"]) == (60, 60, 60)
    assert row["accounts"] == sum(part["accounts"] for part in row["segments"].values())
    assert row["checksum"] == world.view_checksum()
    assert row["checksum"] == hex_text(sum(int(part["checksum"], 16) for part in row["segments"].values()) % MODULUS)


def test_parallel_invocations_share_the_segments_and_finish_the_night_once(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 6}, RANGE_SIZE=3)
    grants(world, *numbered(60))
    world.run("nightly", remaining_s=60)
    world.clock.step_ms = 0

    def work(client: DynamoDBClient) -> list[str]:
        return [result.outcome for result in world.run(invocation=world.invocation(client=client))]

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(work, [live_client(emulator_url) for _ in range(4)]))
    assert sum(one.count("completed") for one in outcomes) == 6
    row = world.interval()
    assert (row["state"], row["accounts"], row["granted"]) == ("COMPLETED", 60, 60)
    assert set(world.versions().values()) == {1}
    assert {world.lease(segment)["generation"] for segment in row["segments"]} == {1}
    assert row["checksum"] == world.view_checksum()


def test_the_record_holds_what_was_done_and_a_checksum_of_every_view_row(night: World) -> None:
    night.view_row("a", version=3, plan="silver")
    night.view_row("b", plan="gold")
    night.view_row("z", plan="gold")
    night.view_row("y")
    night.put("AccountsTable", "c", status="active", entitlements="no map")
    night.view_row("c", plan="kept")
    night.run()
    row = night.interval()
    names = ("accounts", "granted", "changed", "revoked", "rejected", "view_rows")
    assert tuple(row[name] for name in names) == (8, 3, 1, 1, 1, 8)
    view = night.view()
    assert view["c"] == {"plan": "kept"}
    assert (view["y"], view["z"]) == ({}, {})
    assert row["checksum"] == hex_text(sum(digest(name, entitlements) for name, entitlements in view.items()))
    assert {name: row[name] for name in names} == {name: row["segments"]["000"][name] for name in names}


@pytest.mark.parametrize(("done", "late_by_s"), [("02:30:00", 0), ("06:00:00", 0), ("06:10:00", 600)])
def test_a_completion_says_how_late_it_was(night: World, done: str, late_by_s: int) -> None:
    night.clock.step_ms = 0
    night.clock.set(f"{NIGHT}T{done}Z")
    night.run()
    row = night.interval()
    assert row["late_by_s"] == late_by_s
    assert row["completed_at"] == f"{NIGHT}T{done}.000Z"
    assert (
        night.counted()["ConsistencyLag"]
        == clock.parse_ms(row["completed_at"]) / 1000 - clock.parse_ms(row["scheduled_at"]) / 1000
    )


def test_a_completed_interval_is_left_alone(night: World) -> None:
    night.run()
    before = everything(night)
    assert night.run() == []
    assert night.run("nightly", time=f"{NIGHT}T02:00:00Z") == []
    assert everything(night) == before


@pytest.mark.field("B23")
def test_an_interval_row_that_vanished_before_its_completion_is_made_again_only_by_the_calendar(night: World) -> None:
    holding, invocation = hold(night)
    result = commit(decisions(invocation, None, "f"), holding, invocation=invocation)
    assert isinstance(result, Committed)
    night.delete_control(INTERVAL)
    with pytest.raises(Exception, match="is gone"):
        complete(result.holding, invocation=invocation)
    assert not night.has(INTERVAL)
    night.expire_lease()
    (again,) = night.run()
    assert (again.outcome, again.accounts) == ("completed", 0)
    assert night.interval()["accounts"] == 6
    assert night.interval()["checksum"] == night.view_checksum()
