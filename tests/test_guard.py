"""The revocation guard: never more revocations than a person allowed, and a job that pauses itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import clock, keys
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.watchdog import look
from reconciler.work import Job, work
from tests.conftest import live_client
from tests.faults import NEVER_SENT, PASS, Fault, Wire, meanwhile
from tests.kit import delivered, everything, grants, hold, killed, numbered, ordered, refused, wait
from tests.world import NIGHT, World, event

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

INTERVAL = f"INTERVAL#{NIGHT}"
LATER = ["2026-11-30", "2026-12-01"]


@pytest.fixture
def night(live: World) -> World:
    """Ranges of two accounts; the source has `z` only, so that no segment looks empty."""
    live.set(range_size=2)
    live.account("z")
    live.view_row("z")
    return live


def orphans(world: World, count: int) -> None:
    """Accounts that only the view has: a night revokes each of them."""
    for name in numbered(count):
        world.view_row(name, plan="gold")


def goes_on(world: World, nights: Sequence[str] = (NIGHT,)) -> str:
    """What becomes of the night, or of each of those, at the next tick."""
    world.clock.advance(300)
    attempts = delivered(world, event("tick", clock.text(world.clock.wall_ms)))["attempts"]
    assert [attempt["interval"] for attempt in attempts] == list(nights)
    (outcome,) = {attempt["outcome"] for attempt in attempts}
    return str(outcome)


def revoked(world: World) -> int:
    return sum(not entitlements for name, entitlements in world.view().items() if name != "z")


def assert_paused(world: World) -> None:
    """The job has paused itself, with every lease, in the pause that CONTROL counts."""
    row = world.row("CONTROL")
    leases = [world.lease(segment) for segment in keys.segments(world.settings.segment_count)]
    assert row["pause"].keys() == {"who", "when", "why", "interval_id"}
    assert row["pause"]["interval_id"] == NIGHT
    assert {lease["paused"] for lease in leases} == {row["pause_no"]}
    assert world.interval()["state"] == "NEEDS_REPAIR"
    assert world.events().count("NEEDS_REPAIR") == 1


# the bound


@pytest.mark.parametrize(
    ("orphaned", "bound", "outcome", "gone"),
    [
        *((4, 4, "completed", 4), (5, 4, "tripped", 4), (5, 3, "tripped", 2)),
        *((1, 0, "tripped", 0), (0, 0, "completed", 0)),
    ],
)
def test_no_range_goes_over_the_bound_of_its_interval(
    night: World, orphaned: int, bound: int, outcome: str, gone: int
) -> None:
    night.set(max_revocations=bound)
    orphans(night, orphaned)
    (result,) = night.run("nightly")
    assert result.outcome == outcome
    assert revoked(night) == night.interval()["revoked"] == gone
    assert ("pause" in night.row("CONTROL")) is (outcome == "tripped")


def test_the_bound_holds_over_all_attempts_of_an_interval(night: World) -> None:
    night.set(max_revocations=3)
    orphans(night, 4)
    Wire(night.client).next("commit", meanwhile(lambda: night.clock.advance(100)))
    assert night.run("nightly")[0].outcome == "yielded"
    assert night.run()[0].outcome == "tripped"
    assert revoked(night) == night.interval()["revoked"] == 2


def test_the_bound_holds_over_all_segments_of_an_interval(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 4}, RANGE_SIZE=1, MAX_REVOCATIONS=10)
    grants(world, *"abcdefgh")
    orphans(world, 40)
    world.run("nightly")
    assert revoked(world) == world.interval()["revoked"] == 10
    assert_paused(world)


def test_the_bound_holds_over_segments_that_revoke_at_the_same_moment(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 4}, RANGE_SIZE=1, MAX_REVOCATIONS=10)
    grants(world, *"abcdefgh")
    orphans(world, 40)
    world.run("nightly", remaining_s=60)
    world.clock.step_ms = 0
    barrier = Barrier(4, timeout=20)

    def work(client: DynamoDBClient) -> None:
        Wire(client).next("commit", meanwhile(barrier.wait))
        world.run(invocation=world.invocation(client=client))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [live_client(emulator_url) for _ in range(4)]))
    assert revoked(world) == world.interval()["revoked"] == 10
    assert world.interval()["state"] == "NEEDS_REPAIR"
    assert "pause" in world.row("CONTROL")


@pytest.mark.parametrize("version", [None, 7])
def test_a_revocation_that_a_live_writer_made_first_is_not_counted(night: World, version: int | None) -> None:
    night.set(max_revocations=2)
    orphans(night, 3)
    night.view_row("acct-0000", version=version, plan="gold")
    Wire(night.client).next("commit", meanwhile(lambda: night.view_row("acct-0000", version=8)))
    assert night.run("nightly")[0].outcome == "completed"
    assert night.interval()["revoked"] == 2


# an empty source


@pytest.mark.parametrize("already", ["nothing", "empty rows"])
def test_an_empty_source_is_not_believed_while_the_view_has_something_to_lose(live: World, already: str) -> None:
    orphans(live, 3)
    if already == "empty rows":
        for name in ("a", "b", "c"):
            live.view_row(name)
    live.set(range_size=2)
    (result,) = live.run("nightly")
    assert result.outcome == "tripped"
    assert revoked(live) == (3 if already == "empty rows" else 0), "none by this run"
    assert "source is empty" in live.row("CONTROL")["pause"]["why"]
    assert_paused(live)


def test_an_empty_source_is_fine_when_nothing_would_be_lost(live: World) -> None:
    for name in "abc":
        live.view_row(name)
    assert live.run("nightly")[0].outcome == "completed"


def test_a_source_of_cancelled_accounts_is_not_empty(live: World) -> None:
    orphans(live, 3)
    for name in numbered(3):
        live.account(name, status="cancelled")
    assert live.run("nightly")[0].outcome == "completed"
    assert revoked(live) == 3


def test_a_source_whose_first_account_comes_late_is_not_empty(night: World) -> None:
    night.set(page_size=1)
    orphans(night, 6)
    assert night.run("nightly")[0].outcome == "completed"
    assert revoked(night) == 6


def test_a_source_that_dries_up_half_way_is_bounded_but_not_called_empty(live: World) -> None:
    live.set(range_size=2, page_size=2)
    grants(live, *"ab")
    orphans(live, 3)
    Wire(live.client).next("commit", meanwhile(lambda: live.clock.advance(100)))
    assert live.run("nightly")[0].outcome == "yielded"
    for name in "ab":
        live.delete("AccountsTable", name)
    assert live.run()[0].outcome == "completed"
    assert revoked(live) == 3


def test_one_segment_without_a_source_trips_though_another_has_one(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 2})
    full, bare = ([name for name in numbered(40) if keys.segment_of(name, 2) == segment] for segment in ("000", "001"))
    grants(world, *full)
    for name in bare:
        world.view_row(name, plan="gold")
    outcomes = [(result.segment, result.outcome) for result in world.run("nightly")]
    assert outcomes == [("000", "completed"), ("001", "tripped")]
    assert revoked(world) == 0
    assert_paused(world)


# the trip


def test_a_trip_pauses_the_job_and_every_lease_in_the_write_that_releases_its_own(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 3}, MAX_REVOCATIONS=0)
    grants(world, *numbered(12))
    for name in numbered(12):
        world.view_row(f"{name}-gone", plan="gold")
    wire = Wire(world.client)
    seen: list[dict[str, Any]] = []
    wire.next("trip", meanwhile(lambda: seen.append(world.control())))
    assert world.run("nightly")[0].outcome == "tripped"
    assert len(wire.requests("trip")) == 1
    (before,) = seen
    assert not any("paused" in row or "pause" in row for row in before.values())
    assert before[INTERVAL]["state"] == "RUNNING"
    assert_paused(world)
    assert "owner" not in world.lease("000")
    assert world.lease("000")["token"] != before["LEASE#000"]["token"]
    assert world.lease("001")["generation"] == 0
    assert revoked(world) == 0


def test_a_tripped_range_writes_nothing_of_itself(night: World) -> None:
    night.set(max_revocations=0, range_size=3)
    grants(night, "acct-0000-a")
    orphans(night, 2)
    night.run("nightly")
    assert night.view() == {"acct-0000": {"plan": "gold"}, "acct-0001": {"plan": "gold"}, "z": {}}
    assert "checkpoint" not in night.progress()


def test_a_living_holder_of_another_segment_meets_the_pause_at_its_next_commit(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 2}, RANGE_SIZE=2, PAGE_SIZE=2)
    grants(world, *[name for name in numbered(30) if keys.segment_of(name, 2) == "000"])
    for name in numbered(30):
        if keys.segment_of(name, 2) == "001":
            world.view_row(name, plan="gold")
    trips: list[str] = []

    def another_trips() -> None:
        trips.extend(result.outcome for result in world.run(owner="worker-2"))

    Wire(world.client).next("commit", PASS, meanwhile(another_trips))
    result, *others = world.run("nightly", owner="worker-1")
    assert (result.segment, result.outcome, result.accounts) == ("000", "paused", 2)
    assert {other.outcome for other in others} <= {"paused", "moved"}
    assert trips == ["delayed", "tripped"]
    assert world.progress("000")["attempts"] == 0
    assert "owner" not in world.lease("000")
    assert "LeaseLost" not in world.counted()
    assert_paused(world)


def test_no_backlog_night_strips_the_next_accounts_after_a_trip(night: World) -> None:
    night.set(max_revocations=2)
    orphans(night, 9)
    night.clock.set(f"{LATER[-1]}T02:00:05Z")
    night.created_at = f"{NIGHT}T00:00:00.000Z"
    night.run("nightly")
    for _ in range(3):
        night.clock.advance(300)
        night.run()
    assert revoked(night) == 2
    assert [night.interval(one)["state"] for one in [NIGHT, *LATER]] == ["NEEDS_REPAIR", "EXPECTED", "EXPECTED"]


def test_no_backlog_night_strips_anything_after_a_trip_that_could_not_be_written(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 2}, RANGE_SIZE=1, MAX_REVOCATIONS=2)
    grants(world, *"abcdefgh")
    orphans(world, 20)
    wire = Wire(world.client)
    wire.next("trip", then=Fault(meanwhile=lambda: world.clock.advance(20), unsent=NEVER_SENT.unsent))
    world.clock.set(f"{LATER[-1]}T02:00:05Z")
    (result,) = world.run("nightly")
    assert result.outcome == "yielded", "needs_repair is on no record"
    assert revoked(world) == 2
    assert [world.interval(one)["state"] for one in [NIGHT, *LATER]] == ["RUNNING", "EXPECTED", "EXPECTED"]
    wire.next("trip")
    world.expire_lease()
    assert world.run()[0].outcome == "tripped"
    assert_paused(world)


def test_a_trip_that_finds_a_lease_row_missing_pauses_the_rest_and_never_makes_it_again(emulator_url: str) -> None:
    world = World(live_client(emulator_url), {"SegmentCount": 2}, MAX_REVOCATIONS=0)
    grants(world, *"abcdefgh")
    orphans(world, 20)
    Wire(world.client).next("trip", meanwhile(lambda: world.delete_control("LEASE#001")))
    assert world.run("nightly")[-1].outcome == "tripped"
    assert "pause" in world.row("CONTROL")
    assert not world.has("LEASE#001")
    assert revoked(world) == 0


def test_a_trip_keeps_the_pause_of_a_person_on_record(night: World) -> None:
    night.set(max_revocations=0)
    orphans(night, 1)
    person = {"who": "operator", "when": "just now", "why": "maintenance"}
    pausing = meanwhile(lambda: night.put_control("CONTROL", pause=person, pause_no=1))
    Wire(night.client).next("trip", pausing)
    assert night.run("nightly")[0].outcome == "tripped"
    assert night.row("CONTROL")["pause"] == person
    assert night.interval()["state"] == "NEEDS_REPAIR"


def test_a_trip_during_the_pause_of_a_person_outlasts_it(night: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends that pause may not know of the trip; no next night may strip the next accounts."""
    night.set(max_revocations=2)
    orphans(night, 9)
    with night.deployed(monkeypatch):
        Wire(night.client).next("trip", meanwhile(lambda: ordered(night, "Pause", reason="maintenance")))
        assert delivered(night, event("nightly"))["outcome"] == "tripped"
        assert night.row("CONTROL")["pause"]["why"] == "maintenance"
        night.clock.set(f"{LATER[0]}T02:00:05Z")
        assert f"the revocation guard stopped {NIGHT}" in refused(night, "Resume")
        assert ordered(night, "Rerun", interval=NIGHT, revocation_bound=9)["paused"], "the pause is the person's"
        ordered(night, "Resume")
        assert goes_on(night, [NIGHT, LATER[0]]) == "completed"
    assert revoked(night) == 9


