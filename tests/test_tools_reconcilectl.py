"""reconcilectl shows what is on record of every night, and what the next tick would do; it writes nothing."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reconciler import clock, keys
from reconciler.records import STATES
from tests.ctl import DAY_MS, HOUR_MS, Operator, operator
from tests.faults import Wire
from tests.kit import everything, grants, killed, numbered
from tools.ctl import status
from tools.ctl import status_text as ctl_status_text
from tools.ctl import watch as ctl_watch
from tools.ctl.progress import Progress
from tools.ctl.segments import Segment
from tools.ctl.status import Interval, Status


@pytest.fixture
def person(
    emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    return operator(emulator_url, tmp_path, monkeypatch, capsys, RANGE_SIZE=10, PAGE_SIZE=10)


def nightly(person: Operator, days_ago: int = 0, **about: Any) -> None:
    """Run the night that was due so many days ago, a minute after it was due."""
    clock_of_all, now_ms = person.world.clock, person.world.clock.wall_ms
    due_ms = now_ms - HOUR_MS - DAY_MS * days_ago
    clock_of_all.wall_ms = due_ms + 60_000
    person.world.run("nightly", time=clock.text(due_ms), **about)
    clock_of_all.wall_ms = now_ms


def interrupted(person: Operator, ranges: int = 3) -> None:
    """The night before was completed, this one's worker is killed after so many ranges, its lease not expired."""
    world = person.world
    grants(world, *numbered(40))
    nightly(person, 1)
    grants(world, *numbered(60)[40:])
    killed(world, Wire(world.client), "commit", ranges + 1, owner="reconcile/0b6e7c1a-93a9-4b1c-8c43-1b2c3d4e5f60")


def record(interval: str, **attributes: Any) -> dict[str, Any]:
    """An INTERVAL row as a trigger would have made it."""
    at = f"{interval}T02:00:00.000Z"
    return {
        "schema": 1, "state": "EXPECTED", "run_id": f"entitlements/{interval}/1", "pass": 1, "rerun": 0,
        "segment_count": 1, "scheduled_at": at, "deadline_at": f"{interval}T06:00:00.000Z", "first_observed_at": at,
        "revoked": 0, "delays": {}, "segments": {},
    } | attributes  # fmt: skip


def test_before_the_first_trigger_status_and_plan_say_what_will_be_the_first_interval(person: Operator) -> None:
    tomorrow = person.before(-1)
    assert f"Its first interval is {tomorrow}" in person.sees("status")
    seen = person.knows("status")
    assert (seen["ran"], seen["first_interval"], seen["intervals"]) == (False, tomorrow, [])
    assert person.knows("plan")["steps"] == []
    assert "nothing to do" in person.sees("plan")


def test_status_of_a_running_night_shows_progress_rate_holder_and_what_the_end_is_estimated_from(
    person: Operator,
) -> None:
    interrupted(person)
    seen = person.knows("status")
    before, now = seen["intervals"]
    assert (before["interval"], before["state"], before["closed"]) == (person.before(1), "COMPLETED", True)
    assert (now["interval"], now["state"], now["started_at"] > now["scheduled_at"]) == (person.night, "RUNNING", True)
    assert now["last_checkpoint_at"] == person.world.progress(interval_id=person.night)["checkpoint_at"]
    assert 3600 <= now["due_to_started_s"] < 3660
    progress = now["progress"]
    assert (progress["accounts"], progress["ranges"]) == (30, 3)
    assert (progress["expected_accounts"], progress["estimated_from"]) == (40, person.before(1))
    lease = person.world.lease()
    rate = 30 / (lease["progress_at_ms"] - lease["acquired_at_ms"]) * 1000
    assert progress["rate_per_s"] == pytest.approx(rate)
    assert progress["seconds_left"] == pytest.approx(10 / rate)
    (segment,) = seen["segments"]
    assert (segment["generation"], segment["holder"]) == (lease["generation"], lease["owner"])
    assert (segment["interval"], segment["expired"]) == (person.night, False)
    assert segment["expires_at"] == clock.text(lease["expires_at_ms"])

    shown = person.sees("status")
    assert lease["owner"] in shown
    assert f"75 % of the 40 of {person.before(1)}" in " ".join(shown.split())
    assert "RUNNING" in shown


