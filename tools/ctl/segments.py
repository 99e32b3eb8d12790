"""The leases as an operator sees them: who holds which segment until when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler import keys
from reconciler.items import Row
from reconciler.leases import Lease
from tools.ctl.format import text_of_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A lease. `lost` says that its row is gone; `holder` is None while nobody holds it, however long ago."""

    segment: str
    lost: bool = False
    generation: int | None = None
    holder: str | None = None
    interval: str | None = None
    acquired_at: str | None = None
    expires_at: str | None = None
    expired: bool = False
    paused: bool = False


def segments(count: int, leases: Mapping[str, Row], now_ms: int, skew_ms: int) -> tuple[Segment, ...]:
    """Every segment of the job, in order."""
    return tuple(_segment(name, leases.get(name), now_ms, skew_ms) for name in keys.segments(count))


def _segment(name: str, row: Row | None, now_ms: int, skew_ms: int) -> Segment:
    if row is None:
        return Segment(segment=name, lost=True)
    lease = Lease.of(row)
    return Segment(
        segment=name,
        generation=lease.generation,
        holder=lease.owner,
        interval=lease.interval_id if lease.owner else None,
        acquired_at=text_of_ms(row.get("acquired_at_ms")) if lease.owner else None,
        expires_at=text_of_ms(lease.expires_at_ms),
        expired=lease.owner is not None and not lease.held(now_ms, skew_ms),
        paused=lease.paused is not None,
    )
