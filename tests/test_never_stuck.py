"""Nothing is stuck in silence: a sick part keeps no other from running, and every odd row is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.errors import (
    LeaseRowMissing,
    OutOfTime,
    Refused,
    RowInvalid,
    RowMissing,
    SchemaTooNew,
    TransientFailure,
)
from reconciler.invocation import Invocation
from reconciler.merge import Page
from reconciler.scan import Sides
from reconciler.source import SourceRecord
from reconciler.view import EntitlementsTable, ViewRow
from reconciler.watchdog import look
from reconciler.work import Job
from tests.faults import NEVER_SENT, Fault, Wire, meanwhile
from tests.kit import desired, seed
from tests.world import NIGHT, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


def two_segments(client: DynamoDBClient) -> World:
    world = World(client, {"SegmentCount": 2})
    seed(world, 40)
    return world


def finished(world: World, interval_id: str = NIGHT) -> list[str]:
    return sorted(world.interval(interval_id)["segments"])


# a sick segment


def test_a_segment_whose_source_is_throttled_keeps_no_other_from_running(client: DynamoDBClient) -> None:
    world = two_segments(client)

    class Throttled:
        def __init__(self, side: Any) -> None:
            self.side = side

        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
            if segment == "000":
                raise TransientFailure("throttled")
            return self.side.read(segment, after=after, upto=upto, limit=limit)

    def job(invocation: Invocation) -> Job:
        from reconciler.source import AccountsTable

        return Job(Throttled(AccountsTable(invocation)), EntitlementsTable(invocation))

    with pytest.raises(TransientFailure, match="throttled"):
        world.run("nightly", job=job)
    assert finished(world) == ["001"]


def test_a_lost_lease_row_keeps_no_other_segment_and_no_other_night_from_running(client: DynamoDBClient) -> None:
    world = two_segments(client)
    world.run("nightly", remaining_s=60)
    world.delete_control(keys.lease("000"))
    world.clock.set("2026-11-30T02:00:05Z")
    with pytest.raises(LeaseRowMissing):
        world.run()
    assert finished(world) == finished(world, "2026-11-30") == ["001"]
    assert not world.has(keys.lease("000"))


def test_an_unreadable_progress_row_is_named_and_keeps_no_later_night_from_running(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    world.put_control(keys.progress(NIGHT, 1, "000"), attempts="many")
    world.clock.set("2026-11-30T02:00:05Z")
    with pytest.raises(RowInvalid, match=rf"PROGRESS#{NIGHT}#1#000: attempts is 'many', not a whole number"):
        world.run()
    assert world.interval("2026-11-30")["state"] == "COMPLETED"


def test_a_finished_segment_without_its_totals_is_a_loud_error(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly")
    world.put_control("CONTROL", open_from=NIGHT)
    world.delete_control(keys.interval(NIGHT))
    with pytest.raises(RowInvalid, match=rf"PROGRESS#{NIGHT}#1#000 is done, but INTERVAL#{NIGHT} lacks its totals"):
        world.run()


def test_an_answer_that_never_came_to_one_acquire_keeps_no_other_segment_from_running(client: DynamoDBClient) -> None:
    world = two_segments(client)
    Wire(client).next("acquire", Fault(meanwhile=lambda: world.clock.advance(20), unsent=NEVER_SENT.unsent))
    with pytest.raises(TransientFailure):
        world.run("nightly")
    assert finished(world) == ["001"]


def test_an_interval_row_that_vanished_keeps_no_later_night_from_running(client: DynamoDBClient) -> None:
    world = two_segments(client)
    world.run("nightly", remaining_s=60)
    world.clock.set("2026-11-30T02:00:05Z")
    Wire(client).next("acquire", meanwhile(lambda: world.delete_control(keys.interval(NIGHT))))
    with pytest.raises(RowMissing, match=f"INTERVAL#{NIGHT} is gone"):
        world.run()
    assert world.interval("2026-11-30")["state"] == "COMPLETED"


def test_the_first_of_several_failures_is_the_one_that_is_raised(client: DynamoDBClient) -> None:
    world = two_segments(client)

    class Broken:
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
            raise {"000": ZeroDivisionError, "001": TransientFailure}[segment](segment)

    with pytest.raises(ZeroDivisionError):
        world.run("nightly", job=lambda i: Job(Broken(), EntitlementsTable(i)))
    assert world.events().count("FAILED") == 2


def test_a_lease_left_paused_by_mistake_keeps_no_other_segment_from_running(client: DynamoDBClient) -> None:
    world = two_segments(client)
    world.run("nightly", remaining_s=60)
    world.put_control(keys.lease("000"), paused=1)
    assert [result.outcome for result in world.run()] == ["paused", "completed"]


@pytest.mark.parametrize("sort_key", ["LEASE#000", f"PROGRESS#{NIGHT}#1#000", f"INTERVAL#{NIGHT}", "CONTROL"])
def test_a_row_of_a_newer_schema_stops_every_segment_and_night(client: DynamoDBClient, sort_key: str) -> None:
    world = two_segments(client)
    world.run("nightly", remaining_s=60)
    world.put_control(sort_key, schema=2)
    world.clock.set("2026-11-30T02:00:05Z")
    before = world.view()
    with pytest.raises(SchemaTooNew, match=sort_key):
        world.run()
    assert world.view() == before


def test_a_row_of_a_newer_schema_that_appears_in_mid_run_stops_the_other_segments_too(client: DynamoDBClient) -> None:
    world = two_segments(client)
    progress = keys.progress(NIGHT, 1, "000")
    Wire(client).next("commit", meanwhile(lambda: world.put_control(progress, schema=2, checkpoint="acct-0001")))
    with pytest.raises(SchemaTooNew, match=progress):
        world.run("nightly")
    assert finished(world) == []
    assert not world.has(keys.progress(NIGHT, 1, "001"))


class Bomb(dict[str, Any]):
    """Entitlements that the job cannot digest."""

    def items(self) -> Any:
        raise ZeroDivisionError("a defect in the job")


def test_a_defect_that_one_account_sets_off_lets_every_account_before_it_pass_and_then_needs_repair(
    world: World,
) -> None:
    world.set(backoff_seconds=0)

    class Source:
        ids = tuple(f"acct-{index:04d}" for index in range(60))

        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
            ids = [name for name in self.ids if (after or "") < name and (upto is None or name <= upto)]
            given = {"acct-0037": Bomb(plan="gold")}
            return Page(tuple(SourceRecord(name, "active", given.get(name, {"plan": "gold"})) for name in ids), None)

    for _ in range(20):
        if world.has(keys.interval(NIGHT)) and world.interval()["state"] == "NEEDS_REPAIR":
            break
        with pytest.raises(ZeroDivisionError):
            world.run("nightly", job=lambda i: Job(Source(), EntitlementsTable(i)))
    assert world.interval()["state"] == "NEEDS_REPAIR"
    assert sorted(world.view()) == [f"acct-{index:04d}" for index in range(37)]
    assert world.interval()["last_error"]["error"] == "ZeroDivisionError"


# a changed schedule


@pytest.mark.parametrize("hour", [3, 23])
def test_a_changed_schedule_hides_no_night_that_had_begun(world: World, hour: int) -> None:
    seed(world, 20)
    world.set(page_size=5, range_size=5)
    wire = Wire(world.client)
    wire.next("commit", Fault(meanwhile=lambda: world.clock.advance(100)))
    assert world.run("nightly")[0].outcome == "yielded"
    world.set(schedule_hour=hour, deadline_minutes=15)
    world.clock.set(f"{NIGHT}T02:30:00Z")
    assert look(invocation=world.invocation())["UnfinishedIntervals"] == 1
    world.put_control(keys.interval(NIGHT), deadline_at=f"{NIGHT}T02:15:00.000Z")
    assert look(invocation=world.invocation())["SecondsPastDeadline"] >= 900
    assert world.run()[0].outcome == "completed"
    assert world.view() == desired(20)


# the revocation guard


def revoking(client: DynamoDBClient, bound: int = 2) -> World:
    world = World(client, {"SegmentCount": 2})
    for index in range(20):
        world.account(f"acct-{index:04d}", status="cancelled", plan="gold")
        world.view_row(f"acct-{index:04d}", plan="gold")
    world.set(max_revocations=bound, range_size=1)
    return world


def revoked(world: World) -> int:
    return sum(entitlements == {} for entitlements in world.view().values())


def test_a_trip_that_cannot_reach_the_other_leases_pauses_the_job_without_them(client: DynamoDBClient) -> None:
    world = revoking(client)
    Wire(client).next("trip", Fault(meanwhile=lambda: world.clock.advance(20), unsent=NEVER_SENT.unsent))
    assert world.run("nightly")[-1].outcome == "tripped"
    assert world.row("CONTROL")["pause"]["why"].startswith("3 revocations")
    assert "paused" not in world.lease("001")
    world.clock.set("2026-11-30T02:00:05Z")
    assert {result.outcome for result in world.run()} == {"paused"}
    assert revoked(world) == 2


@pytest.mark.parametrize("spoiled", [{"schema": 2}, {"pause_no": "x"}, {"segment_count": 3}])
def test_a_trip_that_cannot_be_written_at_all_ends_the_invocation(
    client: DynamoDBClient, spoiled: dict[str, Any]
) -> None:
    """Slow ranges in the other segment outlast the lease of the tripping one, which the next night could take then."""
    world = World(client, {"SegmentCount": 2}, RANGE_SIZE=1, PAGE_SIZE=5, MAX_REVOCATIONS=2)
    names = [f"acct-{index:04d}" for index in range(60)]
    for name in [name for name in names if keys.segment_of(name, 2) == "000"][:12]:
        world.account(name, status="cancelled")
        world.view_row(name, plan="gold")
    for name in [name for name in names if keys.segment_of(name, 2) == "001"][:8]:
        world.account(name, plan="gold")
    world.clock.set("2026-12-01T02:00:05Z")
    commits = iter(range(100))

    def slowly() -> None:
        world.clock.advance(18)
        if next(commits) == 1:
            world.put_control("CONTROL", **spoiled)

    Wire(client).next("commit", then=meanwhile(slowly))
    with pytest.raises(Refused):
        world.run("nightly", time=f"{NIGHT}T02:00:00Z")
    assert revoked(world) == 2
    assert world.interval("2026-11-30")["state"] == "EXPECTED"


def test_a_pause_that_reached_control_alone_keeps_every_invocation_from_the_next_acquire(
    client: DynamoDBClient,
) -> None:
    world = two_segments(client)
    world.clock.set("2026-11-30T02:00:05Z")
    pause = {"who": "worker-2", "when": "just now", "why": "3 revocations"}
    Wire(client).next("complete", meanwhile(lambda: world.put_control("CONTROL", pause=pause, pause_no=1)))
    outcomes = [result.outcome for result in world.run("nightly", time=f"{NIGHT}T02:00:00Z")]
    assert outcomes == ["completed", "paused", "paused", "paused"]
    assert finished(world) == ["000"]
    assert world.interval("2026-11-30")["state"] == "EXPECTED"
    assert set(world.interval("2026-11-30")["delays"]) == {"paused"}


# read-ahead


class Heavy:
    """A view whose pages end at 1 MB, long before the limit of rows."""

    def __init__(self, rows: int, per_page: int) -> None:
        self.ids = [f"acct-{index:05d}" for index in range(rows)]
        self.per_page = per_page
        self.reads = 0

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[ViewRow]:
        self.reads += 1
        beyond = [name for name in self.ids if after is None or name > after]
        page = beyond[: min(self.per_page, limit)]
        rows = tuple(ViewRow(name, {}, 1) for name in page)
        return Page(rows, page[-1] if len(beyond) > len(page) else None)


class Empty:
    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
        return Page((), None)


def test_no_more_than_two_pages_of_the_view_are_read_ahead_however_heavy_its_rows_are() -> None:
    view = Heavy(rows=1000, per_page=50)
    pages = Sides(Empty(), view, "000", limit=5000).pages(None)
    assert len(next(pages)) == 100
    assert view.reads == 2


def test_a_page_that_ends_at_the_empty_id_is_not_the_end_of_the_view() -> None:
    class Odd(Heavy):
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[ViewRow]:
            if after is None:
                return Page((ViewRow("", {}, 1),), "")
            return super().read(segment, after=after, upto=upto, limit=limit)

    pages = Sides(Empty(), Odd(rows=3, per_page=1), "000", limit=1).pages(None)
    assert [decision.account_id for page in pages for decision in page] == ["", *Heavy(3, 1).ids]


# odd rows


@pytest.mark.parametrize(
    ("sort_key", "name", "value"),
    [
        ("CONTROL", "open_from", 5),
        ("CONTROL", "open_from", "tomorrow"),
        ("CONTROL", "first_interval", None),
        ("CONTROL", "segment_count", "1"),
        ("CONTROL", "segment_count", 0),
        ("CONTROL", "open_from", "20261129"),
        ("CONTROL", "open_from", "2026-W48-7"),
        (f"INTERVAL#{NIGHT}", "segment_count", 0),
        (f"INTERVAL#{NIGHT}", "segments", {"000": "done"}),
        ("CONTROL", "pause_no", "x"),
        ("LEASE#000", "generation", "7"),
        ("LEASE#000", "expires_at_ms", "soon"),
        ("LEASE#000", "token", 7),
        (f"INTERVAL#{NIGHT}", "state", "running"),
        (f"INTERVAL#{NIGHT}", "state", 5),
        (f"INTERVAL#{NIGHT}", "segment_count", "1"),
        (f"INTERVAL#{NIGHT}", "segments", []),
        (f"INTERVAL#{NIGHT}", "scheduled_at", "02:00"),
        (f"INTERVAL#{NIGHT}", "revoked", True),
        (f"INTERVAL#{NIGHT}", "revocation_bound", "many"),
        (f"PROGRESS#{NIGHT}#1#000", "attempts", "2"),
        (f"PROGRESS#{NIGHT}#1#000", "next_attempt_at_ms", "later"),
        (f"PROGRESS#{NIGHT}#1#000", "checkpoint", 7),
        (f"PROGRESS#{NIGHT}#1#000", "done", "yes"),
    ],
)
def test_a_control_row_that_cannot_be_read_is_named_with_its_attribute_and_nothing_is_written(
    world: World, sort_key: str, name: str, value: object
) -> None:
    world.account("acct-1", plan="gold")
    world.put_control(f"PROGRESS#{NIGHT}#1#000", attempts=0, rerun=0, done=False)
    world.run("nightly", remaining_s=60)
    world.put_control(sort_key, **{name: value})
    before = world.control()
    with pytest.raises(RowInvalid, match=f"{sort_key}: {name} is "):
        world.run()
    assert world.control() == before
    assert world.view() == {}


@pytest.mark.parametrize(("name", "value"), [("accounts", "many"), ("checksum", "zz"), ("checksum", 5)])
def test_totals_that_cannot_be_read_are_named(world: World, name: str, value: object) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    world.put_control(f"PROGRESS#{NIGHT}#1#000", attempts=0, rerun=0, done=False, checkpoint="acct-0", **{name: value})
    with pytest.raises(RowInvalid, match=rf"PROGRESS#{NIGHT}#1#000: {name} is "):
        world.run()


def test_a_checkpoint_without_a_time_is_named_by_the_watchdog(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    world.put_control(f"INTERVAL#{NIGHT}", state="RUNNING")
    world.put_control(f"PROGRESS#{NIGHT}#1#000", checkpoint_at=5)
    with pytest.raises(RowInvalid, match=rf"PROGRESS#{NIGHT}#1#000: checkpoint_at is 5, not a text"):
        look(invocation=world.invocation())


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, "view version is not a whole number"),
        ("7", "view version is not a whole number"),
        (True, "view version is not a whole number"),
        (10**38 - 1, "view version cannot be raised"),
    ],
)
def test_a_view_row_whose_version_cannot_be_raised_is_rejected_with_that_reason(
    world: World, version: object, reason: str
) -> None:
    world.account("acct-1", plan="gold")
    world.account("acct-2", plan="gold")
    world.put("EntitlementsTable", "acct-1", entitlements={"plan": "old"}, version=version)
    assert world.run("nightly")[0].outcome == "completed"
    assert world.view() == {"acct-1": {"plan": "old"}, "acct-2": {"plan": "gold"}}
    assert [row["reason"] for row in world.audit() if row["event"] == "REJECTED"] == [reason]


# errors keep their cause


def test_an_error_of_aws_is_recorded_with_its_code(world: World) -> None:
    world.account("acct-1", plan="gold")

    class Denied:
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Query")

    with pytest.raises(ClientError):
        world.run("nightly", job=lambda i: Job(Denied(), EntitlementsTable(i)))
    assert world.interval()["last_error"]["error"] == "ClientError: AccessDeniedException"


def test_an_attempt_that_cannot_even_be_ended_raises_what_ended_it(world: World) -> None:
    world.account("acct-1", plan="gold")

    class Broken:
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
            world.delete_control(keys.progress(NIGHT, 1, "000"))
            raise ValueError("the defect itself")

    with pytest.raises(ValueError, match="the defect itself"):
        world.run("nightly", job=lambda i: Job(Broken(), EntitlementsTable(i)))


def test_a_night_that_is_complete_stays_so_when_its_books_cannot_be_closed(world: World) -> None:
    world.account("acct-1", plan="gold")
    Wire(world.client).next("advance", Fault(meanwhile=lambda: world.clock.advance(20), unsent=NEVER_SENT.unsent))
    assert world.run("nightly")[0].outcome == "completed"
    assert world.row("CONTROL")["open_from"] == NIGHT
    assert world.run() == []
    assert world.row("CONTROL")["open_from"] == "2026-11-30"


def test_an_invocation_without_time_to_plan_says_so_and_changes_nothing(world: World) -> None:
    with pytest.raises(OutOfTime):
        world.run("nightly", remaining_s=10)
    assert world.control() == {}


# the ways on that the README gives


def test_a_lease_row_restored_by_hand_goes_on_above_every_generation(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly")
    world.delete_control(keys.lease("000"))
    world.clock.set("2026-11-30T02:00:05Z")
    with pytest.raises(LeaseRowMissing, match="generation above every one on record"):
        world.run()
    world.put_control(keys.lease("000"), generation=7, token="made by hand", schema=1)
    (result,) = world.run()
    assert (result.outcome, result.generation) == ("completed", 8)


def test_a_night_that_is_given_up_by_hand_is_left_out_and_passed(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    world.put_control(keys.interval(NIGHT), state="NEEDS_REPAIR")
    assert look(invocation=world.invocation())["IntervalsNeedingRepair"] == 1
    world.put_control(keys.interval(NIGHT), acknowledged_at="2026-11-29T09:00:00.000Z", acknowledged_by="me")
    assert not any(look(invocation=world.invocation()).values())
    world.run()
    assert world.row("CONTROL")["open_from"] == "2026-11-30"


def test_a_night_that_goes_on_is_not_passed_though_it_was_given_up_before(world: World) -> None:
    world.account("acct-1", plan="gold")
    world.run("nightly", remaining_s=60)
    world.put_control(keys.interval(NIGHT), state="RUNNING", rerun=1, acknowledged_at="2026-11-29T09:00:00.000Z")

    class Broken:
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
            raise ValueError("still broken")

    with pytest.raises(ValueError, match="still broken"):
        world.run(job=lambda i: Job(Broken(), EntitlementsTable(i)))
    assert world.row("CONTROL")["open_from"] == NIGHT
    world.clock.advance(60)
    assert world.run()[0].outcome == "completed"