def test_a_dead_holder_shows_as_expired_and_nobody_is_said_to_make_progress(person: Operator) -> None:
    interrupted(person)
    person.world.expire_lease()
    seen = person.knows("status")
    assert seen["segments"][0]["expired"]
    assert seen["intervals"][-1]["progress"]["rate_per_s"] is None
    assert "nobody makes progress now" in " ".join(person.sees("status").split())


def test_the_rate_after_a_takeover_counts_only_what_the_new_holder_did(person: Operator) -> None:
    interrupted(person, ranges=3)
    person.world.expire_lease()
    killed(person.world, Wire(person.world.client), "commit", 3, kind="tick", owner="second")
    lease = person.world.lease()
    progress = person.knows("status")["intervals"][-1]["progress"]
    assert progress["accounts"] == 50
    assert progress["rate_per_s"] == pytest.approx(20 / (lease["progress_at_ms"] - lease["acquired_at_ms"]) * 1000)
    assert person.knows("status")["intervals"][-1]["repair_owner"] == "second"


def test_every_state_and_every_fact_of_it_is_shown_in_full(person: Operator) -> None:
    interrupted(person)
    world = person.world
    skip = {
        "reason": "older than the catch-up window", "at": f"{person.night}T02:00:00.000Z", "actor": "reconcile/1",
        "policy": {"catch_up_policy": "each", "catch_up_days": 3}, "audit": "AUDIT#x",
    }  # fmt: skip
    rows: dict[int, dict[str, Any]] = {
        9: {"state": "SKIPPED", "skip": skip},
        8: {"state": "SKIPPED", "skip": skip},
        7: {"state": "SKIPPED", "skip": skip},
        6: {"state": "SKIPPED", "skip": {**skip, "audit": "AUDIT#y", "reason": "superseded", "superseded_by": "Z"}},
        5: {
            "state": "NEEDS_REPAIR", "repair_owner": "ada@example.com", "rerun": 2, "revocation_bound": 1200,
            "last_error": {"error": "ValueError", "segment": "000", "at": f"{person.night}T03:00:00.000Z"},
        },
        4: {"delays": {"paused": f"{person.before(4)}T02:05:00.000Z", "lease_held": f"{person.night}T02:00:00.000Z"}},
    }  # fmt: skip
    for days, attributes in rows.items():
        interval = person.before(days)
        world.put_control(keys.interval(interval), **record(interval, **attributes))
    world.put_control(keys.CONTROL, open_from=person.before(9), first_interval=person.before(9))
    shown = person.sees("status")
    assert all(state in shown for state in STATES)
    for word in (
        f"{person.before(9)} to", f"{person.before(7)} SKIPPED", "3 nights", "older than the catch-up window",
        "catch_up_days 3", "superseded, for Z", "ada@example.com", "ValueError (segment 000", "rerun 2",
        "may revoke", "1,200", "paused since", "lease_held since", "none yet",
    ):  # fmt: skip
        assert word in shown, word
    seen = {one["interval"]: one for one in person.knows("status")["intervals"]}
    assert list(seen) == [person.before(days) for days in range(9, -1, -1)]
    assert [seen[person.before(days)]["recorded"] for days in (4, 3, 2, 1)] == [True, False, False, True]
    assert seen[person.before(5)]["late_by_s"] > 4 * 86_400
    assert seen[person.before(9)]["late_by_s"] == 0, "a skipped night rings another alarm"


def test_a_year_of_nights_that_nobody_ran_is_one_line_of_text_and_every_one_in_json(person: Operator) -> None:
    nightly(person)
    first = person.before(400)
    person.world.put_control(keys.CONTROL, open_from=first, first_interval=first)
    shown = person.sees("status")
    assert f"{first} to" in shown
    assert "400 nights" in shown
    assert len(shown.splitlines()) < 20
    assert len(person.knows("status")["intervals"]) == 401


