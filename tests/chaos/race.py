"""Eight processes want one lease at the same moment, again and again: exactly one gets it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from tests.chaos.history import history
from tests.chaos.stage import PATIENCE_S, Outcome, Prepare, Stage, nothing, stage, until
from tests.chaos.traffic import undisturbed, writer
from tests.chaos.verdict import Tables
from tests.kit import command
from tools.faults import Forward
from tools.wire import Answer, Call
from tools.worker import Worker

RUNNERS = 8
PATIENT = {
    "LEASE_SECONDS": 900,
    "CONNECT_TIMEOUT_SECONDS": 60,
    "READ_TIMEOUT_SECONDS": 60,
    "SDK_MAX_ATTEMPTS": 1,
    "RANGE_SIZE": 100,
    "PAGE_SIZE": 100,
}
"""Messages that wait for each other are not given up."""


class Start:
    """Acquisitions wait until all are there, and go at once; who commits then waits until the race is over.

    Those `standing` won.
    """

    def __init__(self, runners: int) -> None:
        self.standing: list[Call] = []
        self.over = threading.Event()
        self._line = threading.Barrier(runners, timeout=PATIENCE_S / 2)

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        match writer(call):
            case "acquire":
                try:
                    self._line.wait()
                except threading.BrokenBarrierError:
                    return None
            case "commit":
                self.standing.append(call)
                self.over.wait(PATIENCE_S)
        return forward()


def race(rounds: int, seed: int = 0, *, prepare: Prepare = nothing) -> Outcome:
    """Between two rounds, a person orders the night to run again from the start. Every other process gets the order."""
    with stage("race", seed, nights=1, accounts=20, prepare=prepare, settings=PATIENT) as played:
        runners = played.crew(RUNNERS)
        played.due(runners[0])
        night = f"{played.nights[0]:%Y-%m-%d}"
        winners: list[int] = []
        for number in range(rounds):
            if number:
                again = command("Rerun", interval=night, force=True, **{"from": "start"})
                played.ask(played.chance.choice(runners), again)
            winners.append(one_round(played, runners, number + 1))
            if played.found:
                break
        told = Tables(played.scene).events()
        if told["STARTED"] + told["RESUMED"] != len(winners) or told["TAKEOVER"]:
            played.found.append(f"{len(winners)} rounds are told as {dict(told)}")
        doubled = sum(count > 1 for count in winners)
        return played.outcome(race_rounds=len(winners), race_double_winners=doubled)


def one_round(played: Stage, runners: Sequence[Worker], number: int) -> int:
    """How many won."""
    before = played.scene.lease().get("generation", 0)
    seen = len(played.traffic.deliveries())
    start = Start(len(runners))
    played.traffic.disturb = start
    for runner in runners:
        runner.send(played.tick())
    until(lambda: len(start.standing) + sum(runner.answered for runner in runners) == len(runners), "a race ends")
    standing = {call.caller for call in start.standing}
    tried = [one for one in history(played.traffic.deliveries()[seen:]) if one.writer == "acquire"]
    won = [one for one in tried if one.applied]
    start.over.set()
    replies = {runner.name: runner.reply(PATIENCE_S) for runner in runners}
    played.traffic.disturb = undisturbed
    for reply in replies.values():
        played.heard(reply)
    lost = Counter(reply.error or reply.result["outcome"] for name, reply in replies.items() if name not in standing)
    if {one.caller for one in won} != standing or len(tried) != len(runners):
        played.found.append(f"round {number}: {len(tried)} acquisitions, those of {won} won, {standing} went on")
    if len(won) != 1 or lost != {"delayed": len(runners) - 1}:
        played.found.append(f"round {number}: {len(won)} won: {[str(one) for one in won]}; the others {dict(lost)}")
    if [one.generation for one in won] != [before + 1] or played.scene.lease()["generation"] != before + 1:
        played.found.append(f"round {number}: generations {[one.generation for one in won]} after {before}")
    return len(won)
