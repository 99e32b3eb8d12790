"""Nights on a manual clock, played through the real handlers: what they write to stdout becomes CloudWatch's metrics.

The schedules are played as EventBridge Scheduler keeps them, to the minute: every other event comes 59 seconds late.
Lambda's own metric of a failed invocation is added where an invocation really raised.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from reconciler import app, clock
from reconciler.observability import metrics
from tests.alarms import physical
from tests.emf import Datapoint, datapoints
from tests.kit import lambda_context, ordered
from tests.world import World, event

EVERY_S = 300
"""Seconds between two ticks, and between two looks of the watchdog."""

PHASE_S = 30
"""A rate begins when its schedule is made, at any second."""

LATE_S = 59


@dataclass(slots=True)
class Stage:
    """A world whose functions are invoked as deployed. `points` is all that CloudWatch would have got so far."""

    world: World
    points: list[Datapoint] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)
    began_s: int = 0
    turn: int = 0
    failed: list[str] = field(default_factory=list)

    def begin(self, moment: str) -> None:
        """The stack is deployed: from now on there are alarms."""
        self.world.clock.set(moment)
        self.began_s = self.now_s // 60 * 60

    @property
    def now_s(self) -> int:
        return self.world.clock.wall_ms // 1000

    def note(self, name: str) -> None:
        """Remember this moment."""
        self.moments[name] = self.world.clock.wall_ms / 1000

    def note_last(self, name: str, metric: str) -> None:
        """Remember the moment at which a metric was emitted last."""
        self.moments[name] = max(point.at_ms for point in self.points if point.name == metric) / 1000

    def until(self, moment: str, *, job: bool = True, watched: bool = True) -> None:
        """Deliver what the schedules send until then; `job` are the job's own, `watched` is the watchdog's."""
        end_ms = clock.parse_ms(moment)
        every_ms, phase_ms = EVERY_S * 1000, PHASE_S * 1000
        slot_ms = ((self.world.clock.wall_ms - phase_ms) // every_ms + 1) * every_ms + phase_ms
        while slot_ms <= end_ms:
            slot = clock.text(slot_ms)
            self.turn += 1
            self.world.clock.set(clock.text(max(slot_ms + self.turn % 2 * LATE_S * 1000, self.world.clock.wall_ms)))
            if job:
                self.invoke("reconcile", event("tick", slot))
            if watched:
                self.invoke("watchdog", event("watchdog", slot))
            slot_ms += every_ms
        if self.world.clock.wall_ms < end_ms:
            self.world.clock.set(moment)

    def invoke(self, handler: str, sent: dict[str, Any]) -> None:
        """One asynchronous invocation: what it raises is Lambda's business."""
        at_ms = self.world.clock.wall_ms
        failed = False
        with self._captured():
            try:
                getattr(app, handler)(sent, lambda_context(self.world))
            except Exception:
                failed = True
        function = physical({"reconcile": "ReconcileFunction", "watchdog": "WatchdogFunction"}[handler])
        dimensions = frozenset({("FunctionName", function)})
        self.points.append(Datapoint("AWS/Lambda", "Errors", dimensions, at_ms, float(failed), "Count"))
        if failed:
            self.failed.append(handler)

    def order(self, verb: str, **detail: Any) -> None:
        """An operator's command, done."""
        with self._captured():
            ordered(self.world, verb, **detail)

    @contextmanager
    def _captured(self) -> Iterator[None]:
        """What is written to stdout in the block is logged at the moment at which it ends."""
        output = io.StringIO()
        metrics.clear_metrics()
        logging.disable(logging.CRITICAL)
        try:
            with redirect_stdout(output):
                yield
        finally:
            logging.disable(logging.NOTSET)
            self.points += datapoints(output.getvalue().splitlines(), at_ms=self.world.clock.wall_ms)
