"""Rerun: an interval again, under the same identity; from its checkpoint, or from the start as a pass of its own.

Every lease gets a new generation in the same write, so that no message of an earlier holder can reach the rerun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import clock, control, keys
from reconciler.commands import FROM_CHECKPOINT, FROM_START, Command
from reconciler.control import Control
from reconciler.due import due_intervals, first_row
from reconciler.errors import VerbRefused
from reconciler.fencing import fence_off
from reconciler.intervals import span
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.keys import PARTITION_KEY
from reconciler.leases import read_lease
from reconciler.records import COMPLETED, RUNNING, RunRecord, unmoved
from reconciler.restart import come_to, later_commits, where_from
from reconciler.totals import Totals
from reconciler.transactions import Step, as_read, create, update
from reconciler.verbs import Deed, recorded

if TYPE_CHECKING:
    from reconciler.work import Job

OUTDATED = (
    *("skip", "last_error", "tripped", "acknowledged_at", "acknowledged_by", "acknowledged_in"),
    *("completed_at", "late_by_s", "revocation_bound"),
    *(name for name in Totals().stored() if name != "revoked"),
)
"""What a rerun takes from the run record; the audit row keeps the whole record as it was."""


def rerun(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Raises VerbRefused when the interval is not on record, completed without `force`, or a lease is held.

    An interval before the first one, but within the catch-up window, is added to the record, and those between with it.
    """
    row = control.ensure(invocation=invocation)
    leases = [read_lease(segment, invocation=invocation) for segment in keys.segments(row.segment_count)]
    now_ms = invocation.clock.now_ms()
    for lease in leases:
        if lease.held(now_ms, invocation.settings.skew_ms):
            until = clock.text(lease.expires_at_ms or 0)
            raise VerbRefused(
                f"Rerun: {lease.owner} holds segment {lease.segment} until {until}: wait, Pause, or ReleaseLease"
            )
    records = due_intervals(row, now_ms, invocation=invocation).records
    unknown = invocation.control_row(keys.interval(command.interval)) is None
    added = unknown and control.within_window(row, command.interval, invocation=invocation)
    new = first_row(command.interval, row.segment_count, invocation)
    before = new if added else recorded(command, row, invocation)
    record = RunRecord.of(before)
    if record.state == COMPLETED and not command.asked.get("force"):
        raise VerbRefused(f"Rerun: {record.interval_id} is COMPLETED: `force` runs it again from the start")
    own = come_to(record, invocation=invocation)
    start = where_from(record, command.asked.get("from"), own, later_commits(record.interval_id, invocation=invocation))
    stated = command.asked.get("revocation_bound")
    bound = record.revocation_bound if stated is None and start.place == FROM_CHECKPOINT else stated
    guards = [other for other in records if other.stopped_by_guard and other.interval_id != record.interval_id]
    tripped = record.tripped or (row.pause or {}).get("interval_id") == record.interval_id
    lifts = stated is not None and row.paused_by_guard and tripped and not guards
    pass_no = record.pass_no + (start.place == FROM_START)
    run_id = keys.run_id(invocation.settings.job_name, record.interval_id, pass_no)
    result = {
        "interval": record.interval_id,
        "run_id": run_id,
        "pass": pass_no,
        "rerun": record.rerun + 1,
        "from": start.place,
        "why": start.why,
        "state_before": record.state,
        "revocation_bound": bound,
        "paused": row.paused and not lifts,
        "added": span(record.interval_id, row.first_interval) if added else [],
    }
    fenced = [{"segment": lease.segment, "generation": lease.generation + 1} | lease.loser for lease in leases]
    at = clock.text(now_ms)
    changed: Row = {"state": RUNNING, "rerun": record.rerun + 1, "rerun_at": at, "delays": {}}
    changed["repair_owner"] = command.requested_by
    if start.place == FROM_START:
        changed |= {"pass": pass_no, "run_id": run_id, "segments": {}, "revoked": 0, "pass_began_at": at}
    if bound is not None:
        changed["revocation_bound"] = bound
    return Deed(
        "RERUN",
        result,
        [
            create("INTERVAL", invocation.table, before | changed)
            if added
            else _interval_step(record, changed, invocation),
            _control_step(row, record.interval_id, lifts, invocation),
            *(
                fence_off(lease, also=as_read("expires_at_ms", lease.expires_at_ms), lifts=lifts, invocation=invocation)
                for lease in leases
            ),
        ],
        result | {"before": before, "fenced": fenced},
        run_id,
    )


def _interval_step(record: RunRecord, changed: Row, invocation: Invocation) -> Step:
    key = invocation.row_key(keys.interval(record.interval_id))
    outdated = [name for name in OUTDATED if name not in changed]
    as_it_was = Attr(PARTITION_KEY).exists() & record.same_run()
    return update("INTERVAL", invocation.table, key, set=changed, remove=outdated, when=as_it_was)


def _control_step(row: Control, interval_id: str, lifts: bool, invocation: Invocation) -> Step:
    changed: Row = {
        "first_interval": min(row.first_interval, interval_id),
        "open_from": min(row.open_from, interval_id),
        "moved_at": clock.text(invocation.clock.now_ms()),
    }
    as_it_was: ConditionBase = (
        unmoved("first_interval", row.first_interval)
        & Attr("open_from").eq(row.open_from)
        & Attr("pause_no").eq(row.pause_no)
    )
    if lifts:
        changed["pause_no"] = row.pause_no + 1
    key = invocation.row_key(keys.CONTROL)
    removed = ("pause",) if lifts else ()
    return update("CONTROL", invocation.table, key, set=changed, remove=removed, when=as_it_was)
