"""Who held which lease when, made out of audit rows. Pure.

A holder that was killed or froze wrote no ending. That it is gone is known from who came after it: a takeover, a person
who released its lease, a rerun. Between its last sign of life and that moment nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler import clock
from reconciler.items import Row

BEGINNINGS = ("STARTED", "RESUMED", "TAKEOVER")
ENDINGS = ("COMPLETED", "YIELDED", "FAILED", "NEEDS_REPAIR")
LOST, SILENT, RUNNING = "LOST", "SILENT", "RUNNING"
"""Ends that no row tells: replaced without a word · its lease expired, nobody has it yet · its lease stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One holder's time with the lease of a segment; times in epoch milliseconds, None where nothing is known.

    `began` is one of BEGINNINGS, `took_from` the generation that a takeover replaced. `ended` is one of ENDINGS, LOST,
    SILENT or RUNNING, `end_ms` when the lease was given back or taken away, `seen_ms` the holder's last sign of life.
    `ranges` and `accounts` are what this attempt committed.
    """

    segment: str
    generation: int
    owner: str
    pass_no: int | None
    began: str
    took_from: int | None
    begin_ms: int
    ended: str
    end_ms: int | None
    seen_ms: int | None
    ranges: int | None
    accounts: int | None
    reason: str = ""

    @property
    def open(self) -> bool:
        """Whether the lease is still its holder's, expired or not."""
        return self.ended in (RUNNING, SILENT)

    def until_ms(self, now_ms: int) -> int:
        """The latest moment that belongs to the attempt."""
        if self.open:
            return max(self.begin_ms, now_ms)
        return max(self.begin_ms, self.seen_ms or 0, self.end_ms or 0)


def begins(row: Row) -> bool:
    """Whether an audit row begins an attempt; a person who resumes a job writes RESUMED too, without a segment."""
    return row["event"] in BEGINNINGS and "segment" in row


def attempts(
    events: Sequence[Row],
    *,
    others: Sequence[Row],
    progress: Mapping[tuple[int, str], Row],
    leases: Mapping[str, Row],
    now_ms: int,
) -> tuple[Attempt, ...]:
    """An interval's attempts in the order of their beginnings.

    `events` are its audit rows in order of time, `others` those of the job and of other intervals, which may tell who
    took a lease from here; `progress` its PROGRESS rows by pass and segment, `leases` LEASE rows by segment, which were
    read before the audit rows.
    """
    begun = [row for row in events if begins(row)]
    found = []
    for row in begun:
        stored = progress.get((pass_of(row) or 0, row["segment"]), {})
        found.append(_attempt(row, begun, [*events, *others], stored, leases.get(row["segment"], {}), now_ms))
    return tuple(found)


def _attempt(row: Row, begun: Sequence[Row], known: Sequence[Row], stored: Row, lease: Row, now_ms: int) -> Attempt:
    ending: Row = next((one for one in known if one["event"] in ENDINGS and _same_holder(one, row)), {})
    end_ms: int | None
    seen_ms: int | None
    following = next((one for one in begun if _same_run(one, row) and _generation(one) > _generation(row)), None)
    ranges, accounts = _done(row, ending, following, stored)
    if ending:
        ended, end_ms, seen_ms = ending["event"], at(ending), at(ending)
    else:
        ended, end_ms, seen_ms = _unseen(row, known, lease, now_ms)
        if seen_ms is None and stored.get("checkpoint_generation") == _generation(row):
            seen_ms = moment(stored.get("checkpoint_at"))
    return Attempt(
        segment=row["segment"],
        generation=_generation(row),
        owner=row.get("actor", ""),
        pass_no=pass_of(row),
        began=row["event"],
        took_from=row.get("loser_generation"),
        begin_ms=at(row),
        ended=ended,
        end_ms=None if end_ms is None else max(at(row), end_ms),
        seen_ms=None if seen_ms is None else max(at(row), seen_ms),
        ranges=ending.get("ranges", ranges),
        accounts=accounts,
        reason=ending.get("reason", ""),
    )


def _done(row: Row, ending: Row, following: Row | None, stored: Row) -> tuple[int | None, int | None]:
    """Ranges and accounts of one attempt: what its pass of the segment had at its end, less what it had before."""
    counted: list[int | None] = []
    for name in ("ranges", "accounts"):
        after: int | None
        before: int | None = row.get(f"{name}_before", 0 if "checkpoint" not in row else None)
        if "totals" in ending:
            after = ending["totals"].get(name)
        elif following is not None:
            after = following.get(f"{name}_before")
        else:
            after = stored.get(name, 0)
        counted.append(None if before is None or after is None else max(0, after - before))
    return counted[0], counted[1]


def _unseen(row: Row, known: Sequence[Row], lease: Row, now_ms: int) -> tuple[str, int | None, int | None]:
    """How an attempt without an ending ended, when its lease was taken away, and its last sign of life."""
    fences = [one for one in known if _fences(one, row)]
    if fences:
        told = [one for fence in fences for one in (fence, *_fenced(fence, row)) if _loser(one) == _generation(row)]
        return LOST, min(map(at, fences)), next((moment(one.get("loser_seen_at")) for one in told), None)
    if lease.get("generation") == _generation(row) and "owner" in lease:
        seen_ms = lease.get("progress_at_ms", lease.get("acquired_at_ms"))
        return (RUNNING if lease.get("expires_at_ms", 0) >= now_ms else SILENT), None, seen_ms
    if lease.get("generation", _generation(row)) < _generation(row):  # it began after the lease was read
        return RUNNING, None, at(row)
    taken = lease.get("previous_generation") == _generation(row)
    return LOST, lease.get("acquired_at_ms") if taken else None, None


def _fences(event: Row, row: Row) -> bool:
    """Whether an event took the lease from the holder of an attempt. A rerun takes the lease of every segment."""
    if event["event"] == "RERUN":
        return any(_generation(one) > _generation(row) for one in _fenced(event, row))
    if event.get("segment") != row["segment"]:
        return False
    released = event["event"] == "RELEASED" and _loser(event) == _generation(row)
    return released or (begins(event) and _generation(event) > _generation(row))


def _fenced(rerun: Row, row: Row) -> list[Row]:
    """What a rerun tells of the segment's lease: the generation it gave it, and whose it was."""
    return [one for one in rerun.get("fenced", ()) if one.get("segment") == row["segment"]]


def _same_holder(one: Row, other: Row) -> bool:
    return one.get("segment") == other["segment"] and _generation(one) == _generation(other)


def _same_run(one: Row, other: Row) -> bool:
    return one["segment"] == other["segment"] and pass_of(one) == pass_of(other)


def _generation(row: Row) -> int:
    return int(row.get("generation", 0))


def _loser(row: Row) -> int | None:
    found: int | None = row.get("loser_generation")
    return found


def pass_of(row: Row) -> int | None:
    """The pass that a row's run id names."""
    last = str(row.get("run_id", "")).rpartition("/")[2]
    return int(last) if last.isdecimal() else None


def at(row: Row) -> int:
    """When an audit row was written, in epoch milliseconds."""
    return clock.parse_ms(row["at"])


def moment(text: str | None) -> int | None:
    """Stored UTC text in epoch milliseconds; None stays None."""
    return None if text is None else clock.parse_ms(text)
