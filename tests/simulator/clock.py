"""True time, which only the simulation and its sleepers move, and what each worker's clock makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler import clock
from tests.simulator.baton import Actor
from tests.world import NIGHT


@dataclass(slots=True)
class Time:
    """True time; `seconds` only grows."""

    wall_ms: int = field(default_factory=lambda: clock.parse_ms(f"{NIGHT}T02:00:05Z"))
    seconds: float = 1000.0

    @property
    def text(self) -> str:
        return clock.text(self.wall_ms)

    def advance(self, seconds: float) -> None:
        self.wall_ms += round(seconds * 1000)
        self.seconds += seconds


@dataclass(slots=True)
class WorkersClock:
    """The clock of whoever asks: as far off as the simulation set it, and stepped whenever that changes."""

    time: Time

    def now_ms(self) -> int:
        self.time.advance(0.001)
        actor = Actor.current()
        return self.time.wall_ms + (actor.clock_ms if actor else 0)

    def monotonic(self) -> float:
        return self.time.seconds

    def sleep(self, seconds: float) -> None:
        """Time passes, and others run."""
        self.time.advance(seconds)
        if actor := Actor.current():
            actor.stop("sleeps")
