"""Pause and Resume: in CONTROL, which keeps every acquire away, and on every lease, which stops a holder at its range.

A live holder's renewals do not get in the way: the leases are not compared with what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr

from reconciler import clock, control, keys
from reconciler.commands import Command
from reconciler.control import Control
from reconciler.errors import VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.keys import PARTITION_KEY
from reconciler.records import read_until, unmoved
from reconciler.transactions import Step, check, update
from reconciler.verbs import Deed

if TYPE_CHECKING:
    from reconciler.work import Job


def pause_job(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Raises VerbRefused when the job is paused already."""
    row = control.ensure(invocation=invocation)
    if row.pause is not None:
        who, when, why = (row.pause.get(name) for name in ("who", "when", "why"))
        raise VerbRefused(f"Pause: paused by {who} since {when}: {why}")
    said = {"pause": pause(command.requested_by, command.reason, invocation=invocation)}
    lost = lost_leases(invocation)
    pause_no, steps = pausing(row, said, without=lost, invocation=invocation)
    return Deed("PAUSED", {"pause_no": pause_no}, steps + still_lost(lost, invocation), {"pause_no": pause_no})


def resume_job(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Raises VerbRefused when the job is not paused, or the revocation guard stopped an interval that still waits."""
    row = control.ensure(invocation=invocation)
    if row.pause is None:
        raise VerbRefused("Resume: the job is not paused")
    for record in read_until(row.open_from, invocation.clock.now_ms(), invocation=invocation):
        if record.stopped_by_guard:
            on = f"Rerun {record.interval_id} with a `revocation_bound`, or Acknowledge it first"
            raise VerbRefused(f"Resume: the revocation guard stopped {record.interval_id}: {on}")
    lost = lost_leases(invocation)
    pause_no, steps = resuming(row, without=lost, invocation=invocation)
    noted = {"pause_no": pause_no, "pause": dict(row.pause)}
    return Deed("RESUMED", {"pause_no": pause_no}, steps + still_lost(lost, invocation), noted)


def lost_leases(invocation: Invocation) -> set[str]:
    """The segments whose lease row is gone: CONTROL's pause holds for them, and a restored row takes it over."""
    segments = keys.segments(invocation.settings.segment_count)
    return {segment for segment in segments if invocation.control_row(keys.lease(segment)) is None}


def still_lost(segments: Set[str], invocation: Invocation) -> list[Step]:
    """So that no row that is put back meanwhile keeps another pause than CONTROL has."""
    table, absent = invocation.table, Attr(PARTITION_KEY).not_exists()
    names = map(keys.lease, sorted(segments))
    return [check(name, table, invocation.row_key(name), when=absent) for name in names]


def pause(who: str, why: str, *, invocation: Invocation, interval_id: str | None = None) -> dict[str, str]:
    """What CONTROL holds of a pause; `interval_id` is the one whose revocation guard paused the job."""
    said = {"who": who, "when": clock.text(invocation.clock.now_ms()), "why": why}
    return said if interval_id is None else {**said, "interval_id": interval_id}


def pausing(
    control: Control, said: Mapping[str, object], *, without: Set[str], invocation: Invocation
) -> tuple[int, list[Step]]:
    """The pause's number, and the steps that pause the job: CONTROL, and every lease but those `without`.

    `said` is what CONTROL is to hold of it; a pause that stands keeps its own.
    """
    pause_no = control.pause_no + 1
    new = {} if control.paused else dict(said)
    return pause_no, _everywhere(control, new, {"paused": pause_no}, without, invocation)


def resuming(control: Control, *, without: Set[str], invocation: Invocation) -> tuple[int, list[Step]]:
    """The steps that end a pause: as `pausing`."""
    return control.pause_no + 1, _everywhere(control, None, None, without, invocation)


def _everywhere(
    control: Control, said: Row | None, paused: Row | None, without: Set[str], invocation: Invocation
) -> list[Step]:
    """CONTROL, as read, gets its next number and what is `said` of a pause, each lease `paused`; None ends it."""
    numbered = {"pause_no": control.pause_no + 1, **(said or {})}
    as_read = unmoved("pause_no", control.pause_no)
    key, over = invocation.row_key(keys.CONTROL), ("pause",) if said is None else ()
    steps = [update("CONTROL", invocation.table, key, set=numbered, remove=over, when=as_read)]
    over = ("paused",) if paused is None else ()
    for segment in keys.segments(invocation.settings.segment_count):
        if segment not in without:
            key, exists = invocation.row_key(keys.lease(segment)), Attr(PARTITION_KEY).exists()
            steps.append(update(keys.lease(segment), invocation.table, key, set=paused, remove=over, when=exists))
    return steps
