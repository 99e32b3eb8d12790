"""What docs/operations.md says of a lost or spoilt control table, done step by step with the real verbs.

A backup is a copy of the rows here, taken at the moment to which AWS would restore.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.errors import LeaseRowMissing, VerbRefused
from tests.faults import Wire
from tests.kit import command, delivered, grants, killed, numbered, ordered, ticked, wait
from tests.world import JOB, NIGHT, World, event

NEXT = "2026-11-30"
Rows = list[dict[str, Any]]


@pytest.fixture
def night(live: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Six accounts, two a page and a range; the first night is complete, by generation 1."""
    with live.deployed(monkeypatch):
        live.set(range_size=2, page_size=2)
        grants(live, *numbered(6))
        assert delivered(live, event("nightly"))["outcome"] == "completed"
        yield live


def lost(world: World, rows: Rows) -> None:
    """The control table is as it was when `rows` were copied."""
    for sort_key in world.control():
        world.delete_control(sort_key)
    for row in rows:
        world.put_row("ControlTable", **row)


def second_night(world: World) -> Wire:
    """The second night: killed, taken over, and then its holder stalls with a commit on its way. Generation 3."""
    for name in numbered(6):
        world.account(name, plan="platinum")
    world.clock.set(f"{NEXT}T02:00:05Z")
    wire = Wire(world.client)
    killed(world, wire, "commit", 2, owner="first")
    wait(world)
    killed(world, wire, "commit", 2, owner="stalled", kind="tick")
    assert world.lease()["generation"] == 3
    return wire


def fence_above(world: World) -> list[int]:
    """The documented order: pause, delete the lease rows by hand, put each back; their generations."""
    ordered(world, "Pause")
    segments = keys.segments(world.settings.segment_count)
    for segment in segments:
        world.delete_control(keys.lease(segment))
    return [ordered(world, "ReleaseLease", segment=segment)["generation"] for segment in segments]


def generations(world: World) -> set[int]:
    """Every generation on record, in the view and in the control table."""
    rows = [*world.scan("EntitlementsTable"), *world.scan("ControlTable")]
    return {row["generation"] for row in rows if "generation" in row and not row.get("sk", "").startswith("LEASE#")}


@pytest.mark.parametrize("backup", ["of the first night", "none"])
def test_a_restored_table_is_fenced_above_every_generation_the_view_has_seen(night: World, backup: str) -> None:
    copied = night.scan("ControlTable") if backup != "none" else []
    second_night(night)
    lost(night, copied)
    (generation,) = fence_above(night)
    assert generation == 4, "the view was written by 3"
    assert generation > max(generations(night) - {4})
    assert night.lease()["paused"] == night.row("CONTROL")["pause_no"], "nothing runs until a person resumes"


def test_a_holder_from_before_the_restore_can_change_nothing(night: World) -> None:
    copied = night.scan("ControlTable")
    wire = second_night(night)
    late = wire.requests("commit")[-1]
    lost(night, copied)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        night.client.transact_write_items(**late)
    fence_above(night)
    before = night.view()
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        night.client.transact_write_items(**late)
    assert night.view() == before


@pytest.mark.parametrize("backup", ["of the first night", "in mid-run", "none"])
def test_after_a_restore_the_night_completes_and_every_account_was_changed_once(night: World, backup: str) -> None:
    copied = night.scan("ControlTable") if backup == "of the first night" else []
    second_night(night)
    if backup == "in mid-run":
        copied = night.scan("ControlTable")
    lost(night, copied)
    fence_above(night)
    assert ticked(night)[0][1] == "paused"
    ordered(night, "Resume")
    wait(night)
    outcomes = dict(ticked(night))
    assert set(outcomes.values()) == {"completed"}
    assert NEXT in outcomes
    assert {name: row["plan"] for name, row in night.view().items()} == dict.fromkeys(numbered(6), "platinum")
    assert set(night.versions().values()) == {2}, "granted in the first night, changed once in the second"
    assert night.interval(NEXT)["checksum"] == night.view_checksum()


