"""Missed nights through real runs: which of them run, which are skipped, and what is written down about both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import clock, keys
from reconciler.acquire import acquire
from reconciler.errors import TransientFailure
from reconciler.intervals import EXPIRED, SUPERSEDED, shifted
from reconciler.leases import Holding
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED, read_interval
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.watchdog import look
from reconciler.work import Job
from tests.conftest import live_client
from tests.faults import LOST, NEVER_SENT, PASS, REPEATED, Fault, Wire, answered, meanwhile
from tests.kit import begun, delivered, doing, everything, grants, killed, later, measured, numbered, ordered
from tests.world import NIGHT, Slow, World, event

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

    from reconciler.attempt import Result

DAY_S = 86_400


def night(days: int) -> str:
    """The night so many days after NIGHT."""
    return shifted(NIGHT, days)


def nights(first: int, last: int) -> list[str]:
    return [night(days) for days in range(first, last + 1)]


def at(days: int, time: str = "02:00:05") -> str:
    return f"{night(days)}T{time}Z"


def succeeded(world: World) -> None:
    """NIGHT has run; the nights after it are missed until the clock is set."""
    grants(world, *numbered(3))
    assert [result.outcome for result in world.run("nightly")] == ["completed"]


def outage(world: World, days: int) -> None:
    """Nothing has triggered since NIGHT succeeded, so many days ago."""
    succeeded(world)
    world.clock.set(at(days))


def states(world: World) -> dict[str, str]:
    rows = sorted(world.control().items())
    return {key.removeprefix("INTERVAL#"): row["state"] for key, row in rows if key.startswith("INTERVAL#")}


def in_state(world: World, state: str) -> list[str]:
    return [interval_id for interval_id, found in states(world).items() if found == state]


def ran(results: Sequence[Result]) -> list[str]:
    """The intervals that were completed, in order; nothing else happened."""
    assert {result.outcome for result in results} <= {"completed"}
    return [result.interval for result in results]


def skips(world: World) -> list[dict[str, Any]]:
    """The SKIPPED audit rows, oldest first."""
    rows = [row for key, row in world.control().items() if key.startswith("AUDIT#") and row["event"] == "SKIPPED"]
    return sorted(rows, key=lambda row: (row["at"], row["first"]))


def agree(world: World) -> None:
    """Every audit row of a span tells of exactly the nights that were skipped with it."""
    rows = world.control()
    found: dict[str, list[str]] = {}
    for key, row in sorted(rows.items()):
        if key.startswith("INTERVAL#") and row["state"] == SKIPPED:
            found.setdefault(row["skip"]["audit"], []).append(key.removeprefix("INTERVAL#"))
    told = {row["sk"]: (row["first"], row["last"], row["nights"]) for row in skips(world)}
    assert told == {audit: (of[0], of[-1], len(of)) for audit, of in found.items()}


# ------------------------------------------------------------------------------------------------- B39: a long outage


@pytest.mark.field("B39")
def test_a_missed_night_inside_the_window_is_run_oldest_first(world: World) -> None:
    outage(world, 3)
    world.delete("AccountsTable", "acct-0000")
    with measured() as numbers:
        results = world.run()
    assert ran(results) == nights(1, 3)
    assert in_state(world, COMPLETED) == nights(0, 3)
    assert world.view()["acct-0000"] == {}
    assert set(world.versions().values()) == {1, 2}, "what one night changed, the next ones found done"
    assert [round(delay_s) for delay_s in numbers["RunDelay"]] == [2 * DAY_S + 5, DAY_S + 5, 5]
    assert [round(lag_s) for lag_s in numbers["ConsistencyLag"]] == [2 * DAY_S + 5, DAY_S + 5, 5]
    started = [world.interval(one)["first_started_at"] for one in nights(1, 3)]
    assert started == sorted(started)
    assert world.row("CONTROL")["open_from"] == night(4)


@pytest.mark.field("B39")
def test_after_a_long_outage_exactly_the_nights_in_the_window_run_and_the_older_are_recorded_as_skipped(
    live: World,
) -> None:
    """The last success 9 nights ago, with a window of 7 days; then 150 nights more."""
    live.set(catch_up_days=7)
    live.clock.step_ms = 0
    outage(live, 9)
    assert ran(live.run(owner="worker-9")) == nights(3, 9)
    assert in_state(live, SKIPPED) == nights(1, 2)

    live.clock.set(at(9 + 150))
    assert ran(live.run(owner="worker-159")) == nights(153, 159)
    assert in_state(live, SKIPPED) == nights(1, 2) + nights(10, 152)
    assert in_state(live, COMPLETED) == [NIGHT, *nights(3, 9), *nights(153, 159)]
    assert list(states(live)) == nights(0, 159), "not one is dropped"

    policy = {"catch_up_policy": "each", "catch_up_days": 7}
    short, long = skips(live)
    assert (short["first"], short["last"], short["nights"], short["actor"]) == (night(1), night(2), 2, "worker-9")
    assert (long["first"], long["last"], long["nights"], long["actor"]) == (night(10), night(152), 143, "worker-159")
    assert [(row["reason"], row["policy"]) for row in (short, long)] == [(EXPIRED, policy)] * 2
    assert long["run_id"] == f"entitlements/{night(10)}/1"
    for interval_id in (night(10), night(152)):
        row = live.interval(interval_id)
        assert row["skip"] == {
            "reason": EXPIRED,
            "policy": policy,
            "at": long["at"],
            "actor": "worker-159",
            "audit": long["sk"],
        }
        assert row["scheduled_at"] == f"{interval_id}T02:00:00.000Z"
        assert row["first_observed_at"].startswith(night(159))
        assert "first_started_at" not in row
    agree(live)
    seen = look(invocation=live.invocation())
    assert (seen["SkippedIntervals"], seen["UnfinishedIntervals"], seen["SecondsPastDeadline"]) == (145, 0, 0)


@pytest.mark.field("B39")
@pytest.mark.parametrize("trigger", ["nightly", "tick"])
def test_no_outage_is_so_long_that_the_function_refuses_to_start(
    live: World, monkeypatch: pytest.MonkeyPatch, trigger: str
) -> None:
    outage(live, 150)
    with live.deployed(monkeypatch):
        answer = delivered(live, event(trigger, at(150, "02:00:00")))
    assert answer["outcome"] == "completed"
    assert len(in_state(live, SKIPPED)) == 147


@pytest.mark.parametrize(("seconds", "runs"), [(-1, True), (0, True), (1, False)])
def test_a_night_is_skipped_once_it_is_strictly_older_than_the_window(world: World, seconds: int, runs: bool) -> None:
    succeeded(world)
    world.clock.step_ms = 0
    world.clock.set(at(4, "02:00:00"))
    world.clock.advance(seconds)
    ran_now = ran(world.run(time=at(4, "01:00:00")))
    assert (night(1) in ran_now) == runs
    assert in_state(world, SKIPPED) == ([] if runs else [night(1)])
    assert ran_now[-1] == (night(3) if seconds < 0 else night(4))


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_night_that_was_seen_in_time_but_never_started_is_skipped_by_the_same_rule(
    world: World, seconds: int
) -> None:
    world.clock.step_ms = 0
    world.run("nightly", remaining_s=60)
    assert world.interval()["state"] == EXPECTED
    seen_at = world.interval()["first_observed_at"]
    world.clock.set(at(3, "02:00:00"))
    world.clock.advance(seconds)
    assert (NIGHT in ran(world.run())) == (seconds == 0)
    assert world.interval()["state"] == (SKIPPED if seconds else COMPLETED)
    assert world.interval()["first_observed_at"] == seen_at
    assert world.events()[0] == "OBSERVED"


def test_a_started_night_never_expires(live: World) -> None:
    grants(live, *numbered(3))
    killed(live, Wire(live.client), "commit", 1)
    live.clock.set(at(400))
    assert ran(live.run())[0] == NIGHT
    assert in_state(live, SKIPPED) == nights(1, 397)


def test_nights_before_the_first_one_are_not_missed(world: World) -> None:
    world.created_at = f"{night(-1)}T12:00:00.000Z"
    world.clock.set(at(1))
    assert ran(world.run()) == nights(0, 1)
    assert list(states(world)) == nights(0, 1)
    assert skips(world) == []


@pytest.mark.parametrize(("seconds", "first"), [(0, NIGHT), (1, night(1))])
def test_a_late_trigger_adds_a_night_before_the_first_one_only_inside_the_window(
    world: World, seconds: int, first: str
) -> None:
    world.created_at = at(0, "12:00:00")
    world.clock.step_ms = 0
    world.clock.set(at(3, "02:00:00"))
    world.clock.advance(seconds)
    assert ran(world.run("nightly", time=at(0, "02:00:00")))[0] == first
    assert skips(world) == []


def test_a_leap_day_and_the_end_of_a_year_are_nights_like_any_other(client: DynamoDBClient) -> None:
    for first, missed in (
        ("2028-02-27", ["2028-02-27", "2028-02-28", "2028-02-29", "2028-03-01"]),
        ("2026-12-30", ["2026-12-30", "2026-12-31", "2027-01-01", "2027-01-02"]),
    ):
        world = World(client)
        world.created_at = f"{first}T00:00:00.000Z"
        world.clock.set(f"{missed[-1]}T01:59:59.000Z")
        assert ran(world.run()) == missed[:-1]
        world.clock.set(f"{missed[-1]}T02:00:05.000Z")
        assert ran(world.run()) == missed[-1:]


# ------------------------------------------------------------------------------------------------------ bounded writes


def test_400_missed_days_are_recorded_by_one_audit_row_and_few_writes_and_the_window_runs_at_once(
    live: World,
) -> None:
    outage(live, 400)
    wire = Wire(live.client)
    assert ran(live.run()) == nights(398, 400)
    assert in_state(live, SKIPPED) == nights(1, 397)
    (row,) = skips(live)
    assert (row["first"], row["last"], row["nights"]) == (night(1), night(397), 397)
    agree(live)
    assert max(len(request["TransactItems"]) for request in wire.requests("skip")) == 100, "AWS takes no more"
    assert Counter(writer for writer, _ in wire.sent) == {
        "skip": 5,
        **dict.fromkeys(("observe", "acquire", "commit", "complete"), 3),
    }
    before = everything(live)
    assert live.run() == []
    assert everything(live) == before


def test_an_outage_too_long_for_one_tick_is_recorded_by_the_next_ones(live: World) -> None:
    outage(live, 600)
    wire = Wire(live.client)
    assert ran(live.run()) == nights(598, 600), "what may run does not wait for the record"
    assert in_state(live, SKIPPED) == nights(1, 495)
    assert len(wire.requests("skip")) == 5
    seen = look(invocation=live.invocation())
    assert (seen["SkippedIntervals"], seen["UnfinishedIntervals"]) == (495, 102)
    assert seen["SecondsPastDeadline"] > 0, "not silent about those that are not recorded yet"

    assert live.run() == []
    assert in_state(live, SKIPPED) == nights(1, 597)
    assert len(wire.requests("skip")) == 7
    assert [row["nights"] for row in skips(live)] == [495, 102]
    agree(live)
    before = everything(live)
    assert live.run() == []
    assert everything(live) == before


def test_an_outage_is_recorded_also_by_a_tick_that_has_no_time_to_work(world: World) -> None:
    outage(world, 9)
    (result,) = world.run(remaining_s=60)
    assert (result.interval, result.outcome) == (night(7), "out_of_time")
    assert in_state(world, SKIPPED) == nights(1, 6)
    assert ran(world.run()) == nights(7, 9)


# -------------------------------------------------------------------------------------------------------------- latest


def test_with_latest_only_the_newest_night_runs_and_it_supersedes_the_older_ones(world: World) -> None:
    world.set(catch_up_policy="latest")
    world.clock.step_ms = 0
    outage(world, 3)
    assert ran(world.run(owner="worker-3")) == [night(3)]
    assert in_state(world, SKIPPED) == nights(1, 2)
    (row,) = skips(world)
    policy = {"catch_up_policy": "latest", "catch_up_days": 3}
    told = {"reason": SUPERSEDED, "superseded_by": night(3), "policy": policy, "at": row["at"], "actor": "worker-3"}
    assert (row["first"], row["last"], row["nights"]) == (night(1), night(2), 2)
    assert {name: row[name] for name in told} == told
    for interval_id in nights(1, 2):
        assert world.interval(interval_id)["skip"] == {**told, "audit": row["sk"]}
    agree(world)


def test_with_latest_the_nights_beyond_the_window_have_expired_and_the_others_are_superseded(world: World) -> None:
    world.set(catch_up_policy="latest")
    outage(world, 9)
    assert ran(world.run()) == [night(9)]
    expired, superseded = sorted(skips(world), key=lambda row: row["first"])
    assert (expired["first"], expired["last"], expired["reason"]) == (night(1), night(6), EXPIRED)
    assert (superseded["first"], superseded["last"], superseded["reason"]) == (night(7), night(8), SUPERSEDED)
    assert "superseded_by" not in expired
    agree(world)


def test_latest_gives_up_no_started_night(world: World) -> None:
    world.set(catch_up_policy="latest")
    grants(world, *numbered(3))
    killed(world, Wire(world.client), "commit", 1)
    world.clock.set(at(2))
    assert ran(world.run()) == [NIGHT, night(2)]
    assert in_state(world, SKIPPED) == [night(1)]


def test_latest_supersedes_by_the_newest_night_that_is_not_skipped_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clock.set(at(2))
    world.run(remaining_s=60)
    with world.deployed(monkeypatch):
        ordered(world, "Skip", interval=night(2))
    world.set(catch_up_policy="latest")
    assert ran(world.run()) == [night(1)]
    assert world.interval()["skip"]["superseded_by"] == night(1)


@pytest.mark.parametrize("policies", [("each", "latest"), ("latest", "each")])
def test_a_policy_changed_in_mid_life_decides_from_then_on_and_opens_nothing_again(
    world: World, policies: tuple[str, str]
) -> None:
    before, after = policies
    world.set(catch_up_policy=before)
    outage(world, 2)
    world.run(remaining_s=60)
    world.set(catch_up_policy=after)
    ran_now = ran(world.run())
    assert ran_now == [night(2)]
    assert in_state(world, SKIPPED) == [night(1)]
    assert skips(world)[0]["policy"]["catch_up_policy"] == "latest"


def test_a_wider_window_opens_nothing_again_and_a_narrower_one_skips_what_was_seen(world: World) -> None:
    outage(world, 5)
    world.run(remaining_s=60)
    assert in_state(world, SKIPPED) == nights(1, 2)
    world.set(catch_up_days=30)
    world.run(remaining_s=60)
    assert in_state(world, EXPECTED) == nights(3, 5)
    world.set(catch_up_days=1)
    assert ran(world.run()) == [night(5)]
    assert in_state(world, SKIPPED) == nights(1, 4)
    assert [row["policy"]["catch_up_days"] for row in skips(world)] == [3, 1]
    agree(world)


def test_a_schedule_changed_in_mid_life_neither_repeats_nor_loses_a_date(world: World) -> None:
    grants(world, *numbered(3))
    ran_at: list[str] = []
    for moment, hour in (
        (at(0), 2),
        (at(1, "12:00:00"), 23),
        (at(1, "23:30:00"), 23),
        (at(2, "03:00:00"), 2),
        (at(2, "23:30:00"), 23),
        (at(3, "22:00:00"), 23),
        (at(3, "22:30:00"), 2),
    ):
        world.clock.set(moment)
        world.set(schedule_hour=hour)
        ran_at += ran(world.run())
    assert ran_at == nights(0, 3)
    assert skips(world) == []


# --------------------------------------------------------------------------------- written only if it never started


def take(world: World, interval_id: str, owner: str = "faster") -> Holding:
    """Another worker starts an interval."""
    invocation = world.invocation(owner)
    acquired = acquire(read_interval(interval_id, invocation=invocation), "000", invocation=invocation)
    assert isinstance(acquired, Holding)
    return acquired


@pytest.mark.parametrize("policy", ["each", "latest"])
def test_a_night_that_starts_while_it_is_to_be_skipped_is_not_skipped(world: World, policy: str) -> None:
    world.run("nightly", remaining_s=60)
    world.set(catch_up_policy=policy)
    world.clock.set(at(1 if policy == "latest" else 4))
    wire = Wire(world.client)
    wire.next("skip", meanwhile(lambda: take(world, NIGHT)))
    assert {result.outcome for result in world.run()} == {"delayed"}
    assert wire.unused() == []
    assert world.interval()["state"] == RUNNING
    assert "skip" not in world.interval()
    assert not [row for row in skips(world) if row["first"] == NIGHT]
    assert later(world)[0].outcome == "completed"
    assert world.interval()["state"] == COMPLETED


def test_a_night_that_is_skipped_while_it_is_to_start_does_not_start(world: World) -> None:
    outage(world, 3)
    wire = Wire(world.client)

    def superseded() -> None:
        world.set(catch_up_policy="latest")
        assert world.run(owner="other", remaining_s=60)

    wire.next("acquire", meanwhile(superseded))
    results = world.run()
    assert [(result.interval, result.outcome) for result in results] == [
        (night(1), "moved"),
        (night(2), "moved"),
        (night(3), "completed"),
    ]
    assert in_state(world, SKIPPED) == nights(1, 2)


@pytest.mark.parametrize("policy", ["each", "latest"])
def test_what_the_plan_skips_does_not_run_although_the_skip_could_not_be_written_yet(world: World, policy: str) -> None:
    """A worker that began earlier finishes one night of the span, so that the write for all of it is refused."""
    world.clock.set(at(1))
    world.run(remaining_s=60)
    assert in_state(world, EXPECTED) == nights(0, 1)
    world.set(catch_up_policy=policy)
    world.clock.set(at(2 if policy == "latest" else 5))
    wire = Wire(world.client)
    wire.next("skip", meanwhile(lambda: world.put_control(keys.interval(NIGHT), state=COMPLETED)))
    results = world.run()
    assert wire.unused() == []
    assert night(1) not in ran(results)
    world.run()
    assert in_state(world, SKIPPED) == ([night(1)] if policy == "latest" else nights(1, 2))
    agree(world)


# --------------------------------------------------------------------------------------------- what the wire can do


@pytest.mark.parametrize("fault", [REPEATED, LOST, NEVER_SENT, answered("ThrottlingException")])
def test_a_span_is_skipped_once_whatever_happens_to_the_write(live: World, fault: Fault) -> None:
    outage(live, 150)
    wire = Wire(live.client)
    wire.next("skip", fault)
    assert ran(live.run()) == nights(148, 150)
    assert in_state(live, SKIPPED) == nights(1, 147)
    assert len(skips(live)) == 1
    agree(live)


@pytest.mark.parametrize("fault", [LOST, NEVER_SENT], ids=["lost", "never sent"])
def test_a_skip_without_an_answer_is_found_or_made_up_for_by_the_next_tick(world: World, fault: Fault) -> None:
    outage(world, 9)
    wire = Wire(world.client)
    wire.next("skip", then=fault)
    with pytest.raises(TransientFailure):
        world.run()
    assert in_state(world, SKIPPED) == (nights(1, 6) if fault is LOST else [])
    wire.next("skip")
    assert ran(world.run()) == nights(7, 9)
    assert in_state(world, SKIPPED) == nights(1, 6)
    agree(world)


@pytest.mark.parametrize("written", [0, 99])
@pytest.mark.parametrize("end", ["killed", "overtaken"])
def test_an_audit_row_tells_of_exactly_the_nights_that_were_skipped_with_it(
    live: World, written: int, end: str
) -> None:
    """The worker does not come to the write after those; another tick does the rest."""
    outage(live, 150)
    wire = Wire(live.client)
    if end == "killed":
        killed(live, wire, "skip", 1 + written // 99, kind="tick")
        assert len(in_state(live, SKIPPED)) == written
        agree(live)
    else:
        wire.next("skip", *[PASS] * (written // 99), meanwhile(lambda: live.run(owner="quicker")))
    live.run()
    assert wire.unused() == []
    assert in_state(live, SKIPPED) == nights(1, 147)
    assert in_state(live, COMPLETED) == [NIGHT, *nights(148, 150)]
    agree(live)


def test_two_ticks_at_once_skip_and_run_each_night_once(emulator_url: str) -> None:
    world = World(live_client(emulator_url))
    outage(world, 120)
    world.clock.step_ms = 0
    barrier = Barrier(2, timeout=20)

    def tick(owner: str) -> list[tuple[str, str]]:
        client = live_client(emulator_url)
        wire = Wire(client)
        wire.next("observe", meanwhile(barrier.wait))
        wire.next("skip", meanwhile(barrier.wait))
        results = world.run(invocation=world.invocation(owner, client=client))
        return [(result.interval, result.outcome) for result in results]

    with ThreadPoolExecutor(2) as pool:
        outcomes = [*pool.map(tick, ["one", "other"])]
    completed = [interval for found in outcomes for interval, outcome in found if outcome == "completed"]
    assert len(completed) == len(set(completed))
    later(world)
    assert in_state(world, SKIPPED) == nights(1, 117)
    assert in_state(world, COMPLETED) == [NIGHT, *nights(118, 120)]
    agree(world)
    for interval_id in nights(118, 120):
        events = world.events(interval_id)
        assert [events.count(name) for name in ("OBSERVED", "STARTED", "COMPLETED")] == [1, 1, 1]


# ---------------------------------------------------------------------------------------------------- order of arrival


@pytest.mark.parametrize("policy", ["each", "latest"])
def test_the_order_in_which_events_arrive_changes_nothing_that_is_recorded(
    client: DynamoDBClient, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Late, early and doubled triggers of three nights, one of them before the first night, all at one moment."""
    events = [
        event("nightly", at(-1, "02:00:00")),
        event("nightly", at(1, "02:00:00")),
        event("tick", at(1, "02:05:00")),
        event("nightly", at(-1, "02:00:00")),
    ]

    def recorded_by(order: Sequence[dict[str, Any]]) -> dict[str, Any]:
        world = World(client)
        world.clock.step_ms = 0
        world.set(catch_up_policy=policy, catch_up_days=3)
        world.clock.set(at(1, "02:05:00"))
        with world.deployed(monkeypatch):
            for sent in order:
                delivered(world, sent)
        told = ("state", "scheduled_at", "pass", "rerun", "skip")
        rows = {key: row for key, row in world.control().items() if key.startswith("INTERVAL#")}
        for row in rows.values():
            row.get("skip", {}).pop("audit", None)
            row.get("skip", {}).pop("actor", None)
        return {key: {name: row.get(name) for name in told} for key, row in rows.items()} | {
            "open_from": world.row("CONTROL")["open_from"],
            "first_interval": world.row("CONTROL")["first_interval"],
        }

    orders = list(permutations(events))
    answers = [recorded_by(order) for order in orders[::5]]
    assert answers[0]["first_interval"] == night(-1)
    assert all(answer == answers[0] for answer in answers)


