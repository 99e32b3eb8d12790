"""A promise that was broken is said to be broken, and no other."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tools import demo
from tools.director import StoryError
from tools.promises import Facts, judge
from tools.story import Options, Told
from tools.timeline import Timeline

KEPT = Facts(
    state="COMPLETED",
    killed_after_range=17,
    resumed_after_range=17,
    generations=[1, 2, 3, 4],
    accounts=2000,
    source_pages=20,
    view_pages=19,
    ranges=39,
    granted=120,
    changed=200,
    revoked=80,
    rejected=1,
    seeded={"granted": 120, "changed": 200, "revoked": 80, "rejected": 1},
    out_of_line=1,
    max_changes_per_account=1,
    writes_agree=True,
    source_reads=22,
    source_reads_minimum=20,
    reads_of_refused_triggers=0,
    checksum="ab",
    view_checksum="ab",
    duplicate_delivery="duplicate",
    delayed_trigger="delayed",
    delayed_by_the_dead="delayed",
    stale_commit="refused",
    view_changed_by_stale_commit=False,
    woken_holder="lost",
    second_interval_state="COMPLETED",
    second_interval_changes=0,
    second_interval_waited=True,
    late_before=60.0,
    late_after=0.0,
)

BREAKS: list[tuple[dict[str, Any], str]] = [
    ({"delayed_trigger": "completed"}, "Two triggers"),
    ({"delayed_by_the_dead": "completed"}, "Two triggers"),
    ({"reads_of_refused_triggers": 1}, "Two triggers"),
    ({"duplicate_delivery": "delayed"}, "delivered twice"),
    ({"killed_after_range": 16}, "killed run"),
    ({"resumed_after_range": 16}, "killed run"),
    ({"resumed_after_range": None}, "killed run"),
    ({"killed_after_range": 16, "resumed_after_range": 16}, "killed run"),
    ({"generations": [1, 2, 2, 3]}, "higher generation"),
    ({"generations": [1, 3, 2, 4]}, "higher generation"),
    ({"generations": [1, 2, 3]}, "higher generation"),
    ({"stale_commit": "ok"}, "lost its lease"),
    ({"view_changed_by_stale_commit": True}, "lost its lease"),
    ({"woken_holder": "completed"}, "lost its lease"),
    ({"max_changes_per_account": 2}, "applied twice"),
    ({"max_changes_per_account": 0}, "applied twice"),
    ({"writes_agree": False}, "applied twice"),
    ({"source_reads": 25}, "read again"),
    ({"source_reads": 19}, "read again"),
    ({"state": "RUNNING"}, "Completed means"),
    ({"granted": 119}, "Completed means"),
    ({"changed": 201}, "Completed means"),
    ({"revoked": 0}, "Completed means"),
    ({"rejected": 0, "out_of_line": 0}, "Completed means"),
    ({"out_of_line": 2}, "Completed means"),
    ({"view_checksum": "cd"}, "Completed means"),
    ({"second_interval_state": "RUNNING"}, "next night"),
    ({"second_interval_changes": 1}, "next night"),
    ({"second_interval_waited": False}, "next night"),
    ({"late_before": 0.0}, "late night"),
    ({"late_after": 1.0}, "late night"),
]


def test_kept_promises_are_kept() -> None:
    assert [promise.says for promise in judge(KEPT, kill_after_range=17) if not promise.kept] == []


def test_without_changes_nothing_may_change() -> None:
    none = {"granted": 0, "changed": 0, "revoked": 0, "rejected": 1}
    facts = replace(KEPT, granted=0, changed=0, revoked=0, seeded=none, max_changes_per_account=0)
    assert all(promise.kept for promise in judge(facts, kill_after_range=17))


@pytest.mark.parametrize(("seen", "broken"), BREAKS, ids=lambda value: str(value))
def test_each_broken_promise_is_told_and_no_other(seen: dict[str, Any], broken: str) -> None:
    verdicts = judge(replace(KEPT, **seen), kill_after_range=17)
    assert [broken in promise.says for promise in verdicts if not promise.kept] == [True]


def test_every_fact_decides_a_promise_or_only_describes() -> None:
    """A fact that is neither broken above nor listed here would be one that nobody looks at."""
    describing = {"accounts", "source_pages", "view_pages", "ranges", "seeded", "source_reads_minimum", "checksum"}
    deciding = {name for seen, _ in BREAKS for name in seen}
    assert deciding | describing == {field.name for field in fields(Facts)}


def test_the_json_object_holds_every_announced_key() -> None:
    announced = """
        state killed_after_range resumed_after_range generations accounts pages ranges granted changed revoked rejected
        max_changes_per_account source_reads source_reads_minimum checksum view_checksum duplicate_delivery
        delayed_trigger stale_commit second_interval_state late_before late_after
    """
    assert set(announced.split()) <= set(KEPT.json())
    assert KEPT.json()["pages"] == 19


@pytest.mark.parametrize("broken", [False, True])
def test_a_broken_promise_is_named_and_fails_the_demo(
    broken: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told(replace(KEPT, late_after=5.0) if broken else KEPT, Timeline("nightly", 0, ()))
    monkeypatch.setattr(demo, "tell", lambda *_: told)
    assert demo.main([]) == (1 if broken else 0)
    shown = capsys.readouterr().out
    assert ("Broken: A late night is seen" in shown) is broken
    assert ("All 10 promises kept" in shown) is not broken


def test_a_story_that_halts_says_why_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def halt(*_: object) -> Facts:
        raise StoryError("worker A never came")

    monkeypatch.setattr(demo, "tell", halt)
    assert demo.main(["--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "worker A never came" in captured.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--accounts", "13"], "--accounts"),
        (["--accounts", "many"], "--accounts"),
        (["--accounts", "100001"], "--accounts"),
        (["--range-size", "0"], "--range-size"),
        (["--page-size", "0"], "--page-size"),
        (["--page-size", "10001"], "--page-size"),
        (["--changed", "1.5"], "--changed"),
        (["--changed", "nan"], "--changed"),
        (["--kill-after-range", "0"], "--kill-after-range"),
        (["--kill-after-range", "33"], "--kill-after-range"),
        (["--accounts", "100"], "at least 3 ranges, not 2"),
        (["--timeline", "night.pdf"], "night.pdf"),
        (["--timeline", "absent/night.svg"], "absent/night.svg"),
        (["--unknown"], "--unknown"),
    ],
)
def test_bad_arguments_are_named_and_exit_with_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.parse(arguments)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_the_last_range_that_leaves_two_for_the_others_is_allowed() -> None:
    assert demo.parse(["--kill-after-range", "32", "--json"]) == (Options(kill_after_range=32), True, None)
