"""Where a scenario is played: emulator, proxy, tables with accounts, nights that are due, workers that get ticks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.chaos.history import history
from tests.chaos.people import People
from tests.chaos.traffic import LIVE, Traffic
from tests.chaos.verdict import Tables, violations
from tests.kit import command
from tools import verify
from tools.scene import Scene, local_client, scene, scheduled_event
from tools.seed import plan
from tools.worker import Reply, Worker

PATIENCE_S = 120.0
LEASE_S = 5.0
READ_TIMEOUT_S = 1.0
SHORT = {
    "LEASE_SECONDS": LEASE_S,
    "CLOCK_SKEW_SECONDS": 0.1,
    "CONNECT_TIMEOUT_SECONDS": 0.1,
    "READ_TIMEOUT_SECONDS": READ_TIMEOUT_S,
    "SDK_MAX_ATTEMPTS": 1,
    "BACKOFF_SECONDS": 0,
    "MAX_ATTEMPTS": 100,
    "RANGE_SIZE": 8,
    "PAGE_SIZE": 40,
}
"""A short lease with the short timeouts that it needs; an attempt may follow another at once."""

EXPECTED_ERRORS = ("TransientFailure",)
"""What an invocation may raise when its messages do not get through, or the machine is too busy to answer in time."""

GOES_ON = ("completed", "yielded", "out_of_time")
"""What an undisturbed invocation may answer while there is something to do, nobody having the lease."""

ASKED_CALLS = 12
"""An invocation that is asked for something has the time for so many calls; after that its slot is free again."""

Prepare = Callable[[Scene], None]


def nothing(scene: Scene) -> None:
    """No preparation."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scenario came to: its figures, and what should not have happened, in words."""

    name: str
    seed: int
    figures: Mapping[str, int]
    violations: list[str]
    log: list[str]

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {count}" for name, count in self.figures.items())
        lines = [f"{self.name} (seed {self.seed}): {figures}; {len(self.violations)} violations"]
        return "\n".join([*lines, *(f"  VIOLATION {one}" for one in self.violations), *self.log])


