"""The story of a run, on moto."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler import clock, intervals
from reconciler.invocation import Invocation
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.kit import desired, seed
from tests.world import NIGHT, Slow, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

JobOf = Callable[[Invocation], Job]


def test_a_night_brings_the_view_in_line_with_the_source(world: World) -> None:
    seed(world)
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert world.view() == desired()
    row = world.interval()
    assert row["state"] == "COMPLETED"
    assert (row["accounts"], row["granted"], row["changed"], row["revoked"]) == (10, 2, 2, 4)
    assert row["checksum"] == world.view_checksum()
    assert world.events() == ["OBSERVED", "STARTED", "COMPLETED"]
    assert world.row("CONTROL")["open_from"] == "2026-11-30"
    assert row["run_id"] == f"entitlements/{NIGHT}/1"


class Crash(Exception):
    """Stands for a defect in somebody's job."""


def slow(world: World, seconds: float = 0, fails: Callable[[str | None], None] = lambda after: None) -> JobOf:
    """The sample job, with a source that takes its time or fails."""

    def job(invocation: Invocation) -> Job:
        source = Slow(AccountsTable(invocation), world.clock, seconds, fails)
        return Job(source, EntitlementsTable(invocation))

    return job


def test_a_39_minute_run_completes_over_several_invocations(world: World) -> None:
    seed(world, 156)
    world.set(page_size=4, range_size=10)
    outcomes: list[str] = []
    while not outcomes or outcomes[-1] != "completed":
        started = world.clock.wall_ms
        (result,) = world.run(job=slow(world, seconds=60), remaining_s=900)
        outcomes.append(result.outcome)
        assert world.clock.wall_ms - started < 900_000
        world.clock.advance(300)
    assert outcomes == ["yielded", "yielded", "completed"]
    assert world.view() == desired(156)
    assert world.events() == [
        *("OBSERVED", "STARTED", "YIELDED"),
        *("RESUMED", "YIELDED"),
        *("RESUMED", "COMPLETED"),
    ]
    row = world.interval()
    assert row["accounts"] == 156
    assert row["checksum"] == world.view_checksum()
    assert set(world.versions().values()) == {1, 2, 8}
    assert row["first_started_at"] < row["completed_at"]
    assert row["repair_owner"] == "worker-1"


def test_an_error_after_the_first_committed_range_is_found_by_its_run_id_and_repeats_nothing(world: World) -> None:
    seed(world, 30)
    world.set(page_size=8, range_size=10)

    def fails(after: str | None) -> None:
        if after is not None:
            raise Crash("the second page is broken")

    with pytest.raises(Crash):
        world.run("nightly", job=slow(world, fails=fails))
    run_id = f"entitlements/{NIGHT}/1"
    assert {row["event"] for row in world.audit() if row["run_id"] == run_id} == {"OBSERVED", "STARTED", "FAILED"}
    assert world.interval()["last_error"]["error"] == "Crash"
    assert (world.progress()["run_id"], world.progress()["checkpoint"]) == (run_id, "acct-0009")
    versions = world.versions()

    world.clock.advance(60)
    (result,) = world.run()
    assert (result.outcome, result.generation, result.resumed_after) == ("completed", 2, "acct-0009")
    assert world.view() == desired(30)
    assert {name: world.versions()[name] for name in versions if name <= "acct-0009"} == {
        name: version for name, version in versions.items() if name <= "acct-0009"
    }
    assert world.interval()["accounts"] == 30


