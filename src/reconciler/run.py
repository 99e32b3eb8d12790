"""The story of one invocation, top to bottom: plan → acquire → ranges → complete, or end the attempt.

Read this file first. Every promise is kept by a write in `acquire`, `commit` or `release`; here is only their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler import clock, control
from reconciler.acquire import acquire
from reconciler.attempt import Attempt, Result, count_start, count_work, seconds_since
from reconciler.complete import Completed, complete
from reconciler.control import Control
from reconciler.diff import take_range
from reconciler.errors import GuardTripped, LeaseLost, OutOfTime, Paused, TransientFailure
from reconciler.intervals import Calendar
from reconciler.invocation import Invocation
from reconciler.leases import Holding
from reconciler.merge import Side
from reconciler.observability import count, logger
from reconciler.ranges import commit_range
from reconciler.records import COMPLETED, NEEDS_REPAIR, RUNNABLE, RunRecord, delay, observe, read_between, read_interval
from reconciler.release import Ending, end_attempt
from reconciler.scan import Sides
from reconciler.source import SourceRecord
from reconciler.timing import check_invocation, check_range
from reconciler.triggers import Trigger
from reconciler.view import ViewRow

SHRINK = 16
"""Each attempt without progress divides the range size by this, so that poison and slowness shrink to one account."""

GOES_ON = ("completed", "delayed", "waiting", "moved", "needs_repair")
"""Outcomes of one segment after which the invocation looks for more to do."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to reconcile."""

    source: Side[SourceRecord]
    view: Side[ViewRow]


def run(trigger: Trigger, job: Job, *, invocation: Invocation) -> list[Result]:
    """Work on the oldest unfinished interval first, until nothing may run or the time is up.

    Raises whatever ended an attempt in failure, after recording it.
    """
    plan = control.lower(control.ensure(invocation=invocation), trigger, invocation=invocation)
    records = due_intervals(plan, trigger, invocation)
    if plan.paused:
        return [wait_paused(record, invocation) for record in records if record.state in RUNNABLE]
    results: list[Result] = []
    for record in records:
        if record.state in RUNNABLE:
            results += work_on(record, job, invocation)
            if results and results[-1].outcome not in GOES_ON:
                return results
    if any(result.outcome == "completed" for result in results):
        records = due_intervals(plan, trigger, invocation)
    control.advance(plan, records, invocation=invocation)
    return results


def due_intervals(plan: Control, trigger: Trigger, invocation: Invocation) -> list[RunRecord]:
    """Every due interval that may be unfinished, recorded if this is the first time it is seen, oldest first."""
    until_ms = max(trigger.time_ms, invocation.clock.now_ms())
    due = Calendar.of(invocation.settings).due(plan.open_from, until_ms)
    if not due:
        return []
    records = read_between(due[0], due[-1], invocation=invocation)
    missing = sorted(set(due) - {record.interval_id for record in records})
    for interval_id in missing:
        observe(interval_id, plan.segment_count, invocation=invocation)
    return read_between(due[0], due[-1], invocation=invocation) if missing else records


def wait_paused(record: RunRecord, invocation: Invocation) -> Result:
    """A due interval of a paused job: recorded, and late when its deadline passes, but not worked on."""
    delay(record, "paused", invocation=invocation)
    return Result(record.interval_id, record.unfinished[0], record.run_id, "paused")


def work_on(record: RunRecord, job: Job, invocation: Invocation) -> list[Result]:
    """Take the interval's unfinished segments in turn, skipping those that others hold."""
    results: list[Result] = []
    with logger.append_context_keys(run_id=record.run_id, interval=record.interval_id):
        for segment in record.unfinished:
            result, record = work_on_segment(record, segment, job, invocation)
            results.append(result)
            if result.outcome not in GOES_ON or record.state not in RUNNABLE:
                return results
        if all(result.outcome == "delayed" for result in results):
            delay(record, "lease_held", invocation=invocation, held_until=results[0].held_until)
    return results


def work_on_segment(record: RunRecord, segment: str, job: Job, invocation: Invocation) -> tuple[Result, RunRecord]:
    """Acquire the segment and work on it. Returns the interval's record as it stands afterwards."""
    result = Result(record.interval_id, segment, record.run_id, "moved")
    for _ in range(3):
        if record.state not in RUNNABLE or segment not in record.unfinished:
            break
        try:
            check_invocation(invocation)
            acquired = acquire(record, segment, invocation=invocation)
        except OutOfTime as stop:
            logger.info("no time to begin", reason=str(stop), segment=segment)
            return replace(result, outcome="out_of_time"), record
        except Paused:
            return wait_paused(record, invocation), record
        if isinstance(acquired, Holding):
            count_start(record, acquired, invocation)
            return work(acquired, job, invocation)
        if acquired.why == "held":
            count("LeaseContended")
            held_until = None if acquired.until_ms is None else clock.text(acquired.until_ms)
            logger.info("segment held by another", owner=acquired.owner, held_until=held_until, segment=segment)
            return replace(result, outcome="delayed", held_until=held_until), record
        if acquired.why == "backoff":
            return replace(result, outcome="waiting"), record
        record = read_interval(record.interval_id, invocation=invocation)
    return result, record


