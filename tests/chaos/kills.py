"""Processes are killed at random moments, over many nights; another one takes the place of each."""

from __future__ import annotations

import time

from tests.chaos.history import history
from tests.chaos.stage import PATIENCE_S, SHORT, Outcome, Prepare, Stage, nothing, stage, until
from tests.chaos.verdict import Tables
from tests.faults import BEGINNINGS
from tools.worker import Worker, WorkerError

MOMENTS = range(1, 70)
"""A process is killed when it has sent so many messages of an invocation: about as many as a night takes."""

ENOUGH = 10
"""Kills for each night; a night that is not completed then is found by the judgement."""

AGAIN = 2
"""Pages of the source that whoever goes on reads again: the one in work, and the one that was read ahead."""

CHANGES = 12
"""Accounts that people change before each invocation; only in the source, so that no range has to be read again."""


def kills(nights: int, seed: int = 0, *, prepare: Prepare = nothing) -> Outcome:
    """Each invocation is to be killed, until every night is completed."""
    with stage("kills", seed, nights=nights, accounts=160, prepare=prepare, settings=SHORT) as played:
        worker, successor = played.crew(2)
        played.due(worker)
        killed = held = 0
        for _ in range(ENOUGH * nights):
            if played.completed == nights:
                break
            played.people.change(live=False, accounts=CHANGES)
            met, holder = one_kill(played, worker)
            killed, held = killed + met, held + holder
            replacement = played.worker()
            played.expiry()
            replacement.ready(PATIENCE_S)
            worker, successor = successor, replacement
        played.close(worker)
        reads, minimum, interruptions = source_reads(played)
        again = sum(one.writer == "commit" and not one.applied for one in history(played.traffic.deliveries()))
        if not minimum <= reads <= minimum + AGAIN * (interruptions + again):
            played.found.append(
                f"{reads} reads of the source: {minimum} at least, {interruptions} interruptions, "
                f"{again} commits that were sent again"
            )
        return played.outcome(
            random_kills=killed,
            kills_holding_the_lease=held,
            intervals=len(played.nights),
            source_reads=reads,
            source_reads_minimum=minimum,
            interruptions=interruptions,
        )


def one_kill(played: Stage, worker: Worker) -> tuple[bool, bool]:
    """Whether the kill met it in the middle of an invocation, and whether it held the lease then."""
    sent = played.traffic.sent
    moment = sent(worker.name) + played.chance.choice(MOMENTS)
    a_little_s = played.chance.uniform(0, 0.01)
    worker.send(played.tick())
    until(lambda: worker.answered or sent(worker.name) >= moment, "it gets so far")
    time.sleep(a_little_s)
    worker.kill()
    holder = played.holds(worker)
    try:
        played.heard(worker.reply(PATIENCE_S))
    except WorkerError:
        return True, holder
    return False, False


def source_reads(played: Stage) -> tuple[int, int, int]:
    """How often the source was read, how often it had to be, and how many attempts did not complete their night."""
    pages = len(played.scene.pages("AccountsTable", int(played.scene.environment["PAGE_SIZE"])))
    told = Tables(played.scene).events()
    attempts = sum(told[event] for event in BEGINNINGS)
    return played.scene.source_reads(), pages * len(played.nights), attempts - len(played.nights)
