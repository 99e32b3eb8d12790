"""The timeline of real runs: who held which lease when, as words, as a picture and as JSON."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reconciler import clock
from tests.conftest import live_client
from tests.faults import Wire
from tests.kit import grants, killed, numbered, ordered, wait
from tests.world import NIGHT, World
from tools.timeline import Timeline, UnknownInterval, as_json, collect, draw, text
from tools.timeline.attempts import LOST, RUNNING, SILENT, Attempt
from tools.timeline.history import Mark

NEXT = "2026-11-30"
GIVEN_UP = "2026-11-28"


def lines(timeline: Timeline, width: int = 80) -> list[str]:
    """What a terminal shows."""
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(text(timeline, width))
    return console.export_text().splitlines()


def times(attempt: Attempt) -> tuple[str | None, ...]:
    """Begin, last sign of life and end, as UTC times of day."""
    found = (attempt.begin_ms, attempt.seen_ms, attempt.end_ms)
    return tuple(None if ms is None else clock.text(ms)[11:19] for ms in found)


def told(timeline: Timeline, interval_id: str = NIGHT) -> list[tuple[Any, ...]]:
    """Generation, holder, beginning, end, ranges, accounts and pass of each attempt."""
    (history,) = (one for one in timeline.histories if one.interval_id == interval_id)
    return [
        (one.generation, one.owner, one.began, one.ended, one.ranges, one.accounts, one.pass_no)
        for one in history.attempts
    ]


@pytest.fixture(scope="module")
def ran(emulator_url: str) -> Iterator[World]:
    """A night of which two holders were lost, run again from the start hours later; the next one is being worked on."""
    world = World(live_client(emulator_url))
    world.set(page_size=4, range_size=2)
    grants(world, *numbered(12))
    wire = Wire(world.client)
    with pytest.MonkeyPatch.context() as patch, world.deployed(patch):
        world.clock.set(f"{NIGHT}T02:00:05Z")
        killed(world, wire, "commit", 4, owner="worker-a")
        world.clock.set(f"{NIGHT}T02:00:30Z")
        world.run(owner="worker-b")
        world.clock.set(f"{NIGHT}T02:05:00Z")
        killed(world, wire, "commit", 2, kind="tick", owner="worker-c")
        world.clock.set(f"{NIGHT}T02:10:00Z")
        world.run(owner="worker-d")
        world.clock.set(f"{NIGHT}T17:30:00Z")
        ordered(world, "Rerun", interval=NIGHT, force=True)
        world.run(owner="worker-e")
        world.clock.set(f"{NEXT}T02:00:01Z")
        killed(world, wire, "commit", 3, owner="worker-f")
        world.clock.advance(60)
        yield world


@pytest.fixture
def timeline(ran: World) -> Timeline:
    return collect([NEXT, NIGHT], invocation=ran.invocation())


def test_killed_holders_takeovers_and_the_rerun_are_told_with_what_each_committed(timeline: Timeline) -> None:
    assert [one.interval_id for one in timeline.histories] == [NIGHT, NEXT]
    assert told(timeline) == [
        (1, "worker-a", "STARTED", LOST, 3, 6, 1),
        (2, "worker-c", "TAKEOVER", LOST, 1, 2, 1),
        (3, "worker-d", "TAKEOVER", "COMPLETED", 2, 4, 1),
        (5, "worker-e", "STARTED", "COMPLETED", 6, 12, 2),
    ]
    assert told(timeline, NEXT) == [(6, "worker-f", "STARTED", RUNNING, 2, 4, 1)]


def test_a_lost_holder_is_shown_until_its_last_commit_and_its_lease_until_the_takeover(timeline: Timeline) -> None:
    a, c, d, _ = timeline.histories[0].attempts
    assert times(a) == ("02:00:05", "02:00:05", "02:05:00")
    assert times(c) == ("02:05:00", "02:05:00", "02:10:00")
    assert a.seen_ms is not None
    assert a.begin_ms < a.seen_ms
    assert (c.took_from, d.took_from) == (1, 2)
    assert d.seen_ms == d.end_ms


def test_what_else_happened_is_told_with_its_person_or_worker_and_reason(timeline: Timeline) -> None:
    marks = [(mark.event, mark.who, mark.what) for mark in timeline.histories[0].marks]
    assert marks == [
        ("OBSERVED", "worker-a", ""),
        ("DELAYED", "worker-b", "lease held until 02:02:05"),
        ("COMPLETED", "worker-d", ""),
        ("RERUN", "ada", "from the start, pass 2, a bad import"),
        ("COMPLETED", "worker-e", ""),
    ]


def test_80_columns_show_every_attempt_and_event(timeline: Timeline) -> None:
    shown = lines(timeline)
    assert max(map(len, shown)) <= 80
    assert shown[0].startswith(f"{NIGHT}  COMPLETED ")
    (killed_row,) = (line for line in shown if "worker-a" in line and "killed or frozen" in line)
    assert killed_row.split()[:3] == ["1", "worker-a", "02:00:05"]
    assert "█░" in killed_row
    assert any("TAKEOVER" in line and "worker-c" in line and "from generation 1" in line for line in shown)
    assert any("RERUN" in line and "17:30:00" in line and "a bad import" in line for line in shown)
    assert any("worker-f" in line and "running now" in line for line in shown)
    assert any("deadline" in line and "06:00:00" in line for line in shown)


def test_a_wider_terminal_is_used(timeline: Timeline) -> None:
    bars = [sum(line.count(cell) for cell in "█░") for line in lines(timeline, 80)]
    wider = [sum(line.count(cell) for cell in "█░") for line in lines(timeline, 140)]
    assert sum(wider) > 2 * sum(bars)


def test_the_picture_is_valid_names_its_holders_and_is_the_same_each_time(timeline: Timeline, tmp_path: Path) -> None:
    draw(timeline, tmp_path / "one.svg")
    draw(timeline, tmp_path / "two.svg")
    drawn = (tmp_path / "one.svg").read_bytes()
    assert drawn == (tmp_path / "two.svg").read_bytes()
    assert b"<dc:date>" not in drawn
    described = "".join(ElementTree.fromstring(drawn).itertext())
    for said in ("worker-a generation 1: 3 ranges, killed or frozen", "worker-e generation 5: 6 ranges, COMPLETED"):
        assert said in described
    words = drawn.decode()  # each text is drawn as shapes, with its words in a comment beside it
    for said in ("worker-c", "gen. 2", "1 range, killed or frozen", "2 ranges, running now", "deadline", "UTC"):
        assert f"<!-- {said} -->" in words
    assert "DELAYED worker-b: lease held until 02:02:05" in words


def test_a_png_is_a_png(timeline: Timeline, tmp_path: Path) -> None:
    draw(timeline, tmp_path / "night.PNG")
    assert (tmp_path / "night.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["night.pdf", "night", "absent/night.svg"])
def test_a_file_that_cannot_be_drawn_is_named(timeline: Timeline, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        draw(timeline, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_json_holds_everything_with_times_as_text(timeline: Timeline) -> None:
    found = json.loads(json.dumps(as_json(timeline)))
    assert found["job"] == "entitlements"
    night, following = found["intervals"]
    assert (night["interval_id"], night["state"], night["pass_no"]) == (NIGHT, "COMPLETED", 2)
    assert night["scheduled_at"] == f"{NIGHT}T02:00:00.000Z"
    assert (night["counts"]["accounts"], night["counts"]["ranges"]) == (12, 6)
    assert night["attempts"][0]["ended"] == LOST
    assert night["attempts"][0]["end_at"].startswith(f"{NIGHT}T02:05:00.")
    assert night["marks"][3]["who"] == "ada"
    assert night["marks"][3]["at"].startswith(f"{NIGHT}T17:30:00.")
    assert following["attempts"][0]["end_at"] is None
    assert not any(name.endswith("_ms") for one in (night, *night["attempts"], *night["marks"]) for name in one)


def test_an_interval_that_is_not_on_record_is_named(ran: World) -> None:
    with pytest.raises(UnknownInterval, match=GIVEN_UP) as raised:
        collect([NIGHT, GIVEN_UP], invocation=ran.invocation())
    assert raised.value.interval_id == GIVEN_UP


def test_nothing_is_written_and_rejected_accounts_are_not_read(ran: World) -> None:
    ran.put_control(f"AUDIT#{NIGHT}#REJECTED#1#aa", event="REJECTED", schema=99)  # cannot be read
    before = ran.control()
    ran.requests.clear()
    collect([NIGHT], invocation=ran.invocation())
    assert {operation for operation, _ in ran.requests} == {"Query", "GetItem"}
    assert ran.control() == before


def test_a_takeover_by_another_interval_ends_an_attempt_too(live: World) -> None:
    """The younger night's holder is lost, and the older night takes its lease."""
    grants(live, *numbered(8))
    live.set(page_size=2, range_size=2, backoff_seconds=0)
    wire = Wire(live.client)
    live.clock.set(f"{NIGHT}T02:00:05Z")
    killed(live, wire, "commit", 2, owner="first")
    wait(live)
    live.put_control(f"INTERVAL#{NIGHT}", state="NEEDS_REPAIR")
    live.clock.set(f"{NEXT}T02:00:05Z")
    killed(live, wire, "commit", 2, owner="second")
    wait(live)
    live.put_control(f"INTERVAL#{NIGHT}", state="RUNNING")
    killed(live, wire, "commit", 2, kind="tick", owner="third")
    timeline = collect([NIGHT, NEXT], invocation=live.invocation())
    assert told(timeline)[-1][:4] == (3, "third", "TAKEOVER", RUNNING)
    (lost,) = timeline.histories[1].attempts
    assert (lost.ended, lost.ranges, lost.seen_ms is not None) == (LOST, 1, True)
    assert lost.end_ms == timeline.histories[0].attempts[-1].begin_ms
    (alone,) = collect([NEXT], invocation=live.invocation()).histories
    assert alone.attempts == (replace(lost, end_ms=live.lease()["acquired_at_ms"]),)


