"""Pause and Resume: nobody starts, a running worker stops at its range, and lateness is seen all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler import clock, keys
from reconciler.commit import Committed, commit
from reconciler.scan import Sides
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.watchdog import look
from tests.faults import PASS, Wire, meanwhile
from tests.kit import begun, delivered, grants, hold, numbered, ordered, refused, ticked
from tests.world import JOB, NIGHT, World, event

NEXT = "2026-11-30"
LEASE = "LEASE#000"


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Six accounts to grant, two a page and a range."""
    with live.deployed(monkeypatch):
        live.set(range_size=2, page_size=2)
        grants(live, *numbered(6))
        yield live


def test_a_pause_stops_a_running_worker_at_its_next_range(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    live.set(range_size=2, page_size=2)
    grants(live, *numbered(6))
    with live.deployed(monkeypatch):
        wire = Wire(live.client)
        wire.next("commit", PASS, meanwhile(lambda: ordered(live, "Pause")))
        (attempt,) = delivered(live, event("nightly"))["attempts"]
        assert (attempt["outcome"], attempt["ranges"]) == ("paused", 1)
        assert sorted(live.view()) == numbered(2), "the range that met the pause is not written"
        assert (live.progress()["attempts"], "owner" in live.lease()) == (0, False)
        assert "LeaseLost" not in live.counted()
        assert ticked(live) == [(NIGHT, "paused")]
        assert sorted(live.view()) == numbered(2)
        ordered(live, "Resume")
        assert ticked(live) == [(NIGHT, "completed")]
    assert live.interval()["accounts"] == 6
    assert set(live.versions().values()) == {1}
    assert live.events() == ["OBSERVED", "STARTED", "YIELDED", "DELAYED", "RESUMED", "COMPLETED"]


def test_a_paused_job_still_records_what_is_due_and_still_turns_late(night: World) -> None:
    ordered(night, "Pause")
    assert delivered(night, event("nightly"))["outcome"] == "paused"
    night.clock.set(f"{NEXT}T07:00:00Z")
    assert ticked(night, 0) == [(NIGHT, "paused"), (NEXT, "paused")]
    for one in (NIGHT, NEXT):
        assert night.events(one) == ["OBSERVED", "DELAYED"]
        assert set(night.interval(one)["delays"]) == {"paused"}
    assert night.view() == {}
    numbers = look(invocation=night.invocation())
    assert numbers["SecondsPastDeadline"] >= 25 * 3600
    assert numbers["UnfinishedIntervals"] == 2
    ordered(night, "Resume")
    assert ticked(night) == [(NIGHT, "completed"), (NEXT, "completed")]


def test_a_pause_and_its_end_say_who_when_and_why(night: World) -> None:
    began_ms = night.clock.wall_ms
    assert ordered(night, "Pause", requested_by="bea", reason="maintenance") == {"pause_no": 1}
    row = night.row("CONTROL")
    assert {"who": "bea", "why": "maintenance"}.items() <= row["pause"].items()
    assert 0 <= clock.parse_ms(row["pause"]["when"]) - began_ms < 1000
    assert (row["pause_no"], night.lease()["paused"]) == (1, 1)
    assert ordered(night, "Resume", requested_by="cyd", reason="done") == {"pause_no": 2}
    after = night.row("CONTROL")
    assert (after["pause_no"], "pause" in after, "paused" in night.lease()) == (2, False, False)
    paused, resumed = sorted(night.audit(JOB), key=lambda row: row["at"])
    assert (paused["event"], paused["actor"], paused["reason"]) == ("PAUSED", "bea", "maintenance")
    assert (resumed["event"], resumed["actor"], resumed["reason"]) == ("RESUMED", "cyd", "done")
    assert (paused["pause_no"], resumed["pause_no"], resumed["pause"]) == (1, 2, row["pause"])


def test_a_job_is_paused_once_and_resumed_once(night: World) -> None:
    begun(night)
    assert "the job is not paused" in refused(night, "Resume")
    ordered(night, "Pause", requested_by="bea", reason="maintenance")
    when = night.row("CONTROL")["pause"]["when"]
    assert f"paused by bea since {when}: maintenance" in refused(night, "Pause")
    ordered(night, "Resume")
    assert "the job is not paused" in refused(night, "Resume")


def test_the_pause_of_the_guard_is_ended_by_hand_only_once_its_interval_was_dealt_with(night: World) -> None:
    night.view_row("gone", plan="gold")
    night.set(max_revocations=0)
    assert delivered(night, event("nightly"))["outcome"] == "tripped"
    assert "paused by reconcile/" in refused(night, "Pause")
    assert f"the revocation guard stopped {NIGHT}: Rerun {NIGHT} with a `revocation_bound`" in refused(night, "Resume")
    ordered(night, "Acknowledge", interval=NIGHT)
    ordered(night, "Resume")
    assert ticked(night) == []
    assert night.view()["gone"] == {"plan": "gold"}


@pytest.mark.parametrize("verb", ["Pause", "Resume"])
def test_the_renewals_of_a_living_holder_do_not_get_in_the_way(night: World, verb: str) -> None:
    night.run(remaining_s=60)
    holding = hold(night)
    if verb == "Resume":
        ordered(night, "Pause")
    invocation = night.invocation()
    sides = Sides(AccountsTable(invocation), EntitlementsTable(invocation), "000", 2)
    renewed: list[object] = []

    def renew() -> None:
        night.put_control(LEASE, expires_at_ms=night.lease()["expires_at_ms"] + 1)
        if verb == "Pause":
            renewed.append(commit(sides.between(None, "acct-0001"), holding, invocation=invocation))

    wire = Wire(night.client)
    wire.next("verb", meanwhile(renew))
    ordered(night, verb)
    assert len(wire.requests("verb")) == 1, "at the first try"
    assert ("paused" in night.lease()) is (verb == "Pause")
    assert verb == "Resume" or isinstance(renewed[0], Committed)


def test_every_lease_is_paused_and_freed(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(live.client, {"SegmentCount": 64})
    with world.deployed(monkeypatch):
        ordered(world, "Pause")
        rows = world.control()
        assert {rows[keys.lease(segment)].get("paused") for segment in keys.segments(64)} == {1}
        ordered(world, "Resume")
        rows = world.control()
        assert {rows[keys.lease(segment)].get("paused") for segment in keys.segments(64)} == {None}


# a lease row is lost


def test_a_pause_passes_over_a_lost_lease_row_and_keeps_its_segment_from_starting(night: World) -> None:
    begun(night)
    night.delete_control(LEASE)
    ordered(night, "Pause")
    assert not night.has(LEASE), "it is never made again but by ReleaseLease"
    assert ticked(night) == [(NIGHT, "paused")]
    ordered(night, "ReleaseLease", segment="000")
    assert night.lease()["paused"] == night.row("CONTROL")["pause_no"]
    ordered(night, "Resume")
    assert ticked(night) == [(NIGHT, "completed")]


def test_a_resume_passes_over_a_lost_lease_row(night: World) -> None:
    ordered(night, "Pause")
    night.delete_control(LEASE)
    ordered(night, "Resume")
    assert not night.has(LEASE)
    ordered(night, "ReleaseLease", segment="000")
    assert "paused" not in night.lease()
    assert ticked(night) == [(NIGHT, "completed")]


@pytest.mark.parametrize("first", ["the command reads first", "the row is read first"])
@pytest.mark.parametrize("verb", ["Pause", "Resume"])
def test_a_row_that_is_put_back_meanwhile_has_the_pause_that_control_has(night: World, verb: str, first: str) -> None:
    begun(night)
    if verb == "Resume":
        ordered(night, "Pause")
    night.delete_control(LEASE)
    outer, inner = (verb, "ReleaseLease") if first == "the command reads first" else ("ReleaseLease", verb)
    details = {verb: {}, "ReleaseLease": {"segment": "000"}}
    wire = Wire(night.client)
    wire.next("verb", meanwhile(lambda: ordered(night, inner, **details[inner])))
    ordered(night, outer, **details[outer])
    pause_no = night.row("CONTROL")["pause_no"] if verb == "Pause" else None
    assert night.lease().get("paused") == pause_no
    assert ("pause" in night.row("CONTROL")) is (verb == "Pause")


def test_a_lease_row_that_vanishes_meanwhile_holds_no_pause_up(night: World) -> None:
    begun(night)
    Wire(night.client).next("verb", meanwhile(lambda: night.delete_control(LEASE)))
    ordered(night, "Pause")
    assert not night.has(LEASE)
    assert "pause" in night.row("CONTROL")
