"""The calendar: which intervals exist, when each is due. Pure; intervals come from here, never from triggers.

An interval's id is the UTC date of its scheduled time. UTC has no repeated and no missing hour, so there is
exactly one interval per date.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from reconciler import clock
from reconciler.settings import Settings


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
        last = previous_id(self.first_after(until_ms))
        days = (date.fromisoformat(last) - date.fromisoformat(open_from)).days
        return [shifted(open_from, offset) for offset in range(days + 1)]


def checked_id(value: str) -> str:
    """The id itself. Raises ValueError unless it is a date written as 2026-11-29, the only way that sorts."""
    if date.fromisoformat(value).isoformat() != value:
        raise ValueError("must be written as 2026-11-29")
    return value


def shifted(interval_id: str, days: int) -> str:
    return (date.fromisoformat(interval_id) + timedelta(days=days)).isoformat()


def next_id(interval_id: str) -> str:
    return shifted(interval_id, 1)


def previous_id(interval_id: str) -> str:
    return shifted(interval_id, -1)
