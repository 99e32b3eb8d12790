"""Acquire and release: who may work on a segment, how attempts are counted, and what is written down about it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from reconciler import clock
from reconciler.acquire import NotAcquired, acquire, backoff_ms
from reconciler.commit import Committed, commit
from reconciler.errors import LeaseRowMissing, SchemaTooNew, TransientFailure
from reconciler.invocation import Invocation
from reconciler.leases import Holding
from reconciler.records import read_interval
from reconciler.release import Ending, end_attempt
from reconciler.scan import Sides
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.conftest import live_client
from tests.faults import NEVER_SENT, PASS, Fault, Wire, cancelled, meanwhile
from tests.kit import everything, grants, hold, killed, numbered
from tests.world import NIGHT, Slow, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

LEASE, PROGRESS, INTERVAL = "LEASE#000", f"PROGRESS#{NIGHT}#1#000", f"INTERVAL#{NIGHT}"
NEXT_NIGHT = "2026-11-30"


@pytest.fixture
def night(live: World) -> World:
    """A night of four accounts to grant, a page and a range each two; due and observed, on the emulator."""
    grants(live, *"abcd")
    live.set(page_size=2, range_size=2)
    live.run("nightly", remaining_s=60)
    return live


def yields(world: World, after_ranges: int = 1, **about: Any) -> None:
    """A worker that has time for so many ranges."""
    wire = Wire(world.client)
    wire.next("commit", *[PASS] * (after_ranges - 1), meanwhile(lambda: world.clock.advance(100)))
    (result,) = world.run(**about)
    assert result.outcome == "yielded"


# a compare-and-swap on exactly what was read


@pytest.mark.field("B23")
def test_generations_start_at_one_and_every_acquire_raises_it_by_one(night: World) -> None:
    generations = []
    for _ in range(2):
        yields(night)
        generations.append(night.lease()["generation"])
        night.clock.advance(1)
    hold(night)
    night.expire_lease()
    (result,) = night.run()
    assert [*generations, result.generation] == [1, 2, 4]
    assert night.lease()["generation"] == 4
    assert [row.get("generation") for row in night.audit()] == [None, 1, 1, 2, 2, 3, 4, 4]


def released(world: World) -> None:
    yields(world)


def expired(world: World) -> None:
    hold(world)
    world.expire_lease()


def taken_and_released(world: World) -> None:
    hold(world)
    world.expire_lease()
    yields(world, owner="worker-2")


def completed(world: World) -> None:
    assert world.run()[0].outcome == "completed"


@pytest.mark.parametrize("token", ["same", "other"])
@pytest.mark.parametrize("since", [released, expired, taken_and_released, completed])
def test_a_duplicate_of_an_acquire_never_takes_a_lease_later(
    night: World, since: Callable[[World], None], token: str
) -> None:
    wire = Wire(night.client)
    since(night)
    request = wire.requests("acquire")[0]
    before = everything(night)
    if token == "same":
        night.client.transact_write_items(**request)  # the service remembers its first answer
    else:
        with pytest.raises(ClientError, match="TransactionCanceledException"):
            night.client.transact_write_items(**request | {"ClientRequestToken": "another"})
    assert everything(night) == before


def test_an_acquire_that_was_delayed_on_its_way_fails_once_the_lease_was_used_for_another_interval(
    night: World,
) -> None:
    night.put_control(INTERVAL, state="NEEDS_REPAIR")
    night.clock.set(f"{NEXT_NIGHT}T02:00:05Z")
    wire = Wire(night.client)
    wire.next("acquire", then=NEVER_SENT)
    with pytest.raises(TransientFailure):
        night.run(owner="delayed")
    wire.next("acquire")
    night.put_control(INTERVAL, state="RUNNING")
    yields(night, owner="faster")
    before = everything(night)
    with pytest.raises(ClientError, match="TransactionCanceledException"):
        night.client.transact_write_items(**wire.requests("acquire")[0])
    assert everything(night) == before


def test_a_late_holder_that_commits_just_in_time_keeps_its_lease(night: World) -> None:
    late = hold(night, "late")
    night.put_control(INTERVAL, state="NEEDS_REPAIR")
    night.clock.set(f"{NEXT_NIGHT}T02:00:05Z")
    invocation = night.invocation("late")
    sides = Sides(AccountsTable(invocation), EntitlementsTable(invocation), "000", 2)
    wire = Wire(night.client)
    renewed = []
    wire.next(
        "acquire", meanwhile(lambda: renewed.append(commit(sides.between(None, "b"), late, invocation=invocation)))
    )
    (result,) = night.run(owner="early")
    assert isinstance(renewed[0], Committed)
    assert (result.interval, result.outcome) == (NEXT_NIGHT, "delayed")
    assert (night.lease()["owner"], night.lease()["generation"]) == ("late", 1)
    assert night.lease()["expires_at_ms"] > night.clock.wall_ms


@pytest.mark.parametrize(("past_ms", "outcome"), [(-1, "delayed"), (0, "delayed"), (1, "completed")])
def test_a_lease_is_free_only_after_its_expiry_and_the_clock_skew(night: World, past_ms: int, outcome: str) -> None:
    yields(night)
    night.clock.advance(1)
    hold(night, "somebody")
    free_at = night.lease()["expires_at_ms"] + night.settings.skew_ms
    night.clock.step_ms = 0
    night.clock.advance((free_at + past_ms - night.clock.wall_ms) / 1000)
    assert night.run()[-1].outcome == outcome


def test_a_held_segment_says_until_when(night: World) -> None:
    hold(night, "somebody")
    (result,) = night.run()
    assert (result.outcome, result.held_until) == ("delayed", clock.text(night.lease()["expires_at_ms"]))


def test_of_eight_workers_racing_for_one_lease_exactly_one_wins(live: World, emulator_url: str) -> None:
    live.run("nightly", remaining_s=60)
    workers, rounds = 8, 25
    barrier = Barrier(workers, timeout=20)
    live.clock.step_ms = 0
    won: list[list[Holding]] = [[] for _ in range(rounds)]

    def race(name: str, client: DynamoDBClient) -> None:
        """Reads, waits until all have read, and only then writes."""
        Wire(client).next("acquire", then=meanwhile(barrier.wait))
        for one_round in won:
            invocation = live.invocation(name, client=client)
            record = read_interval(NIGHT, invocation=invocation)
            barrier.wait()
            acquired = acquire(record, "000", invocation=invocation)
            if isinstance(acquired, Holding):
                one_round.append(acquired)
            else:
                assert acquired.why == "held"
            barrier.wait()
            if isinstance(acquired, Holding):
                assert end_attempt(acquired, Ending("yielded", "next round"), invocation=invocation)
            barrier.wait()

    with ThreadPoolExecutor(workers) as pool:
        racing = [pool.submit(race, f"racer-{index}", live_client(emulator_url)) for index in range(workers)]
    for racer in racing:
        racer.result()
    assert [len(one_round) for one_round in won] == [1] * rounds
    assert [holding.lease.generation for one_round in won for holding in one_round] == list(range(1, rounds + 1))
    assert len({holding.lease.token for one_round in won for holding in one_round}) == rounds


def test_triggers_that_begin_a_new_job_at_the_same_moment_make_its_rows_once(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 2})
    grants(world, *numbered(10))
    barrier = Barrier(4, timeout=20)

    def begin(client: DynamoDBClient) -> list[str]:
        client.meta.events.register("after-call.dynamodb.DescribeTable", world._created)
        wire = Wire(client)
        wire.next("setup", meanwhile(barrier.wait))
        wire.next("observe", meanwhile(barrier.wait))
        return [result.outcome for result in world.run(invocation=world.invocation(client=client))]

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(begin, [live_client(emulator_url) for _ in range(4)]))
    assert sum(one.count("completed") for one in outcomes) == 2
    assert world.events().count("OBSERVED") == 1
    assert {world.lease(segment)["generation"] for segment in ("000", "001")} == {1}
    assert world.interval()["state"] == "COMPLETED"
    assert set(world.versions().values()) == {1}


# what an acquire refuses


@pytest.mark.field("B11")
def test_a_missing_lease_row_is_never_made_again_and_the_error_tells_how_to_restore_it(night: World) -> None:
    yields(night)
    night.delete_control(LEASE)
    before = everything(night)
    with pytest.raises(LeaseRowMissing, match=r"LEASE#000 is missing.*ReleaseLease.*generation above"):
        night.run()
    assert everything(night) == before


@pytest.mark.parametrize("sort_key", ["CONTROL", LEASE, INTERVAL, PROGRESS])
def test_a_row_of_a_newer_schema_stops_the_run_before_it_writes(night: World, sort_key: str) -> None:
    yields(night)
    night.put_control(sort_key, schema=2)
    before = everything(night)
    with pytest.raises(SchemaTooNew, match=f"{sort_key} has schema 2"):
        night.run()
    assert everything(night) == before


def test_a_paused_lease_is_not_taken_and_the_interval_says_why(night: World) -> None:
    yields(night)
    night.put_control(LEASE, paused=1)
    before = night.lease()
    assert [result.outcome for result in night.run()] == ["paused"]
    assert [result.outcome for result in night.run()] == ["paused"]
    assert night.lease() == before
    assert set(night.interval()["delays"]) == {"paused"}
    assert night.events().count("DELAYED") == 1


def test_a_segment_that_is_done_is_not_taken_again(night: World) -> None:
    yields(night)
    night.put_control(PROGRESS, done=True)
    before = night.lease()
    invocation = night.invocation()
    assert acquire(read_interval(NIGHT, invocation=invocation), "000", invocation=invocation) == NotAcquired("done")
    assert night.lease() == before


# attempts without progress


def test_a_killed_worker_has_counted_its_attempt_and_its_backoff(night: World) -> None:
    killed(night, Wire(night.client), "commit")
    row = night.progress()
    assert row["attempts"] == 1
    assert 30_000 <= row["next_attempt_at_ms"] - night.lease()["acquired_at_ms"] <= 60_000
    assert "checkpoint" not in row


def test_attempts_count_since_the_last_commit(night: World) -> None:
    wire = Wire(night.client)
    for commits in (1, 1, 2, 1):
        killed(night, wire, "commit", commits, kind="tick")
        night.expire_lease()
        night.clock.advance(3600)
    assert (night.progress()["attempts"], night.progress()["checkpoint"]) == (1, "a"), "the last one's"


def test_a_commit_lifts_the_backoff(night: World) -> None:
    night.set(backoff_seconds=3600)
    killed(night, Wire(night.client), "commit", 2)
    night.expire_lease()
    assert night.run()[0].outcome == "completed"


@pytest.mark.parametrize(
    ("breaks_after", "attempts", "state"), [(None, 1, "NEEDS_REPAIR"), ("b", 0, "RUNNING")], ids=["none", "one range"]
)
def test_an_attempt_that_failed_after_some_progress_is_not_one_without(
    night: World, breaks_after: str | None, attempts: int, state: str
) -> None:
    def breaks(after: str | None) -> None:
        if after == breaks_after:
            raise ZeroDivisionError("a defect in the source")

    def job(invocation: Invocation) -> Job:
        return Job(Slow(AccountsTable(invocation), night.clock, fails=breaks), EntitlementsTable(invocation))

    night.set(max_attempts=1)
    with pytest.raises(ZeroDivisionError):
        night.run(job=job)
    assert (night.progress()["attempts"], night.interval()["state"]) == (attempts, state)
    assert night.interval()["last_error"]["error"] == "ZeroDivisionError"


def test_nobody_tries_again_before_the_backoff_is_over(night: World) -> None:
    night.set(lease_seconds=60, backoff_seconds=600, connect_timeout_seconds=0.5, read_timeout_seconds=0.5)
    killed(night, Wire(night.client), "commit")
    night.expire_lease()
    assert [result.outcome for result in night.run()] == ["waiting"]
    assert (set(night.interval()["delays"]), night.events()[-1]) == ({"backoff"}, "DELAYED")
    before = everything(night)
    assert [result.outcome for result in night.run()] == ["waiting"]
    assert everything(night) == before, "said once"
    night.clock.advance(600)
    assert [result.outcome for result in night.run()] == ["completed"]


def test_the_backoff_doubles_with_every_attempt_up_to_its_longest(night: World) -> None:
    longest = [60, 120, 240, 480, 960, 1920, 3600, 3600]
    for attempts, seconds in enumerate(longest, start=1):
        waits = [backoff_ms(attempts, night.settings) / 1000 for _ in range(50)]
        assert seconds / 2 <= min(waits) < max(waits) <= seconds
    assert backoff_ms(10**6, night.settings) <= 3_600_000


@pytest.mark.parametrize(("kills", "ranges"), [(0, 1), (1, 5), (2, 20), (3, 20)])
def test_every_attempt_without_progress_divides_the_range_by_sixteen(live: World, kills: int, ranges: int) -> None:
    grants(live, *numbered(20))
    live.set(range_size=64)
    wire = Wire(live.client)
    for _ in range(kills):
        killed(live, wire, "commit")
        live.expire_lease()
        live.clock.advance(3600)
    (result,) = live.run("nightly")
    assert (result.outcome, result.ranges) == ("completed", ranges), "to the end of the attempt, whatever it committed"
    assert live.progress()["attempts"] == 0


def test_at_the_limit_an_attempt_only_says_that_the_interval_needs_repair(night: World) -> None:
    wire = Wire(night.client)
    for _ in range(night.settings.max_attempts):
        killed(night, wire, "commit")
        night.expire_lease()
        night.clock.advance(3600)
    night.requests.clear()
    (result,) = night.run()
    assert (result.outcome, result.ranges, result.generation) == ("needs_repair", 0, 6)
    read = {params["TableName"] for name, params in night.requests if name == "Query"}
    assert read == {night.tables["ControlTable"]}, "neither side is read"
    row = night.interval()
    assert (row["state"], row["last_error"]["error"]) == ("NEEDS_REPAIR", "5 attempts without progress")
    assert "owner" not in night.lease()
    assert night.view() == {}
    assert night.events()[-1] == "NEEDS_REPAIR"
    night.clock.advance(7200)
    before = everything(night)
    assert night.run() == []
    assert everything(night) == before


def test_after_needs_repair_no_other_segment_starts_but_a_running_one_finishes(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 3}, MAX_ATTEMPTS=1)
    grants(world, *numbered(12))
    wire = Wire(world.client)
    killed(world, wire, "commit")
    world.expire_lease()
    outcomes: list[tuple[str, str]] = []

    def another_exhausts_its_attempts() -> None:
        world.clock.advance(10)
        outcomes.extend((result.segment, result.outcome) for result in world.run(owner="worker-2"))

    world.put_control(LEASE, owner="somebody", expires_at_ms=world.clock.wall_ms + 1)
    wire.next("commit", meanwhile(another_exhausts_its_attempts))
    results = [(result.segment, result.outcome) for result in world.run(owner="worker-1")]
    assert outcomes == [("000", "needs_repair"), ("001", "delayed"), ("002", "moved")]
    assert results == [("000", "delayed"), ("001", "completed")]
    row = world.interval()
    assert (row["state"], set(row["segments"])) == ("NEEDS_REPAIR", {"001"})
    assert world.lease("002")["generation"] == 0


def test_the_limit_does_not_wait_for_the_backoff(night: World) -> None:
    night.set(max_attempts=1, backoff_seconds=3600)
    killed(night, Wire(night.client), "commit")
    night.expire_lease()
    assert night.run()[0].outcome == "needs_repair"


def test_a_rerun_forgives_earlier_attempts_and_their_backoff(night: World) -> None:
    night.set(max_attempts=1, backoff_seconds=3600)
    killed(night, Wire(night.client), "commit")
    night.expire_lease()
    night.put_control(INTERVAL, rerun=1)
    (result,) = night.run()
    assert (result.outcome, result.ranges) == ("completed", 2)


@pytest.mark.parametrize("kills", [0, 2])
def test_a_clean_yield_gives_its_attempt_back_and_waits_for_nothing(night: World, kills: int) -> None:
    wire = Wire(night.client)
    for _ in range(kills):
        killed(night, wire, "commit")
        night.expire_lease()
        night.clock.advance(3600)
    wire.next("acquire", meanwhile(lambda: night.clock.advance(100)))
    (result,) = night.run()
    assert (result.outcome, result.ranges) == ("yielded", 0)
    assert night.progress()["attempts"] == kills
    assert "next_attempt_at_ms" not in night.progress()
    assert "owner" not in night.lease()
    assert night.run()[0].outcome == "completed"


def test_an_attempt_too_slow_for_a_single_range_counts_so_that_its_ranges_shrink(night: World) -> None:
    wire = Wire(night.client)
    conflict = cancelled({"a": "ConditionalCheckFailed"}).instead
    wire.next("commit", Fault(meanwhile=lambda: night.clock.advance(100), instead=conflict))
    (result,) = night.run()
    assert (result.outcome, result.ranges) == ("yielded", 0)
    assert night.progress()["attempts"] == 1
    assert night.progress()["next_attempt_at_ms"] > night.clock.wall_ms
    night.clock.advance(60)
    assert (night.run()[0].outcome, night.progress()["ranges"]) == ("completed", 4)


@pytest.mark.parametrize("kills", [0, 2])
def test_an_error_of_aws_gives_its_attempt_back_but_waits(night: World, kills: int) -> None:
    wire = Wire(night.client)
    for _ in range(kills):
        killed(night, wire, "commit")
        night.expire_lease()
        night.clock.advance(3600)
    wire.next("commit", then=NEVER_SENT)
    with pytest.raises(TransientFailure):
        night.run()
    assert night.progress()["attempts"] == kills
    assert night.progress()["next_attempt_at_ms"] > night.clock.wall_ms
    assert "owner" not in night.lease()


# what is written down


def test_a_takeover_names_the_loser(night: World) -> None:
    killed(night, Wire(night.client), "commit", owner="the dead")
    night.expire_lease()
    night.run(owner="the heir")
    (event,) = [row for row in night.audit() if row["event"] == "TAKEOVER"]
    assert (event["actor"], event["loser"], event["loser_generation"], event["generation"]) == (
        *("the heir", "the dead"),
        *(1, 2),
    )
    assert (night.lease()["previous_owner"], night.lease()["previous_generation"]) == ("the dead", 1)
    assert night.counted()["Takeovers"] == 1
    assert night.interval()["repair_owner"] == "the heir"


def test_a_resume_after_a_release_is_no_takeover(night: World) -> None:
    yields(night, owner="first")
    night.clock.advance(1)
    (result,) = night.run(owner="second")
    assert result.resumed_after == "b"
    assert night.events() == ["OBSERVED", "STARTED", "YIELDED", "RESUMED", "COMPLETED"]
    assert "Takeovers" not in night.counted()
    assert night.interval()["repair_owner"] == "second"


def test_an_interval_that_nobody_had_begun_has_no_repair_owner_though_its_lease_was_taken_over(night: World) -> None:
    killed(night, Wire(night.client), "commit", owner="the dead")
    night.put_control(INTERVAL, state="NEEDS_REPAIR")
    night.clock.set(f"{NEXT_NIGHT}T02:00:05Z")
    (result,) = night.run("nightly")
    assert (result.interval, result.outcome) == (NEXT_NIGHT, "completed")
    assert "TAKEOVER" in night.events(NEXT_NIGHT)
    assert "repair_owner" not in night.interval(NEXT_NIGHT)


def test_an_undisturbed_interval_has_no_repair_owner(night: World) -> None:
    night.run()
    assert "repair_owner" not in night.interval()
    assert night.events() == ["OBSERVED", "STARTED", "COMPLETED"]


def test_the_first_start_is_never_overwritten(night: World) -> None:
    killed(night, Wire(night.client), "commit")
    first = night.interval()["first_started_at"]
    night.expire_lease()
    yields(night)
    night.clock.advance(60)
    night.run()
    assert night.interval()["first_started_at"] == first
    assert clock.parse_ms(first) < clock.parse_ms(night.interval()["completed_at"]) - 200_000
    assert night.counted()["RunDelay"] < 60, "told once"


@pytest.mark.field("B11")
def test_a_released_lease_row_stays_and_can_never_expire(night: World) -> None:
    night.run()
    row = night.lease()
    assert not {"owner", "expires_at_ms", "expires_at"} & set(row)
    assert {"generation", "token", "acquired_at_ms", "progress_at_ms", "interval_id", "schema"} <= set(row)


def test_every_row_that_a_run_wrote_names_the_run_and_its_generation(night: World) -> None:
    night.put("AccountsTable", "e", status="unheard of", entitlements={})
    yields(night)
    night.clock.advance(1)
    night.run()
    control = night.control()
    rows = [row for sort_key, row in control.items() if sort_key != "CONTROL"] + night.scan("EntitlementsTable")
    assert {row["run_id"] for row in rows} == {f"entitlements/{NIGHT}/1"}
    unfenced = {row["sk"] for row in rows if "generation" not in row}
    assert unfenced == {INTERVAL, *(row["sk"] for row in night.audit() if row["event"] == "OBSERVED")}
    assert {row["schema"] for row in control.values()} == {1}
