"""How far an interval has come, how fast it goes, and when it may be done. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.items import Row
from reconciler.leases import Lease
from reconciler.records import RUNNING, RunRecord

BEGINNINGS = ("STARTED", "RESUMED", "TAKEOVER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of one interval's present pass.

    `expected_accounts` is an estimate: those of the completed interval `estimated_from`. `rate_per_s` is that of the
    attempts at work now; `seconds_left` follows from both. None where there is nothing to tell it from.
    """

    accounts: int
    ranges: int
    segments_done: int
    segments: int
    expected_accounts: int | None = None
    estimated_from: str | None = None
    rate_per_s: float | None = None
    seconds_left: float | None = None


def progress_of(
    record: RunRecord,
    rows: Mapping[str, Row],
    leases: Mapping[str, Row],
    events: Sequence[Row],
    before: tuple[str, Row] | None,
    now_ms: int,
    skew_ms: int,
) -> Progress | None:
    """Progress of a run record; `rows` and `leases` by segment, `before` the last completed interval.

    None when it has not begun.
    """
    if not rows:
        return None
    accounts = sum(row.get("accounts", 0) for row in rows.values())
    rate = None
    if record.state == RUNNING:
        rate = _rate(record, rows, leases, events, now_ms, skew_ms)
    expected, expected_from = None, None
    if before is not None and record.state == RUNNING:
        expected_from, expected = before[0], before[1].get("accounts")
    left = None
    if rate and expected is not None:
        left = max(0, expected - accounts) / rate
    return Progress(
        accounts=accounts,
        ranges=sum(row.get("ranges", 0) for row in rows.values()),
        segments_done=len(record.segments),
        segments=record.segment_count,
        expected_accounts=expected,
        estimated_from=expected_from,
        rate_per_s=rate,
        seconds_left=left,
    )


def _rate(
    record: RunRecord,
    rows: Mapping[str, Row],
    leases: Mapping[str, Row],
    events: Sequence[Row],
    now_ms: int,
    skew_ms: int,
) -> float | None:
    """Accounts a second of all attempts at work now, each from its acquisition to its last commit."""
    rates = []
    for segment, row in leases.items():
        lease = Lease.of(row)
        if lease.interval_id != record.interval_id or not lease.held(now_ms, skew_ms) or segment not in rows:
            continue
        taken_ms, seen_ms = row.get("acquired_at_ms"), row.get("progress_at_ms")
        if taken_ms is None or seen_ms is None or seen_ms <= taken_ms:
            continue
        done = rows[segment].get("accounts", 0) - _before(segment, lease.generation, events)
        rates.append(done / (seen_ms - taken_ms) * 1000)
    return sum(rates) if rates else None


def _before(segment: str, generation: int, events: Sequence[Row]) -> int:
    """Accounts that the segment's pass had done when the attempt of that generation began."""
    for row in events:
        if row.get("event") in BEGINNINGS and (row.get("segment"), row.get("generation")) == (segment, generation):
            return int(row.get("accounts_before") or 0)
    return 0
