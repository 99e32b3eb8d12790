"""Holders that are frozen for longer than their lease, and wake up while another works, or when it is done."""

from __future__ import annotations

from tests.chaos.history import history
from tests.chaos.stage import PATIENCE_S, SHORT, Outcome, Prepare, Stage, nothing, stage, until
from tests.chaos.traffic import undisturbed
from tests.kit import command
from tools.faults import Hold
from tools.worker import Worker

MOMENTS = range(8, 48)
"""After so many messages of an invocation it is frozen: from before it acquires to near its end."""

CHANGES = 12
"""Accounts that differ before each pass, besides those seeded."""


def stalls(times: int, seed: int = 0, *, prepare: Prepare = nothing) -> Outcome:
    """One night, in a pass of its own for each stall: one process is frozen, another takes over, the first wakes up."""
    with stage("stalls", seed, nights=1, accounts=160, prepare=prepare, settings=SHORT) as played:
        crew = played.crew(2)
        played.due(crew[0])
        frozen = held = 0
        for number in range(times):
            played.people.change(live=False, accounts=CHANGES)
            if number:
                again = command("Rerun", interval=f"{played.nights[0]:%Y-%m-%d}", force=True, **{"from": "start"})
                played.ask(crew[0], again)
            sleeper, other = crew if number % 2 else reversed(crew)
            met, holder = one_stall(played, sleeper, other)
            frozen, held = frozen + met, held + holder
            played.complete(other, ticks=3)
            if played.found:
                break
        taken = sum(one.applied and "loser" in str(one.rows) for one in history(played.traffic.deliveries()))
        return played.outcome(stalls=frozen, stalls_holding_the_lease=held, stalls_taken_over=taken)


def one_stall(played: Stage, sleeper: Worker, other: Worker) -> tuple[bool, bool]:
    """Whether the sleeper was frozen in the middle of an invocation, and whether it held the lease then.

    Half the time, what it has just sent is under way until it wakes up.
    """
    moment, further = played.chance.choice(MOMENTS), played.chance.choice(MOMENTS)
    last = played.traffic.sent(sleeper.name) + moment
    on_the_way = Hold("before")
    if played.chance.random() < 0.5:
        played.traffic.disturb = lambda call, forward: (
            on_the_way(call, forward)
            if call.caller == sleeper.name and played.traffic.sent(sleeper.name) >= last
            else forward()
        )
    try:
        sleeper.send(played.tick())
        until(lambda: sleeper.answered or played.traffic.sent(sleeper.name) >= last, "it gets so far")
        sleeper.stop()
        frozen = not sleeper.answered
        holder = frozen and played.holds(sleeper)
        if holder:
            played.expiry()
        last_of_other = played.traffic.sent(other.name) + further
        other.send(played.tick())
        until(lambda: other.answered or played.traffic.sent(other.name) >= last_of_other, "the other gets so far")
    finally:
        on_the_way.release()
        sleeper.go_on()
    for worker in (sleeper, other):
        played.heard(worker.reply(PATIENCE_S))
    played.traffic.disturb = undisturbed
    return frozen, holder
