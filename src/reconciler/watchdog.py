"""Lateness, computed from the calendar and the run records by a function that does nothing else.

It reads only. An interval that never triggered, a job that never ran and a missing CONTROL row all turn late, because
what is due comes from the calendar. Acknowledged intervals are left out: a person has seen them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler import clock, control, keys
from reconciler.intervals import Calendar
from reconciler.invocation import Invocation
from reconciler.items import attribute
from reconciler.records import EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED, RunRecord, read_until


@dataclass(frozen=True, slots=True)
class Seen:
    """What the watchdog knows of one due interval; times in epoch milliseconds."""

    state: str
    scheduled_ms: int
    deadline_ms: int
    progress_ms: int | None = None


def look(*, invocation: Invocation) -> dict[str, float]:
    """Read what is due and answer the metrics of `measure`."""
    calendar = Calendar.of(invocation.settings)
    now_ms = invocation.clock.now_ms()
    row = control.read(invocation=invocation)
    open_from = row.open_from if row else control.first_interval(invocation=invocation)
    due = calendar.due(open_from, now_ms)
    records = {record.interval_id: record for record in read_until(open_from, now_ms, invocation=invocation)}
    seen: list[Seen] = []
    for interval_id in sorted({*due, *records}):
        record = records.get(interval_id)
        if record is None:
            seen.append(Seen(EXPECTED, calendar.scheduled_ms(interval_id), calendar.deadline_ms(interval_id)))
        elif not record.acknowledged:
            progress_ms = _last_progress(record, invocation) if record.state == RUNNING else None
            scheduled_ms, deadline_ms = clock.parse_ms(record.scheduled_at), clock.parse_ms(record.deadline_at)
            seen.append(Seen(record.state, scheduled_ms, deadline_ms, progress_ms))
    return measure(seen, now_ms)


def measure(seen: Sequence[Seen], now_ms: int) -> dict[str, float]:
    """All of the watchdog's metrics, zero where there is nothing to report; pure.

    SecondsPastDeadline and OldestUnfinishedAge are of the worst EXPECTED, RUNNING or NEEDS_REPAIR interval;
    SecondsSinceProgress is of the RUNNING interval that has waited longest for a checkpoint.
    """
    unfinished = [one for one in seen if one.state in (EXPECTED, RUNNING, NEEDS_REPAIR)]
    since = [one.progress_ms for one in seen if one.progress_ms is not None]
    return {
        "SecondsPastDeadline": _age([one.deadline_ms for one in unfinished], now_ms),
        "OldestUnfinishedAge": _age([one.scheduled_ms for one in unfinished], now_ms),
        "UnfinishedIntervals": len(unfinished),
        "SkippedIntervals": sum(one.state == SKIPPED for one in seen),
        "IntervalsNeedingRepair": sum(one.state == NEEDS_REPAIR for one in seen),
        "SecondsSinceProgress": _age(since, now_ms),
    }


def _age(moments_ms: Sequence[int], now_ms: int) -> float:
    return max(0.0, (now_ms - min(moments_ms)) / 1000) if moments_ms else 0.0


def _last_progress(record: RunRecord, invocation: Invocation) -> int:
    """The newest checkpoint of the interval's pass, or when it was started, or rerun, if that is later."""
    prefix = {":prefix": keys.progress_prefix(record.interval_id, record.pass_no)}
    rows = invocation.control_rows("begins_with(#sk, :prefix)", prefix)
    found = [attribute(row, "checkpoint_at", str, parse=clock.parse_ms, optional=True) for row in rows]
    times = [time for time in found if time is not None]
    began = [record.rerun_at or record.first_started_at or record.scheduled_at]
    return clock.parse_ms(max(times + began))