def test_only_what_never_was_on_record_may_be_revoked_beyond_the_bound(night: World) -> None:
    """What was revoked after the backup is not counted: the documents say to look at a preview before resuming."""
    night.set(max_revocations=2)
    for name in numbered(3):
        night.account(name, status="cancelled")
    night.clock.set(f"{NEXT}T02:00:05Z")
    copied = night.scan("ControlTable")
    wait(night)
    assert ("tripped", NEXT) in [(outcome, night_) for night_, outcome in ticked(night)]
    lost(night, copied)
    assert "pause" not in night.row("CONTROL"), "the guard's pause is gone, too"
    fence_above(night)
    seen = ordered(night, "Preview")
    assert seen["revoked"] == 1
    ordered(night, "Resume")
    wait(night)
    assert dict(ticked(night))[NEXT] == "completed"


def test_without_its_lease_rows_nothing_runs_meanwhile(night: World) -> None:
    night.delete_control(keys.lease("000"))
    night.clock.set(f"{NEXT}T02:00:05Z")
    with pytest.raises(LeaseRowMissing, match="ReleaseLease"):
        ticked(night)
    ordered(night, "ReleaseLease", segment="000")
    assert ticked(night) == [(NEXT, "completed")]


def test_a_command_from_before_the_restore_is_not_remembered(night: World) -> None:
    copied = night.scan("ControlTable")
    ordered(night, "Rerun", "rr-1", interval=NIGHT, force=True)
    lost(night, copied)
    sent = command("Rerun", "rr-1", interval=NIGHT, force=True)
    for row in night.scan("IdempotencyTable"):
        night.client.delete_item(TableName=night.tables["IdempotencyTable"], Key={"id": {"S": row["id"]}})
    assert delivered(night, sent)["outcome"] == "done"


# --------------------------------------------------------------------------------------------- a stack made anew


def test_a_stack_of_the_same_name_goes_on_with_the_restored_tables_and_another_does_not(night: World) -> None:
    """The rows belong to the job, which is named as the stack is."""
    assert delivered(night, event("tick", f"{NIGHT}T02:05:00Z"))["outcome"] == "idle"
    night.set(job_name="another")
    night.created_at = f"{NEXT}T00:00:00.000Z"
    night.clock.set(f"{NEXT}T02:00:05Z")
    assert ticked(night) == [(NEXT, "completed")], "its calendar begins with its own table"
    rows = {row["pk"] for row in night.scan("ControlTable")}
    assert rows == {JOB, "another"}
    with pytest.raises(VerbRefused, match="not on record"):
        delivered(night, command("Verify", interval=NIGHT))


def test_another_segment_count_on_the_same_tables_is_refused_and_setting_it_back_is_enough(night: World) -> None:
    night.set(segment_count=2)
    with pytest.raises(Exception, match="set it back"):
        ticked(night)
    night.set(segment_count=1)
    night.clock.set(f"{NEXT}T02:00:05Z")
    assert ticked(night) == [(NEXT, "completed")]


def test_the_commands_of_the_documents_bring_a_table_back_under_its_own_name(live: World) -> None:
    """As far as the emulator keeps backups: point in time → copy, its backup → the table's own name."""
    client, table = live.client, live.tables["ControlTable"]
    live.put_row("ControlTable", pk=JOB, sk="CONTROL", schema=1)
    client.restore_table_to_point_in_time(
        SourceTableName=table, TargetTableName=f"{table}-copy", UseLatestRestorableTime=True
    )
    client.get_waiter("table_exists").wait(TableName=f"{table}-copy")
    arn = client.create_backup(TableName=f"{table}-copy", BackupName="copy")["BackupDetails"]["BackupArn"]
    client.delete_table(TableName=table)
    client.get_waiter("table_not_exists").wait(TableName=table)
    client.restore_table_from_backup(TargetTableName=table, BackupArn=arn)
    client.get_waiter("table_exists").wait(TableName=table)
    assert list(live.control()) == ["CONTROL"]
