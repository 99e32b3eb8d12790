"""The rows that tell an interval's state: its run record, and the progress of each segment.

States: EXPECTED → RUNNING → COMPLETED; RUNNING → NEEDS_REPAIR; EXPECTED → SKIPPED. Late and stalled are derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler import clock, keys
from reconciler.audit import audit
from reconciler.errors import RowMissing
from reconciler.intervals import Calendar
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA, Row, reading, to_item
from reconciler.keys import PARTITION_KEY, SORT_KEY
from reconciler.totals import Totals
from reconciler.transactions import Step, as_read, send, update

EXPECTED, RUNNING, COMPLETED = "EXPECTED", "RUNNING", "COMPLETED"
NEEDS_REPAIR, SKIPPED = "NEEDS_REPAIR", "SKIPPED"
RUNNABLE = (EXPECTED, RUNNING)


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

    @classmethod
    def of(cls, row: Row) -> RunRecord:
        with reading(row):
            return cls(
                interval_id=row[SORT_KEY].removeprefix("INTERVAL#"),
                state=row["state"],
                run_id=row["run_id"],
                pass_no=row["pass"],
                rerun=row["rerun"],
                segment_count=row["segment_count"],
                scheduled_at=row["scheduled_at"],
                deadline_at=row["deadline_at"],
                first_started_at=row.get("first_started_at"),
                revoked=row["revoked"],
                revocation_bound=row.get("revocation_bound"),
                segments=row["segments"],
                delays=row["delays"],
                acknowledged="acknowledged_at" in row,
            )

    @property
    def unfinished(self) -> list[str]:
        """The segments still to do, in order."""
        return [segment for segment in keys.segments(self.segment_count) if segment not in self.segments]

    @property
    def closed(self) -> bool:
        """Nothing is left to do or to look at."""
        return self.state == COMPLETED or self.acknowledged

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
    rerun: int = 0
    done: bool = False
    exists: bool = False

    @classmethod
    def of(cls, row: Row) -> Progress:
        with reading(row):
            checkpoint = row.get("checkpoint")
            return cls(
                totals=Totals() if checkpoint is None else Totals.of(row),
                checkpoint=checkpoint,
                attempts=row["attempts"],
                next_attempt_at_ms=row.get("next_attempt_at_ms"),
                rerun=row["rerun"],
                done=row["done"],
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
            rerun=rerun,
            exists=True,
        )


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


def read_between(first: str, last: str, *, invocation: Invocation) -> list[RunRecord]:
    """The recorded intervals from `first` to `last`, oldest first."""
    bounds = {":first": keys.interval(first), ":last": keys.interval(last)}
    return [RunRecord.of(row) for row in invocation.control_rows("#sk BETWEEN :first AND :last", bounds)]


def interval_gone(interval_id: str) -> RowMissing:
    return RowMissing(f"INTERVAL#{interval_id} is gone; nothing was written in its place")


def progress_gone(record: RunRecord, segment: str) -> RowMissing:
    return RowMissing(f"{record.progress_key(segment)} is gone; nothing was written in its place")


def read_progress(record: RunRecord, segment: str, *, invocation: Invocation) -> Progress:
    row = invocation.control_row(record.progress_key(segment))
    return Progress() if row is None else Progress.of(row)


def observe(interval_id: str, segment_count: int, *, invocation: Invocation) -> None:
    """Record an interval as EXPECTED unless it is recorded already. Raises TransientFailure when AWS won't."""
    settings = invocation.settings
    calendar = Calendar.of(settings)
    run_id = keys.run_id(settings.job_name, interval_id, 1)
    row = invocation.row_key(keys.interval(interval_id)) | {
        "schema": SCHEMA,
        "state": EXPECTED,
        "run_id": run_id,
        "pass": 1,
        "rerun": 0,
        "segment_count": segment_count,
        "scheduled_at": clock.text(calendar.scheduled_ms(interval_id)),
        "deadline_at": clock.text(calendar.deadline_ms(interval_id)),
        "first_observed_at": clock.text(invocation.clock.now_ms()),
        "revoked": 0,
        "delays": {},
        "segments": {},
    }
    put = {
        "TableName": invocation.table,
        "Item": to_item(row),
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": PARTITION_KEY},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    steps = [Step("INTERVAL", {"Put": put}), audit("OBSERVED", interval_id, run_id, invocation=invocation)]
    answer = send(steps, invocation=invocation)
    if not answer.applied and not answer.refused("INTERVAL"):
        raise answer.unread()


def delay(record: RunRecord, cause: str, *, invocation: Invocation, held_until: str | None = None) -> None:
    """Record once per cause why a due interval does not run. An interval that moved on meanwhile keeps its record."""
    if cause in record.delays:
        return
    since = clock.text(invocation.clock.now_ms())
    steps = [
        update(
            "INTERVAL",
            invocation.table,
            invocation.row_key(keys.interval(record.interval_id)),
            set={f"delays.{cause}": since},
            when=Attr(PARTITION_KEY).exists() & Attr("state").is_in(RUNNABLE) & Attr(f"delays.{cause}").not_exists(),
        ),
        audit("DELAYED", record.interval_id, record.run_id, invocation=invocation, cause=cause, held_until=held_until),
    ]
    answer = send(steps, invocation=invocation)
    if not answer.applied and not answer.refused("INTERVAL"):
        raise answer.unread()
