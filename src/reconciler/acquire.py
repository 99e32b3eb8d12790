"""Acquire: the attempt at one segment of one interval begins.

A compare-and-swap on exactly what was read, so a delayed duplicate of it can never take a lease later. It counts the
attempt and its backoff before any work is done, so a killed worker has counted itself.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, replace

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import clock, keys
from reconciler.audit import audit
from reconciler.errors import Paused, RowMissing
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA
from reconciler.keys import PARTITION_KEY
from reconciler.leases import Holding, Lease, Renewal, read_lease, refused_lease
from reconciler.records import EXPECTED, RUNNING, Progress, RunRecord, read_progress, unmoved
from reconciler.settings import Settings
from reconciler.transactions import Outcome, as_read, check, send, update

NOT_PAUSED: ConditionBase = Attr(PARTITION_KEY).exists() & Attr("pause").not_exists()
"""Of the CONTROL row: a pause that did not reach this lease row keeps it from being taken all the same."""


@dataclass(frozen=True, slots=True)
class NotAcquired:
    """Why a segment cannot run now: `held`, `backoff`, `source`, `done` or `moved`; until when, where that is known."""

    why: str
    until_ms: int | None = None
    owner: str | None = None


def acquire(
    record: RunRecord, segment: str, *, invocation: Invocation, free: Lease | None = None
) -> Holding | NotAcquired:
    """Take the lease if it is free or expired, and count the attempt, in one transaction.

    `free` is the lease where it was found free along with the record. Then it is not read again, nor is the progress
    of an interval that never started, which has none. When there is more to say than that it may run, the answer is
    `moved`: whoever took the lease since may have left it.

    Raises Paused, TransientFailure, OutOfTime; LeaseRowMissing, RowMissing, RowInvalid, SchemaTooNew for odd rows.
    """
    settings = invocation.settings
    now_ms = invocation.clock.now_ms()
    lease = free or read_lease(segment, invocation=invocation)
    if lease.paused is not None:
        raise Paused(f"segment {segment} is paused")
    if lease.held(now_ms, settings.skew_ms):
        return NotAcquired("held", lease.expires_at_ms, lease.owner)
    never_started = free is not None and record.state == EXPECTED
    progress = Progress() if never_started else read_progress(record, segment, invocation=invocation)
    if progress.done:
        return NotAcquired("done")
    prior = progress.attempts_in(record.rerun)
    waits = progress.next_attempt_at_ms if progress.rerun == record.rerun else None
    if prior < settings.max_attempts and waits is not None and waits > now_ms:
        if free:
            return NotAcquired("moved")
        return NotAcquired("source" if progress.waits_for_source else "backoff", waits)

    event = "TAKEOVER" if lease.owner else "RESUMED" if progress.exists else "STARTED"
    renewal = Renewal.now(invocation)
    mine = Lease(
        segment, lease.generation + 1, str(uuid.uuid4()), invocation.owner, renewal.wall_ms + settings.lease_ms
    )
    counted = replace(
        progress,
        attempts=prior + 1,
        next_attempt_at_ms=now_ms + backoff_ms(prior + 1, settings),
        waits_for_source=False,
        rerun=record.rerun,
        exists=True,
    )
    started_at = record.first_started_at or clock.text(now_ms)
    run: dict[str, object] = {"state": RUNNING, "first_started_at": started_at}
    if progress.exists and progress.rerun == record.rerun:
        run["repair_owner"] = invocation.owner
    steps = [
        update(
            "LEASE",
            invocation.table,
            invocation.row_key(keys.lease(segment)),
            set={
                "generation": mine.generation,
                "token": mine.token,
                "owner": invocation.owner,
                "expires_at_ms": mine.expires_at_ms,
                "acquired_at_ms": now_ms,
                "interval_id": record.interval_id,
                "run_id": record.run_id,
                "schema": SCHEMA,
                "previous_generation": lease.generation,
                **({"previous_owner": lease.owner} if lease.owner else {}),
            },
            remove=("progress_at_ms",) if lease.owner else ("progress_at_ms", "previous_owner"),
            when=lease.fence & as_read("expires_at_ms", lease.expires_at_ms) & Attr("paused").not_exists(),
        ),
        update(
            "INTERVAL",
            invocation.table,
            invocation.row_key(keys.interval(record.interval_id)),
            set=run,
            when=record.same_run(),
        ),
        update(
            "PROGRESS",
            invocation.table,
            invocation.row_key(record.progress_key(segment)),
            set={
                "schema": SCHEMA,
                "run_id": record.run_id,
                "generation": mine.generation,
                "done": False,
                "rerun": record.rerun,
                "attempts": counted.attempts,
                "next_attempt_at_ms": counted.next_attempt_at_ms,
            },
            remove=("waits_for_source",),
            when=_untouched(progress),
        ),
        audit(
            event,
            record.interval_id,
            record.run_id,
            invocation=invocation,
            segment=segment,
            generation=mine.generation,
            attempt=counted.attempts,
            checkpoint=progress.checkpoint,
            ranges_before=progress.totals.ranges,
            accounts_before=progress.totals.accounts,
            **lease.loser,
        ),
        check("CONTROL", invocation.table, invocation.row_key(keys.CONTROL), when=NOT_PAUSED),
    ]
    answer = send(steps, invocation=invocation)
    if answer.outcome is Outcome.UNKNOWN:
        landed = read_lease(segment, invocation=invocation).token == mine.token
    elif refusal := answer.refused("LEASE"):
        landed = refused_lease(refusal.row, known=lease, tried=mine.token)
        if not landed:
            stands = Lease.of(refusal.row or {})
            held = stands.held(now_ms, settings.skew_ms)
            return NotAcquired("held", stands.expires_at_ms, stands.owner) if held else NotAcquired("moved")
    elif refusal := answer.refused("CONTROL"):
        if refusal.row is None:
            raise RowMissing("CONTROL is missing: restore the table from point-in-time recovery")
        raise Paused("the job was paused")
    elif answer.refused("INTERVAL") or answer.refused("PROGRESS"):
        return NotAcquired("moved")
    else:
        landed = answer.applied
    if not landed:
        raise answer.unread()
    return Holding(mine, replace(record, state=RUNNING, first_started_at=started_at), counted, renewal, event, prior)


def _untouched(progress: Progress) -> ConditionBase:
    if not progress.exists:
        absent: ConditionBase = Attr(PARTITION_KEY).not_exists()
        return absent
    return (
        unmoved("checkpoint", progress.checkpoint)
        & Attr("attempts").eq(progress.attempts)
        & Attr("rerun").eq(progress.rerun)
        & Attr("done").eq(progress.done)
    )


def backoff_ms(attempts: int, settings: Settings) -> int:
    """How long to wait after that many attempts without progress: doubling, jittered, bounded."""
    longest = min(settings.backoff_max_seconds, settings.backoff_seconds * 2.0 ** min(attempts - 1, 30))
    return round(random.uniform(0.5, 1.0) * longest * 1000)
