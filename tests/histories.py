"""Run records as they may be found, and the life of a stack as a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reconciler import clock, keys
from reconciler.control import Control
from reconciler.due import SKIPS_A_TICK
from reconciler.intervals import Calendar, Plan, catch_up, next_id
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED, RunRecord
from reconciler.settings import Settings
from tests.world import JOB

DAY_MS = 86_400_000

MOVES: set[tuple[str | None, str]] = {
    (None, EXPECTED),
    (None, SKIPPED),
    (EXPECTED, SKIPPED),
    (EXPECTED, RUNNING),
    (RUNNING, COMPLETED),
    (RUNNING, NEEDS_REPAIR),
}
"""How a state may change without a rerun."""


def recorded(interval_id: str, state: str, calendar: Calendar, *, acknowledged: bool = False) -> RunRecord:
    """A run record as it stands in that state, pinned to the schedule it was recorded with."""
    return RunRecord(
        interval_id=interval_id,
        state=state,
        run_id=keys.run_id(JOB, interval_id, 1),
        pass_no=1,
        rerun=0,
        segment_count=1,
        scheduled_at=clock.text(calendar.scheduled_ms(interval_id)),
        deadline_at=clock.text(calendar.deadline_ms(interval_id)),
        first_started_at=None if state in (EXPECTED, SKIPPED) else clock.text(calendar.scheduled_ms(interval_id)),
        revoked=0,
        revocation_bound=None,
        segments={},
        delays={},
        acknowledged=acknowledged,
        tripped=False,
        pass_began_at=None,
        rerun_at=None,
    )


def controlled(first_interval: str, open_from: str | None = None) -> Control:
    return Control(first_interval, open_from or first_interval, 1, None, 0)


@dataclass(slots=True)
class Life:
    """A stack from its first trigger on: the rows that ticks, workers and people leave behind.

    `moves` is every change of state in order; `sight_ms` the latest moment that a tick has seen.
    """

    settings: Settings
    now_ms: int
    control: Control
    rows: dict[str, RunRecord] = field(default_factory=dict)
    moves: list[tuple[str, str | None, str]] = field(default_factory=list)
    sight_ms: int = 0

    @property
    def calendar(self) -> Calendar:
        return Calendar.of(self.settings)

    @property
    def states(self) -> dict[str, str]:
        return {interval_id: row.state for interval_id, row in sorted(self.rows.items())}

    def found(self) -> list[RunRecord]:
        """The records that a tick reads."""
        first, last = self.control.open_from, clock.text(self.now_ms)[:10]
        return [row for interval_id, row in sorted(self.rows.items()) if first <= interval_id <= last]

    def plan(self) -> Plan:
        return catch_up(self.now_ms, self.settings, self.found(), self.control)

    def tick(self) -> Plan:
        """Record what is due and what is skipped, as far as one tick does; the plan it followed."""
        plan = self.plan()
        for interval_id in plan.run:
            if interval_id in plan.unrecorded:
                self.move(interval_id, EXPECTED)
        for skip in plan.skip[:SKIPS_A_TICK]:
            self.move(skip.interval_id, SKIPPED)
        self.sight_ms = max(self.sight_ms, self.now_ms)
        return plan

    def close_books(self) -> None:
        while (head := self.rows.get(self.control.open_from)) is not None and head.closed:
            self.control = replace(self.control, open_from=next_id(self.control.open_from))

    def move(self, interval_id: str, state: str) -> None:
        before = self.rows.get(interval_id)
        self.moves.append((interval_id, None if before is None else before.state, state))
        self.rows[interval_id] = (
            recorded(interval_id, state, self.calendar) if before is None else replace(before, state=state)
        )

    def work(self, interval_id: str, end: str) -> None:
        """A worker takes an interval and leaves it RUNNING, COMPLETED or NEEDS_REPAIR."""
        if self.rows[interval_id].state == EXPECTED:
            self.move(interval_id, RUNNING)
        if end != RUNNING:
            self.move(interval_id, end)

    def acknowledge(self, interval_id: str) -> None:
        self.rows[interval_id] = replace(self.rows[interval_id], acknowledged=True)

    def rerun(self, interval_id: str) -> None:
        row = self.rows[interval_id]
        self.rows[interval_id] = replace(row, state=RUNNING, rerun=row.rerun + 1, acknowledged=False)
        self.control = replace(self.control, open_from=min(self.control.open_from, interval_id))

    def lower(self, interval_id: str) -> None:
        """A nightly trigger names an interval before the first one."""
        if self.calendar.scheduled_ms(interval_id) >= self.now_ms - self.settings.catch_up_ms:
            first = min(self.control.first_interval, interval_id)
            self.control = replace(
                self.control, first_interval=first, open_from=min(self.control.open_from, interval_id)
            )
