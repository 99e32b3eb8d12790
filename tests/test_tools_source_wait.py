"""A pause that the source asked for, as reconcilectl tells it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import clock
from reconciler.errors import SourceWait
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.ctl import DAY_MS, HOUR_MS, Operator, operator
from tests.kit import grants, numbered
from tests.world import Slow
from tools.ctl import verbs as ctl_verbs
from tools.ctl.errors import CtlError, Uncertain
from tools.ctl.verbs import Command

if TYPE_CHECKING:
    from reconciler.invocation import Invocation

PAUSE_S = 2000


@pytest.fixture
def person(
    emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    person = operator(emulator_url, tmp_path, monkeypatch, capsys, RANGE_SIZE=10, PAGE_SIZE=10)
    grants(person.world, *numbered(30))
    return person


def asked_for_a_pause(person: Operator, days_ago: int = 0) -> str:
    """The night of so many days ago is begun now, and its source asks for a pause after the first page; until when."""
    world = person.world
    due_ms = world.clock.wall_ms - HOUR_MS - DAY_MS * days_ago

    def pause(after: str | None) -> None:
        if after is not None:
            raise SourceWait(PAUSE_S, "too many requests")

    def job(invocation: Invocation) -> Job:
        return Job(Slow(AccountsTable(invocation), world.clock, fails=pause), EntitlementsTable(invocation))

    night = person.before(days_ago)
    assert [result.outcome for result in world.run("nightly", time=clock.text(due_ms), job=job)] == ["yielded"]
    return clock.text(world.progress(interval_id=night)["next_attempt_at_ms"])


def forecast(person: Operator) -> list[tuple[str, str, str | None]]:
    return [(step["interval"], step["does"], step["until"]) for step in person.knows("plan")["steps"]]


def said(text: str) -> str:
    return " ".join(text.split())


def test_status_says_that_a_night_waits_for_the_source_and_until_when(person: Operator) -> None:
    until = asked_for_a_pause(person)
    shown = person.sees("status")
    assert f"{person.night} RUNNING, waits for the source" in shown
    assert f"segment 000: the source asked for a pause until {until[:10]} {until[11:19]}" in said(shown)
    assert "without progress" not in shown, "a pause is no attempt"
    (waiting,) = person.knows("status")["intervals"][-1]["waiting"]
    assert waiting == {"segment": "000", "attempts": 0, "next_attempt_at": until, "for_source": True}


def test_a_paused_job_waits_for_resume_first(person: Operator) -> None:
    asked_for_a_pause(person)
    person.types("pause", "--reason", "why", "--yes")
    assert f"{person.night} RUNNING, waits for resume" in person.sees("status")


def test_when_the_pause_is_over_the_night_waits_for_a_tick_only(person: Operator) -> None:
    asked_for_a_pause(person)
    person.world.clock.advance(PAUSE_S + 1)
    shown = person.sees("status")
    assert f"{person.night} RUNNING, waits for a tick" in shown
    assert "asked for a pause" not in shown
    assert forecast(person) == [(person.night, "resume", None)]
    assert [result.outcome for result in person.world.run()] == ["completed"]
    assert person.knows("status")["intervals"][-1]["waiting"] == []


def test_the_plan_says_that_nothing_else_starts_either(person: Operator) -> None:
    until = asked_for_a_pause(person, days_ago=1)
    older = person.before(1)
    assert forecast(person) == [(older, "source_waits", until), (person.night, "wait", until)]
    shown = said(person.sees("plan"))
    assert f"{older} segment 000 source waits the source asked for a pause: until it is over no other" in shown
    assert f"{person.night} wait behind {older}, until {until[:10]} {until[11:19]}" in shown
    assert [(result.interval, result.outcome) for result in person.world.run()] == [(older, "source_waits")]
    person.world.clock.advance(PAUSE_S)
    assert [step[:2] for step in forecast(person)] == [(older, "resume"), (person.night, "start")]


def test_the_segments_that_a_tick_reaches_before_the_waiting_one_are_planned(
    emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    person = operator(emulator_url, tmp_path, monkeypatch, capsys, SEGMENT_COUNT=3)
    world = person.world
    grants(world, *numbered(9))

    class Source:
        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Any:
            raise {"000": ValueError("a defect"), "001": SourceWait(PAUSE_S, "too many requests")}[segment]

    with pytest.raises(ValueError, match="a defect"):
        world.run("nightly", job=lambda i: Job(Source(), EntitlementsTable(i)))
    world.clock.advance(world.settings.backoff_seconds)
    planned = [(step["segment"], step["does"]) for step in person.knows("plan")["steps"]]
    assert planned == [("000", "resume"), ("001", "source_waits")]
    ran = [(result.segment, result.outcome) for result in world.run()]
    assert ran == [("000", "completed"), ("001", "source_waits")]


def test_audit_timeline_and_status_name_the_cause(person: Operator) -> None:
    asked_for_a_pause(person)
    person.world.clock.advance(300)
    person.world.run()
    assert "the source asked for a pause since" in said(person.sees("status"))
    audit = said(person.sees("audit", person.night))
    assert "cause the source asked for a pause" in audit
    assert f"because: the source is to be left alone for {PAUSE_S:.1f} s: too many requests" in audit
    assert "the source asked for a pause" in said(person.types("timeline", person.night)[1])
    delays = person.knows("status")["intervals"][-1]["delays"]
    assert set(delays) == {"source"}, "as it is recorded"


def test_a_preview_that_the_source_interrupts_says_how_to_go_on() -> None:
    part = {"outcome": "done", "result": {"complete": False, "next": {"segment": "000", "after": "b"}, "accounts": 1}}
    answers: list[Any] = [part, CtlError("refused: Preview: the source is to be left alone")]

    def send(event: dict[str, Any]) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def preview() -> Any:
        given = Command("Preview", "ada", "why", "p", {})
        return ctl_verbs.preview(given, send, guard_of=lambda _: None, part_done=lambda _: None)

    with pytest.raises(CtlError, match=r"left alone; with --id p it goes on after what it has read$"):
        preview()
    answers[:] = [CtlError("refused: Preview: the source is to be left alone")]
    with pytest.raises(CtlError, match=r"left alone$"):
        preview()
    answers[:] = [part, Uncertain("no answer")]
    with pytest.raises(Uncertain, match=r"^no answer$"):
        preview()