def test_the_trip_of_a_worker_cannot_be_acknowledged_beforehand(
    client: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One segment made the night need repair; in the other a worker still is on its way to the guard."""
    world = World(client, {"SegmentCount": 2}, RANGE_SIZE=1, MAX_REVOCATIONS=0, MAX_ATTEMPTS=1)
    names: dict[str, list[str]] = {"000": [], "001": []}
    for name in numbered(20):
        names[keys.segment_of(name, 2)].append(name)
    grants(world, *(found[0] for found in names.values()))
    world.view_row(names["001"][1], plan="gold")
    killed(world, Wire(client), "commit")
    wait(world)
    late = hold(world, "late", "001")
    world.run()
    assert (world.interval()["state"], world.lease("001")["owner"]) == ("NEEDS_REPAIR", "late")
    with world.deployed(monkeypatch):
        assert f"late has not ended its work on segment 001 of {NIGHT}" in refused(world, "Acknowledge", interval=NIGHT)
        invocation = world.invocation("late")
        job = Job(AccountsTable(invocation), EntitlementsTable(invocation))
        assert work(late, job, [], invocation)[0].outcome == "tripped"
        assert look(invocation=invocation)["IntervalsNeedingRepair"] == 1
        assert f"the revocation guard stopped {NIGHT}" in refused(world, "Resume")


# a paused job, and the way on


def test_a_paused_job_records_due_intervals_and_works_on_nothing(night: World) -> None:
    night.set(max_revocations=0)
    orphans(night, 1)
    night.run("nightly")
    night.account("new", plan="gold")
    night.clock.set(f"{LATER[-1]}T02:00:05Z")
    results = night.run("nightly")
    assert [(result.interval, result.outcome) for result in results] == [(one, "paused") for one in LATER]
    for one in LATER:
        row = night.interval(one)
        assert (row["state"], set(row["delays"])) == ("EXPECTED", {"paused"})
        assert night.events(one) == ["OBSERVED", "DELAYED"]
    before = everything(night)
    night.run()
    assert everything(night) == before, "said once"
    assert "new" not in night.view()


@pytest.mark.parametrize("trip", ["bound", "empty source"])
def test_only_a_stated_bound_lets_the_interval_go_on(live: World, monkeypatch: pytest.MonkeyPatch, trip: str) -> None:
    live.set(range_size=2, max_revocations=3 if trip == "bound" else 500)
    orphans(live, 5)
    if trip == "bound":
        live.account("z")
    with live.deployed(monkeypatch):
        assert delivered(live, event("nightly"))["outcome"] == "tripped"
        told = ordered(live, "Rerun", interval=NIGHT)
        assert told["paused"], "a rerun without a bound leaves the guard's pause"
        assert goes_on(live) == "paused"
        ordered(live, "Resume")
        assert goes_on(live) == "tripped", "and without the pause trips again"
        gone = revoked(live)
        assert not ordered(live, "Rerun", interval=NIGHT, revocation_bound=4)["paused"]
        assert goes_on(live) == "tripped", "the stated bound is a bound"
        assert gone <= revoked(live) <= 4
        ordered(live, "Rerun", interval=NIGHT, revocation_bound=5)
        assert goes_on(live) == "completed"
    assert revoked(live) == 5
    assert live.interval()["revoked"] == 5
    assert "pause" not in live.row("CONTROL")


def test_a_stated_bound_of_zero_is_a_bound(night: World, monkeypatch: pytest.MonkeyPatch) -> None:
    night.set(max_revocations=0)
    orphans(night, 1)
    with night.deployed(monkeypatch):
        assert delivered(night, event("nightly"))["outcome"] == "tripped"
        night.set(max_revocations=500)
        assert not ordered(night, "Rerun", interval=NIGHT, revocation_bound=0)["paused"]
        assert goes_on(night) == "tripped"
    assert revoked(night) == 0


def test_a_stated_bound_lifts_the_pause_also_after_a_rerun_without_one(night: World, monkeypatch: Any) -> None:
    orphans(night, 3)
    night.set(max_revocations=1)
    with night.deployed(monkeypatch):
        assert [result.outcome for result in night.run("nightly")] == ["tripped"]
        assert ordered(night, "Rerun", interval=NIGHT)["paused"]
        assert not ordered(night, "Rerun", interval=NIGHT, revocation_bound=3)["paused"]
        assert goes_on(night) == "completed"
    assert revoked(night) == 3


def test_a_stated_bound_lifts_the_pause_and_permits_an_empty_source(night: World, monkeypatch: Any) -> None:
    night.delete("AccountsTable", "z")
    orphans(night, 3)
    with night.deployed(monkeypatch):
        delivered(night, event("nightly"))
        paused = night.row("CONTROL")
        assert paused["pause"]["interval_id"] == NIGHT
        assert not ordered(night, "Rerun", interval=NIGHT, revocation_bound=3)["paused"]
        row = night.row("CONTROL")
        assert ("pause" in row, row["pause_no"]) == (False, paused["pause_no"] + 1)
        assert "paused" not in night.lease()
        assert goes_on(night) == "completed"
    assert revoked(night) == 3


@pytest.mark.parametrize("whose", ["a person's", "that of another interval's guard"])
def test_a_stated_bound_leaves_every_other_pause_alone(night: World, monkeypatch: Any, whose: str) -> None:
    night.set(max_revocations=0)
    with night.deployed(monkeypatch):
        if whose == "a person's":
            orphans(night, 1)
            ordered(night, "Pause", reason="maintenance")
        else:
            delivered(night, event("nightly"))
            orphans(night, 1)
            night.clock.set(f"{LATER[0]}T02:00:05Z")
            assert delivered(night, event("nightly", f"{LATER[0]}T02:00:00Z"))["outcome"] == "tripped"
        before = night.row("CONTROL")
        assert ordered(night, "Rerun", interval=NIGHT, revocation_bound=9, force=True)["paused"]
        after = night.row("CONTROL")
        assert (after["pause"], after["pause_no"]) == (before["pause"], before["pause_no"])
        assert night.lease()["paused"] == before["pause_no"]
        assert goes_on(night) == "paused"
    assert revoked(night) == 0


@pytest.mark.parametrize(("place", "kept"), [("checkpoint", True), ("start", False)])
def test_a_bound_is_kept_from_the_checkpoint_and_forgotten_from_the_start(
    night: World, monkeypatch: Any, place: str, kept: bool
) -> None:
    night.set(max_revocations=1)
    orphans(night, 4)
    with night.deployed(monkeypatch):
        assert ordered(night, "Rerun", interval=NIGHT, revocation_bound=4)["revocation_bound"] == 4
        Wire(night.client).next("commit", PASS, meanwhile(lambda: night.clock.advance(100)))
        assert goes_on(night) == "yielded"
        assert ordered(night, "Rerun", interval=NIGHT, **{"from": place})["revocation_bound"] == (4 if kept else None)
        assert night.interval().get("revocation_bound") == (4 if kept else None)
        orphans(night, 4)
        assert goes_on(night) == ("completed" if kept else "tripped")


def test_the_bound_counts_what_the_earlier_attempts_of_the_pass_revoked(night: World, monkeypatch: Any) -> None:
    night.set(max_revocations=2)
    orphans(night, 5)
    with night.deployed(monkeypatch):
        assert delivered(night, event("nightly"))["outcome"] == "tripped"
        ordered(night, "Rerun", interval=NIGHT, revocation_bound=4, **{"from": "checkpoint"})
        assert night.interval()["revoked"] == 2
        assert goes_on(night) == "tripped"
        assert revoked(night) == 4
        ordered(night, "Rerun", interval=NIGHT, revocation_bound=1, **{"from": "start"})
        assert night.interval()["revoked"] == 0, "a new pass counts anew"
        assert goes_on(night) == "completed"
    assert revoked(night) == 5


def test_the_pause_says_who_when_and_why(night: World) -> None:
    night.set(max_revocations=1)
    orphans(night, 2)
    night.run("nightly", owner="reconcile/1234")
    pause = night.row("CONTROL")["pause"]
    assert pause["who"] == "reconcile/1234"
    assert pause["why"] == "2 revocations, but only 1 are allowed"
    assert abs(clock.parse_ms(pause["when"]) - night.clock.wall_ms) < 1000
    assert night.interval()["last_error"]["error"] == pause["why"]
