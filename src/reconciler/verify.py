"""Verify: is the view still as a completed run left it, and if not, who came after it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler import clock, control, keys
from reconciler.checksum import digest, hex_text
from reconciler.commands import Command
from reconciler.errors import VerbRefused
from reconciler.invocation import Invocation
from reconciler.items import Row, attribute
from reconciler.records import COMPLETED, RunRecord
from reconciler.timing import check_invocation
from reconciler.verbs import Deed, recorded
from reconciler.view import ViewRow

if TYPE_CHECKING:
    from reconciler.work import Job

SHOWN = 100
ANOTHER_WRITER = "another writer"


def verify(command: Command, job: Job, invocation: Invocation) -> Deed:
    """Reads the whole view. Raises VerbRefused unless the interval is COMPLETED, OutOfTime for too large a view."""
    stored = recorded(command, control.read(invocation=invocation), invocation)
    record = RunRecord.of(stored)
    if record.state != COMPLETED:
        raise VerbRefused(f"Verify: {record.interval_id} is {record.state}: there is no checksum until it is COMPLETED")
    rows = total = touched = 0
    first: list[Row] = []
    for view_row in _view(record.segment_count, job, invocation):
        rows += 1
        total += digest(view_row.account_id, view_row.entitlements)
        if by := touched_by(view_row, record):
            touched += 1
            if len(first) < SHOWN:
                at = view_row.stamp.updated_at
                first.append({"account_id": view_row.account_id, "by": by, "updated_at": at if at else None})
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
    return Deed("VERIFIED", result | {"first": first}, noted=result, run_id=record.run_id)


def touched_by(row: ViewRow, record: RunRecord) -> str | None:
    """Who wrote a row after the run did, or since the run's pass began: a run id, or "another writer"; pure.

    A row that tells neither version nor time cannot accuse anybody: None.
    """
    stamp = row.stamp
    as_the_run_left_it = stamp.run_version is not None and stamp.run_version == row.version
    if stamp.run_id == record.run_id:
        return None if as_the_run_left_it else ANOTHER_WRITER
    began_at = record.pass_began_at or record.first_started_at
    if began_at is None or not isinstance(stamp.updated_at, str) or not _after(stamp.updated_at, began_at):
        return None
    return str(stamp.run_id) if as_the_run_left_it else ANOTHER_WRITER


def _after(updated_at: str, began_at: str) -> bool:
    try:
        return clock.parse_ms(updated_at) > clock.parse_ms(began_at)
    except ValueError:
        return False


def _view(segment_count: int, job: Job, invocation: Invocation) -> Iterator[ViewRow]:
    for segment in keys.segments(segment_count):
        after = None
        while True:
            check_invocation(invocation)
            page = job.view.read(segment, after=after, upto=None, limit=invocation.settings.page_size)
            yield from page.checked(after, None).rows
            if page.more_after is None:
                break
            after = page.more_after
