"""Attempts and events out of rows alone, whatever the rows lack."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler import clock
from tools.timeline.attempts import LOST, RUNNING, SILENT, Attempt
from tools.timeline.history import History, history
from tools.timeline.words import headline, short_names, work

NIGHT, JOB = "2026-11-29", "entitlements"
Row = dict[str, Any]


def ms(time: str) -> int:
    return clock.parse_ms(at(time))


def at(time: str) -> str:
    return f"{NIGHT}T{time}.000Z"


def interval(**attributes: Any) -> Row:
    return {
        "sk": f"INTERVAL#{NIGHT}",
        "state": "RUNNING",
        "scheduled_at": at("02:00:00"),
        "deadline_at": at("06:00:00"),
    } | attributes


def event(time: str, name: str, generation: int | None = None, pass_no: int = 1, **attributes: Any) -> Row:
    row: Row = {"at": at(time), "event": name, "actor": f"worker-{generation}", "run_id": f"{JOB}/{NIGHT}/{pass_no}"}
    if generation is not None:
        row |= {"segment": "000", "generation": generation}
    return row | attributes


def seen(*events: Row, now: str = "03:00:00", lease: Row | None = None, **about: Any) -> tuple[Attempt, ...]:
    about.setdefault("leases", {"000": lease or {}})
    return history(interval(), events, now_ms=ms(now), **about).attempts


def told(*events: Row, **attributes: Any) -> History:
    return history(interval(**attributes), events, now_ms=ms("03:00:00"))


def test_rows_without_the_newer_attributes_are_shown_as_far_as_they_go() -> None:
    first, second, third = seen(
        event("02:00:00", "STARTED", 1),
        event("02:10:00", "TAKEOVER", 2, loser="worker-1", loser_generation=1, checkpoint="acct-7"),
        event("02:12:00", "FAILED", 2, ranges=4, reason="Crash"),
        event("02:20:00", "RESUMED", 3, checkpoint="acct-9"),
        event("02:30:00", "COMPLETED", 3, totals={"ranges": 9, "accounts": 90}),
    )
    assert (first.ended, first.seen_ms, first.end_ms, first.ranges) == (LOST, None, ms("02:10:00"), None)
    assert (second.ended, second.ranges, second.accounts, second.reason) == ("FAILED", 4, None, "Crash")
    assert (third.ended, third.ranges, third.accounts) == ("COMPLETED", None, None)
    assert work(first) == "killed or frozen"


def test_a_row_without_owner_run_id_or_generation_breaks_nothing() -> None:
    (attempt,) = seen({"at": at("02:00:00"), "event": "STARTED", "segment": "000"}, {"event": "YIELDED"}, {})
    assert (attempt.owner, attempt.pass_no, attempt.generation, attempt.ended) == ("", None, 0, LOST)


def test_a_holder_that_was_killed_and_then_released_by_a_person_ends_there() -> None:
    released = event("02:08:00", "RELEASED", 2, loser="worker-1", loser_generation=1, loser_seen_at=at("02:03:00"))
    later = event("02:15:00", "RESUMED", 3, ranges_before=5, accounts_before=50, checkpoint="acct-5")
    killed, _ = seen(event("02:00:00", "STARTED", 1), later, others=[released])
    assert (killed.ended, killed.seen_ms, killed.end_ms) == (LOST, ms("02:03:00"), ms("02:08:00"))
    assert (killed.ranges, killed.accounts) == (5, 50)


def test_a_release_of_another_generation_or_segment_ends_nothing() -> None:
    lease = {"generation": 2, "owner": "worker-2", "expires_at_ms": ms("03:01:00")}
    released = event("02:30:00", "RELEASED", 1, loser_generation=1)
    elsewhere = event("02:30:00", "RELEASED", 3, loser_generation=2, segment="001")
    (attempt,) = seen(event("02:20:00", "STARTED", 2), released, elsewhere, lease=lease)
    assert attempt.ended == RUNNING


def test_a_rerun_ends_the_holder_that_it_fenced_and_no_later_one() -> None:
    fenced = {"segment": "000", "generation": 2, "loser_generation": 1, "loser_seen_at": at("02:04:00")}
    rerun = event("02:40:00", "RERUN", pass_no=2, fenced=[fenced]) | {"from": "start", "pass": 2}
    lease = {"generation": 3, "owner": "worker-3", "expires_at_ms": ms("03:01:00"), "acquired_at_ms": ms("02:45:00")}
    begun = event("02:45:00", "STARTED", 3, pass_no=2, ranges_before=0, accounts_before=0)
    progress = [{"sk": f"PROGRESS#{NIGHT}#1#000", "ranges": 4, "accounts": 40}]
    killed, running = seen(event("02:00:00", "STARTED", 1), rerun, begun, lease=lease, progress=progress)
    assert (killed.ended, killed.seen_ms, killed.end_ms) == (LOST, ms("02:04:00"), ms("02:40:00"))
    assert (killed.ranges, killed.accounts, running.ranges) == (4, 40, 0)
    assert (running.ended, running.seen_ms, running.pass_no) == (RUNNING, ms("02:45:00"), 2)


def test_who_runs_now_and_who_is_silent_is_told_by_the_lease() -> None:
    lease = {"generation": 1, "owner": "worker-1", "expires_at_ms": ms("02:30:00"), "progress_at_ms": ms("02:28:00")}
    progress = [{"sk": f"PROGRESS#{NIGHT}#1#000", "ranges": 7, "accounts": 70}]
    begun = event("02:20:00", "STARTED", 1)
    (running,) = seen(begun, now="02:29:00", lease=lease, progress=progress)
    (silent,) = seen(begun, now="02:31:00", lease=lease, progress=progress)
    assert (running.ended, running.ranges, running.accounts, running.end_ms) == (RUNNING, 7, 70, None)
    assert (silent.ended, silent.seen_ms, silent.end_ms) == (SILENT, ms("02:28:00"), None)
    assert running.until_ms(ms("02:29:00")) == ms("02:29:00")


def test_an_attempt_that_began_after_the_lease_was_read_is_running() -> None:
    (attempt,) = seen(event("02:59:59", "STARTED", 8), lease={"generation": 7})
    assert attempt.ended == RUNNING


def test_a_lease_that_went_to_another_interval_tells_when() -> None:
    lease = {"generation": 2, "owner": "x", "previous_generation": 1, "acquired_at_ms": ms("02:50:00")}
    progress = [{"sk": f"PROGRESS#{NIGHT}#1#000", "checkpoint_generation": 1, "checkpoint_at": at("02:05:00")}]
    (attempt,) = seen(event("02:00:00", "STARTED", 1), lease=lease, progress=progress)
    assert (attempt.ended, attempt.seen_ms, attempt.end_ms) == (LOST, ms("02:05:00"), ms("02:50:00"))


def test_clocks_that_differ_between_workers_never_make_a_time_negative() -> None:
    first, second = seen(
        event("02:00:10", "STARTED", 1),
        event("02:00:05", "TAKEOVER", 2, loser_generation=1, loser_seen_at=at("02:00:00")),
        event("02:00:01", "YIELDED", 2),
    )[::-1]
    assert (first.end_ms, first.seen_ms) == (first.begin_ms, first.begin_ms)
    assert second.end_ms == second.begin_ms


def test_segments_do_not_end_each_others_attempts() -> None:
    one, other = seen(
        event("02:00:00", "STARTED", 1),
        event("02:00:01", "STARTED", 1, segment="001"),
        event("02:10:00", "COMPLETED", 1, segment="001", totals={"ranges": 2, "accounts": 4}),
        lease={"generation": 1, "owner": "worker-1", "expires_at_ms": ms("03:01:00")},
    )
    assert (one.ended, other.ended, other.ranges) == (RUNNING, "COMPLETED", 2)


def test_a_person_who_resumes_the_job_begins_no_attempt() -> None:
    resume = event("02:30:00", "RESUMED", actor="ada", reason="fixed")
    found = history(interval(), [event("02:00:00", "OBSERVED")], others=[resume], now_ms=ms("03:00:00"))
    assert found.attempts == ()
    assert [(mark.event, mark.who, mark.what) for mark in found.marks][1:] == [("RESUMED", "ada", "fixed")]


def test_a_pause_before_or_after_the_interval_is_not_its_own() -> None:
    pauses = [event("01:00:00", "PAUSED"), event("02:30:00", "PAUSED"), event("02:50:00", "PAUSED")]
    record = interval(state="COMPLETED", completed_at=at("02:40:00"))
    found = history(record, [event("02:40:00", "COMPLETED", 1)], others=pauses, now_ms=ms("03:00:00"))
    assert [mark.at_ms for mark in found.marks] == [ms("02:30:00")]


SKIP = {"reason": "older than the window", "at": at("02:00:03"), "actor": "worker-1", "superseded_by": "2026-12-02"}


@pytest.mark.parametrize(
    "found",
    [
        told(state="SKIPPED", skip=SKIP),
        told(event("02:00:03", "SKIPPED") | SKIP, state="SKIPPED", skip=SKIP),
        told(event("02:50:00", "RERUN", before={"skip": SKIP})),
    ],
)
def test_a_skip_is_told_once_whichever_row_tells_it(found: History) -> None:
    (skipped,) = (mark for mark in found.marks if mark.event == "SKIPPED")
    assert (skipped.at_ms, skipped.what) == (
        ms("02:00:03"),
        "superseded by 2026-12-02, older than the window",
    )


def test_an_acknowledgement_of_a_span_is_told_by_the_interval_itself() -> None:
    found = told(state="SKIPPED", acknowledged_at=at("02:30:00"), acknowledged_by="grace")
    assert [(mark.event, mark.who) for mark in found.marks] == [("ACKNOWLEDGED", "grace")]


def test_an_event_of_a_later_version_is_shown_and_a_preview_is_not() -> None:
    found = told(event("02:30:00", "SOMETHING", reason="new"), event("02:31:00", "PREVIEWED"))
    assert [(mark.event, mark.what) for mark in found.marks] == [("SOMETHING", "new")]


def test_the_headline_says_how_late_it_is() -> None:
    late = told(state="COMPLETED", completed_at=at("07:30:00"), late_by_s=5400)
    assert headline(late, ms("09:00:00")) == "COMPLETED 1 h 30 min late"
    assert headline(told(), ms("09:00:00")) == "RUNNING, 3 h past its deadline"
    assert headline(told(), ms("03:00:00")) == "RUNNING"


def test_owners_are_called_by_what_tells_them_apart() -> None:
    function = "entitlements-ReconcileFunction-AbCdEf"
    assert short_names([f"{function}/0a1b2c3d-9", f"{function}/99887766-1", "worker-1"]) == {
        f"{function}/0a1b2c3d-9": "0a1b2c3d",
        f"{function}/99887766-1": "99887766",
        "worker-1": "worker-1",
    }
    assert set(short_names(["worker-a/1111-2", "worker-b/3333-4"]).values()) == {"worker-a", "worker-b"}
    assert set(short_names(["local/11112222-3", "local/33334444-5"]).values()) == {"11112222", "33334444"}