def test_poison_shrinks_to_one_account_and_then_needs_repair_while_later_intervals_go_on(world: World) -> None:
    for index in range(40):
        world.account(f"acct-{index:04d}", plan="gold")

    def fails(after: str | None) -> None:
        """The first night only: whoever reads on from account 0019."""
        if world.clock.wall_ms < clock.parse_ms("2026-11-30T00:00:00Z") and after == "acct-0019":
            raise Crash("poison")

    world.set(page_size=20, range_size=20, backoff_seconds=0)
    outcomes = []
    for _ in range(7):
        try:
            outcomes.append([result.outcome for result in world.run(job=slow(world, fails=fails))])
        except Crash:
            outcomes.append(["failed"])
    assert outcomes == [["failed"]] * 6 + [[]]
    assert world.interval()["state"] == "NEEDS_REPAIR"
    assert world.events()[-1] == "NEEDS_REPAIR"
    assert world.progress()["checkpoint"] == "acct-0019"

    world.clock.set("2026-11-30T02:00:01Z")
    (result,) = world.run(job=slow(world, fails=fails))
    assert (result.interval, result.outcome) == ("2026-11-30", "completed")
    assert world.interval()["state"] == "NEEDS_REPAIR"
    assert world.row("CONTROL")["open_from"] == NIGHT


def test_a_held_segment_delays_once_and_never_blocks_another(client: DynamoDBClient) -> None:
    world = World(client, {"SegmentCount": 2})
    seed(world, 40)
    world.run("nightly", remaining_s=100, job=slow(world, seconds=100))
    first = world.lease("000")
    world.put_control("LEASE#000", owner="somebody", token="theirs", expires_at_ms=world.clock.wall_ms + 100_000)

    outcomes = [(result.segment, result.outcome) for result in world.run()]
    assert outcomes == [("000", "delayed"), ("001", "completed")]
    again = [(result.segment, result.outcome) for result in world.run()]
    assert again == [("000", "delayed")]
    assert [result.outcome for result in world.run()] == ["delayed"]
    assert world.events().count("DELAYED") == 1
    assert set(world.interval()["delays"]) == {"lease_held"}

    world.expire_lease()
    (result,) = world.run()
    assert (result.outcome, result.generation) == ("completed", first["generation"] + 1)
    assert world.interval()["state"] == "COMPLETED"
    assert world.view() == desired(40)


def test_an_idle_tick_reads_two_rows_at_most_and_writes_nothing(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly")
    finished = world.interval()
    for nights in range(1, 1000):
        night = intervals.shifted(NIGHT, -nights)
        world.put_row("ControlTable", **{**finished, "sk": f"INTERVAL#{night}"})
    world.requests.clear()
    assert world.run() == []
    assert [name for name, _ in world.requests] == ["GetItem"]


def test_an_idle_tick_beside_an_interval_that_needs_repair_stays_as_cheap(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    world.put_control(f"INTERVAL#{NIGHT}", state="NEEDS_REPAIR")
    world.requests.clear()
    assert world.run() == []
    assert [name for name, _ in world.requests] == ["GetItem", "Query"]


def test_without_changes_only_commits_write_and_each_writes_two_rows(world: World) -> None:
    seed(world, 50)
    world.run("nightly")
    world.set(page_size=10, range_size=100)
    world.clock.set("2026-11-30T02:00:05Z")
    world.requests.clear()
    world.run("nightly")
    writes = [params["TransactItems"] for name, params in world.requests if name == "TransactWriteItems"]
    tables = [sorted(next(iter(item.values()))["TableName"] for item in items) for items in writes]
    control = world.tables["ControlTable"]
    observe, acquire, *commits, complete, advance = tables
    assert {len(commit) for commit in commits} == {2}
    assert {table for commit in commits for table in commit} == {control}
    assert len(commits) == 4, "40 source rows, 10 a page"
    assert (len(observe), len(acquire), len(complete), len(advance)) == (2, 5, 4, 2)
    assert {name for name, _ in world.requests} == {"GetItem", "Query", "TransactWriteItems"}


def test_intervals_run_oldest_first_and_the_calendar_not_the_trigger_decides(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    assert world.interval()["state"] == "EXPECTED"
    world.clock.set("2026-12-01T02:00:05Z")
    results = world.run("tick")
    assert [result.interval for result in results] == [NIGHT, "2026-11-30", "2026-12-01"]
    assert {result.outcome for result in results} == {"completed"}
    assert world.row("CONTROL")["open_from"] == "2026-12-02"
