"""One attempt at a segment: what its holder knows and did, what became of it, and the metrics that tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler import clock
from reconciler.invocation import Invocation
from reconciler.leases import Holding
from reconciler.observability import count, logger
from reconciler.records import RunRecord
from reconciler.totals import Totals


@dataclass(slots=True)
class Attempt:
    """The holder's work in progress: what it knows now, what it did, and how long its slowest range took.

    `began_range` tells a yield before any work from one that was too slow for a single range, `quiet_until` until which
    monotonic moment the source asked to be left alone.
    """

    holding: Holding
    done: Totals = field(default_factory=Totals)
    conflicts: int = 0
    slowest_range_s: float = 0.0
    began_range: bool = False
    quiet_until: float | None = None

    @property
    def range_no(self) -> int:
        """The range in work: 1 for the segment's first range of the pass, whoever committed those before it."""
        return self.holding.progress.totals.ranges + 1

    def leave_source_alone(self, seconds: float, invocation: Invocation) -> None:
        """For so long, but no longer than the longest backoff."""
        self.quiet_until = invocation.clock.monotonic() + min(seconds, invocation.settings.backoff_max_seconds)

    def source_wait_s(self, invocation: Invocation) -> float:
        """How much longer the source wants to be left alone."""
        return 0.0 if self.quiet_until is None else max(0.0, self.quiet_until - invocation.clock.monotonic())

    def go_on(self, holding: Holding, done: Totals) -> None:
        """After a commit, now or earlier, that added `done`; what is logged from here on is about the next range."""
        self.holding = holding
        self.done += done
        logger.append_keys(range=self.range_no)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one segment of one interval in this invocation; `ranges` and `accounts` are this attempt's."""

    interval: str
    segment: str
    run_id: str
    outcome: str
    generation: int | None = None
    ranges: int = 0
    accounts: int = 0
    resumed_after: str | None = None
    held_until: str | None = None


def count_start(before: RunRecord, holding: Holding, invocation: Invocation) -> None:
    """Metrics of a segment just acquired; `before` is the run record as it was."""
    if before.first_started_at is None:
        count("RunDelay", seconds_since(before.scheduled_at, invocation))
    if holding.event == "TAKEOVER":
        count("Takeovers")


def count_work(attempt: Attempt) -> None:
    """Metrics of what the attempt did."""
    done = attempt.done
    changes = done.granted + done.changed + done.revoked
    for name, value in (
        ("RangesCommitted", done.ranges),
        ("AccountsScanned", done.accounts),
        ("ChangesApplied", changes),
        ("AccountsRejected", done.rejected),
        ("RangeConflicts", attempt.conflicts),
    ):
        if value:
            count(name, value)


def seconds_since(moment: str, invocation: Invocation) -> float:
    """Seconds from a stored time to now, not below zero."""
    return max(0.0, (invocation.clock.now_ms() - clock.parse_ms(moment)) / 1000)
