"""Nights during which messages are lost, late and repeated, and what they come to once the network is well again."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.chaos.stage import LEASE_S, PATIENCE_S, READ_TIMEOUT_S, SHORT, Outcome, Prepare, nothing, stage, until
from tests.chaos.verdict import Tables
from tools.faults import Fault, Forward, Stage, delay, drop_answer, drop_request, repeat
from tools.wire import Answer, Call

WORKERS = 3
RATE = 0.15
"""How likely something happens to a message."""

TICKS = 8
"""Within so many, the network being well, everything due is completed."""

CHANGE_S = 0.2
"""How long people leave the accounts alone."""


def around(seconds: float) -> tuple[float, float]:
    return seconds * 1.1, seconds * 1.6


LATE = {"a little late": (0.005, 0.15), "given up": around(READ_TIMEOUT_S), "taken over": around(LEASE_S)}
"""By how many seconds a message or its answer is late: at the longest, others have the lease when it comes."""

Made = Callable[[random.Random], Fault]


def late(span: tuple[float, float], stage: Stage) -> Made:
    return lambda chance: delay(chance.uniform(*span), stage)


KINDS: dict[str, Made] = {
    "request lost": lambda chance: drop_request,
    "answer lost": lambda chance: drop_answer,
    "repeated at once": lambda chance: repeat,
    **{f"request {name}": late(span, "before") for name, span in LATE.items()},
    **{f"answer {name}": late(span, "after") for name, span in LATE.items()},
}

REPEATED_LATER = "repeated much later"


class Network:
    """Lets things happen to messages, at random; `met` counts the messages to which each has really happened."""

    def __init__(self, chance: random.Random, again: Callable[[Call], None]) -> None:
        self.met: Counter[str] = Counter()
        self.copied: list[Call] = []
        self.rate = RATE
        self._chance = chance
        self._again = again
        self._under_way = 0
        self._lock = threading.Lock()

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        with self._lock:
            kind = self._chance.choice([*KINDS, REPEATED_LATER]) if self._chance.random() < self.rate else None
            fault = KINDS[kind](self._chance) if kind in KINDS else None
            later_s = self._chance.uniform(0.5, 2 * LEASE_S)
            self._under_way += 1
        try:
            if fault is not None:
                return fault(call, forward)
            answer = forward()
            if kind == REPEATED_LATER:
                threading.Thread(target=self._arrive, args=(call, later_s)).start()
            return answer
        finally:
            with self._lock:
                self.met.update([kind] if kind in KINDS else [])
                self._under_way -= kind != REPEATED_LATER

    def _arrive(self, call: Call, later_s: float) -> None:
        time.sleep(later_s)
        try:
            self._again(call)
        finally:
            with self._lock:
                self.copied.append(call)
                self.met[REPEATED_LATER] += 1
                self._under_way -= 1

    def settle(self) -> None:
        """Nothing happens to messages any more, and none is under way."""
        self.rate = 0.0
        until(lambda: not self._under_way, "every message arrives")


def rough(faults: int, seed: int = 0, *, nights: int, prepare: Prepare = nothing) -> Outcome:
    """Workers get ticks until so many messages have met a fault, while people change accounts."""
    with stage("network", seed, nights=nights, accounts=160, prepare=prepare, settings=SHORT) as played:
        crew = played.crew(WORKERS)
        played.due(crew[0])
        network = Network(random.Random(f"network of {seed}"), played.traffic.again)
        played.traffic.disturb = network
        busy, changed_at = set[str](), time.monotonic()
        while network.met.total() < faults:
            for worker in crew:
                if worker.name in busy and worker.answered:
                    played.heard(worker.reply())
                    busy.remove(worker.name)
                if worker.name not in busy:
                    worker.send(played.tick())
                    busy.add(worker.name)
            if time.monotonic() - changed_at > CHANGE_S:
                played.people.change(live=played.chance.random() < 0.7)
                changed_at = time.monotonic()
            time.sleep(0.01)
        for worker in crew:
            if worker.name in busy:
                played.heard(worker.reply(PATIENCE_S))
        network.settle()
        early = played.completed
        played.close(crew[0], TICKS)
        for call in network.copied:
            played.traffic.again(call)
        kinds = {name.replace(" ", "_"): count for name, count in sorted(network.met.items())}
        return played.outcome(
            network_faults=network.met.total(),
            completed_meanwhile=early,
            takeovers=Tables(played.scene).events()["TAKEOVER"],
            **kinds,
        )
