"""Moves a story on: starts workers, sends triggers, and waits for what must be seen before the next step.

Nothing here waits for a guessed time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tools.faults import Hold
from tools.scene import Scene, scheduled_event
from tools.seed import Seeded
from tools.timeline.history import Mark
from tools.wire import Call
from tools.worker import Reply, Worker

PATIENCE_S = 30.0


class StoryError(RuntimeError):
    """The story could not be told to its end; the message says what did not happen."""


class Show(Protocol):
    """Where a story is shown while it is told."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def accounts(self, done: int) -> None:
        """So many accounts of the night are done."""


class Director:
    """Directs one night on a stage. `ticks` come a `tick` apart, from eight ticks ago on, each a slot of its own.

    `notes` are what was noted, in order.
    """

    def __init__(self, stage: Scene, show: Show, night: datetime, tick: timedelta) -> None:
        self._stage, self._show, self._night, self._tick = stage, show, night, tick
        self.notes: list[Mark] = []
        self._next_tick = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 8 * tick

    def cast(self, rows: Seeded, *names: str) -> list[Worker]:
        """Start the workers, seed the tables meanwhile, and wait until all are warm."""
        workers = [self._stage.worker(name) for name in names]
        self._stage.seed(rows)
        for worker in workers:
            worker.ready()
        return workers

    def hold(self, matches: Callable[[Call], bool]) -> Hold:
        """Let every message that matches wait before it is forwarded."""
        hold = Hold("before")
        self._stage.proxy.on(matches, hold, times=None)
        return hold

    def tick(self) -> dict[str, Any]:
        """The event of the next tick."""
        self._next_tick += self._tick
        return scheduled_event("tick", self._next_tick)

    def note(self, event: str, worker: Worker, what: str = "") -> None:
        """Remember what the ControlTable does not tell, as it happens now."""
        self.notes.append(Mark(at_ms=time.time_ns() // 1_000_000, event=event, who=worker.name, what=what))

    def until(self, reached: Callable[[], object], what: str, worker: Worker | None = None) -> None:
        """Wait until `reached()` is true. Raises StoryError when it takes too long or `worker` ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if worker is not None and worker.answered:
                raise StoryError(f"it did not come to this: {what}; the worker answered {worker.reply()}")
            if time.monotonic() > deadline:
                raise StoryError(f"it did not come to this within {PATIENCE_S:g} s: {what}")
            self._show.accounts(self._stage.progress(self._night).get("accounts", 0))
            time.sleep(0.05)

    def expiry(self) -> None:
        """Wait until the lease may be taken from its holder. Raises StoryError when there is none."""
        expires_at_ms = self._stage.lease().get("expires_at_ms")
        if expires_at_ms is None:
            raise StoryError("nobody holds the lease: a trigger that had to be delayed has done the work instead")
        free_from_s = expires_at_ms / 1000 + float(self._stage.environment["CLOCK_SKEW_SECONDS"])
        self.until(lambda: time.time() > free_from_s, "the lease expires")

    def seconds_late(self, watchdog: Worker) -> float:
        """What the watchdog says now."""
        measured = watchdog.call(scheduled_event("watchdog", datetime.now(UTC)), handler="watchdog")
        return float(result(measured)["SecondsPastDeadline"])


def result(reply: Reply) -> dict[str, Any]:
    """What the handler returned; raises StoryError when it raised instead."""
    if reply.error is not None:
        raise StoryError(f"a handler raised {reply.error}: {reply.message}")
    found: dict[str, Any] = reply.result
    return found


def outcome(reply: Reply) -> str:
    """The invocation's outcome in a word."""
    return str(result(reply)["outcome"])


def last_attempt(reply: Reply) -> dict[str, Any]:
    """What became of the last interval that the invocation worked on."""
    attempts = result(reply).get("attempts")
    if not attempts:
        raise StoryError(f"a trigger found nothing to do: {reply.result}")
    found: dict[str, Any] = attempts[-1]
    return found
