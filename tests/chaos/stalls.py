"""Holders that are frozen for longer than their lease, and wake up while another works, or when it is done."""

from __future__ import annotations

from tests.chaos.stage import PATIENCE_S, SHORT, Outcome, Prepare, Stage, nothing, stage, until
from tests.chaos.traffic import undisturbed
from tests.kit import command
from tools.faults import Forward, Hold
from tools.wire import Answer, Call
from tools.worker import Worker

MOMENTS = range(5, 45)
"""After so many messages of an invocation it is frozen: from before it acquires to near its end."""

TAKEN_OVER = range(7, 11)
"""With these messages of an invocation its holder reads what is to be its first range, and commits it."""

ENOUGH = 10
"""Passes for each of the times."""

CHANGES = 12
"""Accounts that differ before each pass, besides those seeded."""


def stalls(times: int, seed: int = 0, *, prepare: Prepare = nothing) -> Outcome:
    """One process is frozen, another takes over, the first wakes up; so many times with the lease in its hands.

    One night serves for all: each stall has a pass of its own.
    """
    with stage("stalls", seed, nights=1, accounts=160, prepare=prepare, settings=SHORT) as played:
        crew = played.crew(2)
        played.due(crew[0])
        frozen = held = 0
        for number in range(ENOUGH * times):
            if held == times or played.found:
                break
            played.people.change(live=False, accounts=CHANGES)
            if number:
                again = command("Rerun", interval=f"{played.nights[0]:%Y-%m-%d}", force=True, **{"from": "start"})
                played.ask(crew[0], again)
            sleeper, other = played.chance.sample(crew, 2)
            met, holder = one_stall(played, sleeper, other, late=number % 2 == 0)
            frozen, held = frozen + met, held + holder
            played.complete(other)
        return played.outcome(stalls=frozen, stalls_holding_the_lease=held)


def one_stall(played: Stage, sleeper: Worker, other: Worker, late: bool) -> tuple[bool, bool]:
    """Whether the sleeper was frozen in the middle of an invocation, and whether it held the lease then.

    When `late`, what it has just sent arrives as soon as the other has taken over, before the other's next message.
    Else the sleeper wakes up at any moment of the other's.
    """
    proxy, sent, chance = played.scene.proxy, played.traffic.sent, played.chance
    last = sent(sleeper.name) + chance.choice(MOMENTS)
    last_of_other = sent(other.name) + chance.choice(TAKEN_OVER if late else MOMENTS)
    on_the_way, waiting = Hold("before"), Hold("before")

    def ordered(call: Call, forward: Forward) -> Answer | None:
        if call.caller == sleeper.name and sent(sleeper.name) >= last:
            return on_the_way(call, forward)
        if call.caller == other.name and sent(other.name) >= last_of_other:
            return waiting(call, forward)
        return forward()

    def arrived() -> bool:
        number = on_the_way.held[0].number if on_the_way.held else 0
        return not number or any(entry.number == number for entry in proxy.ledger.entries())

    played.traffic.disturb = ordered if late else undisturbed
    try:
        sleeper.send(played.tick())
        until(lambda: sleeper.answered or sent(sleeper.name) >= last, "it gets so far")
        sleeper.stop()
        frozen = not sleeper.answered
        holder = frozen and played.holds(sleeper)
        if holder:
            played.expiry()
        other.send(played.tick())
        until(lambda: other.answered or sent(other.name) >= last_of_other, "the other gets so far")
        on_the_way.release()
        until(arrived, "what was late arrives")
    finally:
        on_the_way.release()
        waiting.release()
        sleeper.go_on()
    for worker in (sleeper, other):
        played.heard(worker.reply(PATIENCE_S))
    played.traffic.disturb = undisturbed
    return frozen, holder