# ------------------------------------------------------------------------------------------------- a clock that steps


@pytest.mark.parametrize("seconds", [1, 5 * 3600, 200 * DAY_S])
def test_a_clock_that_steps_back_opens_nothing_again_and_records_nothing_twice(world: World, seconds: int) -> None:
    outage(world, 9)
    assert ran(world.run()) == nights(7, 9)
    before = everything(world)
    world.clock.wall_ms -= seconds * 1000
    assert world.run() == []
    assert everything(world) == before
    world.clock.set(at(10))
    assert ran(world.run()) == [night(10)]
    assert in_state(world, SKIPPED) == nights(1, 6)


def test_a_night_seen_before_the_clock_stepped_back_is_run_and_not_recorded_again(world: World) -> None:
    outage(world, 2)
    world.run(remaining_s=60)
    observed = [world.interval(one)["first_observed_at"] for one in nights(1, 2)]
    world.clock.set(at(2, "01:30:00"))
    assert ran(world.run()) == nights(1, 2)
    assert [world.interval(one)["first_observed_at"] for one in nights(1, 2)] == observed
    assert world.counted()["RunDelay"] >= 0


# --------------------------------------------------------------------------------------------------- delays, recorded


class Broken(Exception):
    """Stands for a job that fails."""


def failing(world: World) -> Job:
    def fails(_: str | None) -> None:
        raise Broken

    return Job(Slow(None, world.clock, fails=fails), Slow(None, world.clock, fails=fails))


