"""What is due is on record: an interval the first time it is seen, a delay the first time it has that cause."""

from __future__ import annotations

from boto3.dynamodb.conditions import Attr

from reconciler import clock, keys
from reconciler.audit import audit
from reconciler.intervals import Calendar
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA
from reconciler.keys import PARTITION_KEY
from reconciler.records import EXPECTED, RUNNABLE, RunRecord
from reconciler.transactions import create, send, update


def observe(interval_id: str, segment_count: int, *, invocation: Invocation) -> None:
    """Record an interval as EXPECTED unless it is recorded already. Raises TransientFailure when AWS won't."""
    settings = invocation.settings
    calendar = Calendar.of(settings)
    run_id = keys.run_id(settings.job_name, interval_id, 1)
    row = invocation.row_key(keys.interval(interval_id)) | {
        "schema": SCHEMA,
        "state": EXPECTED,
        "run_id": run_id,
        "pass": 1,
        "rerun": 0,
        "segment_count": segment_count,
        "scheduled_at": clock.text(calendar.scheduled_ms(interval_id)),
        "deadline_at": clock.text(calendar.deadline_ms(interval_id)),
        "first_observed_at": clock.text(invocation.clock.now_ms()),
        "revoked": 0,
        "delays": {},
        "segments": {},
    }
    steps = [
        create("INTERVAL", invocation.table, row),
        audit("OBSERVED", interval_id, run_id, invocation=invocation),
    ]
    answer = send(steps, invocation=invocation)
    if not answer.applied and not answer.refused("INTERVAL"):
        raise answer.unread()


def delay(record: RunRecord, cause: str, *, invocation: Invocation, held_until: str | None = None) -> None:
    """Record once per cause why a due interval does not run. An interval that moved on meanwhile keeps its record."""
    if cause in record.delays:
        return
    since = clock.text(invocation.clock.now_ms())
    steps = [
        update(
            "INTERVAL",
            invocation.table,
            invocation.row_key(keys.interval(record.interval_id)),
            set={f"delays.{cause}": since},
            when=Attr(PARTITION_KEY).exists() & Attr("state").is_in(RUNNABLE) & Attr(f"delays.{cause}").not_exists(),
        ),
        audit("DELAYED", record.interval_id, record.run_id, invocation=invocation, cause=cause, held_until=held_until),
    ]
    answer = send(steps, invocation=invocation)
    if not answer.applied and not answer.refused("INTERVAL"):
        raise answer.unread()
