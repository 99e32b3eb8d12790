"""Skip and Acknowledge: a person gives one interval up, or has seen it. No other one falls silent with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from reconciler import clock
from reconciler.intervals import shifted
from reconciler.watchdog import look
from tests.faults import Wire, meanwhile
from tests.kit import delivered, give_up, grants, killed, numbered, ordered, overtaken, refused, ticked, wait
from tests.world import JOB, NIGHT, World, event

NEXT, THIRD = "2026-11-30", "2026-12-01"


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Six accounts to grant, two a page and a range."""
    with live.deployed(monkeypatch):
        live.set(range_size=2, page_size=2)
        grants(live, *numbered(6))
        yield live


@pytest.fixture
def due(night: World) -> World:
    """Three nights are due and on record, and none has started; the oldest two are past their deadline."""
    night.clock.set(f"{THIRD}T02:00:05Z")
    assert ticked(night, 0, remaining_s=60) == [(NIGHT, "out_of_time")]
    return night


def alarming(world: World, now: str | None = None) -> dict[str, float]:
    """What the watchdog finds that is not zero, without the milliseconds that looking takes."""
    if now:
        world.clock.set(now)
    return {name: round(value) for name, value in look(invocation=world.invocation()).items() if round(value)}


# skip


@pytest.mark.parametrize("skipped", [[NIGHT], [NEXT], [NIGHT, NEXT]])
def test_skipping_one_night_never_silences_the_deadline_of_another(due: World, skipped: list[str]) -> None:
    late_s = {NIGHT: 44 * 3600, NEXT: 20 * 3600}
    for one in skipped:
        ordered(due, "Skip", interval=one)
    seen = alarming(due, f"{THIRD}T02:00:00Z")
    late = [seconds for one, seconds in late_s.items() if one not in skipped]
    assert seen["SkippedIntervals"] == len(skipped), "a skipped one has an alarm of its own"
    assert seen["UnfinishedIntervals"] == 3 - len(skipped)
    assert seen.get("SecondsPastDeadline", 0) == max(late, default=0)
    assert alarming(due, f"{THIRD}T06:00:01Z")["SecondsPastDeadline"] == 1 + max(late, default=-14_400) + 14_400


def test_a_skipped_interval_does_not_run_and_every_other_one_does(due: World) -> None:
    assert ordered(due, "Skip", interval=NEXT) == {"interval": NEXT}
    assert ticked(due) == [(NIGHT, "completed"), (THIRD, "completed")]
    assert due.interval(NEXT)["state"] == "SKIPPED"
    assert due.row("CONTROL")["open_from"] == NEXT, "it waits to be acknowledged"
    assert ticked(due) == []


def test_a_skip_says_who_when_and_why(due: World) -> None:
    asked_ms = due.clock.wall_ms
    ordered(due, "Skip", "s-1", interval=NEXT, requested_by="bea", reason="a holiday")
    skip = due.interval(NEXT)["skip"]
    assert (skip["actor"], skip["reason"]) == ("bea", "a holiday")
    assert 0 <= clock.parse_ms(skip["at"]) - asked_ms < 1000
    told = due.row(skip["audit"])
    assert (told["event"], told["actor"], told["reason"], told["event_id"]) == ("SKIPPED", "bea", "a holiday", "s-1")
    assert told["run_id"] == f"{JOB}/{NEXT}/1"
    assert due.events(NEXT)[-1] == "SKIPPED"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED", "NEEDS_REPAIR", "SKIPPED"])
def test_only_what_never_started_can_be_skipped(night: World, state: str) -> None:
    if state == "SKIPPED":
        ordered(night, "Skip", interval=NIGHT)
    elif state == "RUNNING":
        killed(night, Wire(night.client), "commit")
    elif state == "COMPLETED":
        delivered(night, event("nightly"))
    else:
        give_up(night)
    assert f"{NIGHT} is {state}: only what never started" in refused(night, "Skip", interval=NIGHT)


def test_an_interval_that_is_not_on_record_is_neither_skipped_nor_acknowledged(night: World) -> None:
    delivered(night, event("nightly"))
    before_all = shifted(NIGHT, -1)
    assert f"{before_all} is not on record: the first one is {NIGHT}" in refused(night, "Skip", interval=before_all)
    assert f"{before_all} is not on record" in refused(night, "Acknowledge", interval=before_all)


def test_a_skip_that_meets_the_start_of_the_interval_leaves_it_running(due: World) -> None:
    wire = Wire(due.client)
    wire.next("verb", meanwhile(lambda: killed(due, wire, "commit", kind="tick")))
    assert f"{NIGHT} is RUNNING" in overtaken(due, "Skip", interval=NIGHT)
    assert "skip" not in due.interval()


def test_a_start_that_meets_the_skip_of_its_interval_leaves_it_alone(due: World) -> None:
    wire = Wire(due.client)
    wire.next("acquire", meanwhile(lambda: ordered(due, "Skip", interval=NIGHT)))
    assert ticked(due) == [(NIGHT, "moved"), (NEXT, "completed"), (THIRD, "completed")]
    assert (due.interval()["state"], "first_started_at" in due.interval()) == ("SKIPPED", False)


# acknowledge


