"""What happened to one interval, in order of time: who did what, when, why, in which pass and generation.

An interval's own AUDIT rows, the row of the span that skipped it with others, the commands that acknowledged it with
others, and what was done to the job meanwhile (a pause, a resume), since that explains what the interval did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler import clock, keys
from reconciler.intervals import checked_id
from reconciler.invocation import Invocation
from reconciler.items import Row
from tools.ctl.errors import CtlError
from tools.ctl.rows import events, in_order
from tools.timeline.history import of_job, unfinished

INTERNAL = ("pk", "sk", "schema", "expires_at")


@dataclass(frozen=True, slots=True)
class Story:
    """`events` are AUDIT rows in order of time, rejections included; `record` the INTERVAL row, None when absent."""

    interval: str
    record: Row | None
    events: Sequence[Row]

    def as_json(self) -> dict[str, Any]:
        """Rows without their keys; `about` tells the job's and the spans' rows from the interval's own."""
        record = None if self.record is None else _plain(self.record)
        told = [_plain(row) | {"about": subject(row)} for row in self.events]
        return {"interval": self.interval, "record": record, "events": told}


def checked(interval_id: str) -> str:
    """The id itself. Raises CtlError for anything but a date."""
    try:
        return checked_id(interval_id)
    except ValueError:
        raise CtlError(f"{interval_id!r} is no interval: give the date of its night, as in 2026-11-29") from None


def collect(interval_id: str, *, invocation: Invocation) -> Story:
    """Raises CtlError when nothing is on record of it."""
    record = invocation.control_row(keys.interval(checked(interval_id)))
    own = events(interval_id, invocation)
    if record is None and not own:
        raise CtlError(f"{interval_id} is not on record for {invocation.settings.job_name}: status lists what is")
    rows = [*own, *_spans(record, own, invocation)]
    job = events(invocation.settings.job_name, invocation)
    rows += [row for row in job if _concerns(row, rows, record, invocation.clock.now_ms())]
    return Story(interval_id, record, in_order(rows))


def _spans(record: Row | None, own: Sequence[Row], invocation: Invocation) -> list[Row]:
    """The rows of spans skipped or acknowledged together with this night, where another night of the span has them."""
    before = [row["before"] for row in own if isinstance(row.get("before"), dict)]
    found = []
    known = {row["sk"] for row in own}
    for holder in [*before, *([record] if record else [])]:
        for sort_key in ((holder.get("skip") or {}).get("audit"), holder.get("acknowledged_in")):
            if sort_key and sort_key not in known:
                known.add(sort_key)
                row = invocation.control_row(sort_key)
                found += [row] if row else []
    return found


def _concerns(row: Row, own: Sequence[Row], record: Row | None, now_ms: int) -> bool:
    """Whether a job's event belongs to the interval's story: it happened in the interval's own time.

    That ends with its last event, or goes on while it is unfinished. A lease taken from a holder is the holder's story.
    """
    if "event" not in row or "at" not in row or not of_job(row):
        return False
    times = [str(one["at"]) for one in own if "at" in one]
    begin = str((record or {}).get("scheduled_at", min(times, default="")))
    if record is not None and unfinished(record):
        times.append(clock.text(now_ms))
    return begin <= str(row["at"]) <= max(times, default="")


def _plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in INTERNAL}


def subject(row: Row) -> str:
    """The interval or the job that an AUDIT row is kept under."""
    return str(row.get("sk", "")).split("#")[1]
