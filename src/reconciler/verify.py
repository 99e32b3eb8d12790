"""Verify: is the view still as a completed run left it, and if not, who came after it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler import clock, control, keys
from reconciler.checksum import digest, hex_text
from reconciler.commands import Command
from reconciler.errors import VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import attribute
from reconciler.records import COMPLETED, RunRecord
from reconciler.scan import every_row
from reconciler.shown import Shown
from reconciler.verbs import Deed, recorded
from reconciler.view import ViewRow

if TYPE_CHECKING:
    from reconciler.work import Job

ANOTHER_WRITER = "another writer"


def verify(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Reads the whole view. Raises VerbRefused unless the interval is COMPLETED, OutOfTime for too large a view."""
    stored = recorded(command, control.read(invocation=invocation), invocation)
    record = RunRecord.of(stored)
    if record.state != COMPLETED:
        raise VerbRefused(f"Verify: {record.interval_id} is {record.state}: there is no checksum until it is COMPLETED")
    rows = total = touched = 0
    first = Shown()
    for segment in keys.segments(record.segment_count):
        for view_row in every_row(job.view, segment, invocation=invocation):
            rows += 1
            total += digest(view_row.account_id, view_row.content)
            if by := touched_by(view_row, record):
                touched += 1
                first.add({"account_id": view_row.account_id, "by": by, "updated_at": view_row.stamp.written_at})
    checksum = attribute(stored, "checksum", str)
    result = {
        "interval": record.interval_id,
        "run_id": record.run_id,
        "matches": checksum == hex_text(total),
        "checksum": checksum,
        "view_checksum": hex_text(total),
        "view_rows": attribute(stored, "view_rows", int),
        "view_rows_now": rows,
        "touched": touched,
    }
    return Deed("VERIFIED", result | {"first": first.rows}, noted=result, run_id=record.run_id)


def touched_by(row: ViewRow, record: RunRecord) -> str | None:
    """Who wrote a row after the run did, or since the run's pass began: a run id, or "another writer"; pure.

    Whoever changed a row before the run read it, but after its pass began, is named too. A row that tells neither
    version nor time cannot accuse anybody: None.
    """
    stamp = row.stamp
    by_a_run = isinstance(stamp.run_id, str) and stamp.run_version in (None, row.version)
    if stamp.run_id == record.run_id:
        return None if by_a_run else ANOTHER_WRITER
    by = str(stamp.run_id) if by_a_run else ANOTHER_WRITER
    began_at = record.pass_began_at or record.first_started_at
    if stamp.written_at is None or began_at is None:
        return by if stamp.run_version not in (None, row.version) else None
    return by if clock.parse_ms(stamp.written_at) > clock.parse_ms(began_at) else None
