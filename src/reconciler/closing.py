"""Skip and Acknowledge: how a person gives an interval up, or says that it was seen.

Neither silences another interval. A skipped interval leaves the deadline's alarm and enters its own, until it is
acknowledged; an acknowledged one keeps its record and rings no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler import clock, control, keys
from reconciler.commands import Command
from reconciler.due import due_intervals
from reconciler.errors import VerbRefused
from reconciler.intervals import shifted
from reconciler.invocation import Invocation
from reconciler.leases import read_lease
from reconciler.records import EXPECTED, NEEDS_REPAIR, SKIPPED, RunRecord, unmoved
from reconciler.transactions import update
from reconciler.verbs import Deed, operator_key, recorded

if TYPE_CHECKING:
    from reconciler.work import Job


def skip(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Raises VerbRefused unless the interval is EXPECTED."""
    row = control.ensure(invocation=invocation)
    due_intervals(row, invocation.clock.now_ms(), invocation=invocation)
    record = RunRecord.of(recorded(command, row, invocation))
    if record.state != EXPECTED:
        raise VerbRefused(f"Skip: {record.interval_id} is {record.state}: only what never started can be skipped")
    why = {
        "reason": command.reason,
        "at": clock.text(invocation.clock.now_ms()),
        "actor": command.requested_by,
        "audit": operator_key(command, invocation),
    }
    step = update(
        "INTERVAL",
        invocation.table,
        invocation.row_key(keys.interval(record.interval_id)),
        set={"state": SKIPPED, "skip": why},
        when=unmoved("state", EXPECTED),
    )
    result = {"interval": record.interval_id}
    return Deed("SKIPPED", result, [step], result, record.run_id)


def acknowledge(command: Command, job: Job, invocation: Invocation) -> Deed:
    """One interval, or every one up to `through`.

    Raises VerbRefused when none of them waits for a person, and when a worker still is at one: what it meets, like a
    trip of the revocation guard, must not find the interval acknowledged.
    """
    row = control.ensure(invocation=invocation)
    due_intervals(row, invocation.clock.now_ms(), invocation=invocation)
    last = command.asked.get("through", command.interval)
    found = {}
    interval_id = command.interval
    while interval_id <= last:
        if stored := invocation.control_row(keys.interval(interval_id)):
            found[interval_id] = RunRecord.of(stored)
        interval_id = shifted(interval_id, 1)
    waiting = [one for one in found.values() if one.state in (SKIPPED, NEEDS_REPAIR) and not one.acknowledged]
    if not waiting:
        raise VerbRefused(f"Acknowledge: {_states(command, last, found)}: nothing waits to be acknowledged")
    for segment in keys.segments(row.segment_count):
        lease = read_lease(segment, invocation=invocation)
        if lease.owner and lease.interval_id in [record.interval_id for record in waiting]:
            at_work = f"{lease.owner} has not ended its work on segment {segment} of {lease.interval_id}"
            raise VerbRefused(f"Acknowledge: {at_work}: wait, or ReleaseLease when it is dead")
    seen = {
        "acknowledged_at": clock.text(invocation.clock.now_ms()),
        "acknowledged_by": command.requested_by,
        "acknowledged_in": operator_key(command, invocation),
    }
    steps = [
        update(
            "INTERVAL",
            invocation.table,
            invocation.row_key(keys.interval(record.interval_id)),
            set=seen,
            when=unmoved("acknowledged_at", None) & record.same_run(),
        )
        for record in waiting
    ]
    result = {"intervals": [record.interval_id for record in waiting], "paused": row.paused}
    return Deed("ACKNOWLEDGED", result, steps, result, waiting[0].run_id)


def _states(command: Command, last: str, found: dict[str, RunRecord]) -> str:
    if last != command.interval:
        return f"from {command.interval} to {last}"
    if command.interval not in found:
        return f"{command.interval} is not on record"
    record = found[command.interval]
    return f"{record.interval_id} is {'acknowledged' if record.acknowledged else record.state}"
