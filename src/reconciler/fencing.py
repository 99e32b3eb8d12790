"""ReleaseLease: a person fences the present holder of a segment, or puts its lost lease row back.

A restored row starts above every generation on record. Should one that was issued be on record nowhere, as after a
restored backup, the new token keeps its holder out all the same.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import control, keys
from reconciler.audit import audit
from reconciler.commands import Command
from reconciler.control import Control
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA, Row
from reconciler.keys import SORT_KEY
from reconciler.leases import Lease
from reconciler.scan import every_row
from reconciler.transactions import Step, check, create, update
from reconciler.verbs import Deed

if TYPE_CHECKING:
    from reconciler.work import Job


def release_lease(command: Command, job: Job, invocation: Invocation) -> Deed:
    """The segment is free, and whoever held it can write nothing more. Its work goes on from the checkpoint."""
    segment = command.asked["segment"]
    row = control.ensure(invocation=invocation)
    stored = invocation.control_row(keys.lease(segment))
    if stored is None:
        return _restored(segment, row, job, invocation)
    lease = Lease.of(stored)
    result = {
        "segment": segment,
        "generation": lease.generation + 1,
        "loser": lease.owner,
        "loser_generation": lease.generation if lease.owner else None,
        "restored": False,
    }
    steps = [fence_off(lease, invocation=invocation)]
    run_id = stored.get("run_id")
    if lease.owner and lease.interval_id and isinstance(run_id, str):
        told = {"segment": segment, "generation": lease.generation + 1, **lease.loser}
        told |= {"reason": command.reason, "actor": command.requested_by}
        steps.append(audit("RELEASED", lease.interval_id, run_id, invocation=invocation, **told))
    return Deed("RELEASED", result, steps, result | lease.loser)


def fence_off(lease: Lease, *, also: ConditionBase | None = None, lifts: bool = False, invocation: Invocation) -> Step:
    """A lease gets a new generation and token and no owner, if nobody took it since it was read, `also` holding.

    `lifts` ends a pause with it.
    """
    return update(
        keys.lease(lease.segment),
        invocation.table,
        invocation.row_key(keys.lease(lease.segment)),
        set={"generation": lease.generation + 1, "token": str(uuid.uuid4())},
        remove=("owner", "expires_at_ms", *(("paused",) if lifts else ())),
        when=lease.fence if also is None else lease.fence & also,
    )


def _restored(segment: str, row: Control, job: Job, invocation: Invocation) -> Deed:
    generation = 1 + highest_generation(segment, job, invocation)
    lease: Row = {"schema": SCHEMA, "generation": generation, "token": str(uuid.uuid4())}
    if row.paused:
        lease["paused"] = row.pause_no
    steps = [
        create("LEASE", invocation.table, invocation.row_key(keys.lease(segment)) | lease),
        check("CONTROL", invocation.table, invocation.row_key(keys.CONTROL), when=Attr("pause_no").eq(row.pause_no)),
    ]
    result: Row = {"segment": segment, "generation": generation, "restored": True}
    result |= {"loser": None, "loser_generation": None}
    return Deed("RELEASED", result, steps, result)


def highest_generation(segment: str, job: Job, invocation: Invocation) -> int:
    """Of everything on record about a segment: PROGRESS, AUDIT and view rows. Raises OutOfTime for too large a view."""
    highest = 0
    for prefix in ("PROGRESS#", "AUDIT#"):
        for row in invocation.each_control_row("begins_with(#sk, :prefix)", {":prefix": prefix}):
            mentioned = [row, *row.get("fenced", [])]
            highest = max([highest, *(_number(one.get("generation")) for one in mentioned if _segment(one) == segment)])
    written = (_number(row.stamp.generation) for row in every_row(job.view, segment, invocation=invocation))
    return max(highest, max(written, default=0))


def _segment(row: Row) -> object:
    named = row.get("segment")
    return named if named is not None else str(row.get(SORT_KEY, "")).rpartition("#")[2]


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
