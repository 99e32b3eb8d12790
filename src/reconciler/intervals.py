"""The calendar and the catch-up plan: which intervals exist, which run, which are skipped. Pure.

Intervals come from here, never from triggers. An interval's id is the UTC date of its scheduled time. UTC has no
repeated and no missing hour, so there is exactly one interval per date.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from reconciler import clock
from reconciler.records import EXPECTED, RUNNING, SKIPPED, RunRecord
from reconciler.settings import LATEST, Settings

if TYPE_CHECKING:
    from reconciler.control import Control


@dataclass(frozen=True, slots=True)
class Calendar:
    """A daily schedule in UTC with a reporting deadline; all times in epoch milliseconds."""

    hour: int
    minute: int
    deadline_minutes: int

    @classmethod
    def of(cls, settings: Settings) -> Calendar:
        return cls(settings.schedule_hour, settings.schedule_minute, settings.deadline_minutes)

    def scheduled_ms(self, interval_id: str) -> int:
        """When the interval is due to start."""
        day = date.fromisoformat(interval_id)
        return clock.parse_ms(datetime(day.year, day.month, day.day, self.hour, self.minute, tzinfo=UTC).isoformat())

    def deadline_ms(self, interval_id: str) -> int:
        """From when on the interval counts as late."""
        return self.scheduled_ms(interval_id) + self.deadline_minutes * 60_000

    def first_after(self, moment_ms: int) -> str:
        """The first interval scheduled strictly after a moment."""
        today = clock.text(moment_ms)[:10]
        return today if self.scheduled_ms(today) > moment_ms else next_id(today)

    def due(self, open_from: str, until_ms: int) -> list[str]:
        """Every interval from `open_from` on that is scheduled at or before `until_ms`, oldest first."""
        return span(open_from, self.first_after(until_ms))


def overtaken(interval_id: str, now_ms: int, settings: Settings) -> bool:
    """Whether a newer interval is due already."""
    return next_id(interval_id) < Calendar.of(settings).first_after(now_ms)


EXPIRED = "never started, and older than the catch-up window"
SUPERSEDED = "never started, and superseded by a newer interval"


@dataclass(frozen=True, slots=True)
class Skip:
    """An interval that is not to run although it is due, and why."""

    interval_id: str
    reason: str
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Where every due interval belongs, oldest first; each is in exactly one place.

    `run` holds what may run now or later, `skip` what is to be recorded as SKIPPED, `waiting` what only a person can
    move (NEEDS_REPAIR and SKIPPED), `closed` what is COMPLETED or acknowledged. `unrecorded` are those of `run` and
    `skip` that have no run record yet.
    """

    run: tuple[str, ...]
    skip: tuple[Skip, ...]
    waiting: tuple[str, ...]
    closed: tuple[str, ...]
    unrecorded: frozenset[str]


def catch_up(now_ms: int, settings: Settings, records: Iterable[RunRecord], control: Control) -> Plan:
    """Divide every interval that is due at a moment, or recorded; `records` are those from `control.open_from` on.

    A started interval never expires. One that never started is skipped when it is strictly older than the window, and
    with the policy `latest` when a newer one is due that was not skipped itself.
    """
    calendar = Calendar.of(settings)
    known = {record.interval_id: record for record in records}
    due = sorted({*calendar.due(max(control.first_interval, control.open_from), now_ms), *known})
    in_force = [interval_id for interval_id in due if interval_id not in known or known[interval_id].state != SKIPPED]
    oldest_ms = now_ms - settings.catch_up_ms
    run, skip, waiting, closed = [], [], [], []
    for interval_id in due:
        record = known.get(interval_id)
        scheduled_ms = clock.parse_ms(record.scheduled_at) if record else calendar.scheduled_ms(interval_id)
        if record and record.closed:
            closed.append(interval_id)
        elif record and record.state == RUNNING:
            run.append(interval_id)
        elif record and record.state != EXPECTED:
            waiting.append(interval_id)
        elif scheduled_ms < oldest_ms:
            skip.append(Skip(interval_id, EXPIRED))
        elif settings.catch_up_policy == LATEST and interval_id < in_force[-1]:
            skip.append(Skip(interval_id, SUPERSEDED, in_force[-1]))
        else:
            run.append(interval_id)
    unrecorded = frozenset(due) - frozenset(known)
    return Plan(tuple(run), tuple(skip), tuple(waiting), tuple(closed), unrecorded)


def checked_id(value: str) -> str:
    """The id itself. Raises ValueError unless it is a date written as 2026-11-29, the only way that sorts."""
    if date.fromisoformat(value).isoformat() != value:
        raise ValueError("must be written as 2026-11-29")
    return value


def days_between(first: str, last: str) -> int:
    return (date.fromisoformat(last) - date.fromisoformat(first)).days


def span(first: str, end: str) -> list[str]:
    """Every id from `first` on and before `end`."""
    return [shifted(first, offset) for offset in range(days_between(first, end))]


def shifted(interval_id: str, days: int) -> str:
    return (date.fromisoformat(interval_id) + timedelta(days=days)).isoformat()


def next_id(interval_id: str) -> str:
    return shifted(interval_id, 1)
