"""Times and numbers as an operator reads them. All moments are UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler import clock

COUNTS = ("accounts", "granted", "changed", "revoked", "rejected", "ranges")


def span(seconds: float) -> str:
    """A duration in at most two units: `42 s`, `12 min`, `3 h 20 min`, `9 d 4 h`."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 100 * 60:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def day_time(moment: str, day: str = "") -> str:
    """Stored UTC text as `02:00:05` on that day, else as `11-30 02:00`."""
    return moment[11:19] if moment[:10] == day else f"{moment[5:10]} {moment[11:16]}"


def full(moment: str) -> str:
    """Stored UTC text as `2026-11-29 02:00:05`."""
    return f"{moment[:10]} {moment[11:19]}"


def text_of_ms(ms: int | None) -> str | None:
    """Stored milliseconds as UTC text; None stays None."""
    return None if ms is None else clock.text(ms)


def between(earlier: str | None, later: str | None) -> float | None:
    """Seconds from one stored time to another, None when one is absent."""
    if earlier is None or later is None:
        return None
    return (clock.parse_ms(later) - clock.parse_ms(earlier)) / 1000


def number(value: int) -> str:
    """`12,345`."""
    return f"{value:,}"


def counted(value: int, thing: str) -> str:
    """`1 row`, `12,345 rows`."""
    return f"{value:,} {thing}{'' if value == 1 else 's'}"


def cause(recorded: str) -> str:
    """Why a night waits: the recorded cause, in words where its name alone does not tell."""
    return {"source": "the source asked for a pause"}.get(recorded, recorded)


def paused_by(pause: Mapping[str, str]) -> str:
    """Who paused the job, from CONTROL's `pause`."""
    if "interval_id" in pause:
        return f"by the revocation guard of {pause['interval_id']}"
    return f"by {pause.get('who', '?')}"


def counts(totals: Mapping[str, Any]) -> str:
    """`40 accounts, 3 granted, 2 changed, 1 revoked, 0 rejected, 2 ranges`."""
    return ", ".join(f"{totals[name]:,} {name}" for name in COUNTS if name in totals)
