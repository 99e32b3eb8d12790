"""What Powertools Idempotency forgets, and that nothing rests on it."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.errors import TransientFailure
from tests.faults import PASS, Fault, Wire, answered, meanwhile
from tests.kit import delivered, everything, grants, nth, numbered, wait
from tests.world import World, event


@pytest.mark.field("B53")
def test_a_retry_after_an_error_repeats_nothing_though_its_slot_was_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at account 50 of 100."""
    world.set(range_size=10)
    grants(world, *numbered(100))
    Wire(world.client).next("commit", *nth(6, answered("InternalServerDefect")))
    with world.deployed(monkeypatch):
        with pytest.raises(ClientError):
            delivered(world, event("nightly"))
        assert world.scan("IdempotencyTable") == []
        before = everything(world)["EntitlementsTable"]

        retried = delivered(world, event("nightly"))  # Lambda's own retry comes before the backoff is over
        assert retried["outcome"] == "waiting"
        assert everything(world)["EntitlementsTable"] == before

        wait(world)
        resumed = delivered(world, event("tick", "2026-11-29T02:05:00Z"))
    (attempt,) = resumed["attempts"]
    assert (attempt["outcome"], attempt["resumed_after"], attempt["accounts"]) == ("completed", "acct-0049", 50)
    assert world.versions() == dict.fromkeys(numbered(100), 1)


def steal(world: World) -> None:
    world.put_control(keys.lease("000"), generation=7, token="theirs")


def pause(world: World) -> None:
    world.put_control(keys.lease("000"), paused=1)


def slow_down(world: World) -> None:
    world.clock.advance(40)


def age(world: World) -> None:
    world.put_control(keys.progress("2026-11-29", 1, "000"), schema=2)


@pytest.mark.field("B53")
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        pytest.param(PASS, "completed", id="nothing"),
        pytest.param(slow_down, "yielded", id="no time left"),
        pytest.param(steal, "lost", id="fenced"),
        pytest.param(pause, "paused", id="paused"),
        pytest.param("revoke", "tripped", id="too many revocations"),
        pytest.param(answered("ThrottlingException"), TransientFailure, id="AWS would not take it"),
        pytest.param(answered("AccessDeniedException"), ClientError, id="a permission is missing"),
    ],
)
def test_a_partial_run_is_an_answer_and_a_failed_one_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: object, outcome: str | type[Exception]
) -> None:
    """What is answered is remembered for its slot; what is raised may be tried again."""
    world.set(range_size=1)
    grants(world, *numbered(3))
    if fault == "revoke":
        world.set(max_revocations=0)
        world.view_row("acct-0002-left", plan="gold")
    wire = Wire(world.client)
    disturbed = [fault] if isinstance(fault, Fault) else [meanwhile(lambda: fault(world))] if callable(fault) else []
    wire.next("commit", PASS, then=disturbed[0] if disturbed else PASS)
    with world.deployed(monkeypatch):
        if isinstance(outcome, str):
            answer = delivered(world, event("nightly"), remaining_s=100)
            assert answer["outcome"] == outcome
            assert delivered(world, event("nightly"))["first"] == answer
        else:
            with pytest.raises(outcome):
                delivered(world, event("nightly"))
            wire.next("commit")
            assert delivered(world, event("nightly"))["outcome"] in ("waiting", "completed")
    assert world.versions()["acct-0000"] == 1