def delayed(world: World, interval_id: str) -> list[dict[str, Any]]:
    return [row for row in world.audit(interval_id) if row["event"] == "DELAYED"]


def paused(world: World) -> None:
    begun(world)
    world.put_control("CONTROL", pause={"who": "ada", "when": at(0), "why": "an import"})
    world.clock.set(at(1))


def held(world: World) -> None:
    world.run("nightly", remaining_s=60)
    take(world, NIGHT, "somebody")
    world.clock.set(at(0, "02:00:20"))


def waiting(world: World) -> None:
    with pytest.raises(Broken):
        world.run("nightly", job=doing(failing(world)))


def older(world: World) -> None:
    """The younger of two nights waits while each tick has only time to begin the older one."""
    outage(world, 2)


@pytest.mark.parametrize(
    ("given", "cause", "late", "remaining_s"),
    [
        (paused, "paused", [0, 1], 900),
        (held, "lease_held", [0], 900),
        (waiting, "backoff", [0], 900),
        (older, "behind_older", [2], 60),
    ],
    ids=["paused", "lease_held", "backoff", "behind_older"],
)
def test_a_delay_is_recorded_once_per_cause_with_policy_actor_and_time(
    world: World, given: Any, cause: str, late: list[int], remaining_s: float
) -> None:
    given(world)
    before_ms = world.clock.wall_ms
    world.run(owner="first", remaining_s=remaining_s)
    wire = Wire(world.client)
    for number in range(3):
        world.clock.advance(1)
        before = everything(world)
        world.run(owner=f"again-{number}", remaining_s=remaining_s)
        assert everything(world) == before, "a tick after the plan changes nothing"
    assert wire.requests("delay") == [], "nor does it try to"
    for interval_id in map(night, late):
        row = world.interval(interval_id)
        assert set(row["delays"]) == {cause}
        (told,) = delayed(world, interval_id)
        assert (told["cause"], told["actor"], told["run_id"]) == (cause, "first", row["run_id"])
        assert told["policy"] == {"catch_up_policy": "each", "catch_up_days": 3}
        for moment in (told["at"], row["delays"][cause]):
            assert before_ms <= clock.parse_ms(moment) < before_ms + 1000
        assert ("held_until" in told) == (cause == "lease_held")