def test_pause_release_and_resume_stand_between_the_attempts(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    grants(live, *numbered(8))
    live.set(page_size=2, range_size=2)
    with live.deployed(monkeypatch):
        killed(live, Wire(live.client), "commit", 3, owner="stuck")
        live.clock.advance(10)
        assert collect([NIGHT], invocation=live.invocation()).histories[0].attempts[0].ended == RUNNING
        ordered(live, "Pause")
        ordered(live, "ReleaseLease", segment="000")
        live.clock.advance(30)
        ordered(live, "Resume")
        wait(live)
        live.run(owner="next")
    (history,) = collect([NIGHT], invocation=live.invocation()).histories
    assert [(one.owner, one.began, one.ended, one.ranges) for one in history.attempts] == [
        ("stuck", "STARTED", LOST, 2),
        ("next", "RESUMED", "COMPLETED", 2),
    ]
    events = [mark.event for mark in history.marks]
    assert events == ["OBSERVED", "PAUSED", "RELEASED", "RESUMED", "COMPLETED"]
    released = next(mark for mark in history.marks if mark.event == "RELEASED")
    assert abs((history.attempts[0].end_ms or 0) - released.at_ms) < 1000
    assert history.attempts[0].seen_ms is not None


def test_what_was_done_to_the_job_is_shown_only_inside_the_nights_own_time(
    live: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants(live, *numbered(8))
    live.set(page_size=2, range_size=2)
    with live.deployed(monkeypatch):
        live.run()
        live.clock.advance(600)
        ordered(live, "Pause")
        ordered(live, "Resume")
        live.clock.set(f"{NEXT}T02:00:01Z")
        killed(live, Wire(live.client), "commit", 2, owner="stuck")
        live.clock.advance(10)
        ordered(live, "Pause")
        ordered(live, "ReleaseLease", segment="000")
        live.delete_control("LEASE#000")
        ordered(live, "ReleaseLease", segment="000")
    done, going = collect([NIGHT, NEXT], invocation=live.invocation()).histories
    assert [mark.event for mark in done.marks] == ["OBSERVED", "COMPLETED"]
    assert [mark.event for mark in going.marks] == ["OBSERVED", "PAUSED", "RELEASED", "RELEASED"]
    assert [mark.what for mark in going.marks][-1].startswith("restored")


def test_a_holder_whose_lease_expired_is_silent_until_somebody_comes(live: World) -> None:
    grants(live, *numbered(8))
    live.set(page_size=2, range_size=2)
    killed(live, Wire(live.client), "commit", 3, owner="gone")
    wait(live)
    timeline = collect([NIGHT], invocation=live.invocation())
    (attempt,) = timeline.histories[0].attempts
    assert (attempt.ended, attempt.end_ms, attempt.ranges) == (SILENT, None, 2)
    assert attempt.until_ms(timeline.now_ms) == timeline.now_ms
    assert any("no sign of life" in line and "░" in line for line in lines(timeline))


def test_what_somebody_else_saw_can_be_added(timeline: Timeline) -> None:
    seen = Mark(at_ms=clock.parse_ms(f"{NIGHT}T02:00:06Z"), event="killed", who="worker-a")
    noted = timeline.noted(NIGHT, [seen])
    assert [mark.event for mark in noted.histories[0].marks][:3] == ["OBSERVED", "killed", "DELAYED"]
    assert noted.histories[1] == timeline.histories[1]
