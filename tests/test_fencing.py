"""ReleaseLease: the holder is shut out for good, and a lost lease row comes back above everything it ever was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler import clock, keys
from reconciler.errors import OutOfTime
from tests.faults import PASS, Wire, Writer, meanwhile
from tests.kit import begun, command, delivered, everything, grants, killed, numbered, ordered, ticked, wait
from tests.world import JOB, NIGHT, World, event

LEASE = "LEASE#000"
RUN_ID = f"{JOB}/{NIGHT}/1"


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Six accounts to grant, two a page and a range."""
    with live.deployed(monkeypatch):
        live.set(range_size=2, page_size=2)
        grants(live, *numbered(6))
        yield live


@pytest.mark.parametrize("row", ["stands", "was lost"])
@pytest.mark.parametrize("writer", ["commit", "complete", "end"])
def test_after_its_lease_was_released_the_old_holder_cannot_commit(
    live: World, monkeypatch: pytest.MonkeyPatch, writer: Writer, row: str
) -> None:
    live.set(range_size=2, page_size=2)
    grants(live, *numbered(6))
    then: list[object] = []

    def release() -> None:
        if row == "was lost":
            live.delete_control(LEASE)
        ordered(live, "ReleaseLease", segment="000")
        then.append(without_slots(live))

    with live.deployed(monkeypatch):
        wire = Wire(live.client)
        if writer == "end":
            wire.next("commit", meanwhile(lambda: live.clock.advance(100)))
        wire.next(writer, *([PASS] if writer == "commit" else []), meanwhile(release))
        (attempt,) = delivered(live, event("nightly"))["attempts"]
        assert (attempt["outcome"], attempt["generation"]) == ("lost", 1)
        assert [without_slots(live)] == then, "neither commit nor end of the attempt"
        assert ticked(live) == [(NIGHT, "completed")]
    assert live.lease()["generation"] == 3
    assert set(live.versions().values()) == {1}
    assert live.interval()["accounts"] == 6


def without_slots(world: World) -> dict[str, list[dict[str, Any]]]:
    """Every row but those of the IdempotencyTable."""
    return {table: rows for table, rows in everything(world).items() if table != "IdempotencyTable"}


def test_the_audit_of_the_interval_tells_who_was_released_by_whom(night: World) -> None:
    killed(night, Wire(night.client), "commit", 2, owner="worker-7")
    lease = night.lease()
    told = ordered(night, "ReleaseLease", "rl-1", segment="000", requested_by="bea", reason="it hangs")
    assert told == {
        "segment": "000",
        "generation": 2,
        "loser": "worker-7",
        "loser_generation": 1,
        "restored": False,
    }
    (event_row,) = [row for row in night.audit() if row["event"] == "RELEASED"]
    (command_row,) = night.audit(JOB)
    assert event_row["run_id"] == RUN_ID
    for row in (event_row, command_row):
        assert (row["event"], row["actor"], row["reason"]) == ("RELEASED", "bea", "it hangs")
        assert (row["segment"], row["generation"]) == ("000", 2)
        assert (row["loser"], row["loser_generation"]) == ("worker-7", 1)
        assert row["loser_seen_at"] == clock.text(lease["progress_at_ms"])
    row = night.lease()
    assert not {"owner", "expires_at_ms"} & set(row)
    assert row["token"] != lease["token"]
    assert ticked(night, 1) == [(NIGHT, "completed")], "nobody waits for the lease to expire"
    assert "TAKEOVER" not in night.events()


def test_a_free_lease_may_be_released_too(night: World) -> None:
    begun(night)
    before = night.lease()
    told = ordered(night, "ReleaseLease", segment="000")
    assert (told["generation"], told["loser"], told["loser_generation"]) == (1, None, None)
    assert night.lease()["token"] != before["token"]
    assert "RELEASED" not in night.events()
    assert ticked(night) == [(NIGHT, "completed")]


def test_a_renewal_does_not_get_in_the_way_of_a_release(night: World) -> None:
    killed(night, Wire(night.client), "commit")
    renewed = meanwhile(lambda: night.put_control(LEASE, expires_at_ms=night.clock.wall_ms + 999_000))
    wire = Wire(night.client)
    wire.next("verb", renewed)
    ordered(night, "ReleaseLease", segment="000")
    assert len(wire.requests("verb")) == 1
    assert "expires_at_ms" not in night.lease()


