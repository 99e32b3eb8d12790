"""What happened to one interval, made out of its rows: the attempts, and everything else that was noted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.items import Row
from reconciler.records import COMPLETED, SKIPPED
from tools.ctl.format import cause
from tools.timeline.attempts import BEGINNINGS, ENDINGS, Attempt, at, attempts, begins, moment

COUNTS = ("accounts", "ranges", "granted", "changed", "revoked", "rejected")
TRANSACTION_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at one moment: an audit event, by whom, and what there is to say about it."""

    at_ms: int
    event: str
    who: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One interval; times in epoch milliseconds. `counts` (COUNTS) are those of its latest pass, as far as it came."""

    interval_id: str
    state: str
    run_id: str
    pass_no: int
    scheduled_ms: int
    deadline_ms: int
    completed_ms: int | None
    late_by_s: int | None
    counts: Mapping[str, int]
    attempts: tuple[Attempt, ...]
    marks: tuple[Mark, ...]

    @property
    def segments(self) -> list[str]:
        """Those that were worked on."""
        return sorted({attempt.segment for attempt in self.attempts})

    def noted(self, marks: Iterable[Mark]) -> History:
        """The same with further marks."""
        return replace(self, marks=tuple(sorted([*self.marks, *marks], key=lambda mark: mark.at_ms)))


def history(
    interval: Row,
    events: Sequence[Row],
    *,
    others: Sequence[Row] = (),
    progress: Sequence[Row] = (),
    leases: Mapping[str, Row] | None = None,
    now_ms: int,
) -> History:
    """Put together an INTERVAL row, its AUDIT rows, its PROGRESS rows of all passes and the LEASE rows by segment.

    `others` are AUDIT rows of the job and of other intervals: they tell of pauses, and who took a lease from here.
    """
    own, others = in_order(events), in_order(others)
    by_run = {(int(pass_no), segment): row for row in progress for pass_no, segment in [_ends_of_key(row)]}
    scheduled_ms, completed_ms = moment(interval["scheduled_at"]), moment(interval.get("completed_at"))
    deadline_ms, pass_no = moment(interval["deadline_at"]), interval.get("pass", 1)
    assert scheduled_ms is not None
    assert deadline_ms is not None
    ends = [*map(at, own), *([now_ms] if unfinished(interval) else [])]
    meanwhile = [row for row in others if scheduled_ms <= at(row) <= max(ends, default=scheduled_ms)]
    return History(
        interval_id=str(interval["sk"]).removeprefix("INTERVAL#"),
        state=interval["state"],
        run_id=interval.get("run_id", ""),
        pass_no=pass_no,
        scheduled_ms=scheduled_ms,
        deadline_ms=deadline_ms,
        completed_ms=completed_ms,
        late_by_s=interval.get("late_by_s"),
        counts={name: sum(row.get(name, 0) for key, row in by_run.items() if key[0] == pass_no) for name in COUNTS},
        attempts=attempts(own, others=others, progress=by_run, leases=leases or {}, now_ms=now_ms),
        marks=_marks(interval, own, meanwhile),
    )


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Audit rows by time. One without a time or an event tells nothing that can be placed, and is left out."""
    return sorted((row for row in rows if "at" in row and "event" in row), key=lambda row: str(row["at"]))


def _marks(interval: Row, own: Sequence[Row], meanwhile: Sequence[Row]) -> tuple[Mark, ...]:
    """Every event that is no attempt's, and what only an INTERVAL row tells: the skip or acknowledgement of a span."""
    marks = [_mark(row) for row in own if not _of_attempts(row) or row.get("interval_closed")]
    marks += [_mark(row) for row in meanwhile if of_job(row)]
    for record in (interval, *(row["before"] for row in own if "before" in row)):
        skip: Row = record.get("skip", {})
        acknowledged = {"at": record.get("acknowledged_at"), "actor": record.get("acknowledged_by", "")}
        for event, facts in (("SKIPPED", skip), ("ACKNOWLEDGED", acknowledged)):
            at_ms = moment(facts.get("at"))
            if at_ms is not None and not any(_same(mark, event, at_ms) for mark in marks):
                marks.append(_mark({**facts, "event": event}))
    return tuple(sorted(marks, key=lambda mark: mark.at_ms))


def of_job(row: Row) -> bool:
    """Whether an event concerns every interval of its time: a pause, its end, or a lost lease row put back.

    A lease that was taken from a holder is told by the holder's own interval.
    """
    if row["event"] == "RELEASED":
        return bool(row.get("restored"))
    return row["event"] in ("PAUSED", "RESUMED") and not begins(row)


def unfinished(interval: Row) -> bool:
    """Whether an INTERVAL row's time still goes on."""
    return interval["state"] not in (COMPLETED, SKIPPED) and "acknowledged_at" not in interval


def _same(mark: Mark, event: str, at_ms: int) -> bool:
    """Whether a mark tells of the event: two rows of one transaction may have times a little apart."""
    return mark.event == event and abs(mark.at_ms - at_ms) < TRANSACTION_MS


def _of_attempts(row: Row) -> bool:
    """Whether the attempts tell of a row already, or nothing happened at its moment."""
    return row["event"] in (*BEGINNINGS, *ENDINGS, "REJECTED", "PREVIEWED")


def _mark(row: Row) -> Mark:
    facts = []
    if "cause" in row:
        until = f" until {row['held_until'][11:19]}" if "held_until" in row else ""
        facts.append(cause(str(row["cause"])).replace("_", " ") + until)
    if "from" in row:
        facts.append(f"from the {row['from']}, pass {row.get('pass', '?')}")
    if row.get("loser"):
        facts.append(f"lease of {row['loser']}")
    if row.get("restored"):
        facts.append(f"restored the lost lease of segment {row.get('segment')}")
    if "matches" in row:
        facts.append("matches" if row["matches"] else "does not match")
    if "superseded_by" in row:
        facts.append(f"superseded by {row['superseded_by']}")
    if row.get("reason"):
        facts.append(str(row["reason"]))
    return Mark(at_ms=at(row), event=row["event"], who=row.get("actor", ""), what=", ".join(facts))


def _ends_of_key(row: Row) -> tuple[str, str]:
    _, _, pass_no, segment = str(row["sk"]).split("#")
    return pass_no, segment
