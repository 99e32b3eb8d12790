"""What is known of the job now, as values: the intervals that may be unfinished, the last closed ones, the leases.

Nothing is written. Moments are stored UTC text, durations seconds; what is not known is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reconciler import clock
from reconciler.control import Control
from reconciler.intervals import Calendar
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.leases import Lease
from reconciler.records import COMPLETED, EXPECTED, RUNNING, SKIPPED, RunRecord
from tools.ctl.format import between, text_of_ms
from tools.ctl.progress import Progress, progress_of
from tools.ctl.rows import RUNS, control_or_new, events, interval_rows, last_completed, lease_rows, progress_rows
from tools.ctl.segments import Segment, segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A segment's attempts since its last commit, and when the next one may begin.

    `for_source` tells that the source asked for a pause until then; this is no attempt.
    """

    segment: str
    attempts: int
    next_attempt_at: str | None
    for_source: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One interval. `recorded` is False for one that is due by the calendar, but that no trigger has seen yet."""

    interval: str
    state: str
    scheduled_at: str
    deadline_at: str
    late_by_s: float = 0
    recorded: bool = True
    closed: bool = False
    run_id: str | None = None
    pass_no: int = 1
    rerun: int = 0
    started_at: str | None = None
    pass_began_at: str | None = None
    last_checkpoint_at: str | None = None
    completed_at: str | None = None
    due_to_started_s: float | None = None
    scheduled_to_completed_s: float | None = None
    progress: Progress | None = None
    totals: Mapping[str, Any] | None = None
    waiting: tuple[Waiting, ...] = ()
    delays: Mapping[str, str] = field(default_factory=dict)
    skip: Mapping[str, Any] | None = None
    repair_owner: str | None = None
    last_error: Mapping[str, Any] | None = None
    revocation_bound: int | None = None
    acknowledged_at: str | None = None
    acknowledged_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The job at a moment. `ran` is False before the first trigger: then nothing is on record."""

    target: str
    job: str
    at: str
    ran: bool
    first_interval: str
    open_from: str
    pause: Mapping[str, str] | None
    intervals: tuple[Interval, ...]
    segments: tuple[Segment, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def running(self) -> list[Interval]:
        return [interval for interval in self.intervals if interval.state == RUNNING]

    @property
    def at_work(self) -> list[Interval]:
        """Those of the running ones that somebody holds a lease for, which has not expired."""
        held = {segment.interval for segment in self.segments if segment.holder is not None and not segment.expired}
        return [interval for interval in self.running if interval.interval in held]

    def waits(self, interval: Interval) -> str:
        """What a running interval waits for; "" for one at work, and for those that do not run."""
        if interval.state != RUNNING or interval in self.at_work:
            return ""
        if self.pause is not None:
            return "waits for resume"
        source = any(one.for_source and (one.next_attempt_at or "") > self.at for one in interval.waiting)
        return "waits for the source" if source else "waits for a tick"


TOTALS = ("accounts", "granted", "changed", "revoked", "rejected", "ranges", "view_rows", "source_rows", "checksum")


def collect(name: str, *, closed: int, invocation: Invocation) -> Status:
    """Read the job's status; `closed` is how many closed intervals to show besides the open ones.

    Raises as reads of the ControlTable do.
    """
    now_ms = invocation.clock.now_ms()
    control, ran = control_or_new(invocation)
    rows = interval_rows(control.open_from, invocation)
    leases = lease_rows(invocation)
    shown = _shown(rows, control, Calendar.of(invocation.settings), now_ms, closed)
    before = last_completed(rows)
    return Status(
        target=name,
        job=invocation.settings.job_name,
        at=clock.text(now_ms),
        ran=ran,
        first_interval=control.first_interval,
        open_from=control.open_from,
        pause=control.pause,
        intervals=tuple(_interval(one, rows.get(one), before, leases, now_ms, invocation) for one in shown),
        segments=segments(control.segment_count, leases, now_ms, invocation.settings.skew_ms) if ran else (),
    )


def _shown(rows: Mapping[str, Row], control: Control, calendar: Calendar, now_ms: int, closed: int) -> list[str]:
    """Every interval that is due or recorded and may be unfinished, and the newest `closed` of the others."""
    open_ids = {one for one, row in rows.items() if not RunRecord.of(row).closed}
    unseen = set(calendar.due(max(control.first_interval, control.open_from), now_ms)) - set(rows)
    done = sorted(set(rows) - open_ids)
    return sorted({*open_ids, *unseen, *(done[-closed:] if closed else ())})


def _interval(
    interval_id: str,
    row: Row | None,
    before: tuple[str, Row] | None,
    leases: Mapping[str, Row],
    now_ms: int,
    invocation: Invocation,
) -> Interval:
    if row is None:
        calendar = Calendar.of(invocation.settings)
        deadline_ms = calendar.deadline_ms(interval_id)
        return Interval(
            interval=interval_id,
            state=EXPECTED,
            recorded=False,
            scheduled_at=clock.text(calendar.scheduled_ms(interval_id)),
            deadline_at=clock.text(deadline_ms),
            late_by_s=max(0, now_ms - deadline_ms) / 1000,
        )
    record = RunRecord.of(row)
    done = record.state == COMPLETED
    progress = progress_rows(interval_id, record.pass_no, invocation) if record.first_started_at else {}
    completed_at = row.get("completed_at") if done else None
    checkpoints = [one["checkpoint_at"] for one in progress.values() if "checkpoint_at" in one]
    begun = events(interval_id, invocation, kind=RUNS) if record.state == RUNNING else []
    return Interval(
        interval=interval_id,
        state=record.state,
        scheduled_at=record.scheduled_at,
        deadline_at=record.deadline_at,
        late_by_s=_late_s(record, row, now_ms),
        closed=record.closed,
        run_id=record.run_id,
        pass_no=record.pass_no,
        rerun=record.rerun,
        started_at=record.first_started_at,
        pass_began_at=record.pass_began_at,
        last_checkpoint_at=max(checkpoints, default=None),
        completed_at=completed_at,
        due_to_started_s=between(record.scheduled_at, record.first_started_at),
        scheduled_to_completed_s=between(record.scheduled_at, completed_at),
        progress=progress_of(record, progress, leases, begun, before, now_ms, invocation.settings.skew_ms),
        totals={name: row[name] for name in TOTALS if name in row} if done else None,
        waiting=tuple(_waiting(record, progress, leases, now_ms, invocation.settings.skew_ms)),
        delays=record.delays,
        skip=row.get("skip"),
        repair_owner=row.get("repair_owner"),
        last_error=row.get("last_error"),
        revocation_bound=record.revocation_bound,
        acknowledged_at=row.get("acknowledged_at"),
        acknowledged_by=row.get("acknowledged_by"),
    )


def _late_s(record: RunRecord, row: Row, now_ms: int) -> float:
    """By how much the deadline was missed, or is missed now by what may still complete."""
    if record.state == COMPLETED:
        return float(row.get("late_by_s", 0))
    if record.state == SKIPPED or record.closed:
        return 0
    return max(0, now_ms - clock.parse_ms(record.deadline_at)) / 1000


def _waiting(
    record: RunRecord, progress: Mapping[str, Row], leases: Mapping[str, Row], now_ms: int, skew_ms: int
) -> Sequence[Waiting]:
    """The segments whose last attempt made no progress, or was asked for a pause, and is over."""
    working = {segment for segment, row in leases.items() if Lease.of(row).held(now_ms, skew_ms)}
    idle = {
        segment: row
        for segment, row in sorted(progress.items())
        if row.get("rerun") == record.rerun and not row.get("done") and segment not in working
    }
    return [
        Waiting(
            segment=segment,
            attempts=row["attempts"],
            next_attempt_at=text_of_ms(row.get("next_attempt_at_ms")),
            for_source=bool(row.get("waits_for_source")),
        )
        for segment, row in idle.items()
        if row.get("attempts") or row.get("waits_for_source")
    ]
