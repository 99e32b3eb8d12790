"""Release: the attempt at one segment of one interval ends.

Release replaces the lease's token, so that every late message of the former holder fails although nobody has taken
the lease since. Best effort: when it cannot be written nothing changes and the lease expires.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from boto3.dynamodb.conditions import Attr

from reconciler import clock, control, keys
from reconciler.acquire import backoff_ms
from reconciler.audit import audit
from reconciler.commit import moved_progress
from reconciler.errors import LeaseLost, OutOfTime, TransientFailure
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.leases import Holding, read_lease, refused_lease
from reconciler.observability import logger
from reconciler.pausing import pause, pausing
from reconciler.records import NEEDS_REPAIR, unmoved
from reconciler.transactions import Outcome, Step, send, update

EVENTS = {
    "yielded": "YIELDED",
    "paused": "YIELDED",
    "failed": "FAILED",
    "needs_repair": NEEDS_REPAIR,
    "tripped": NEEDS_REPAIR,
}
"""The audit event of each way to end an attempt."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ends; `outcome` is one of EVENTS.

    `counts` is False for a clean yield and for a transient AWS error: they give the attempt back. `waits` keeps the
    next attempt away for the backoff, `source_wait_s` for as long as the source asked: the longer of both counts.
    """

    outcome: str
    reason: str
    counts: bool = False
    waits: bool = False
    source_wait_s: float | None = None

    @property
    def event(self) -> str:
        """Its audit event."""
        return EVENTS[self.outcome]

    @property
    def pauses(self) -> bool:
        """Whether the job pauses itself."""
        return self.outcome == "tripped"


def end_attempt(holding: Holding, ending: Ending, *, invocation: Invocation) -> bool:
    """Release the lease and note why, in one transaction; False when it could not be written.

    A pause that cannot reach the other leases is written without them: CONTROL keeps every later attempt away. Raises
    LeaseLost when the segment is somebody else's already, RowMissing when the progress row is gone.
    """
    release_token = str(uuid.uuid4())
    try:
        return _end(holding, ending, release_token, set(), invocation)
    except (TransientFailure, OutOfTime) as error:
        if not ending.pauses:
            logger.warning("attempt not ended, the lease expires by itself", error=str(error))
            return False
    try:
        spared = set(keys.segments(invocation.settings.segment_count))
        return _end(holding, ending, release_token, spared, invocation)
    except (TransientFailure, OutOfTime) as error:
        logger.error("job not paused, the lease expires by itself", error=str(error))
        return False


def _end(holding: Holding, ending: Ending, release_token: str, spared: set[str], invocation: Invocation) -> bool:
    """`spared` are the segments whose lease rows a pause leaves alone."""
    with_interval = ending.event != "YIELDED"
    while True:
        steps = _ending_steps(holding, ending, release_token, with_interval, spared, invocation)
        answer = send(steps, invocation=invocation)
        if answer.applied:
            return True
        if answer.outcome is Outcome.UNKNOWN:
            if read_lease(holding.lease.segment, invocation=invocation).token == release_token:
                return True
            raise answer.unread()
        if refusal := answer.refused("LEASE"):
            if refused_lease(refusal.row, known=holding.lease, tried=release_token):
                return True
            raise LeaseLost(f"segment {holding.lease.segment} was taken before the attempt ended")
        if refusal := answer.refused("PROGRESS"):
            holding = replace(holding, progress=moved_progress(refusal.row, holding))
        elif with_interval and answer.refused("INTERVAL"):
            with_interval = False
        elif (found := answer.refusal) and found.step.name.startswith("LEASE#"):
            logger.error("a lease row is missing", row=found.step.name)
            spared = spared | {found.step.name.removeprefix("LEASE#")}
        elif not answer.refused("CONTROL"):
            raise answer.unread()


def _ending_steps(
    holding: Holding,
    ending: Ending,
    release_token: str,
    with_interval: bool,
    spared: set[str],
    invocation: Invocation,
) -> list[Step]:
    record, segment = holding.record, holding.lease.segment
    attempts = holding.progress.attempts if ending.counts else max(0, holding.progress.attempts - 1)
    next_attempt: Row = {}
    backs_off_ms = backoff_ms(max(1, attempts), invocation.settings) if ending.waits else 0
    source_wait_ms = -1 if ending.source_wait_s is None else round(ending.source_wait_s * 1000)
    if ending.waits or source_wait_ms >= 0:
        next_attempt = {"next_attempt_at_ms": invocation.clock.now_ms() + max(backs_off_ms, source_wait_ms)}
    if source_wait_ms >= backs_off_ms:
        next_attempt["waits_for_source"] = True
    pause_no = None
    paused: list[Step] = []
    if ending.pauses:
        tripped = pause(invocation.owner, ending.reason, invocation=invocation, interval_id=record.interval_id)
        said = {"pause": tripped, "run_id": record.run_id}
        row = control.ensure(invocation=invocation)
        pause_no, paused = pausing(row, said, without={*spared, segment}, invocation=invocation)
    steps = [
        update(
            "LEASE",
            invocation.table,
            invocation.row_key(keys.lease(segment)),
            set={"token": release_token, **({} if pause_no is None else {"paused": pause_no})},
            remove=("owner", "expires_at_ms"),
            when=holding.lease.fence,
        ),
        update(
            "PROGRESS",
            invocation.table,
            invocation.row_key(record.progress_key(segment)),
            set={"attempts": attempts, **next_attempt},
            remove=() if next_attempt else ("next_attempt_at_ms",),
            when=unmoved("checkpoint", holding.progress.checkpoint),
        ),
    ]
    if with_interval:
        error = {"error": ending.reason, "segment": segment, "at": clock.text(invocation.clock.now_ms())}
        state: Row = {"state": NEEDS_REPAIR} if ending.event == NEEDS_REPAIR else {}
        if ending.pauses:
            state["tripped"] = True
        steps.append(
            update(
                "INTERVAL",
                invocation.table,
                invocation.row_key(keys.interval(record.interval_id)),
                set={"last_error": error, **state},
                when=unmoved("run_id", record.run_id) & Attr("rerun").eq(record.rerun),
            )
        )
    event = audit(
        ending.event,
        record.interval_id,
        record.run_id,
        invocation=invocation,
        segment=segment,
        generation=holding.lease.generation,
        reason=ending.reason,
        checkpoint=holding.progress.checkpoint,
        ranges=holding.ranges,
    )
    return [*steps, event, *paused]
