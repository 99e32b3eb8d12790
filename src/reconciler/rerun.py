"""Rerun: an interval again, under the same identity; from its checkpoint, or from the start as a pass of its own.

Every lease gets a new generation in the same write, so that no message of an earlier holder can reach the rerun.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import clock, control, keys
from reconciler.commands import FROM_CHECKPOINT, FROM_START, Command
from reconciler.control import Control
from reconciler.due import due_intervals
from reconciler.errors import VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import Row, attribute
from reconciler.keys import PARTITION_KEY, SORT_KEY
from reconciler.leases import Lease, read_lease
from reconciler.records import COMPLETED, RUNNING, RunRecord, unmoved
from reconciler.totals import Totals
from reconciler.transactions import Step, as_read, update
from reconciler.verbs import Deed, recorded
from reconciler.work import Job

OUTDATED = (
    *("skip", "last_error", "acknowledged_at", "acknowledged_by", "acknowledged_in", "completed_at", "late_by_s"),
    *(name for name in Totals().stored() if name != "revoked"),
)
"""What a rerun takes from the run record; the audit row keeps the whole record as it was."""

Committed = Mapping[str, tuple[int, str]]
"""Segment → generation of its last commit, and the interval that made it."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a rerun begins, and why there."""

    place: str
    why: str


def rerun(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Raises VerbRefused when the interval is not on record, completed without `force`, or a lease is held."""
    row = control.ensure(invocation=invocation)
    leases = [read_lease(segment, invocation=invocation) for segment in keys.segments(row.segment_count)]
    now_ms = invocation.clock.now_ms()
    for lease in leases:
        if lease.held(now_ms, invocation.settings.skew_ms):
            until = clock.text(lease.expires_at_ms or 0)
            raise VerbRefused(
                f"Rerun: {lease.owner} holds segment {lease.segment} until {until}: wait, Pause, or ReleaseLease"
            )
    row = control.lower(row, command.interval, invocation=invocation)
    due_intervals(row, now_ms, invocation=invocation)
    before = recorded(command, row, invocation)
    record = RunRecord.of(before)
    if record.state == COMPLETED and not command.asked.get("force"):
        raise VerbRefused(f"Rerun: {record.interval_id} is COMPLETED: set force to run it again from the start")
    start = where_from(
        record, command.asked.get("from"), _own(record, invocation), _later(record.interval_id, invocation)
    )
    pass_no = record.pass_no + (start.place == FROM_START)
    run_id = keys.run_id(invocation.settings.job_name, record.interval_id, pass_no)
    bound = command.asked.get("revocation_bound")
    if bound is None and start.place == FROM_CHECKPOINT:
        bound = record.revocation_bound
    lifts = command.asked.get("revocation_bound") is not None and row.tripped_by(record.interval_id)
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
    }
    fenced = [{"segment": lease.segment, "generation": lease.generation + 1} | lease.loser for lease in leases]
    return Deed(
        "RERUN",
        result,
        [
            _interval_step(record, command, start, run_id, pass_no, bound, invocation),
            _control_step(row, record.interval_id, lifts, invocation),
            *(_fence(lease, lifts, invocation) for lease in leases),
        ],
        result | {"before": before, "fenced": fenced},
        run_id,
    )


def where_from(record: RunRecord, asked: str | None, own: Committed, later: Committed) -> Start:
    """Where a rerun begins; pure. Raises VerbRefused when the checkpoint was asked for and is of no use any more.

    `own` are the commits of the interval's present pass, `later` the last ones of later intervals.
    """
    if asked == FROM_START:
        return Start(FROM_START, "asked for")
    why = None
    if record.state == COMPLETED:
        why = f"{record.interval_id} is COMPLETED"
    for segment, (generation, _) in sorted(own.items()):
        newer, interval_id = later.get(segment, (0, ""))
        if newer > generation:
            why = f"{interval_id} has committed on segment {segment} since"
    if why is None:
        return Start(FROM_CHECKPOINT, "no later interval has committed since" if own else "nothing was committed yet")
    if asked == FROM_CHECKPOINT:
        raise VerbRefused(f"Rerun: not from the checkpoint: {why}; leave `from` out, or say start")
    return Start(FROM_START, why)


def _own(record: RunRecord, invocation: Invocation) -> dict[str, tuple[int, str]]:
    prefix = {":prefix": keys.progress_prefix(record.interval_id, record.pass_no)}
    return _last_commits(invocation.control_rows("begins_with(#sk, :prefix)", prefix))


def _later(interval_id: str, invocation: Invocation) -> dict[str, tuple[int, str]]:
    first, last = keys.progress_after(interval_id)
    return _last_commits(invocation.control_rows("#sk BETWEEN :first AND :last", {":first": first, ":last": last}))


def _last_commits(rows: list[Row]) -> dict[str, tuple[int, str]]:
    commits: dict[str, tuple[int, str]] = {}
    for row in rows:
        _, interval_id, _, segment = row[SORT_KEY].split("#")
        if "checkpoint" in row:
            name = "checkpoint_generation" if "checkpoint_generation" in row else "generation"
            commit = (attribute(row, name, int), interval_id)
            commits[segment] = max(commit, commits.get(segment, commit))
    return commits


def _interval_step(
    record: RunRecord,
    command: Command,
    start: Start,
    run_id: str,
    pass_no: int,
    bound: int | None,
    invocation: Invocation,
) -> Step:
    changed: Row = {
        "state": RUNNING,
        "rerun": record.rerun + 1,
        "repair_owner": command.requested_by,
        "delays": {},
    }
    if start.place == FROM_START:
        began_at = clock.text(invocation.clock.now_ms())
        changed |= {"pass": pass_no, "run_id": run_id, "segments": {}, "revoked": 0, "pass_began_at": began_at}
    if bound is not None:
        changed["revocation_bound"] = bound
    return update(
        "INTERVAL",
        invocation.table,
        invocation.row_key(keys.interval(record.interval_id)),
        set=changed,
        remove=OUTDATED if bound is not None else (*OUTDATED, "revocation_bound"),
        when=Attr(PARTITION_KEY).exists() & record.same_run(),
    )


def _control_step(row: Control, interval_id: str, lifts: bool, invocation: Invocation) -> Step:
    changed: Row = {
        "open_from": min(row.open_from, interval_id),
        "moved_at": clock.text(invocation.clock.now_ms()),
    }
    as_it_was: ConditionBase = unmoved("open_from", row.open_from) & Attr("pause_no").eq(row.pause_no)
    if lifts:
        changed["pause_no"] = row.pause_no + 1
    key = invocation.row_key(keys.CONTROL)
    removed = ("pause",) if lifts else ()
    return update("CONTROL", invocation.table, key, set=changed, remove=removed, when=as_it_was)


def _fence(lease: Lease, lifts: bool, invocation: Invocation) -> Step:
    return update(
        keys.lease(lease.segment),
        invocation.table,
        invocation.row_key(keys.lease(lease.segment)),
        set={"generation": lease.generation + 1, "token": str(uuid.uuid4())},
        remove=("owner", "expires_at_ms", *(("paused",) if lifts else ())),
        when=lease.fence & as_read("expires_at_ms", lease.expires_at_ms),
    )