def test_two_ticks_that_find_the_same_delay_record_it_once(world: World) -> None:
    held(world)
    wire = Wire(world.client)
    wire.next("delay", meanwhile(lambda: world.run(owner="quicker")))
    assert [result.outcome for result in world.run()] == ["delayed"]
    assert wire.unused() == []
    (told,) = delayed(world, NIGHT)
    assert told["actor"] == "quicker"
    assert set(world.interval()["delays"]) == {"lease_held"}


def test_a_night_delayed_for_several_causes_has_each_of_them_once(world: World) -> None:
    outage(world, 2)
    world.run(remaining_s=60)
    world.put_control("CONTROL", pause={"who": "ada", "when": at(2), "why": "an import"})
    world.run()
    world.put_control("CONTROL", pause=...)
    take(world, night(1), "somebody")
    for _ in range(2):
        assert {result.outcome for result in world.run()} == {"delayed"}
    assert sorted(world.interval(night(2))["delays"]) == ["behind_older", "lease_held", "paused"]
    assert [row["cause"] for row in delayed(world, night(2))] == ["behind_older", "paused", "lease_held"]
    later(world)
    assert world.interval(night(2))["state"] == COMPLETED
    assert len(world.interval(night(2))["delays"]) == 3, "the record stays"


def test_segments_that_wait_for_different_reasons_delay_a_night_for_each_of_them(client: DynamoDBClient) -> None:
    world = World(client, {"SegmentCount": 2})
    world.run("nightly", remaining_s=60)
    take(world, NIGHT, "somebody")
    invocation = world.invocation()
    world.put_control("LEASE#001", owner=..., expires_at_ms=...)
    world.put_control(
        keys.progress(NIGHT, 1, "001"),
        schema=1,
        attempts=1,
        rerun=0,
        done=False,
        next_attempt_at_ms=world.clock.wall_ms + 60_000,
    )
    assert [result.outcome for result in world.run(invocation=invocation)] == ["delayed", "waiting"]
    assert set(world.interval()["delays"]) == {"lease_held", "backoff"}