@dataclass(slots=True)
class Stage:
    """`nights` are those that are due, oldest first; `tomorrow` the next one, which may be triggered already.

    `found` is what was broken so far. Every tick is a slot of its own.
    """

    name: str
    seed: int
    scene: Scene
    traffic: Traffic
    chance: random.Random
    people: People
    nights: list[datetime]
    tomorrow: datetime
    seeded_view: list[verify.Row]
    found: list[str] = field(default_factory=list)
    workers: int = 0
    ticks: int = 0

    def worker(self) -> Worker:
        """Start one more; it gets warm meanwhile."""
        self.workers += 1
        return self.scene.worker(f"worker-{self.workers}")

    def crew(self, size: int) -> list[Worker]:
        """So many warm workers."""
        workers = [self.worker() for _ in range(size)]
        for worker in workers:
            worker.ready(PATIENCE_S)
        return workers

    def tick(self) -> dict[str, Any]:
        self.ticks += 1
        return scheduled_event("tick", self.nights[-1] + timedelta(seconds=self.ticks))

    def ask(self, worker: Worker, event: Mapping[str, Any]) -> None:
        """Undisturbed; sent again until it is answered, a tick in a slot of its own.

        Raises RuntimeError when it raises something else than EXPECTED_ERRORS, or does not get through.
        """
        remaining_s = ASKED_CALLS * Tables(self.scene).settings.call_budget_s
        deadline = time.monotonic() + PATIENCE_S
        while True:
            worker.send(event, remaining_s=remaining_s)
            reply = worker.reply(PATIENCE_S)
            if reply.error is None and reply.result.get("first", reply.result) is not None:
                return
            if reply.error not in (None, *EXPECTED_ERRORS) or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} (seed {self.seed}): {event} came to {reply}")
            if event["detail"].get("trigger") == "tick":
                event = self.tick()

    def due(self, worker: Worker) -> None:
        """Every night is recorded, and none has begun: the job was paused for so long."""
        self.ask(worker, self.tick())
        self.ask(worker, command("Pause"))
        self.ask(worker, scheduled_event("nightly", self.nights[0]))
        self.ask(worker, command("Resume"))

    def heard(self, reply: Reply) -> None:
        """Note what an invocation came to; it may fail only as its messages do."""
        if reply.error is not None and reply.error not in EXPECTED_ERRORS:
            self.found.append(f"an invocation raised {reply.error}: {reply.message}")

    @property
    def completed(self) -> int:
        """How many of the nights are."""
        return sum(self.scene.run_record(night).get("state") == "COMPLETED" for night in self.nights)

    def holds(self, worker: Worker) -> bool:
        return str(self.scene.lease().get("owner", "")).startswith(f"{worker.name}/")

    def expiry(self) -> None:
        """Wait until nobody's lease keeps others away."""
        skew_s = float(self.scene.environment["CLOCK_SKEW_SECONDS"])
        until(lambda: time.time() > self.scene.lease().get("expires_at_ms", 0) / 1000 + skew_s, "the lease expires")

    def close(self, worker: Worker) -> None:
        """Undisturbed, every night is completed; then the next one."""
        self.complete(worker)
        self.nights.append(self.tomorrow)
        self.complete(worker, scheduled_event("nightly", self.tomorrow))

    def complete(self, worker: Worker, event: Mapping[str, Any] | None = None) -> None:
        """Undisturbed, every night is completed, each invocation that gets through having its part in that.

        The first gets `event`, or a tick as all the others. After one that did not get through, what it had sent may
        still be on its way.
        """
        deadline, cut_off = time.monotonic() + PATIENCE_S, False
        while self.completed < len(self.nights):
            if time.monotonic() > deadline:
                self.found.append(f"not within {PATIENCE_S:g} s: every night is completed")
                return
            self.expiry()
            reply = worker.call(event or self.tick(), timeout_s=PATIENCE_S)
            self.heard(reply)
            if reply.error is None and reply.result["outcome"] not in GOES_ON and not cut_off:
                self.found.append(f"an undisturbed invocation came to {reply.result}")
                return
            event, cut_off = None, reply.error is not None

    def outcome(self, **figures: int) -> Outcome:
        """The judgement; with what was broken comes what the proxy saw of the nights concerned."""
        written = history(self.traffic.deliveries())
        nights = [f"{night:%Y-%m-%d}" for night in self.nights]
        broken = self.found + violations(self.scene, nights, self.seeded_view, written)
        concerned = [night for night in nights if any(night in one for one in broken)] or nights
        log = [str(one) for one in written if one.segment and one.night in concerned] if broken else []
        return Outcome(self.name, self.seed, figures, broken, log)


@contextmanager
def stage(
    name: str, seed: int, *, nights: int, accounts: int, prepare: Prepare, settings: Mapping[str, object]
) -> Iterator[Stage]:
    """Set it up: everything ends with it. The workers reach the tables only through `traffic`."""
    tomorrow = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=30)
    schedule = {
        "SCHEDULE_HOUR": tomorrow.hour,
        "SCHEDULE_MINUTE": tomorrow.minute,
        "TICK_MINUTES": 60,
        "CATCH_UP_DAYS": nights + 2,
        "MAX_REVOCATIONS": accounts,
    }
    with scene({**schedule, **settings}) as set_up:
        set_up.seed(plan(accounts=accounts, seed=seed, changed=0.3))
        prepare(set_up)
        due = [tomorrow - timedelta(days=days) for days in range(nights, 0, -1)]
        traffic, chance = Traffic(set_up.proxy), random.Random(seed)
        with closing(local_client(set_up.proxy.url, LIVE)) as client:
            people = People(client, set_up, chance)
            view = set_up.rows("EntitlementsTable")
            yield Stage(name, seed, set_up, traffic, chance, people, due, tomorrow, view)


def until(reached: Callable[[], object], what: str) -> None:
    """Wait for it. Raises TimeoutError naming `what`."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.005)
