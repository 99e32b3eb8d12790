"""Leases that expire under a holder, outlive one, get lost, or are asked about by a clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from reconciler import keys
from reconciler.errors import LeaseRowMissing
from reconciler.items import to_item
from tests.faults import LOST, WRITERS, Wire, Writer, meanwhile
from tests.kit import delivered, everything, grants, killed, later, measured, nth, numbered, wait
from tests.world import World, event

SOURCES = sorted((Path(__file__).resolve().parents[1] / "src" / "reconciler").glob("*.py"))


@pytest.mark.field("B07")
@pytest.mark.parametrize("writer", ["commit", "complete", "end"])
def test_a_holder_that_slept_past_its_lease_writes_nothing_more(world: World, writer: Writer) -> None:
    """A stalls with a write on its way, B takes over and works, then A's write arrives."""
    world.set(range_size=2, page_size=2)
    grants(world, *numbered(6))
    wire = Wire(world.client)
    woken: list[object] = []

    def stall() -> None:
        wait(world)
        killed(world, wire, *(("complete", 1) if writer == "complete" else ("commit", 2)), kind="tick", owner="B")
        woken.append(everything(world))
        wire.sent.clear()

    if writer == "end":  # A's first range is so slow that A yields after it
        wire.next("commit", meanwhile(lambda: world.clock.advance(40)))
    wire.next(writer, *nth(2 if writer == "commit" else 1, meanwhile(stall)))
    with measured() as numbers:
        (result,) = world.run("nightly", owner="A", remaining_s=100)
    assert (result.outcome, result.generation) == ("lost", 1)
    assert numbers["LeaseLost"] == [1]
    assert world.lease()["generation"] == 2
    assert [everything(world)] == woken
    assert wire.sent == []


@pytest.mark.field("B09")
def test_no_cleanup_that_a_killed_process_would_skip_is_needed() -> None:
    """A `finally` counts, and closes what ends with the process; what others wait for is never left to one."""
    finals = [
        call.func
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Try)
        for statement in node.finalbody
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
    ]
    assert {ast.unparse(function) for function in finals} <= {
        *("count", "count_work", "metrics.flush_metrics"),
        *("self._answered.append", "self._clock.monotonic", "response.close"),
    }


@pytest.mark.field("B09")
def test_monotonic_time_never_meets_stored_time() -> None:
    """Stored times are epoch milliseconds in names that end in `_ms`, or UTC text."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare | ast.BinOp):
                text = ast.unparse(node)
                assert "monotonic" not in text or not any(word in text for word in ("_ms", "_at", "row")), (path, text)


@pytest.mark.field("B11")
def test_a_lease_that_expired_yesterday_is_free_though_its_row_is_still_there(world: World) -> None:
    grants(world, *numbered(2))
    killed(world, Wire(world.client), "commit")
    world.put_control(keys.lease("000"), expires_at_ms=world.clock.wall_ms - 86_400_000)
    (result,) = later(world)
    assert (result.outcome, result.generation) == ("completed", 2)


@pytest.mark.field("B11")
def test_an_answer_that_expired_yesterday_is_forgotten_though_its_row_is_still_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.deployed(monkeypatch):
        delivered(world, event("nightly"))
        (row,) = world.scan("IdempotencyTable")
        row["expiration"] -= 3 * 86_400
        world.client.put_item(TableName=world.tables["IdempotencyTable"], Item=to_item(row))
        again = delivered(world, event("nightly"))
    assert again["outcome"] == "idle"


@pytest.mark.field("B11")
def test_a_lost_lease_row_is_a_loud_error_and_never_starts_at_one_again(world: World) -> None:
    grants(world, *numbered(2))
    world.run("nightly")
    world.put_control(keys.lease("000"), generation=41)
    world.delete_control(keys.lease("000"))
    world.clock.advance(86_400)
    with pytest.raises(LeaseRowMissing, match=r"LEASE#000 is missing.*ReleaseLease"):
        world.run("nightly")
    assert not world.has(keys.lease("000"))
    assert world.interval("2026-11-30")["state"] == "EXPECTED"


@pytest.mark.field("B11")
def test_nothing_that_a_decision_rests_on_can_expire(world: World) -> None:
    """DynamoDB deletes by TTL whenever it likes, so only audit rows carry one."""
    grants(world, *numbered(2))
    world.put("AccountsTable", "bad", status="active", entitlements="no map")
    world.run("nightly")
    kept = {key.partition("#")[0] for key, row in world.control().items() if keys.CONTROL_TTL not in row}
    expiring = {key.partition("#")[0] for key, row in world.control().items() if keys.CONTROL_TTL in row}
    assert "REJECTED" in world.events()
    assert (kept, expiring) == ({"CONTROL", "LEASE", "INTERVAL", "PROGRESS"}, {"AUDIT"})


@pytest.mark.field("B13")
@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer != "trip"])
def test_a_write_that_landed_without_an_answer_is_not_taken_for_a_lost_lease(world: World, writer: Writer) -> None:
    """The repeat fails its own condition, because moto forgets request tokens as DynamoDB does after ten minutes."""
    grants(world, *numbered(2))
    wire = Wire(world.client)
    wire.next(writer, LOST)
    if writer == "end":
        wire.next("commit", meanwhile(lambda: world.clock.advance(800)))
    with measured() as numbers:
        (result,) = world.run("nightly")
    assert result.outcome == ("yielded" if writer == "end" else "completed")
    assert world.lease()["generation"] == 1
    assert "owner" not in world.lease()
    assert world.events().count("STARTED") == 1
    assert "LeaseLost" not in numbers


@pytest.mark.field("B15")
def test_a_holder_four_generations_behind_changes_nothing(world: World) -> None:
    """Its plan was fresh when it was checked; what counts is the condition of the write."""
    world.set(range_size=1, page_size=2)
    grants(world, *numbered(6))
    wire = Wire(world.client)
    woken: list[object] = []

    def stall() -> None:
        for name in "BCDE":
            wait(world)
            killed(world, wire, "commit", 2, kind="tick", owner=name)
        assert later(world, owner="F")[0].outcome == "completed"
        woken.append(everything(world))

    wire.next("commit", *nth(2, meanwhile(stall)))
    (result,) = world.run("nightly", owner="A")
    assert result.outcome == "lost"
    assert [everything(world)] == woken
    assert [row["generation"] for row in world.scan("EntitlementsTable")] == [1, 2, 3, 4, 5, 6]
    assert set(world.versions().values()) == {1}


@pytest.mark.field("B15")
def test_nothing_is_ever_deleted_by_its_generation_or_otherwise() -> None:
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert "delete_item" not in text, path
        assert '"Delete"' not in text, path
