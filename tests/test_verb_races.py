"""Commands that meet a worker, or each other, at the same moment: on the emulator, both having read the same rows.

Whoever wins, no generation is handed out twice, and whoever was fenced has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from reconciler import keys
from reconciler.commands import parse_command
from reconciler.deeds import DOES
from reconciler.errors import VerbRefused
from reconciler.source import AccountsTable
from reconciler.verbs import obey
from reconciler.view import EntitlementsTable
from reconciler.work import Job
from tests.conftest import live_client
from tests.faults import PASS, Wire, Writer, meanwhile
from tests.kit import command, give_up, grants, numbered, wait
from tests.world import NIGHT, World

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

ROUNDS = 4

Act = Callable[[World, "DynamoDBClient", Callable[[], object]], str]
"""One side of a race: what became of it. It calls the third just before it sends what the race is about."""


def commanding(verb: str, id: str | None = None, **detail: Any) -> Act:
    """A person's command."""

    def act(world: World, client: DynamoDBClient, ready: Callable[[], object]) -> str:
        Wire(client).next("verb", meanwhile(ready))
        sent = command(verb, id, **detail)
        asked = parse_command(sent, now_ms=world.clock.wall_ms, settings=world.settings)
        invocation = world.invocation(f"for {sent['id']}", client=client)
        job = Job(AccountsTable(invocation), EntitlementsTable(invocation))
        try:
            return obey(asked, DOES[verb], job, invocation=invocation)[0]
        except VerbRefused:
            return "refused"

    return act


def working(writer: Writer, number: int = 1) -> Act:
    """A worker, about to send its nth transaction of a kind."""

    def act(world: World, client: DynamoDBClient, ready: Callable[[], object]) -> str:
        Wire(client).next(writer, *[PASS] * (number - 1), meanwhile(ready))
        return world.run(owner="racer", client=client)[0].outcome

    return act


def race(world: World, url: str, *acts: Act) -> tuple[str, ...]:
    """Let them all read, and only then write; what became of each."""
    barrier = Barrier(len(acts), timeout=20)
    with ThreadPoolExecutor(len(acts)) as pool:
        racing = [pool.submit(act, world, live_client(url), barrier.wait) for act in acts]
    return tuple(one.result() for one in racing)


def night(url: str, state: str = "EXPECTED") -> World:
    """Six accounts to grant, two a page and a range; due, and EXPECTED, free to run or in need of repair."""
    world = World(live_client(url), RANGE_SIZE=2, PAGE_SIZE=2, MAX_ATTEMPTS=5)
    grants(world, *numbered(6))
    world.run("nightly", remaining_s=60)
    if state == "NEEDS_REPAIR":
        give_up(world)
        wait(world)
    world.clock.step_ms = 0
    return world


def assert_fenced(world: World) -> None:
    """Every generation was handed out once, and what the view holds was written once, by a generation in order."""
    given: list[int] = []
    for row in world.audit():
        if row["event"] in ("STARTED", "RESUMED", "TAKEOVER"):
            given.append(row["generation"])
        given += [fenced["generation"] for fenced in row.get("fenced", [])]
    given += [row["generation"] for row in world.audit("entitlements") if row["event"] == "RELEASED"]
    assert len(given) == len(set(given)), sorted(given)
    assert max(given) == world.lease()["generation"]
    written = sorted(world.scan("EntitlementsTable"), key=lambda row: str(row["account_id"]))
    generations = [row["generation"] for row in written]
    assert generations == sorted(generations)
    assert {row["version"] for row in written} <= {1}


def finish(world: World) -> None:
    """Whatever the race left, the night goes on to its end."""
    wait(world)
    if "pause" in world.row("CONTROL"):
        assert commanding("Resume")(world, world.client, lambda: None) == "done"
    if world.interval()["state"] == "NEEDS_REPAIR":
        assert commanding("Rerun", interval=NIGHT)(world, world.client, lambda: None) == "done"
    world.run()
    assert world.interval()["state"] == "COMPLETED"
    assert world.interval()["accounts"] == 6
    assert world.interval()["checksum"] == world.view_checksum()
    assert_fenced(world)


