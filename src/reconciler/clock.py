"""The only place that reads a clock; everything else is handed one.

Wall time is integer epoch milliseconds (`_ms`) or fixed-width UTC text. Monotonic seconds measure
durations inside one process and are never stored or compared with stored times.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Wall time in epoch milliseconds; may step in either direction."""

    def monotonic(self) -> float:
        """Seconds that only grow; the zero has no meaning."""

    def sleep(self, seconds: float) -> None:
        """Wait that long."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def text(ms: int) -> str:
    """Epoch milliseconds as `2026-11-29T02:00:00.000Z`: sorts as it reads."""
    seconds, millis = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def parse_ms(value: str) -> int:
    """ISO 8601 text with a zone, to epoch milliseconds.

    Raises ValueError for anything else, and for a time without a zone.
    """
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
