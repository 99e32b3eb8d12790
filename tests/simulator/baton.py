"""Actors: threads of which exactly one runs, the one that holds the baton, from one message to the next.

What an actor does between two messages is not interleaved with anything: nobody else can see it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.kit import Killed


class Actor(threading.Thread):
    """Someone at work. Where it stopped is `at`; `step` lets it run on to the next stop, with an order to obey there.

    `clock_ms` is how far its clock is off, `frozen_until` the turn before which it does not run.
    """

    here = threading.local()

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        super().__init__(name=name, daemon=True)
        self.work = work
        self.at = "begin"
        self.order = "go"
        self.ended = False
        self.result: object = None
        self.error: BaseException | None = None
        self.frozen_until = 0
        self.clock_ms = 0
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.start()

    @classmethod
    def current(cls) -> Actor | None:
        """The actor that runs now; None when it is the simulation itself."""
        found: Actor | None = getattr(cls.here, "actor", None)
        return found

    def run(self) -> None:
        Actor.here.actor = self
        self._go.acquire()
        try:
            if self.order != "kill":
                self.result = self.work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self.at = "ended"
        self._stopped.release()

    def stop(self, at: str) -> str:
        """Hand the baton back; the order that comes with it the next time. Raises Killed when that is the order."""
        self.at = at
        self._stopped.release()
        self._go.acquire()
        if self.order == "kill":
            raise Killed
        return self.order

    def step(self, order: str = "go") -> None:
        """Let it run to its next stop, or its end."""
        self.order = order
        self._go.release()
        self._stopped.acquire()

    def kill(self) -> None:
        while not self.ended:
            self.step("kill")
