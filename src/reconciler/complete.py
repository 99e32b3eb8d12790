"""Complete: a segment is done, its lease released, and with the last segment the interval closed, in one write.

Nobody has to come back to close an interval, and its state, not a trigger, is the proof that it ran.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from boto3.dynamodb.conditions import Attr

from reconciler import clock, keys
from reconciler.audit import audit
from reconciler.commit import Adopted, adopted, landed_before, moved_record
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.leases import Holding, read_lease
from reconciler.records import COMPLETED, unmoved
from reconciler.totals import Totals
from reconciler.transactions import Outcome, Step, send, update


@dataclass(frozen=True, slots=True)
class Completed:
    """The segment is done. `holding.record.state` is COMPLETED when that closed the interval."""

    holding: Holding


def complete(holding: Holding, *, invocation: Invocation) -> Completed | Adopted:
    """Complete the holder's segment. Raises as `commit` does."""
    release_token = str(uuid.uuid4())
    while True:
        now_ms = invocation.clock.now_ms()
        record = holding.record
        segments = {**record.segments, holding.lease.segment: holding.progress.totals.stored()}
        closes = len(segments) == record.segment_count
        steps = _complete_steps(holding, segments, closes, release_token, now_ms, invocation)
        answer = send(steps, invocation=invocation)
        landed = answer.applied
        if answer.outcome is Outcome.UNKNOWN:
            landed = read_lease(holding.lease.segment, invocation=invocation).token == release_token
        if landed or landed_before(answer, holding, release_token):
            state = COMPLETED if closes else record.state
            return Completed(replace(holding, record=replace(record, state=state, segments=segments)))
        if refusal := answer.refused("PROGRESS"):
            return adopted(refusal.row, holding)
        refusal = answer.refused("INTERVAL")
        if refusal is None:
            raise answer.unread()
        holding = replace(holding, record=moved_record(refusal.row, holding))


def _complete_steps(
    holding: Holding,
    segments: dict[str, Row],
    closes: bool,
    release_token: str,
    now_ms: int,
    invocation: Invocation,
) -> list[Step]:
    record, lease, progress = holding.record, holding.lease, holding.progress
    closing: Row = {f"segments.{lease.segment}": segments[lease.segment]}
    whole = None
    if closes:
        named = invocation.row_key(keys.interval(record.interval_id))
        whole = sum((Totals.of(row | named) for row in segments.values()), Totals()).stored()
        late_ms = now_ms - clock.parse_ms(record.deadline_at)
        closing |= {
            **whole,
            "state": COMPLETED,
            "completed_at": clock.text(now_ms),
            "late_by_s": max(0, late_ms) // 1000,
        }
    return [
        update(
            "LEASE",
            invocation.table,
            invocation.row_key(keys.lease(lease.segment)),
            set={"token": release_token},
            remove=("owner", "expires_at_ms"),
            when=lease.fence,
        ),
        update(
            "PROGRESS",
            invocation.table,
            invocation.row_key(record.progress_key(lease.segment)),
            set={"done": True, "attempts": 0},
            remove=("next_attempt_at_ms",),
            when=unmoved("checkpoint", progress.checkpoint),
        ),
        update(
            "INTERVAL",
            invocation.table,
            invocation.row_key(keys.interval(record.interval_id)),
            set=closing,
            when=record.same_run() & Attr("segments").eq(record.segments),
        ),
        audit(
            "COMPLETED",
            record.interval_id,
            record.run_id,
            invocation=invocation,
            segment=lease.segment,
            generation=lease.generation,
            interval_closed=closes,
            totals=segments[lease.segment],
            interval_totals=whole,
        ),
    ]
