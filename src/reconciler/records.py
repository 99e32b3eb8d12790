"""The rows that tell an interval's state: its run record, and the progress of each segment.

States: EXPECTED → RUNNING → COMPLETED; RUNNING → NEEDS_REPAIR; EXPECTED → SKIPPED; any → RUNNING by a rerun. Late and
stalled are derived. Only a person reruns (`rerun`, `pass`, `revocation_bound`) and acknowledges; a run reads what they
wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import clock, keys
from reconciler.errors import RowInvalid, RowMissing
from reconciler.invocation import Invocation
from reconciler.items import Row, attribute
from reconciler.keys import PARTITION_KEY, SORT_KEY
from reconciler.totals import Totals
from reconciler.transactions import as_read

EXPECTED, RUNNING, COMPLETED = "EXPECTED", "RUNNING", "COMPLETED"
NEEDS_REPAIR, SKIPPED = "NEEDS_REPAIR", "SKIPPED"
STATES = (EXPECTED, RUNNING, COMPLETED, NEEDS_REPAIR, SKIPPED)
RUNNABLE = (EXPECTED, RUNNING)


CLOSED: ConditionBase = Attr("state").eq(COMPLETED) | (
    Attr("acknowledged_at").exists() & ~Attr("state").is_in(RUNNABLE)
)
"""An INTERVAL row of which nothing is left to do or to look at."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """An INTERVAL row as read. Times are UTC text; `segments` maps each finished segment to its totals."""

    interval_id: str
    state: str
    run_id: str
    pass_no: int
    rerun: int
    segment_count: int
    scheduled_at: str
    deadline_at: str
    first_started_at: str | None
    revoked: int
    revocation_bound: int | None
    segments: Mapping[str, Row]
    delays: Mapping[str, str]
    acknowledged: bool
    tripped: bool
    pass_began_at: str | None
    rerun_at: str | None

    @classmethod
    def of(cls, row: Row) -> RunRecord:
        state = attribute(row, "state", str)
        if state not in STATES:
            raise RowInvalid(f"{row[SORT_KEY]}: state is {state!r}, not one of {', '.join(STATES)}")
        return cls(
            interval_id=row[SORT_KEY].removeprefix("INTERVAL#"),
            state=state,
            run_id=attribute(row, "run_id", str),
            pass_no=attribute(row, "pass", int),
            rerun=attribute(row, "rerun", int),
            segment_count=attribute(row, "segment_count", int, parse=keys.segments),
            scheduled_at=attribute(row, "scheduled_at", str, parse=clock.parse_ms),
            deadline_at=attribute(row, "deadline_at", str, parse=clock.parse_ms),
            first_started_at=attribute(row, "first_started_at", str, parse=clock.parse_ms, optional=True),
            revoked=attribute(row, "revoked", int),
            revocation_bound=attribute(row, "revocation_bound", int, optional=True),
            segments=attribute(row, "segments", dict, parse=_all_maps),
            delays=attribute(row, "delays", dict),
            acknowledged="acknowledged_at" in row,
            tripped=attribute(row, "tripped", bool, optional=True) is True,
            rerun_at=attribute(row, "rerun_at", str, parse=clock.parse_ms, optional=True),
            pass_began_at=attribute(row, "pass_began_at", str, parse=clock.parse_ms, optional=True),
        )

    @property
    def unfinished(self) -> list[str]:
        """The segments still to do, in order."""
        return [segment for segment in keys.segments(self.segment_count) if segment not in self.segments]

    @property
    def closed(self) -> bool:
        """Nothing is left to do or to look at; as CLOSED says of the row."""
        return self.state == COMPLETED or (self.acknowledged and self.state not in RUNNABLE)

    @property
    def stopped_by_guard(self) -> bool:
        """The revocation guard stopped it, and no person has dealt with that yet."""
        return self.tripped and self.state == NEEDS_REPAIR and not self.acknowledged

    def progress_key(self, segment: str) -> str:
        return keys.progress(self.interval_id, self.pass_no, segment)

    def same_run(self) -> ConditionBase:
        """The condition that nobody started, finished or reran it since it was read."""
        return unmoved("run_id", self.run_id) & as_read("state", self.state) & as_read("rerun", self.rerun)


@dataclass(frozen=True, slots=True)
class Progress:
    """A PROGRESS row as read, or `exists=False` before the first attempt.

    `checkpoint` is the last account id merged and committed. Without one the segment is at its start, whatever
    else the row holds. `attempts` counts attempts since the last commit, in the interval's present rerun.
    """

    totals: Totals = field(default_factory=Totals)
    checkpoint: str | None = None
    attempts: int = 0
    next_attempt_at_ms: int | None = None
    waits_for_source: bool = False
    rerun: int = 0
    done: bool = False
    exists: bool = False

    @classmethod
    def of(cls, row: Row) -> Progress:
        checkpoint = attribute(row, "checkpoint", str, optional=True)
        return cls(
            totals=Totals() if checkpoint is None else Totals.of(row),
            checkpoint=checkpoint,
            attempts=attribute(row, "attempts", int),
            next_attempt_at_ms=attribute(row, "next_attempt_at_ms", int, optional=True),
            waits_for_source=attribute(row, "waits_for_source", bool, optional=True) is True,
            rerun=attribute(row, "rerun", int),
            done=attribute(row, "done", bool),
            exists=True,
        )

    def attempts_in(self, rerun: int) -> int:
        return self.attempts if self.rerun == rerun else 0

    def advanced(self, checkpoint: str, done_in_range: Totals, rerun: int) -> Progress:
        return replace(
            self,
            totals=self.totals + done_in_range,
            checkpoint=checkpoint,
            attempts=0,
            next_attempt_at_ms=None,
            waits_for_source=False,
            rerun=rerun,
            exists=True,
        )


def _all_maps(segments: dict[str, object]) -> None:
    for name, totals in segments.items():
        if not isinstance(totals, dict):
            raise ValueError(f"{name} is not a map")


def unmoved(name: str, value: object) -> ConditionBase:
    """An update's condition that the row exists (an update would create it) and the attribute is as read."""
    condition: ConditionBase = Attr(PARTITION_KEY).exists() & as_read(name, value)
    return condition


def read_interval(interval_id: str, *, invocation: Invocation) -> RunRecord:
    """Raises RowMissing when it is gone."""
    row = invocation.control_row(keys.interval(interval_id))
    if row is None:
        raise interval_gone(interval_id)
    return RunRecord.of(row)


def read_until(open_from: str, until_ms: int, *, invocation: Invocation) -> list[RunRecord]:
    """The recorded intervals from `open_from` to the day of a moment, oldest first.

    They are read by what is recorded, not by what the calendar says: a changed schedule hides none.
    """
    last = clock.text(until_ms)[:10]
    if open_from > last:
        return []
    bounds = {":first": keys.interval(open_from), ":last": keys.interval(last)}
    return [RunRecord.of(row) for row in invocation.control_rows("#sk BETWEEN :first AND :last", bounds)]


def interval_gone(interval_id: str) -> RowMissing:
    return RowMissing(f"INTERVAL#{interval_id} is gone; nothing was written in its place")


def progress_gone(record: RunRecord, segment: str) -> RowMissing:
    return RowMissing(f"{record.progress_key(segment)} is gone; nothing was written in its place")


def read_progress(record: RunRecord, segment: str, *, invocation: Invocation) -> Progress:
    row = invocation.control_row(record.progress_key(segment))
    return Progress() if row is None else Progress.of(row)