@pytest.mark.parametrize("waits_for", ["backoff", "repair"])
def test_a_night_that_waits_for_backoff_or_repair_does_not_block_younger_ones(world: World, waits_for: str) -> None:
    world.set(max_attempts=1 if waits_for == "repair" else 5)
    waiting(world)
    world.clock.set(at(0, "02:00:20"))
    world.put_control("CONTROL", open_from=night(-2), first_interval=night(-2))
    assert [result.interval for result in world.run() if result.outcome == "completed"] == nights(-2, -1)
    assert world.interval()["state"] == (NEEDS_REPAIR if waits_for == "repair" else RUNNING)
    world.put_control(keys.progress(NIGHT, 1, "000"), next_attempt_at_ms=world.clock.wall_ms + 10 * DAY_S * 1000)
    world.clock.set(at(2))
    results = [result for result in world.run() if result.outcome == "completed"]
    assert ran(results) == nights(1, 2)


@pytest.mark.parametrize(("attempts", "state"), [(1, NEEDS_REPAIR), (5, RUNNING)])
def test_a_night_that_fails_does_not_block_younger_ones(world: World, attempts: int, state: str) -> None:
    world.set(max_attempts=attempts)
    outage(world, 3)
    broken = iter([True])

    def fails(_: str | None) -> None:
        if next(broken, False):
            raise Broken

    invocation = world.invocation()
    job = Job(Slow(AccountsTable(invocation), world.clock, fails=fails), EntitlementsTable(invocation))
    with pytest.raises(Broken):
        world.run(job=doing(job), invocation=invocation)
    assert states(world) == {
        NIGHT: COMPLETED,
        night(1): state,
        night(2): COMPLETED,
        night(3): COMPLETED,
    }


