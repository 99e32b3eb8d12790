"""`make invoke` runs a sample event as its schedule would send it, and says in one line what is wrong with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tools import invoke, local_file
from tools.invoke import LAST_NIGHT, TIME, UNIQUE, stamped


@pytest.fixture(autouse=True)
def no_local_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody runs on this machine is left alone."""
    monkeypatch.setattr(local_file, "LOCAL_FILE", tmp_path / "none.json")


EVENTS = Path(__file__).parents[1] / "events"
SETTINGS = {"SCHEDULE_HOUR": "2", "SCHEDULE_MINUTE": "30", "TICK_MINUTES": "5"}


def event(trigger: str, time: str = TIME) -> dict[str, Any]:
    return {"source": "aws.scheduler", "time": time, "detail": {"trigger": trigger}}


@pytest.mark.parametrize(
    ("now", "time"),
    [
        ("2026-11-29T02:30:00", "2026-11-29T02:30:00Z"),
        ("2026-11-29T23:59:59", "2026-11-29T02:30:00Z"),
        ("2026-11-29T02:29:59", "2026-11-28T02:30:00Z"),
        ("2026-03-01T00:00:00", "2026-02-28T02:30:00Z"),
    ],
)
def test_a_nightly_gets_the_last_scheduled_time(now: str, time: str) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert stamped(event("nightly"), SETTINGS, moment) == event("nightly", time)


@pytest.mark.parametrize("trigger", ["tick", "watchdog"])
@pytest.mark.parametrize(
    ("now", "time"),
    [("2026-11-29T17:37:59.9", "2026-11-29T17:37:59Z"), ("2026-11-29T00:00:00", "2026-11-29T00:00:00Z")],
)
def test_the_others_get_the_present_second(trigger: str, now: str, time: str) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert stamped(event(trigger), SETTINGS, moment) == event(trigger, time)


def test_an_operators_event_gets_an_id_of_its_own_and_the_last_night() -> None:
    given = {"source": "operator", "id": UNIQUE, "detail": {"interval": LAST_NIGHT, "reason": "why"}}
    moment = datetime(2026, 11, 29, 2, 29, tzinfo=UTC)
    first, second = (stamped(given, SETTINGS, moment) for _ in range(2))
    assert first["detail"] == {"interval": "2026-11-28", "reason": "why"}
    assert len({UNIQUE, first["id"], second["id"]}) == 3
    assert given["id"] == UNIQUE


@pytest.mark.parametrize(
    "given",
    [event("nightly", "2026-11-01T02:00:00Z"), {"source": "operator", "id": "i", "detail": {"interval": "x"}}, {}],
)
def test_an_event_without_a_placeholder_is_sent_as_it_is(given: dict[str, Any]) -> None:
    assert stamped(given, SETTINGS, datetime.now(UTC)) == given


@pytest.mark.parametrize("path", sorted(EVENTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_sample_event_runs(
    path: Path, emulator_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On fresh tables an operator's command may be refused, since there is nothing to do it to; nothing else fails."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    code = invoke.main([str(path)])
    shown = capsys.readouterr().out
    if "raised" in shown:
        assert (code, "VerbRefused" in shown) == (1, True)
        assert json.loads(path.read_text("utf-8"))["source"] == "operator"
    else:
        assert code == 0
        assert "returned" in shown


def test_a_nightly_run_shows_its_result_and_its_metrics(
    emulator_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    assert invoke.main([str(EVENTS / "nightly.json")]) == 0
    shown = capsys.readouterr().out
    assert '"outcome": "completed"' in shown
    assert '"accounts": 40' in shown
    assert all(name in shown for name in ("RangesCommitted", "AccountsScanned", "ChangesApplied", "AccountsRejected"))


def test_an_emulator_is_started_when_none_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert invoke.main([str(EVENTS / "watchdog.json")]) == 0
    assert "SecondsPastDeadline" in capsys.readouterr().out


def test_a_refused_event_names_the_field_and_fails(
    tmp_path: Path, emulator_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event("nightly", "yesterday")), "utf-8")
    monkeypatch.setenv("AWS_ENDPOINT_URL", emulator_url)
    assert invoke.main([str(path)]) == 1
    assert "InvalidTrigger" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '"text"'])
def test_an_unusable_event_file_is_one_line_and_exit_2(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "event.json"
    if text is not None:
        path.write_text(text, "utf-8")
    assert invoke.main([str(path)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert str(path) in captured.err


def test_stamp_prints_an_event_for_other_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke.main(["--stamp", str(EVENTS / "tick.json")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["time"].endswith("Z")
    assert printed["detail"] == {"trigger": "tick"}