def test_a_lease_that_was_taken_over_meanwhile_is_released_from_its_new_holder(night: World) -> None:
    wire = Wire(night.client)
    killed(night, wire, "commit", owner="old")
    wait(night)
    wire.next("verb", meanwhile(lambda: killed(night, wire, "commit", kind="tick", owner="new")))
    told = ordered(night, "ReleaseLease", segment="000")
    assert (told["loser"], told["loser_generation"], told["generation"]) == ("new", 2, 3)


# a lost row


def forgotten(world: World, *kept: str) -> None:
    """Every control row that may tell a generation is gone, but CONTROL, INTERVAL and those that contain `kept`."""
    for sort_key in world.control():
        if not sort_key.startswith(("CONTROL", "INTERVAL", *kept)):
            world.delete_control(sort_key)


def rerun_without_a_holder(world: World) -> None:
    ordered(world, "Rerun", interval=NIGHT, force=True)
    assert world.lease()["generation"] == 42


def released_without_a_holder(world: World) -> None:
    ordered(world, "ReleaseLease", segment="000")
    assert world.lease()["generation"] == 42


def put_progress(world: World) -> None:
    world.put_control(keys.progress(NIGHT, 1, "000"), generation=42)


def put_audit(world: World) -> None:
    (row,) = [row for row in world.audit() if row["event"] == "STARTED"]
    world.put_control(row["sk"], generation=42)


def put_view(world: World) -> None:
    (row, *_) = world.scan("EntitlementsTable")
    world.put_row("EntitlementsTable", **row | {"generation": 42})
    forgotten(world)


@pytest.mark.parametrize(
    "highest", [rerun_without_a_holder, released_without_a_holder, put_progress, put_audit, put_view]
)
def test_a_restored_row_is_above_every_generation_on_record(night: World, highest: Callable[[World], None]) -> None:
    delivered(night, event("nightly"))
    night.put_control(LEASE, generation=41)
    highest(night)
    night.delete_control(LEASE)
    told = ordered(night, "ReleaseLease", segment="000")
    assert told == {"segment": "000", "generation": 43, "loser": None, "loser_generation": None, "restored": True}
    row = night.lease()
    assert (row["generation"], row["schema"], "owner" in row, "paused" in row) == (43, 1, False, False)


def test_a_generation_may_stand_behind_many_pages_of_the_view(night: World) -> None:
    grants(night, *numbered(20))
    delivered(night, event("nightly"))
    night.view_row("zz")
    row = {"segment": "000", "account_id": "zz", "entitlements": {}, "version": 1, "generation": 99}
    night.put_row("EntitlementsTable", **row)
    night.delete_control(LEASE)
    assert ordered(night, "ReleaseLease", segment="000")["generation"] == 100


def test_only_the_records_of_the_segment_count(live: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(live.client, {"SegmentCount": 2})
    grants(world, *numbered(12))
    with world.deployed(monkeypatch):
        delivered(world, event("nightly"))
        world.put_control(keys.progress(NIGHT, 1, "000"), generation=42)
        for segment in ("000", "001"):
            world.delete_control(keys.lease(segment))
        assert ordered(world, "ReleaseLease", segment="001")["generation"] == 2
        assert ordered(world, "ReleaseLease", segment="000")["generation"] == 43


def test_a_row_that_comes_back_meanwhile_is_released_and_not_overwritten(night: World) -> None:
    delivered(night, event("nightly"))
    lease = night.lease()
    night.delete_control(LEASE)
    back = meanwhile(lambda: night.put_control(LEASE, **lease | {"generation": 7}))
    Wire(night.client).next("verb", back)
    told = ordered(night, "ReleaseLease", segment="000")
    assert (told["restored"], told["generation"]) == (False, 8)


def test_a_row_is_not_put_back_without_the_time_to_read_the_whole_view(night: World) -> None:
    delivered(night, event("nightly"))
    night.delete_control(LEASE)
    before = everything(night)
    with pytest.raises(OutOfTime):
        delivered(night, command("ReleaseLease", segment="000"), remaining_s=75)
    assert everything(night) == before
