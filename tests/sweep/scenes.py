"""What is disturbed: nights as they may go, and every verb of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler import clock, keys
from tests.faults import Wire
from tests.kit import begun, command, delivered, give_up, killed, ordered, seed, wait
from tests.providers import from_provider
from tests.world import NIGHT, World, event

PAGE, RANGE = 5, 3

LIVE = "acct-0007"
"""The account that a live writer changes; the night changes it too."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A world and an event that is delivered to it.

    `prepare` leaves the world as it is before the event. `live` scenes have a live writer that may come in between;
    in `paired` ones, the invocation that follows is disturbed too. In `ahead` ones pages are read ahead, each in the
    moment in which the one before it is there.
    """

    name: str
    prepare: Callable[[World], None]
    sent: Callable[[World], dict[str, Any]]
    segments: int = 1
    remaining_s: float = 900
    live: bool = False
    paired: bool = False
    ahead: bool = False


def stocked(world: World) -> None:
    """Accounts to grant, to change, to revoke in two ways, to leave alone and to reject; short pages and ranges."""
    world.set(page_size=PAGE, range_size=RANGE)
    seed(world, 12, kinds=6)
    world.account("acct-0004x", plan=["no text"])
    world.view_row("acct-0004x", plan="old")


def at_dawn(world: World) -> None:
    """The first of a night's ranges is in, and its holder is gone; its lease has not expired."""
    stocked(world)
    killed(world, Wire(world.client), "commit", 3)


def orphaned(world: World) -> None:
    """As `at_dawn`, when the lease has expired."""
    at_dawn(world)
    wait(world)


def slow(world: World) -> None:
    """Every look at the clock takes seconds."""
    stocked(world)
    world.clock.step_ms = 2_000


def provided(world: World) -> None:
    """The source is a provider's."""
    stocked(world)
    world.set(source="http", source_url="http://127.0.0.1/v1")


def left_behind(world: World) -> None:
    """As `orphaned`, with that source."""
    provided(world)
    killed(world, Wire(world.client), "commit", 3, job=from_provider)
    wait(world)


def guarded(world: World) -> None:
    """Single accounts to a range, so that the guard trips at the same one however often it is tried.

    On two segments it would be either: when the first one fails, the second trips it.
    """
    stocked(world)
    world.set(max_revocations=2, range_size=1)


def asleep(world: World) -> None:
    """No trigger came for four nights, and the newest is caught up on: with two, the order would be either."""
    begun(world)
    stocked(world)
    world.set(catch_up_days=2, catch_up_policy="latest")
    world.clock.set("2026-12-03T02:00:05Z")


def exhausted(world: World) -> None:
    """The next attempt ends the last one allowed."""
    stocked(world)
    world.set(max_attempts=1)
    killed(world, Wire(world.client), "commit")
    wait(world)


def given_up(world: World) -> None:
    stocked(world)
    give_up(world)
    world.set(max_attempts=5)


def done(world: World) -> None:
    """A completed night, since when the source has changed."""
    stocked(world)
    delivered(world, event("nightly"))
    world.account("acct-0000", plan="gold", seats=99)
    world.account("acct-0003", plan="bronze")
    world.delete("AccountsTable", "acct-0001")


def observed(world: World) -> None:
    """A night that is on record, and nothing more."""
    stocked(world)
    delivered(world, event("nightly"), remaining_s=60)


def tripped(world: World) -> None:
    guarded(world)
    delivered(world, event("nightly"))


def paused(world: World) -> None:
    orphaned(world)
    ordered(world, "Pause", "pause-1")


def leaseless(world: World) -> None:
    given_up(world)
    world.delete_control(keys.lease("000"))


def nightly(world: World) -> dict[str, Any]:
    return event("nightly")


def tick(world: World) -> dict[str, Any]:
    return event("tick", clock.text(world.clock.wall_ms))


def asked(verb: str, **detail: Any) -> Callable[[World], dict[str, Any]]:
    """One command, the same whenever it is sent."""
    return lambda world: command(verb, "command-1", **detail)


FROM_START = asked("Rerun", interval=NIGHT, force=True, **{"from": "start"})

NIGHTS = (
    Scene("night", stocked, nightly, live=True, paired=True),
    Scene("night on two segments", stocked, nightly, segments=2, live=True, paired=True),
    Scene("night that yields", slow, nightly, remaining_s=140, paired=True),
    Scene("takeover", orphaned, tick, live=True, paired=True),
    Scene("tick beside a holder", at_dawn, tick),
    Scene("guard trips", guarded, nightly),
    Scene("attempts are up", exhausted, tick),
    Scene("missed nights", asleep, tick),
    Scene("night from a provider", provided, nightly, live=True, paired=True),
    Scene("takeover from a provider", left_behind, tick, live=True),
    Scene("night, read ahead", stocked, nightly, live=True, paired=True, ahead=True),
    Scene("night that yields, read ahead", slow, nightly, remaining_s=140, ahead=True),
    Scene("takeover on two segments, read ahead", orphaned, tick, segments=2, live=True, ahead=True),
    Scene("guard trips, read ahead", guarded, nightly, ahead=True),
    Scene("night from a provider, read ahead", provided, nightly, live=True, ahead=True),
)

COMMANDS = (
    Scene("Rerun from the start", done, FROM_START),
    Scene("Rerun on two segments", done, FROM_START, segments=2),
    Scene("Rerun from the checkpoint", given_up, asked("Rerun", interval=NIGHT)),
    Scene("Rerun after a trip", tripped, asked("Rerun", interval=NIGHT, revocation_bound=9)),
    Scene("Skip", observed, asked("Skip", interval=NIGHT)),
    Scene("Acknowledge", given_up, asked("Acknowledge", interval=NIGHT)),
    Scene("Pause", orphaned, asked("Pause"), segments=2),
    Scene("Resume", paused, asked("Resume"), segments=2),
    Scene("ReleaseLease", at_dawn, asked("ReleaseLease", segment="000")),
    Scene("ReleaseLease of a lost row", leaseless, asked("ReleaseLease", segment="000")),
    Scene("Verify", done, asked("Verify", interval=NIGHT)),
    Scene("Preview", stocked, asked("Preview")),
)

SCENES = NIGHTS + COMMANDS
