"""What is due is on record: an interval the first time it is seen, a delay the first time it has that cause.

Nothing is dropped silently: an interval that will not run is recorded as SKIPPED, with the policy that decided it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from boto3.dynamodb.conditions import Attr

from reconciler import clock, keys
from reconciler.audit import audit
from reconciler.control import Control
from reconciler.intervals import Calendar, Plan, Skip, catch_up
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA, Row
from reconciler.keys import SORT_KEY
from reconciler.records import EXPECTED, RUNNABLE, SKIPPED, RunRecord, unmoved
from reconciler.transactions import create, send, update

SKIPS_A_WRITE = 99
"""AWS's 100 actions of a transaction, less the audit row."""

SKIPS_A_TICK = 5 * SKIPS_A_WRITE
"""A longer outage is recorded by further ticks; what may run does not wait for them."""


@dataclass(frozen=True, slots=True)
class Due:
    """The recorded intervals that are due, oldest first, and by segment the LEASE rows that the same Query met."""

    records: Sequence[RunRecord]
    leases: Mapping[str, Row]


def read_due(control: Control, now_ms: int, *, invocation: Invocation) -> Due:
    """What is on record from `open_from` to the day of a moment; nothing is asked when that is before it.

    The LEASE rows are the next ones by sort key, so that whoever takes a lease at once need not ask for it.
    """
    last = clock.text(now_ms)[:10]
    if control.open_from > last:
        return Due((), {})
    bounds = {":first": keys.interval(control.open_from), ":last": keys.lease("~")}
    rows = {row[SORT_KEY]: row for row in invocation.control_rows("#sk BETWEEN :first AND :last", bounds)}
    records = [RunRecord.of(row) for sort_key, row in rows.items() if sort_key <= keys.interval(last)]
    leases = {sort_key.removeprefix("LEASE#"): row for sort_key, row in rows.items() if sort_key.startswith("LEASE#")}
    return Due(records, leases)


def due_intervals(control: Control, now_ms: int, *, invocation: Invocation) -> Due:
    """Every due interval that may be unfinished, as it stands once the catch-up plan is on record.

    What the plan skips is left out while it is not recorded as skipped: it must not run.
    """
    due = read_due(control, now_ms, invocation=invocation)
    plan = catch_up(now_ms, invocation.settings, due.records, control)
    unseen = [interval_id for interval_id in plan.run if interval_id in plan.unrecorded]
    observed = [observe(interval_id, control.segment_count, invocation=invocation) for interval_id in unseen]
    skip(plan, control.segment_count, invocation=invocation)
    if plan.skip or None in observed:
        due = read_due(control, now_ms, invocation=invocation)
        skipped = {skip.interval_id for skip in plan.skip}
        kept = [record for record in due.records if record.state != EXPECTED or record.interval_id not in skipped]
    else:
        kept = [*due.records, *(record for record in observed if record)]
    return Due(sorted(kept, key=lambda record: record.interval_id), due.leases)


def observe(interval_id: str, segment_count: int, *, invocation: Invocation) -> RunRecord | None:
    """Record an interval as EXPECTED; None when it was recorded already. Raises TransientFailure when AWS won't."""
    row = first_row(interval_id, segment_count, invocation)
    steps = [
        create("INTERVAL", invocation.table, row),
        audit("OBSERVED", interval_id, row["run_id"], invocation=invocation),
    ]
    answer = send(steps, invocation=invocation)
    if answer.applied:
        return RunRecord.of(row)
    if answer.refused("INTERVAL"):
        return None
    raise answer.unread()


def skip(plan: Plan, segment_count: int, *, invocation: Invocation) -> None:
    """Record the intervals that the plan skips, only if they still never started: one audit row for all of a reason.

    At most SKIPS_A_TICK of them, oldest first. When another invocation was quicker with one, the next tick plans anew.
    """
    for _, group in groupby(plan.skip[:SKIPS_A_TICK], key=lambda skip: (skip.reason, skip.superseded_by)):
        if not _skip_span(list(group), plan.unrecorded, segment_count, invocation):
            return


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
            when=unmoved("run_id", record.run_id)
            & Attr("rerun").eq(record.rerun)
            & Attr("state").is_in(RUNNABLE)
            & Attr(f"delays.{cause}").not_exists(),
        ),
        audit(
            "DELAYED",
            record.interval_id,
            record.run_id,
            invocation=invocation,
            cause=cause,
            held_until=held_until,
            policy=_policy(invocation),
        ),
    ]
    answer = send(steps, invocation=invocation)
    if not answer.applied and not answer.refused("INTERVAL"):
        raise answer.unread()


def _skip_span(skips: Sequence[Skip], unrecorded: frozenset[str], segment_count: int, invocation: Invocation) -> bool:
    """All of one reason; False when a row was not as planned any more.

    Every write puts the audit row again, so that it never tells of more than was recorded.
    """
    first = skips[0]
    at = clock.text(invocation.clock.now_ms())
    audit_key = keys.audit(first.interval_id, at, uuid.uuid4().hex)
    run_id = keys.run_id(invocation.settings.job_name, first.interval_id, 1)
    why = {"reason": first.reason, "superseded_by": first.superseded_by, "policy": _policy(invocation)}
    about = {name: value for name, value in why.items() if value is not None}
    skipped = {"state": SKIPPED, "skip": {**about, "at": at, "actor": invocation.owner, "audit": audit_key}}
    for start in range(0, len(skips), SKIPS_A_WRITE):
        batch = skips[start : start + SKIPS_A_WRITE]
        told = {"first": first.interval_id, "last": batch[-1].interval_id, "nights": start + len(batch), **about}
        steps = [audit("SKIPPED", first.interval_id, run_id, invocation=invocation, sort_key=audit_key, **told)]
        for skip in batch:
            if skip.interval_id in unrecorded:
                row = first_row(skip.interval_id, segment_count, invocation) | skipped
                steps.append(create("INTERVAL", invocation.table, row))
            else:
                key = invocation.row_key(keys.interval(skip.interval_id))
                never_started = unmoved("state", EXPECTED)
                steps.append(update("INTERVAL", invocation.table, key, set=skipped, when=never_started))
        answer = send(steps, invocation=invocation)
        if answer.refused("INTERVAL"):
            return False
        if not answer.applied:
            raise answer.unread()
    return True


def _policy(invocation: Invocation) -> Row:
    settings = invocation.settings
    return {"catch_up_policy": settings.catch_up_policy, "catch_up_days": settings.catch_up_days}


def first_row(interval_id: str, segment_count: int, invocation: Invocation) -> Row:
    """The run record of an interval of which nothing is known but that it is due."""
    calendar = Calendar.of(invocation.settings)
    return invocation.row_key(keys.interval(interval_id)) | {
        "schema": SCHEMA,
        "state": EXPECTED,
        "run_id": keys.run_id(invocation.settings.job_name, interval_id, 1),
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