def test_closed_intervals_are_shown_only_as_many_as_asked_for(person: Operator) -> None:
    for days in (3, 2, 1, 0):
        nightly(person, days)
    assert [one["interval"] for one in person.knows("status", "--last", "2")["intervals"]] == [
        person.before(1),
        person.night,
    ]
    assert person.knows("status", "--last", "0")["intervals"] == []
    (one,) = person.knows("status", "--last", "1")["intervals"]
    row = person.world.interval(person.night)
    assert (one["completed_at"], one["late_by_s"], one["closed"]) == (row["completed_at"], 0, True)
    took_s = (clock.parse_ms(row["completed_at"]) - clock.parse_ms(row["scheduled_at"])) / 1000
    assert one["scheduled_to_completed_s"] == pytest.approx(took_s)
    assert one["totals"]["checksum"] == row["checksum"]


def test_a_pause_shows_who_when_and_why_and_a_lost_lease_what_to_do(person: Operator) -> None:
    nightly(person)
    at = f"{person.night}T00:00:00.000Z"
    person.world.put_control(keys.CONTROL, pause={"who": "ada", "when": at, "why": "billing moves"})
    person.world.delete_control(keys.lease("000"))
    shown = person.sees("status")
    assert f"PAUSED since {person.night} 00:00:00" in shown
    assert "by ada: billing moves" in " ".join(shown.split())
    assert "release-lease 000" in shown
    assert person.knows("status")["segments"][0]["lost"]


def test_the_guards_pause_is_told_by_its_night_and_who_waits_or_was_seen_says_so(person: Operator) -> None:
    interrupted(person)
    world = person.world
    assert "waits" not in person.sees("status")
    world.expire_lease()
    assert f"{person.night} RUNNING, waits for a tick" in person.sees("status")
    at = f"{person.night}T00:00:00.000Z"
    pause = {"who": "reconcile/0b6e7c1a", "when": at, "why": "too many", "interval_id": person.before(1)}
    world.put_control(keys.CONTROL, pause=pause)
    world.put_control(keys.interval(person.before(1)), state="SKIPPED", acknowledged_at=at, acknowledged_by="ada")
    shown = person.sees("status")
    assert f"by the revocation guard of {person.before(1)}: too many" in " ".join(shown.split())
    assert "0b6e7c1a: too many" not in shown
    assert f"{person.night} RUNNING, waits for resume" in shown
    assert "acknowledged" in shown
    assert "(after due)" in shown
    assert f"by the revocation guard of {person.before(1)}: too many" in " ".join(person.sees("plan").split())


