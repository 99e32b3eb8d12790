"""Nights in which things go wrong, for tests of what is said about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from tests.faults import PASS, Wire, answered, meanwhile
from tests.kit import grants, killed, later, numbered
from tests.world import NIGHT, World

if TYPE_CHECKING:
    from reconciler.attempt import Result


def a_troubled_night(world: World) -> None:
    """Killed, delayed, taken over, failed, yielded, paused by the guard, with a rejected account and a live writer."""
    world.set(range_size=1, page_size=3, max_revocations=0)
    grants(world, *numbered(6))
    world.put("AccountsTable", "acct-0001", status="active", entitlements="no map")
    world.view_row("acct-9999", plan="gold")
    wire = Wire(world.client)

    def live_writer() -> None:
        world.view_row("acct-0002", plan="live")
        world.clock.advance(40)

    killed(world, wire, "commit", 2)
    assert world.run()[0].outcome == "delayed"
    wire.next("commit", PASS, answered("InternalDefect"))
    with pytest.raises(ClientError):
        later(world)
    assert later(world, remaining_s=40)[0].outcome == "out_of_time"
    wire.next("commit", meanwhile(live_writer))
    assert world.run(remaining_s=100)[0].outcome == "yielded"
    (tripped,) = later(world)
    assert tripped.outcome == "tripped"


def a_lost_night(world: World) -> Result:
    """A holder stalls after its first range, and wakes up when another has taken the lease."""
    world.set(range_size=2)
    grants(world, *numbered(6))

    def overtaken() -> None:
        world.put_control("LEASE#000", generation=2, token="worker-2's", owner="worker-2")

    Wire(world.client).next("commit", PASS, meanwhile(overtaken))
    (result,) = world.run("nightly", owner="worker-1")
    assert result.outcome == "lost"
    return result


def an_adopting_night(world: World) -> Result:
    """A commit of the holder's own had landed unseen: its next one finds the checkpoint further on."""
    world.set(range_size=2)
    grants(world, *numbered(6))
    progress = f"PROGRESS#{NIGHT}#1#000"
    landed = {"checkpoint": "acct-0003", "accounts": 4, "ranges": 2}
    Wire(world.client).next("commit", PASS, meanwhile(lambda: world.put_control(progress, **landed)))
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    return result
