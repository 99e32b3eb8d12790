"""Deliveries come twice, at the same time, and while somebody still works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler import aws, clock
from tests.faults import LOST, Wire, meanwhile
from tests.kit import begun, delivered, emitted, everything, grants, killed, numbered, watched
from tests.world import World, event
from tools.faults import Hold, repeat
from tools.proxy import proxy
from tools.wire import Call

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.field("B01")
def test_a_repeated_delivery_gets_the_same_answer_and_touches_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants(world, *numbered(3))
    with world.deployed(monkeypatch):
        first = delivered(world, event("nightly"))
        before = everything(world)
        with emitted() as numbers, watched(world.client) as sent:
            second = delivered(world, event("nightly"))
    assert first["outcome"] == "completed"
    assert second == {"trigger": "nightly", "slot": first["slot"], "outcome": "duplicate", "first": first}
    assert everything(world) == before
    assert [name for name in sent if "Idempotency" not in name] == []
    assert numbers == {"DuplicateDeliveries": [1]}


@pytest.mark.field("B01")
@pytest.mark.parametrize(
    ("kind", "outcome"), [("nightly", "duplicate"), ("tick", "delayed")], ids=["same slot", "another slot"]
)
def test_a_delivery_beside_a_working_holder_is_answered_and_leaves_it_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, outcome: str
) -> None:
    grants(world, *numbered(3))
    wire = Wire(world.client)
    beside: list[dict[str, object]] = []
    lease: list[dict[str, object]] = []

    def second_delivery() -> None:
        lease.append(world.lease())
        beside.append(delivered(world, event(kind)))
        lease.append(world.lease())

    wire.next("commit", meanwhile(second_delivery))
    with world.deployed(monkeypatch):
        first = delivered(world, event("nightly"))
    assert beside[0]["outcome"] == outcome
    if outcome == "duplicate":
        assert beside[0]["first"] is None
    assert lease[0] == lease[1]
    assert first["outcome"] == "completed"
    assert set(world.versions().values()) == {1}


@pytest.mark.field("B03")
def test_a_trigger_that_meets_a_long_lease_gives_up_at_once_and_the_next_one_takes_over(world: World) -> None:
    world.set(lease_seconds=900.0)
    grants(world, *numbered(3))
    wire = Wire(world.client)
    acquired_ms = world.clock.wall_ms
    killed(world, wire, "commit", owner="A")
    expires_at_ms = world.lease()["expires_at_ms"]

    world.clock.advance(600)
    began = world.clock.monotonic()
    (delayed,) = world.run(owner="B", remaining_s=900)
    assert delayed.outcome == "delayed"
    assert delayed.held_until == clock.text(expires_at_ms)
    assert world.clock.monotonic() - began < 1

    world.clock.wall_ms = acquired_ms + 907_000
    (taken,) = world.run(owner="C")
    assert (taken.outcome, taken.generation) == ("completed", 2)
    assert set(world.versions().values()) == {1}


@pytest.mark.field("B05")
def test_a_change_whose_answer_was_lost_is_made_once(world: World) -> None:
    """moto forgets request tokens, so only the conditions keep the repeat out."""
    world.set(range_size=1)
    grants(world, *numbered(3))
    wire = Wire(world.client)
    wire.next("commit", LOST, LOST, LOST)
    (result,) = world.run("nightly")
    assert result.outcome == "completed"
    assert (world.interval()["accounts"], world.interval()["granted"]) == (3, 3)
    assert world.versions() == dict.fromkeys(numbered(3), 1)


@pytest.mark.field("B05", "B19")
@pytest.mark.parametrize("fault", ["the answer comes after the read timeout", "the network delivers it twice"])
def test_a_change_that_the_service_saw_twice_is_made_once(
    live: World, emulator_url: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    live.set(connect_timeout_seconds=0.5, read_timeout_seconds=0.5)
    grants(live, *numbered(3))
    begun(live)
    with proxy(emulator_url) as between, monkeypatch.context() as patch:
        commits = between.on(is_commit, Hold("after") if "timeout" in fault else repeat)
        patch.setenv("AWS_ENDPOINT_URL", between.url)
        (result,) = live.run("nightly", invocation=live.invocation(client=aws.dynamodb(live.settings)))
    assert commits.matched
    assert result.outcome == "completed"
    assert (live.interval()["accounts"], live.interval()["granted"]) == (3, 3)
    assert live.versions() == dict.fromkeys(numbered(3), 1)


def is_commit(call: Call) -> bool:
    """Five items: LEASE, PROGRESS and three grants."""
    return call.operation == "TransactWriteItems" and len(call.request["TransactItems"]) == 5


@pytest.mark.field("B05")
def test_whoever_invokes_a_function_never_asks_twice_and_waits_longer_than_it_may_run() -> None:
    sources = {path: path.read_text("utf-8") for name in ("tools", "tests") for path in (ROOT / name).rglob("*.py")}
    callers = [source for source in sources.values() if re.search(r'\.client\("lambda", ', source)]
    assert callers
    for source in callers:
        assert re.search(r'"(max_attempts": 0|total_max_attempts": 1)\b', source)
        named = dict(re.findall(r"^([A-Z_]+) = (\d+)$", source, re.MULTILINE))
        assert max(int(named.get(value, value)) for value in re.findall(r"read_timeout=(\w+)", source)) > 900