@pytest.mark.parametrize("place", ["checkpoint", "start"])
def test_of_a_rerun_and_an_acquire_only_one_lands_and_a_refused_worker_does_the_rerun(
    emulator_url: str, place: str
) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url)
        rerun = commanding("Rerun", interval=NIGHT, **{"from": place})
        told, ran = race(world, emulator_url, rerun, working("acquire"))
        assert (told, ran) in {("refused", "completed"), ("done", "completed")}
        assert world.lease()["generation"] == (2 if told == "done" else 1), "the rerun's, then the worker's"
        assert (world.interval()["rerun"], "RERUN" in world.events()) == ((1, True) if told == "done" else (0, False))
        finish(world)


def test_of_a_pause_and_an_acquire_only_one_lands_or_the_holder_stops_at_its_first_range(emulator_url: str) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url)
        told, ran = race(world, emulator_url, commanding("Pause"), working("acquire"))
        assert (told, ran) == ("done", "paused")
        assert len(world.view()) <= 2, "at most the range that was on its way"
        assert (world.lease()["paused"], "owner" in world.lease()) == (1, False)
        finish(world)


@pytest.mark.parametrize("writer", ["commit", "complete"])
def test_a_release_beside_a_commit_leaves_all_of_it_or_nothing(emulator_url: str, writer: Writer) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url)
        release = commanding("ReleaseLease", segment="000")
        told, ran = race(world, emulator_url, release, working(writer, 2 if writer == "commit" else 1))
        assert (told, ran) in {("done", "lost"), ("done", "completed")}
        committed = len(world.view())
        assert committed == world.progress().get("accounts", 0), "effects and checkpoint together"
        finish(world)


@pytest.mark.parametrize("place", ["checkpoint", "start"])
def test_two_reruns_at_once_are_two_reruns_one_after_the_other(emulator_url: str, place: str) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url, "NEEDS_REPAIR")
        reruns = [commanding("Rerun", id, interval=NIGHT, **{"from": place}) for id in ("r-1", "r-2")]
        assert race(world, emulator_url, *reruns) == ("done", "done")
        row = world.interval()
        assert (row["rerun"], row["pass"]) == (2, 3 if place == "start" else 1)
        told = [row for row in world.audit() if row["event"] == "RERUN"]
        assert sorted(row["rerun"] for row in told) == [1, 2]
        assert sorted(row["before"]["rerun"] for row in told) == [0, 1]
        world.run()
        assert world.interval()["accounts"] == 6
        assert_fenced(world)


def test_of_an_acknowledgement_and_a_rerun_the_rerun_is_never_silenced(emulator_url: str) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url, "NEEDS_REPAIR")
        acts = (commanding("Acknowledge", interval=NIGHT), commanding("Rerun", interval=NIGHT))
        told, rerun = race(world, emulator_url, *acts)
        assert told in ("done", "refused")
        assert rerun == "done"
        assert "acknowledged_at" not in world.interval()
        assert world.interval()["state"] == "RUNNING"
        (row,) = [row for row in world.audit() if row["event"] == "RERUN"]
        assert told == "done" or "acknowledged_at" not in row["before"]
        finish(world)


def test_a_rerun_beside_a_release_gives_each_its_own_generation(emulator_url: str) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url, "NEEDS_REPAIR")
        before = world.lease()["generation"]
        acts = (commanding("ReleaseLease", segment="000"), commanding("Rerun", interval=NIGHT))
        assert race(world, emulator_url, *acts) == ("done", "done")
        assert world.lease()["generation"] == before + 2
        finish(world)


def test_a_lost_row_is_put_back_once_by_two_persons_at_once(emulator_url: str) -> None:
    for _ in range(ROUNDS):
        world = night(emulator_url, "NEEDS_REPAIR")
        highest = world.lease()["generation"]
        world.delete_control(keys.lease("000"))
        acts = [commanding("ReleaseLease", id, segment="000") for id in ("l-1", "l-2")]
        assert race(world, emulator_url, *acts) == ("done", "done")
        assert world.lease()["generation"] == highest + 2
        told = [row for row in world.audit("entitlements") if row["event"] == "RELEASED"]
        assert sorted(row["restored"] for row in told) == [False, True]
        finish(world)