def work(holding: Holding, job: Job, invocation: Invocation) -> tuple[Result, RunRecord]:
    """One attempt: scan and complete the segment, or end the attempt and say how."""
    record, lease = holding.record, holding.lease
    attempt = Attempt(holding)
    with logger.append_context_keys(segment=lease.segment, generation=lease.generation):
        try:
            outcome = scan_and_complete(attempt, job, invocation)
        finally:
            count_work(attempt)
        logger.info("attempt ended", outcome=outcome, ranges=attempt.holding.ranges, accounts=attempt.done.accounts)
    result = Result(
        record.interval_id,
        lease.segment,
        record.run_id,
        outcome,
        lease.generation,
        attempt.holding.ranges,
        attempt.done.accounts,
        holding.progress.checkpoint,
    )
    return result, attempt.holding.record


def scan_and_complete(attempt: Attempt, job: Job, invocation: Invocation) -> str:
    """The attempt's outcome. Every way to stop, and what is written down about it."""
    settings = invocation.settings
    holding = attempt.holding
    if holding.prior_attempts >= settings.max_attempts:
        return stop(attempt, Ending(NEEDS_REPAIR, f"{holding.prior_attempts} attempts without progress"), invocation)
    sides = Sides(job.source, job.view, holding.lease.segment, settings.page_size)
    size = max(1, settings.range_size // SHRINK**holding.prior_attempts)
    try:
        while not (scan(attempt, sides, size, invocation) and complete_segment(attempt, invocation)):
            logger.info("an earlier commit had landed", checkpoint=attempt.holding.progress.checkpoint)
        return "completed"
    except LeaseLost as lost:
        return lose(lost)
    except Paused:
        return stop(attempt, Ending("YIELDED", "paused"), invocation)
    except OutOfTime as time_up:
        too_slow = attempt.began_range and not attempt.holding.ranges
        return stop(attempt, Ending("YIELDED", str(time_up), counts=too_slow, waits=too_slow), invocation)
    except GuardTripped as tripped:
        logger.error("job paused itself", reason=str(tripped))
        return stop(attempt, Ending(NEEDS_REPAIR, str(tripped), pauses=True), invocation)
    except Exception as error:
        counts = not isinstance(error, TransientFailure)
        exhausted = counts and attempt.holding.progress.attempts >= settings.max_attempts
        event = NEEDS_REPAIR if exhausted else "FAILED"
        logger.exception("attempt failed")
        stop(attempt, Ending(event, type(error).__name__, counts=counts, waits=not exhausted), invocation)
        raise


def scan(attempt: Attempt, sides: Sides, size: int, invocation: Invocation) -> bool:
    """Commit range after range to the end of both sides; False when the checkpoint turned out to be further on."""
    pages = sides.pages(attempt.holding.progress.checkpoint)
    while True:
        check_range(attempt, invocation=invocation)
        began = invocation.clock.monotonic()
        decisions = next(pages, None)
        if decisions is None:
            return True
        while decisions:
            taken = take_range(decisions, size)
            if not commit_range(decisions[:taken], attempt, sides, invocation=invocation):
                return False
            attempt.slowest_range_s = max(attempt.slowest_range_s, invocation.clock.monotonic() - began)
            decisions = decisions[taken:]
            if decisions:
                check_range(attempt, invocation=invocation)
                began = invocation.clock.monotonic()


def complete_segment(attempt: Attempt, invocation: Invocation) -> bool:
    """False when the checkpoint turned out to be further on."""
    result = complete(attempt.holding, invocation=invocation)
    attempt.holding = result.holding
    if result.holding.record.state == COMPLETED:
        count("ConsistencyLag", seconds_since(result.holding.record.scheduled_at, invocation))
    return isinstance(result, Completed)


def stop(attempt: Attempt, ending: Ending, invocation: Invocation) -> str:
    """End the attempt; the outcome it then has. A NEEDS_REPAIR that could not be written stops the invocation."""
    try:
        ended = end_attempt(attempt.holding, ending, invocation=invocation)
    except LeaseLost as lost:
        return lose(lost)
    if not ended and ending.event == NEEDS_REPAIR:
        return "yielded"
    if ending.reason == "paused":
        return "paused"
    return {"YIELDED": "yielded", "FAILED": "failed", NEEDS_REPAIR: "needs_repair"}[ending.event]


def lose(lost: LeaseLost) -> str:
    """Fenced: write nothing more."""
    count("LeaseLost")
    logger.warning("lease lost", reason=str(lost))
    return "lost"