@pytest.mark.parametrize("fault", [LOST, NEVER_SENT, REPEATED], ids=["lost", "never sent", "repeated"])
def test_a_delay_whose_write_failed_keeps_no_younger_night_from_running(world: World, fault: Fault) -> None:
    waiting(world)
    world.put_control(keys.progress(NIGHT, 1, "000"), next_attempt_at_ms=world.clock.wall_ms + 10 * DAY_S * 1000)
    world.clock.set(at(1))
    wire = Wire(world.client)
    wire.next("delay", then=fault)
    try:
        world.run()
    except TransientFailure:
        assert fault is not REPEATED
    assert world.interval(night(1))["state"] == COMPLETED
    wire.next("delay")
    world.run()
    assert len(delayed(world, NIGHT)) == 1


def test_both_latencies_are_measured_once_per_night(client: DynamoDBClient) -> None:
    """From due to started and from scheduled to completed, over two segments and a kill."""
    world = World(client, {"SegmentCount": 2})
    grants(world, *numbered(10))
    world.clock.set(at(0, "02:10:00"))
    with measured() as numbers:
        killed(world, Wire(client), "commit", 1)
        world.clock.set(at(0, "02:40:00"))
        assert {result.outcome for result in world.run()} == {"completed"}
    assert [round(delay_s) for delay_s in numbers["RunDelay"]] == [600]
    assert [round(lag_s) for lag_s in numbers["ConsistencyLag"]] == [2400]


def test_a_delay_is_not_written_into_a_night_that_is_over_meanwhile(world: World) -> None:
    held(world)
    wire = Wire(world.client)
    wire.next("delay", meanwhile(lambda: world.put_control(keys.interval(NIGHT), state=COMPLETED)))
    assert [result.outcome for result in world.run()] == ["delayed"]
    assert wire.unused() == []
    assert world.interval()["delays"] == {}
    assert delayed(world, NIGHT) == []


def test_while_paused_due_nights_are_recorded_skipped_and_late_as_ever(world: World) -> None:
    paused(world)
    world.clock.set(at(9))
    assert {result.outcome for result in world.run()} == {"paused"}
    assert in_state(world, SKIPPED) == nights(0, 6)
    assert in_state(world, EXPECTED) == nights(7, 9)
    seen = look(invocation=world.invocation())
    assert (seen["SkippedIntervals"], seen["UnfinishedIntervals"]) == (7, 3)
    assert seen["SecondsPastDeadline"] > 1.8 * DAY_S