def test_of_many_segments_only_those_held_are_listed(
    emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    person = operator(emulator_url, tmp_path, monkeypatch, capsys, SEGMENT_COUNT=64)
    grants(person.world, *numbered(80))
    killed(person.world, Wire(person.world.client), "commit", 3)
    shown = person.sees("status")
    assert "63 of 64 segments are free" in shown
    assert shown.count("killed") == 1
    assert len(person.knows("status")["segments"]) == 64
    progress = person.knows("status")["intervals"][-1]["progress"]
    assert (progress["segments_done"], progress["segments"]) == (2, 64)


def test_watching_shows_a_bar_until_nothing_runs(person: Operator) -> None:
    interrupted(person)
    world = person.world
    looks: list[Status] = []

    def look() -> Status:
        if len(looks) == 2:
            world.expire_lease()
            world.run("tick", owner="second")
        looks.append(status.collect("here", closed=5, invocation=world.invocation("reconcilectl")))
        return looks[-1]

    screen = io.StringIO()
    last = ctl_watch.watch(look, 0.01, Console(file=screen, force_terminal=True, width=80))
    assert (len(looks), last.running) == (3, [])
    assert "30/~40" in screen.getvalue()
    assert "COMPLETED, 60 accounts" in screen.getvalue()


def test_the_bar_of_a_very_large_night_fits() -> None:
    progress = Progress(
        accounts=1_234_567, ranges=247, segments_done=0, segments=1, expected_accounts=2_000_000,
        estimated_from="2026-11-28", rate_per_s=12_345, seconds_left=11_520,
    )  # fmt: skip
    interval = Interval(
        interval="2026-11-29", state="RUNNING", progress=progress,
        scheduled_at="2026-11-29T02:00:00.000Z", deadline_at="2026-11-29T06:00:00.000Z",
    )  # fmt: skip
    running = Status(
        target="t", job="j", at="2026-11-29T03:00:00.000Z", ran=True, first_interval="2026-11-29",
        open_from="2026-11-29", pause=None, intervals=(interval,),
        segments=(Segment(segment="000", holder="reconcile/1", interval="2026-11-29"),),
    )  # fmt: skip
    looks = iter([running, running, replace(running, intervals=())])
    screen = io.StringIO()
    ctl_watch.watch(lambda: next(looks), 0.2, Console(file=screen, force_terminal=True, width=80))
    assert "1,234,567/~2,000,000, 12,345/s, 3 h 12 min left" in screen.getvalue()
    Console(file=screen, width=80).print(ctl_status_text.text(running))
    assert "61 % of the 2,000,000 of 2026-11-28" in " ".join(screen.getvalue().split())


def test_a_night_that_nobody_works_on_is_said_so_once_and_watching_ends(
    person: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(person)
    person.world.expire_lease()
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("goes on"))
    shown = person.sees("status", "--watch")
    assert shown.count(f"Nobody works on {person.night} now") == 1
    assert "RUNNING, waits for a tick" in shown
    screen = io.StringIO()
    seen = status.collect("here", closed=5, invocation=person.world.invocation("reconcilectl"))
    ctl_watch.watch(lambda: seen, 1, Console(file=screen, force_terminal=True, width=80, highlight=False))
    assert screen.getvalue().count(f"Nobody works on {person.night} now") == 1


def test_watching_without_a_terminal_is_a_line_a_look_and_json_stays_one_object(
    person: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(person)
    looks = []

    def tick(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            person.world.expire_lease()
            person.world.run("tick", owner="second")

    monkeypatch.setattr("tools.ctl.watch.time.sleep", tick)
    code, out, err = person.types("status", "--watch", "--json")
    assert (code, json.loads(out)["intervals"][-1]["state"], len(looks)) == (0, "COMPLETED", 2)
    first, last = err.splitlines()
    assert first.startswith(f"{person.night} 30/~40, ")
    assert last == f"{person.night} COMPLETED, 60 accounts"


def test_watching_ends_at_once_when_nothing_runs(person: Operator) -> None:
    nightly(person)
    assert "COMPLETED" in person.sees("status", "--watch")


def test_watching_goes_on_until_it_is_interrupted(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(person)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    code, out, _ = person.types("status", "--watch")
    assert (code, "RUNNING" in out) == (0, True)


# plan


def forecast(person: Operator) -> list[tuple[str, str]]:
    """What the next tick would do, and that asking changes nothing."""
    rows = everything(person.world)
    steps = person.knows("plan")["steps"]
    person.sees("plan")
    assert everything(person.world) == rows
    return [(step["interval"], step["does"]) for step in steps]


def test_the_plan_names_what_the_next_tick_then_does(person: Operator) -> None:
    world = person.world
    nightly(person, 3)
    assert forecast(person) == [(person.before(days), does) for days in (2, 1, 0) for does in ("observe", "start")]
    results = world.run("tick")
    assert [(one.interval, one.outcome) for one in results] == [(person.before(n), "completed") for n in (2, 1, 0)]
    assert forecast(person) == []


def test_the_plan_skips_what_the_policy_and_the_window_skip(person: Operator) -> None:
    world = person.world
    nightly(person, 6)
    world.put_control(keys.CONTROL, open_from=person.before(5))
    assert forecast(person) == [
        *((person.before(days), "skip") for days in (5, 4, 3)),
        *((person.before(days), does) for days in (2, 1, 0) for does in ("observe", "start")),
    ]
    person.deploys(catch_up_policy="latest")
    assert forecast(person) == [
        *((person.before(days), "skip") for days in (5, 4, 3, 2, 1)),
        (person.night, "observe"),
        (person.night, "start"),
    ]
    assert person.knows("plan")["steps"][-3]["why"].endswith(f"({person.night})")
    world.run("tick")
    states = [world.interval(person.before(days))["state"] for days in (5, 4, 3, 2, 1, 0)]
    assert states == ["SKIPPED"] * 5 + ["COMPLETED"]
    assert forecast(person) == [(person.before(days), "person") for days in (5, 4, 3, 2, 1)]


def test_the_plan_waits_for_a_holder_then_takes_over(person: Operator) -> None:
    interrupted(person)
    (held,) = person.knows("plan")["steps"]
    lease = person.world.lease()
    assert (held["does"], held["until"]) == ("wait", clock.text(lease["expires_at_ms"]))
    assert lease["owner"] in held["why"]
    assert (held["source_reads"], person.knows("plan")["source_reads"]) == (None, 0)
    person.world.expire_lease()
    seen = person.knows("plan")
    (taken,) = seen["steps"]
    assert (taken["does"], taken["segment"]) == ("take_over", "000")
    assert "after 30 accounts" in taken["why"]
    assert (taken["source_reads"], seen["source_reads"], seen["estimated_from"]) == (1, 1, person.before(1))
    assert f"At least 1 source read, by the rows of {person.before(1)}" in " ".join(person.sees("plan").split())


def test_a_lease_taken_for_an_older_night_is_free_for_the_next(person: Operator) -> None:
    interrupted(person)
    person.world.expire_lease()
    person.world.put_control(keys.CONTROL, open_from=person.before(2), first_interval=person.before(2))
    steps = [(person.before(2), "observe"), (person.before(2), "take_over"), (person.night, "resume")]
    assert forecast(person) == steps
    person.world.run("tick")
    assert "TAKEOVER" in person.world.events(person.before(2))
    assert "RESUMED" in person.world.events(person.night)


def test_the_plan_does_not_guess_source_reads_without_a_completed_night(person: Operator) -> None:
    grants(person.world, *numbered(30))
    killed(person.world, Wire(person.world.client), "commit", 2)
    person.world.expire_lease()
    seen = person.knows("plan")
    assert (seen["steps"][0]["source_reads"], seen["source_reads"]) == (None, None)
    assert "unknown" in person.sees("plan")


def test_the_estimate_of_source_reads_is_never_above_what_the_run_needs(person: Operator) -> None:
    grants(person.world, *numbered(45))
    nightly(person, 1)
    seen = person.knows("plan")
    before = len(person.world.requests)
    person.world.run("tick")
    source = person.world.tables["AccountsTable"]
    reads = [
        1 for name, request in person.world.requests[before:] if name == "Query" and request["TableName"] == source
    ]
    assert 5 <= seen["source_reads"] <= len(reads)


def test_the_plan_of_a_rerun_estimates_from_what_the_night_was_before_and_the_oldest_night_comes_first(
    person: Operator,
) -> None:
    grants(person.world, *numbered(45))
    nightly(person)
    code, _, _ = person.types("rerun", person.night, "--reason", "again", "--force", "--yes")
    seen = person.knows("plan")
    assert (code, seen["estimated_from"], seen["source_reads"]) == (0, person.night, 5)
    older = person.before(1)
    person.world.put_control(keys.interval(older), **record(older, state="SKIPPED"))
    person.world.put_control(keys.CONTROL, open_from=older, first_interval=older)
    assert [step["interval"] for step in person.knows("plan")["steps"]] == [older, person.night]


def test_the_plan_waits_for_a_backoff_and_gives_up_at_the_limit(person: Operator) -> None:
    interrupted(person, ranges=0)
    world = person.world
    assert person.knows("status")["intervals"][-1]["waiting"] == [], "it is at work, not waiting"
    lease = {"owner": ..., "expires_at_ms": ...}
    world.put_control(keys.lease("000"), **lease)
    progress = keys.progress(person.night, 1, "000")
    until_ms = world.clock.wall_ms + 60_000
    world.put_control(progress, next_attempt_at_ms=until_ms)
    (step,) = person.knows("plan")["steps"]
    assert (step["does"], step["until"]) == ("wait", clock.text(until_ms))
    assert "1 without progress" in " ".join(person.sees("status").split())
    world.put_control(progress, attempts=5)
    assert forecast(person) == [(person.night, "give_up")]
    assert [result.outcome for result in world.run("tick")] == ["needs_repair"]
    assert forecast(person) == [(person.night, "person")]


def test_the_plan_of_a_paused_job_runs_nothing_and_a_lost_lease_is_named(person: Operator) -> None:
    nightly(person, 1)
    person.world.delete_control(keys.lease("000"))
    assert forecast(person) == [(person.night, "observe"), (person.night, "lease_lost")]
    person.world.put_control(keys.CONTROL, pause={"who": "ada", "when": "?", "why": "!"})
    assert forecast(person) == [(person.night, "observe"), (person.night, "paused")]


# audit


def test_the_audit_tells_of_a_kill_a_takeover_and_a_pause_meanwhile(person: Operator) -> None:
    interrupted(person)
    world = person.world
    first, lease = world.lease()["owner"], world.lease()
    world.expire_lease()
    world.put_control(
        keys.operator("entitlements", "d"), schema=1, event="PAUSED", at=clock.text(world.clock.now_ms()),
        actor="ada", reason="to look", worker="w", pause_no=1,
    )  # fmt: skip
    world.run("tick", owner="second")
    story = person.knows("audit", person.night)
    assert [row["event"] for row in story["events"]] == ["OBSERVED", "STARTED", "PAUSED", "TAKEOVER", "COMPLETED"]
    takeover = story["events"][3]
    assert (takeover["loser"], takeover["loser_generation"]) == (first, lease["generation"])
    assert [row["about"] for row in story["events"]].count("entitlements") == 1
    shown = " ".join(person.sees("audit", person.night).split())
    assert f"TAKEOVER pass 1, segment 000, generation {lease['generation'] + 1}" in shown
    assert f"taken from {first}, generation {lease['generation']}" in shown
    assert "PAUSED the whole job" in shown
    assert "because: to look" in shown
    assert world.interval(person.night)["checksum"] in shown


def test_the_audit_of_a_skipped_night_follows_its_span(person: Operator) -> None:
    world = person.world
    nightly(person)
    world.put_control(keys.CONTROL, open_from=person.before(8), first_interval=person.before(8))
    world.run("tick", owner="reconcile/2")
    assert world.interval(person.before(5))["state"] == "SKIPPED"
    story = person.knows("audit", person.before(5))
    (skipped,) = story["events"]
    assert (skipped["event"], skipped["about"], skipped["nights"]) == ("SKIPPED", person.before(8), 6)
    shown = " ".join(person.sees("audit", person.before(5)).split())
    assert f"6 nights from {person.before(8)} to {person.before(3)}" in shown
    assert "by reconcile/2" in shown
    assert f"because: {skipped['reason']}" in shown


def test_many_rejected_accounts_are_counted_and_all_in_json(person: Operator) -> None:
    for name in numbered(25):
        person.world.put("AccountsTable", name, status="active", entitlements="gold")
    nightly(person)
    assert "and 5 more rejected accounts" in person.sees("audit", person.night)
    assert [row["event"] for row in person.knows("audit", person.night)["events"]].count("REJECTED") == 25


def test_a_timeline_is_shown_and_drawn(person: Operator, tmp_path: Path) -> None:
    interrupted(person)
    picture = tmp_path / "night.svg"
    code, out, err = person.types("timeline", person.before(1), person.night, "--out", str(picture))
    assert (code, err) == (0, f"drawn to {picture}\n")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert person.night in out
    assert picture.read_text("utf-8").lstrip().startswith("<?xml")
    assert person.night in str(person.knows("timeline", person.night))


def test_looking_writes_nothing(person: Operator) -> None:
    interrupted(person)
    rows = everything(person.world)
    for command in (["status"], ["plan"], ["audit", person.night], ["timeline", person.night]):
        person.sees(*command)
    assert everything(person.world) == rows


def test_times_are_short_where_the_day_is_known() -> None:
    interval = Interval(
        interval="2026-11-29", state="COMPLETED", scheduled_at="2026-11-29T02:00:00.000Z", closed=True,
        deadline_at="2026-11-29T06:00:00.000Z", late_by_s=93 * 86_400, started_at="2026-11-29T02:00:05.000Z",
        completed_at="2027-03-02T06:00:00.000Z", due_to_started_s=5, scheduled_to_completed_s=93 * 86_400,
    )  # fmt: skip
    seen = Status(
        target="t", job="j", at="2027-03-03T00:00:00.000Z", ran=True, first_interval="2026-11-29",
        open_from="2026-11-30", pause=None, intervals=(interval,), segments=(),
    )  # fmt: skip
    screen = io.StringIO()
    Console(file=screen, width=80).print(ctl_status_text.text(seen))
    assert "02:00:05" in screen.getvalue()
    assert "03-02 06:00" in screen.getvalue()
    assert "+93 d 0 h" in screen.getvalue()
