"""A source and a view that somebody else made: named by name or ARN, and refused when their keys are other ones."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from reconciler.errors import TableKeysMismatch
from tests.faults import Wire, meanwhile
from tests.kit import delivered, grants, logged, numbered, ordered
from tests.world import NIGHT, World, event

TABLES = {"accounts_table": "AccountsTable", "entitlements_table": "EntitlementsTable"}
KEYS = {
    "other names": (("pk", "S"), ("sk", "S")),
    "no range key": (("segment", "S"),),
    "another range key": (("segment", "S"), ("name", "S")),
    "the other way round": (("account_id", "S"), ("segment", "S")),
    "numbers as ids": (("segment", "S"), ("account_id", "N")),
    "numbers as segments": (("segment", "N"), ("account_id", "S")),
}


def arn(world: World, table: str) -> str:
    return world.client.describe_table(TableName=world.tables[table])["Table"]["TableArn"]


def keyed(world: World, *keys: tuple[str, str]) -> str:
    """A new and empty table with these keys."""
    name = f"existing-{uuid.uuid4().hex[:8]}"
    made: Any = {
        "KeySchema": [
            {"AttributeName": key, "KeyType": kind} for (key, _), kind in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": type_} for key, type_ in keys],
    }
    world.client.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **made)
    world.client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    return name


@pytest.mark.parametrize("by_arn", [set(), {"accounts_table"}, {"entitlements_table"}, set(TABLES)], ids=sorted)
def test_a_night_on_tables_that_are_named_by_arn_is_the_same_night(live: World, by_arn: set[str]) -> None:
    """A live writer's refusal is read by its position, whatever the tables are called."""
    live.set(range_size=3, page_size=3, **{name: arn(live, TABLES[name]) for name in by_arn})
    grants(live, *numbered(6))
    live.view_row("acct-0001", plan="silver")
    live.view_row("gone", plan="gold")
    wire = Wire(live.client)
    wire.next("commit", meanwhile(lambda: live.view_row("acct-0001", version=2, plan="bronze")))
    assert [result.outcome for result in live.run("nightly")] == ["completed"]
    assert live.view() == {**{name: {"plan": "gold"} for name in numbered(6)}, "gone": {}}
    assert live.versions() == {**dict.fromkeys(numbered(6), 1), "acct-0001": 3, "gone": 2}
    named = {params["TableName"] for name, params in live.requests if name == "Query" and "Limit" in params}
    assert named == {getattr(live.settings, name) for name in TABLES}


@pytest.mark.parametrize("by_arn", [set(), {"accounts_table"}, {"entitlements_table"}, set(TABLES)], ids=sorted)
def test_a_preview_and_a_verification_take_the_same_names(
    live: World, monkeypatch: pytest.MonkeyPatch, by_arn: set[str]
) -> None:
    live.set(**{name: arn(live, TABLES[name]) for name in by_arn})
    grants(live, *numbered(3))
    with live.deployed(monkeypatch):
        assert ordered(live, "Preview")["granted"] == 3
        assert delivered(live, event("nightly"))["outcome"] == "completed"
        assert ordered(live, "Verify", interval=NIGHT)["matches"] is True


@pytest.mark.parametrize("which", TABLES)
@pytest.mark.parametrize("keys", KEYS)
def test_a_table_with_other_keys_is_named_and_nothing_is_written_or_rejected(
    live: World, keys: str, which: str
) -> None:
    """An empty one above all: what it cannot store would otherwise look like one bad account after the other."""
    grants(live, *numbered(3))
    table = keyed(live, *KEYS[keys])
    live.set(**{which: table})
    wanted = (
        rf"^table {table} must be keyed segment \(HASH\) and account_id \(RANGE\), both text: .*ValidationException"
    )
    with logged() as lines, pytest.raises(TableKeysMismatch, match=wanted):
        live.run("nightly")
    assert live.view() == {}
    assert live.interval()["last_error"]["error"] == "TableKeysMismatch"
    assert live.interval()["state"] == "RUNNING"
    assert "REJECTED" not in live.events()
    assert any(re.search(wanted[1:], str(line.get("exception"))) for line in lines)


def test_with_the_right_table_the_night_goes_on(live: World) -> None:
    grants(live, *numbered(3))
    right = live.settings.entitlements_table
    live.set(entitlements_table=keyed(live, *KEYS["other names"]))
    with pytest.raises(TableKeysMismatch):
        live.run("nightly")
    live.set(entitlements_table=right)
    live.clock.advance(live.settings.backoff_seconds)
    assert [result.outcome for result in live.run()] == ["completed"]
    assert live.view() == {name: {"plan": "gold"} for name in numbered(3)}


@pytest.mark.parametrize("which", TABLES)
def test_a_table_that_does_not_exist_is_told_by_aws(world: World, which: str) -> None:
    grants(world, *numbered(3))
    world.set(**{which: "nowhere"})
    with logged() as lines, pytest.raises(world.client.exceptions.ResourceNotFoundException):
        world.run("nightly")
    assert [line["table"] for line in lines if line["message"] == "refused by AWS"] == ["nowhere"]
    assert world.interval()["last_error"]["error"] == "ResourceNotFoundException"
