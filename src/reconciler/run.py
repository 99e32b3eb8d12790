"""The story of one invocation, top to bottom: plan → acquire → work, on one interval and segment after the other.

Read this file first, then `work.py`: ranges → complete, or end the attempt. Every promise is kept by a write in
`acquire`, `commit`, `complete` or `release`; here is only their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reconciler import clock, control
from reconciler.acquire import NotAcquired, acquire
from reconciler.attempt import Result, count_start
from reconciler.control import Control
from reconciler.due import delay, due_intervals
from reconciler.errors import OutOfTime, Paused, RowInvalid, SchemaTooNew, TransientFailure
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.leases import Holding, free_lease
from reconciler.observability import count, logger
from reconciler.records import EXPECTED, RUNNABLE, RunRecord, read_interval
from reconciler.timing import check_invocation
from reconciler.triggers import Trigger
from reconciler.work import Job, keep_first, work

GOES_ON = ("completed", "delayed", "waiting", "moved", "paused", "needs_repair", "failed")
"""Outcomes of one segment after which the invocation looks for more to do: not while one waits for the source."""

CAUSES = {"delayed": "lease_held", "waiting": "backoff", "source_waits": "source"}
"""Outcomes that delay an interval when no segment of it has another, and the cause that is recorded."""

WAITS = {"backoff": "waiting", "source": "source_waits"}


def run(trigger: Trigger, job: Job, *, invocation: Invocation) -> list[Result]:
    """Work on the oldest unfinished interval first, until nothing may run or the time is up.

    What fails in one segment keeps no other from running: each failure is logged, the first is raised at the end. Only
    a row of a newer schema stops everything at once.
    """
    row = control.ensure(invocation=invocation)
    if trigger.kind == "nightly":
        row = control.lower(row, trigger.interval_id, invocation=invocation)
    now_ms = max(trigger.time_ms, invocation.clock.now_ms())
    due = due_intervals(row, now_ms, invocation=invocation)
    leases = dict(due.leases)
    records = {record.interval_id: record for record in due.records}
    runnable = [record for record in due.records if record.state in RUNNABLE]
    if row.paused:
        return [wait_paused(record, "", invocation) for record in runnable]
    results: list[Result] = []
    failures: list[Exception] = []
    for index, record in enumerate(runnable):
        ended, records[record.interval_id] = work_on(record, leases, job, failures, invocation)
        results += ended
        if results and results[-1].outcome not in GOES_ON:
            for younger in runnable[index + 1 :]:
                if younger.state == EXPECTED:
                    wait(younger, "behind_older", invocation)
            break
    else:
        close_books(row, records.values(), invocation)
    if failures:
        raise failures.pop()  # what it was kept in would hold on to it, and to the pages of its frames
    return results


def close_books(row: Control, records: Iterable[RunRecord], invocation: Invocation) -> None:
    """Note how far the calendar is closed; the next tick does it when there is no time or no answer now."""
    try:
        control.advance(row, records, invocation=invocation)
    except (OutOfTime, TransientFailure) as error:
        logger.warning("closed intervals not noted yet", error=str(error))


def wait(record: RunRecord, cause: str, invocation: Invocation, held_until: str | None = None) -> None:
    """Record why a due interval does not run; the next tick does it when there is no time or no answer now."""
    try:
        delay(record, cause, invocation=invocation, held_until=held_until)
    except (OutOfTime, TransientFailure) as error:
        logger.warning("delay not recorded yet", cause=cause, interval=record.interval_id, error=str(error))


def wait_paused(record: RunRecord, segment: str, invocation: Invocation) -> Result:
    """A due interval of a paused job: recorded, and late when its deadline passes, but not worked on."""
    wait(record, "paused", invocation)
    return Result(record.interval_id, segment, record.run_id, "paused")


def work_on(
    record: RunRecord, leases: dict[str, Row], job: Job, failures: list[Exception], invocation: Invocation
) -> tuple[list[Result], RunRecord]:
    """Take the interval's unfinished segments in turn, skipping those that others hold; adds to `failures`.

    `leases` are rows as they were read with the record; each is used once. Returns the record as it stands afterwards.
    """
    results: list[Result] = []
    with logger.append_context_keys(run_id=record.run_id, interval=record.interval_id):
        for segment in record.unfinished:
            seen = leases.pop(segment, None)
            result, record = work_on_segment(record, segment, seen, job, failures, invocation)
            results.append(result)
            if result.outcome == "source_waits":
                wait(record, CAUSES[result.outcome], invocation)
            if result.outcome not in GOES_ON or record.state not in RUNNABLE:
                return results, record
        if all(result.outcome in CAUSES for result in results):
            causes = {CAUSES[result.outcome]: result.held_until for result in reversed(results)}
            for cause, held_until in causes.items():
                wait(record, cause, invocation, held_until)
    return results, record


def work_on_segment(
    record: RunRecord, segment: str, seen: Row | None, job: Job, failures: list[Exception], invocation: Invocation
) -> tuple[Result, RunRecord]:
    """Acquire the segment and work on it. Returns the interval's record as it stands afterwards."""
    result = Result(record.interval_id, segment, record.run_id, "moved")
    try:
        for free in (free_lease(seen), None, None):
            if record.state not in RUNNABLE or segment not in record.unfinished:
                break
            check_invocation(invocation)
            acquired = acquire(record, segment, free=free, invocation=invocation)
            if isinstance(acquired, Holding):
                count_start(record, acquired, invocation)
                return work(acquired, job, failures, invocation)
            if acquired.why in ("held", "backoff", "source"):
                return replace(result, **_why_not(acquired, segment)), record
            record = read_interval(record.interval_id, invocation=invocation)
            if acquired.why == "done" and segment in record.unfinished:
                lacking = f"{record.progress_key(segment)} is done, but INTERVAL#{record.interval_id} lacks its totals"
                raise RowInvalid(f"{lacking}: one of the two rows is not the one that was written")
    except OutOfTime as stop:
        logger.info("no time to begin", reason=str(stop), segment=segment)
        result = replace(result, outcome="out_of_time")
    except Paused:
        result = wait_paused(record, segment, invocation)
    except SchemaTooNew:
        raise
    except Exception as error:
        logger.exception("segment not acquired", segment=segment)
        keep_first(failures, error)
        result = replace(result, outcome="failed")
    return result, record


def _why_not(refused: NotAcquired, segment: str) -> dict[str, Any]:
    """What to answer for a segment that another holds, or that waits for its next attempt."""
    if refused.why in WAITS:
        return {"outcome": WAITS[refused.why]}
    count("LeaseContended")
    held_until = None if refused.until_ms is None else clock.text(refused.until_ms)
    logger.info("segment held by another", owner=refused.owner, held_until=held_until, segment=segment)
    return {"outcome": "delayed", "held_until": held_until}
