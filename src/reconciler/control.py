"""The CONTROL row: what is known of the job as a whole.

first_interval  the oldest interval this stack answers for
open_from       the oldest interval that may be unfinished; lets an idle tick read one row
segment_count   what the tables were filled with
pause           who, when, why; present while the job is paused. With an interval_id it is the revocation guard's
pause_no        counts pauses and resumes
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from boto3.dynamodb.conditions import Attr

from reconciler import clock, keys
from reconciler.errors import RowMissing, SegmentCountMismatch
from reconciler.intervals import Calendar, checked_id, next_id
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA, Row, attribute
from reconciler.observability import logger
from reconciler.records import CLOSED, RunRecord, unmoved
from reconciler.transactions import Step, check, create, send, update


@dataclass(frozen=True, slots=True)
class Control:
    """A CONTROL row as read."""

    first_interval: str
    open_from: str
    segment_count: int
    pause: Mapping[str, str] | None
    pause_no: int

    @classmethod
    def of(cls, row: Row) -> Control:
        return cls(
            first_interval=attribute(row, "first_interval", str, parse=checked_id),
            open_from=attribute(row, "open_from", str, parse=checked_id),
            segment_count=attribute(row, "segment_count", int, parse=keys.segments),
            pause=attribute(row, "pause", dict, optional=True),
            pause_no=attribute(row, "pause_no", int),
        )

    @property
    def paused(self) -> bool:
        return self.pause is not None

    def checked(self, invocation: Invocation) -> Control:
        """The row itself. Raises SegmentCountMismatch when the stack's parameter is not the tables' count."""
        configured = invocation.settings.segment_count
        if self.segment_count != configured:
            raise SegmentCountMismatch(
                f"SEGMENT_COUNT is {configured}, but the tables hold {self.segment_count} segments: set it back, "
                "or start with new tables"
            )
        return self

    @property
    def paused_by_guard(self) -> bool:
        """Whether it was the revocation guard that paused the job, not a person."""
        return self.pause is not None and "interval_id" in self.pause


def read(*, invocation: Invocation) -> Control | None:
    """The row as it stands; None before the first trigger."""
    row = invocation.control_row(keys.CONTROL)
    return None if row is None else Control.of(row)


def ensure(*, invocation: Invocation) -> Control:
    """Read the row; the first time, create it and every lease row in one transaction.

    Raises SegmentCountMismatch as `Control.checked`.
    """
    found = read(invocation=invocation)
    if found is None:
        _create(invocation)
        found = read(invocation=invocation)
        if found is None:
            raise RowMissing(
                "CONTROL is missing though a LEASE row exists: restore the table from point-in-time recovery"
            )
    return found.checked(invocation)


def first_interval(*, invocation: Invocation) -> str:
    """Where the calendar starts before CONTROL exists: the first scheduled time after the table was made."""
    table = invocation.read("describe_table", TableName=invocation.table)["Table"]
    created_ms = clock.parse_ms(table["CreationDateTime"].isoformat())
    return Calendar.of(invocation.settings).first_after(created_ms)


def within_window(control: Control, wanted: str, *, invocation: Invocation) -> bool:
    """Whether an interval lies before the first one, but inside the catch-up window: a trigger may add it."""
    oldest_ms = invocation.clock.now_ms() - invocation.settings.catch_up_ms
    return wanted < control.first_interval and Calendar.of(invocation.settings).scheduled_ms(wanted) >= oldest_ms


def lower(control: Control, wanted: str, *, invocation: Invocation) -> Control:
    """Make an interval inside the catch-up window the first one, when a trigger names one before it."""
    if wanted >= control.first_interval:
        return control
    if not within_window(control, wanted, invocation=invocation):
        logger.warning("night before the catch-up window ignored", interval=wanted, first=control.first_interval)
        return control
    changed = replace(control, first_interval=wanted, open_from=min(control.open_from, wanted))
    if _move(control, changed, (), invocation):
        return changed
    return lower(ensure(invocation=invocation), wanted, invocation=invocation)


def advance(control: Control, records: Iterable[RunRecord], *, invocation: Invocation) -> None:
    """Move `open_from` past the closed intervals at its head, one step at a time.

    Each step is checked against the interval it leaves behind, so an unfinished one is never passed.
    """
    by_id = {record.interval_id: record for record in records}
    while (head := by_id.get(control.open_from)) is not None and head.closed:
        key = invocation.row_key(keys.interval(head.interval_id))
        still_closed = check("INTERVAL", invocation.table, key, when=CLOSED)
        changed = replace(control, open_from=next_id(control.open_from))
        if not _move(control, changed, (still_closed,), invocation):
            return
        control = changed


def _move(control: Control, changed: Control, checks: tuple[Step, ...], invocation: Invocation) -> bool:
    """Compare and swap; False when another invocation was first.

    `moved_at` makes each move a request of its own: a repeat of an earlier one would be answered, not applied.
    """
    step = update(
        "CONTROL",
        invocation.table,
        invocation.row_key(keys.CONTROL),
        set={
            "first_interval": changed.first_interval,
            "open_from": changed.open_from,
            "moved_at": clock.text(invocation.clock.now_ms()),
        },
        when=unmoved("first_interval", control.first_interval) & Attr("open_from").eq(control.open_from),
    )
    answer = send([step, *checks], invocation=invocation)
    if answer.applied:
        return True
    if answer.refused("CONTROL") or answer.refused("INTERVAL"):
        return False
    raise answer.unread()


def _create(invocation: Invocation) -> None:
    first = first_interval(invocation=invocation)
    control: Row = {"first_interval": first, "open_from": first, "pause_no": 0}
    control["segment_count"] = invocation.settings.segment_count
    rows = {keys.CONTROL: control} | {
        keys.lease(segment): {"generation": 0, "token": str(uuid.uuid4())}
        for segment in keys.segments(invocation.settings.segment_count)
    }
    steps = [
        create(
            "CONTROL" if sort_key == keys.CONTROL else "LEASE",
            invocation.table,
            invocation.row_key(sort_key) | {"schema": SCHEMA} | row,
        )
        for sort_key, row in rows.items()
    ]
    answer = send(steps, invocation=invocation)
    if not answer.applied and not answer.refused("CONTROL") and not answer.refused("LEASE"):
        raise answer.unread()
