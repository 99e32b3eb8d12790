"""Nights during which messages are lost, late and repeated, and what they come to once the network is well again."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.chaos.stage import LEASE_S, PATIENCE_S, READ_TIMEOUT_S, SHORT, Outcome, Prepare, nothing, stage, until
from tests.chaos.traffic import undisturbed, writer
from tests.chaos.verdict import Tables
from tests.faults import WRITERS
from tools.faults import Fault, Forward, Stage, delay, drop_answer, drop_request, repeat
from tools.wire import Answer, Call

WORKERS = 3
RATE = 0.15
"""How likely something happens to a message."""

CHANGE_S = 0.2
"""How long people leave the accounts alone."""


def around(seconds: float) -> tuple[float, float]:
    return seconds * 1.1, seconds * 1.6


IN_TIME = (0.2 * READ_TIMEOUT_S, 0.6 * READ_TIMEOUT_S)
LATE = {"late": IN_TIME, "given up": around(READ_TIMEOUT_S), "taken over": around(LEASE_S)}
"""By how many seconds a message or its answer is late: at the longest, others have the lease when it comes."""

CUT_OFF = 0.04
"""How likely a holder is cut off for longer than its lease when it writes."""

Made = Callable[[random.Random], Fault]


def late(span: tuple[float, float], stage: Stage) -> Made:
    return lambda chance: delay(chance.uniform(*span), stage)


def silent(stage: Stage) -> Fault:
    """Nothing comes back, `before` or `after` the message is applied, until its sender has given up."""

    def fault(call: Call, forward: Forward) -> Answer | None:
        if stage == "after":
            forward()
        time.sleep(around(READ_TIMEOUT_S)[0])
        return None

    return fault


KINDS: dict[str, Made] = {
    "request lost": lambda chance: drop_request,
    "answer lost": lambda chance: drop_answer,
    "repeated at once": lambda chance: repeat,
    **{f"request {name}": late(span, "before") for name, span in LATE.items()},
    **{f"answer {name}": late(span, "after") for name, span in LATE.items()},
}

LATER, OVERTAKEN, CUT = "repeated much later", "overtaken by a holder", "cut off"
"""What takes more than one message: a copy later on, a request that arrives as soon as somebody has got the lease,
and a sender of whom nothing gets through for a while."""

COUNT_THEMSELVES = (LATER, OVERTAKEN)
"""Whether they happen shows only once the message was let through."""


class Network:
    """Lets things happen to messages, at random; `met` counts the messages to which each has really happened.

    `copied` are those of which a copy arrived later, `broken` tells of copies that could not be sent.
    """

    def __init__(self, chance: random.Random, again: Callable[[Call], None]) -> None:
        self.met: Counter[str] = Counter()
        self.copied: list[Call] = []
        self.broken: list[str] = []
        self.calm = False
        self._chance = chance
        self._again = again
        self._dark: dict[str, float] = {}
        self._acquired: Counter[str] = Counter()
        self._under_way = 0
        self._changed = threading.Condition()

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        with self._changed:
            kind = None if self.calm else self._kind(call)
            fault = self._fault(kind)
            self._under_way += 1
        try:
            return fault(call, lambda: self._forwarded(call, forward))
        finally:
            self._arrived(None if kind in COUNT_THEMSELVES else kind)

    def _kind(self, call: Call) -> str | None:
        chance = self._chance
        if writer(call) in WRITERS and chance.random() < CUT_OFF:
            self._dark[call.caller] = time.monotonic() + chance.uniform(*LATE["taken over"])
        if time.monotonic() < self._dark.get(call.caller, 0):
            return chance.choice((CUT, OVERTAKEN))
        return chance.choice([*KINDS, LATER, OVERTAKEN]) if chance.random() < RATE else None

    def _fault(self, kind: str | None) -> Fault:
        if kind == LATER:
            return self._copied(self._chance.uniform(0.5, 1.6 * LEASE_S))
        if kind == OVERTAKEN:
            return self._overtaken
        if kind == CUT:
            return silent(self._chance.choice(("before", "after")))
        return KINDS[kind](self._chance) if kind else undisturbed

    def _forwarded(self, call: Call, forward: Forward) -> Answer | None:
        answer = forward()
        if writer(call) == "acquire" and answer is not None and answer.error is None:
            with self._changed:
                self._acquired[call.caller] += 1
                self._changed.notify_all()
        return answer

    def _arrived(self, kind: str | None) -> None:
        with self._changed:
            self.met.update([kind] if kind else [])
            self._under_way -= 1

    def _overtaken(self, call: Call, forward: Forward) -> Answer | None:
        """It arrives when somebody else has acquired since; if nobody does, as late as any."""

        def by_others() -> int:
            return self._acquired.total() - self._acquired[call.caller]

        with self._changed:
            before = by_others()
            if self._changed.wait_for(lambda: by_others() > before, LATE["taken over"][1]):
                self.met[OVERTAKEN] += 1
        return forward()

    def _copied(self, later_s: float) -> Fault:
        def arrive(call: Call) -> None:
            time.sleep(later_s)
            kind = None
            try:
                self._again(call)
                self.copied.append(call)
                kind = LATER
            except Exception as error:
                self.broken.append(f"a copy of {call.operation} of {call.caller} was not sent: {error!r}")
            finally:
                self._arrived(kind)

        def fault(call: Call, forward: Forward) -> Answer | None:
            answer = forward()
            with self._changed:
                self._under_way += 1
            threading.Thread(target=arrive, args=(call,)).start()
            return answer

        return fault

    def settle(self) -> None:
        """Nothing happens to messages any more, and none is under way."""
        self.calm = True
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
        played.close(crew[0])
        for call in network.copied:
            played.traffic.again(call)
        played.found.extend(network.broken)
        kinds = {name.replace(" ", "_"): count for name, count in sorted(network.met.items())}
        return played.outcome(
            network_faults=network.met.total(),
            completed_meanwhile=early,
            takeovers=Tables(played.scene).events()["TAKEOVER"],
            **kinds,
        )