@pytest.mark.parametrize("state", ["SKIPPED", "NEEDS_REPAIR"])
def test_acknowledging_silences_one_interval_keeps_its_record_and_lets_the_calendar_go_on(
    night: World, state: str
) -> None:
    give_up(night) if state == "NEEDS_REPAIR" else ordered(night, "Skip", interval=NIGHT)
    night.clock.set(f"{NIGHT}T07:00:00Z")
    assert alarming(night)
    before = night.interval()
    asked_ms = night.clock.wall_ms
    assert ordered(night, "Acknowledge", interval=NIGHT, requested_by="bea") == {"intervals": [NIGHT], "paused": False}
    assert alarming(night) == {}
    after = night.interval()
    seen = {name: after.pop(name) for name in ("acknowledged_at", "acknowledged_by", "acknowledged_in")}
    assert after == before
    assert seen["acknowledged_by"] == "bea"
    assert 0 <= clock.parse_ms(seen["acknowledged_at"]) - asked_ms < 1000
    assert night.row(seen["acknowledged_in"])["event"] == "ACKNOWLEDGED"
    assert ticked(night) == []
    assert night.row("CONTROL")["open_from"] == NEXT
    assert ordered(night, "Rerun", interval=NIGHT)["state_before"] == state
    assert ticked(night) == [(NIGHT, "completed")]


def test_an_acknowledgement_silences_no_other_interval(due: World) -> None:
    for one in (NIGHT, NEXT):
        ordered(due, "Skip", interval=one)
    ordered(due, "Acknowledge", interval=NEXT)
    seen = alarming(due, f"{THIRD}T07:00:00Z")
    assert (seen["SkippedIntervals"], seen["SecondsPastDeadline"], seen["UnfinishedIntervals"]) == (1, 3600, 1)
    assert ticked(due) == [(THIRD, "completed")]
    assert due.row("CONTROL")["open_from"] == NIGHT
    ordered(due, "Acknowledge", interval=NIGHT)
    ticked(due)
    assert due.row("CONTROL")["open_from"] == shifted(THIRD, 1)


def test_a_span_is_acknowledged_at_once_and_only_what_waits_for_a_person(due: World) -> None:
    ordered(due, "Skip", interval=NIGHT)
    ordered(due, "Skip", interval=NEXT)
    ordered(due, "Acknowledge", interval=NIGHT)
    earlier = due.interval()
    last = shifted(NIGHT, 89)
    assert ordered(due, "Acknowledge", interval=NIGHT, through=last) == {"intervals": [NEXT], "paused": False}
    assert due.interval() == earlier, "acknowledged before"
    assert "acknowledged_at" not in due.interval(THIRD)
    assert f"from {NIGHT} to {last}" in refused(due, "Acknowledge", interval=NIGHT, through=last)


def test_ninety_nights_of_an_outage_are_acknowledged_in_one_write(night: World) -> None:
    night.clock.set("2027-03-15T02:00:00Z")
    night.clock.step_ms = 0
    ticked(night, 0)
    assert alarming(night)["SkippedIntervals"] == 103, "all but the last four"
    wire = Wire(night.client)
    last = shifted(NIGHT, 89)
    told = ordered(night, "Acknowledge", interval=NIGHT, through=last)
    assert told["intervals"] == [shifted(NIGHT, days) for days in range(90)]
    assert len(wire.requests("verb")) == 1
    assert alarming(night)["SkippedIntervals"] == 13


def running(world: World) -> None:
    killed(world, Wire(world.client), "commit")


def completed(world: World) -> None:
    delivered(world, event("nightly"))


def expected(world: World) -> None:
    ticked(world, remaining_s=60)


def acknowledged(world: World) -> None:
    ordered(world, "Skip", interval=NIGHT)
    ordered(world, "Acknowledge", interval=NIGHT)


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (running, f"{NIGHT} is RUNNING"),
        (completed, f"{NIGHT} is COMPLETED"),
        (expected, f"{NIGHT} is EXPECTED"),
        (acknowledged, f"{NIGHT} is acknowledged"),
    ],
)
def test_what_does_not_wait_for_a_person_is_not_acknowledged(
    night: World, prepare: Callable[[World], None], why: str
) -> None:
    prepare(night)
    assert why in refused(night, "Acknowledge", interval=NIGHT)


def test_an_interval_that_somebody_still_works_on_is_not_acknowledged(night: World) -> None:
    """What the worker meets, like a trip of the guard, must be seen."""
    give_up(night)
    night.put_control("LEASE#000", owner="worker-7", interval_id=NIGHT)
    assert f"worker-7 has not ended its work on segment 000 of {NIGHT}" in refused(night, "Acknowledge", interval=NIGHT)
    ordered(night, "ReleaseLease", segment="000")
    assert ordered(night, "Acknowledge", interval=NIGHT) == {"intervals": [NIGHT], "paused": False}


def test_an_acknowledgement_that_meets_a_rerun_does_not_silence_it(night: World) -> None:
    give_up(night)
    wait(night)
    Wire(night.client).next("verb", meanwhile(lambda: ordered(night, "Rerun", interval=NIGHT)))
    assert f"{NIGHT} is RUNNING" in overtaken(night, "Acknowledge", interval=NIGHT)
    assert "acknowledged_at" not in night.interval()
    assert alarming(night, f"{NIGHT}T07:00:00Z")["SecondsPastDeadline"] == 3600


def test_a_rerun_that_meets_an_acknowledgement_removes_it(night: World) -> None:
    give_up(night)
    wait(night)
    Wire(night.client).next("verb", meanwhile(lambda: ordered(night, "Acknowledge", interval=NIGHT)))
    ordered(night, "Rerun", interval=NIGHT)
    assert (night.interval()["state"], "acknowledged_at" in night.interval()) == ("RUNNING", False)


def test_of_two_acknowledgements_at_once_the_first_one_counts(night: World) -> None:
    give_up(night)
    first = meanwhile(lambda: ordered(night, "Acknowledge", interval=NIGHT, requested_by="bea"))
    Wire(night.client).next("verb", first)
    assert f"{NIGHT} is acknowledged" in overtaken(night, "Acknowledge", interval=NIGHT, requested_by="cyd")
    assert night.interval()["acknowledged_by"] == "bea"
    assert night.events().count("ACKNOWLEDGED") == 1
