"""Checkpoints that could not be saved, are half written, or come from newer code."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.errors import SchemaTooNew, TransientFailure
from reconciler.watchdog import look
from tests.faults import NEVER_SENT, Fault, Wire, answered
from tests.kit import everything, grants, killed, later, numbered, wait
from tests.world import NIGHT, World


@pytest.mark.field("B37")
@pytest.mark.parametrize(
    ("fault", "raised"),
    [(NEVER_SENT, TransientFailure), (answered("AccessDeniedException"), ClientError)],
    ids=["no connection", "refused"],
)
@pytest.mark.parametrize("saved", [0, 1])
def test_a_checkpoint_that_was_not_saved_moves_nothing(
    world: World, fault: Fault, raised: type[Exception], saved: int
) -> None:
    world.set(range_size=2, page_size=2)
    grants(world, *numbered(6))
    wire = Wire(world.client)
    wire.next("commit", *[Fault()] * saved, then=fault)
    with pytest.raises(raised):
        world.run("nightly")
    assert world.progress().get("checkpoint") == (numbered(6)[1] if saved else None)
    wire.next("commit")
    (result,) = later(world)
    assert (result.outcome, result.accounts) == ("completed", 6 - 2 * saved)
    assert world.versions() == dict.fromkeys(numbered(6), 1)
    assert world.interval()["accounts"] == 6


@pytest.mark.field("B37")
def test_a_progress_row_without_a_position_means_the_start(world: World) -> None:
    grants(world, *numbered(4))
    killed(world, Wire(world.client), "commit")
    half = {"accounts": 3, "granted": 3, "view_rows": 3, "ranges": 1, "checksum": "f" * 64}
    world.put_control(keys.progress(NIGHT, 1, "000"), **half)
    (result,) = later(world)
    assert (result.outcome, result.resumed_after, result.accounts) == ("completed", None, 4)
    assert (world.interval()["accounts"], world.interval()["granted"]) == (4, 4)
    assert world.interval()["checksum"] == world.view_checksum()


@pytest.mark.field("B37")
@pytest.mark.parametrize("schema", [2, "1"])
@pytest.mark.parametrize(
    "sort_key", [keys.CONTROL, keys.lease("000"), keys.interval(NIGHT), keys.progress(NIGHT, 1, "000")]
)
def test_a_row_of_a_layout_this_code_does_not_know_is_a_clear_stop(world: World, sort_key: str, schema: object) -> None:
    world.set(range_size=2, page_size=2)
    grants(world, *numbered(4))
    killed(world, Wire(world.client), "commit", 2)
    world.put_control(sort_key, schema=schema)
    before = everything(world)
    wait(world)
    with pytest.raises(SchemaTooNew, match=f"{sort_key} has schema {schema!r}"):
        world.run()
    assert everything(world) == before


@pytest.mark.field("B37")
@pytest.mark.parametrize("sort_key", [keys.CONTROL, keys.interval(NIGHT)])
def test_the_watchdog_does_not_guess_at_a_layout_either(world: World, sort_key: str) -> None:
    killed(world, Wire(world.client), "complete")
    world.put_control(sort_key, schema=2)
    with pytest.raises(SchemaTooNew, match=sort_key):
        look(invocation=world.invocation())
