"""The story of one attempt, top to bottom: range after range → complete, or one of the ways to stop."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler import aws
from reconciler.attempt import Attempt, Result, count_work, seconds_since
from reconciler.commit import Adopted
from reconciler.complete import complete
from reconciler.decisions import Decision, take_range
from reconciler.errors import GuardTripped, LeaseLost, OutOfTime, Paused, SchemaTooNew, SourceWait, TransientFailure
from reconciler.intervals import overtaken
from reconciler.invocation import Invocation
from reconciler.leases import Holding
from reconciler.merge import Side
from reconciler.observability import count, logger
from reconciler.ranges import commit_range
from reconciler.read_ahead import Helper, TakingTurns
from reconciler.reader import Reader, read_by
from reconciler.records import COMPLETED, NEEDS_REPAIR, RunRecord
from reconciler.release import Ending, end_attempt
from reconciler.scan import Sides, judged
from reconciler.source import SourceRecord
from reconciler.timing import check_range, patience_s
from reconciler.view import ViewRow

SHRINK = 16
"""Each attempt without progress divides the range size by this, so that poison and slowness shrink to one account."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to reconcile."""

    source: Side[SourceRecord]
    view: Side[ViewRow]


def work(holding: Holding, job: Job, failures: list[Exception], invocation: Invocation) -> tuple[Result, RunRecord]:
    """One attempt: scan and complete the segment, or end the attempt and say how."""
    record, lease = holding.record, holding.lease
    attempt = Attempt(holding)
    with logger.append_context_keys(segment=lease.segment, generation=lease.generation, range=attempt.range_no):
        try:
            outcome = scan_and_complete(attempt, job, failures, invocation)
        except SchemaTooNew:
            raise
        except Exception as error:
            keep_first(failures, error)
            outcome = "failed"
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


def scan_and_complete(attempt: Attempt, job: Job, failures: list[Exception], invocation: Invocation) -> str:
    """The attempt's outcome. Every way to stop, and what is written down about it."""
    settings = invocation.settings
    holding = attempt.holding
    if holding.prior_attempts >= settings.max_attempts:
        return stop(attempt, Ending("needs_repair", f"{holding.prior_attempts} attempts without progress"), invocation)
    size = max(1, settings.range_size // SHRINK**holding.prior_attempts)
    try:
        with Helper(attempt, invocation) as helper:
            sides = sides_of(attempt, job, helper, invocation)
            while True:
                if scan(attempt, sides, size, helper, invocation) and complete_segment(attempt, invocation):
                    return "completed"
                logger.info("an earlier commit had landed", checkpoint=attempt.holding.progress.checkpoint)
    except LeaseLost as lost:
        return lose(lost)
    except Paused:
        return stop(attempt, Ending("paused", "paused"), invocation)
    except OutOfTime as time_up:
        too_slow = attempt.began_range and not attempt.holding.ranges
        return stop(attempt, Ending("yielded", str(time_up), counts=too_slow, waits=too_slow), invocation)
    except SourceWait as wait:
        if attempt.quiet_until is None:
            attempt.leave_source_alone(wait.seconds, invocation)
        return stop(attempt, Ending("yielded", str(wait), source_wait_s=0.0), invocation)
    except GuardTripped as tripped:
        logger.error("revocation guard tripped", reason=str(tripped))
        try:
            return stop(attempt, Ending("tripped", str(tripped)), invocation)
        except Exception as error:
            logger.exception("job not paused, so nothing more is done")
            keep_first(failures, error)
            return "yielded"
    except Exception as error:
        counts = not isinstance(error, TransientFailure)
        exhausted = counts and attempt.holding.progress.attempts >= settings.max_attempts
        outcome = "needs_repair" if exhausted else "failed"
        logger.exception("attempt failed")
        try:
            stop(attempt, Ending(outcome, aws.name_of(error), counts=counts, waits=not exhausted), invocation)
        except Exception:
            logger.exception("attempt not ended, the lease expires by itself")
        raise


def sides_of(attempt: Attempt, job: Job, helper: Helper, invocation: Invocation) -> Sides:
    """What is reconciled, as this attempt and its helper read it."""
    holding, settings = attempt.holding, invocation.settings
    reader = Reader(
        run_id=holding.record.run_id,
        attempt=holding.prior_attempts + 1,
        backlog=overtaken(holding.record.interval_id, invocation.clock.now_ms(), settings),
        patience_s=lambda: 0.0 if helper.stopped else patience_s(attempt, invocation),
    )
    source = TakingTurns(read_by(reader, job.source), helper, attempt, invocation)
    return Sides(source, job.view, holding.lease.segment, settings.page_size)


def scan(attempt: Attempt, sides: Sides, size: int, helper: Helper, invocation: Invocation) -> bool:
    """Commit range after range to the end of both sides; False when the checkpoint turned out to be further on.

    No more accounts are judged ahead than make one range, so that a small range keeps clear of an account that cannot.
    """
    ask = helper.ask if invocation.settings.read_ahead else None
    pages = sides.pages(attempt.holding.progress.checkpoint, ask)
    while True:
        check_range(attempt, invocation=invocation)
        began = invocation.clock.monotonic()
        pairs = next(pages, None)
        if pairs is None:
            return True
        decisions: list[Decision] = []
        while pairs or decisions:
            ahead = size - len(decisions)
            decisions += map(judged, pairs[:ahead])
            pairs = pairs[ahead:]
            taken = take_range(decisions, size)
            if not commit_range(decisions[:taken], attempt, sides, invocation=invocation):
                return False
            attempt.slowest_range_s = max(attempt.slowest_range_s, invocation.clock.monotonic() - began)
            decisions = decisions[taken:]
            if pairs or decisions:
                check_range(attempt, invocation=invocation)
                began = invocation.clock.monotonic()


def complete_segment(attempt: Attempt, invocation: Invocation) -> bool:
    """False when the checkpoint turned out to be further on."""
    result = complete(attempt.holding, invocation=invocation)
    if isinstance(result, Adopted):
        attempt.go_on(result.holding, result.done)
        return False
    attempt.holding = result.holding
    if result.holding.record.state == COMPLETED:
        count("ConsistencyLag", seconds_since(result.holding.record.scheduled_at, invocation))
    return True


def stop(attempt: Attempt, ending: Ending, invocation: Invocation) -> str:
    """End the attempt; the outcome it then has: "yielded", which ends the invocation, for a trip not written.

    However it ends, a pause that the source asked for is kept.
    """
    if wait_s := attempt.source_wait_s(invocation):
        ending = replace(ending, source_wait_s=wait_s)
    try:
        ended = end_attempt(attempt.holding, ending, invocation=invocation)
    except LeaseLost as lost:
        return lose(lost)
    return ending.outcome if ended or ending.event != NEEDS_REPAIR else "yielded"


def keep_first(failures: list[Exception], error: Exception) -> None:
    """Remember what to raise at the end. Only one: an error holds on to the pages that its attempt had read."""
    if not failures:
        failures.append(error)


def lose(lost: LeaseLost) -> str:
    """Fenced: write nothing more."""
    count("LeaseLost")
    logger.warning("lease lost", reason=str(lost))
    return "lost"
