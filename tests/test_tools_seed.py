"""Seeded accounts are reproducible, and out of line exactly as announced; the verifier counts without the engine."""

from __future__ import annotations

import random
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from reconciler import checksum, keys
from tools import verify
from tools.seed import MINIMUM_ACCOUNTS, ODD_IDS, Seeded, plan, seed
from tools.tables import create_tables

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


def found(rows: Seeded) -> dict[str, int]:
    """Count what a reconciliation would find, by definition."""
    source = {row["account_id"]: row for row in rows.source}
    view = {row["account_id"]: row["entitlements"] for row in rows.view}
    kinds = {"granted": 0, "changed": 0, "revoked": 0, "rejected": 0}
    for account_id in source | view:
        record = source.get(account_id, {"status": "cancelled"})
        if record["status"] == "active" and not isinstance(record["entitlements"], dict):
            kinds["rejected"] += 1
        elif record["status"] == "cancelled":
            kinds["revoked"] += 1
        elif account_id not in view:
            kinds["granted"] += 1
        elif view[account_id] != record["entitlements"]:
            kinds["changed"] += 1
    return kinds


@pytest.mark.parametrize("changed", [0, 0.2, 1])
@pytest.mark.parametrize("accounts", [MINIMUM_ACCOUNTS, 100, 2000])
def test_the_announced_counts_are_those_of_the_rows(accounts: int, changed: float) -> None:
    rows = plan(accounts=accounts, seed=3, changed=changed)
    announced = {"granted": rows.granted, "changed": rows.changed, "revoked": rows.revoked, "rejected": rows.rejected}
    assert found(rows) == announced
    assert rows.accounts == accounts
    assert sum(announced.values()) == round((accounts - 1) * changed) + 1


def test_revoked_accounts_are_cancelled_or_gone() -> None:
    rows = plan(accounts=2000, seed=3)
    cancelled = sum(row["status"] == "cancelled" for row in rows.source)
    gone = len({row["account_id"] for row in rows.view} - {row["account_id"] for row in rows.source})
    assert (cancelled, gone) == (rows.revoked / 2, rows.revoked / 2)


def test_the_same_seed_gives_the_same_rows_and_another_gives_others() -> None:
    assert plan(accounts=50, seed=7) == plan(accounts=50, seed=7)
    assert plan(accounts=50, seed=7) != plan(accounts=50, seed=8)


@pytest.mark.parametrize("segment_count", [1, 4])
def test_every_account_lies_in_its_segment_and_odd_ids_are_there(segment_count: int) -> None:
    rows = plan(accounts=200, segment_count=segment_count)
    every = [*rows.source, *rows.view]
    assert set(ODD_IDS) <= {row["account_id"] for row in every}
    assert all(row["segment"] == keys.segment_of(row["account_id"], segment_count) for row in every)


@pytest.mark.parametrize(("accounts", "changed"), [(MINIMUM_ACCOUNTS - 1, 0.2), (100, -0.1), (100, 1.1)])
def test_impossible_plans_are_refused(accounts: int, changed: float) -> None:
    with pytest.raises(ValueError, match=r"accounts must be|changed must be"):
        plan(accounts=accounts, changed=changed)


def test_what_is_written_is_what_was_planned() -> None:
    rows = plan(accounts=120, seed=1, changed=0.5)
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        tables = create_tables(client, suffix="x1")
        accounts, view = tables["AccountsTable"], tables["EntitlementsTable"]
        seed(client, rows, accounts_table=accounts, entitlements_table=view)
        source_pages = verify.pages(client, accounts, "000", 50)
        view_rows = [row for page in verify.pages(client, view, "000", 50) for row in page]
        wide = verify.pages(client, accounts, "000", 1000)
    assert [len(page) for page in source_pages[:-1]] == [50] * (len(source_pages) - 1)
    assert sum(map(len, source_pages)) == len(wide[0]) == len(rows.source)
    assert verify.versions(view_rows) == {row["account_id"]: row["version"] for row in rows.view}
    expected = sum(checksum.digest(row["account_id"], row["entitlements"]) for row in rows.view)
    assert verify.view_checksum(view_rows) == checksum.hex_text(expected)


def test_a_read_ends_only_where_no_key_is_left() -> None:
    """A page may be empty and still go on, and the last one may be empty: only a missing key is an end."""
    answers: list[Any] = [
        {"Items": [{"account_id": {"S": "a"}}], "LastEvaluatedKey": {"account_id": {"S": "a"}}},
        {"Items": [], "LastEvaluatedKey": {"account_id": {"S": "b"}}},
        {"Items": []},
    ]

    class Client:
        def query(self, **_: Any) -> Any:
            return answers.pop(0)

    client: DynamoDBClient = Client()  # type: ignore[assignment]  # a hand-made client: only `query` is called
    assert verify.pages(client, "t", "000", 1) == [[{"account_id": {"S": "a"}}], [], []]


@pytest.mark.parametrize(
    ("stored", "plain"),
    [
        ({"N": "7"}, "7"),
        ({"N": "0.50"}, "0.5"),
        ({"N": "1E+2"}, "100"),
        ({"N": "-0"}, "0"),
        ({"N": "9007199254740993"}, "9007199254740993"),
        ({"BOOL": True}, "true"),
        ({"S": 'é"'}, '"\\u00e9\\""'),
        ({"NULL": True}, "null"),
        ({"L": [{"N": "1"}, {"S": "x"}]}, '[1,"x"]'),
        ({"M": {"b": {"N": "1"}, "a": {"BOOL": False}}}, '{"a":false,"b":1}'),
    ],
)
def test_canonical_json_is_sorted_plain_and_ascii(stored: Any, plain: str) -> None:
    row = {"account_id": {"S": "a"}, "entitlements": stored}
    other = {"account_id": {"S": "a"}, "entitlements": {"S": "other"}}
    expected = sha256(f'["a",{plain}]'.encode()).hexdigest()
    assert verify.view_checksum([row]) == expected != verify.view_checksum([other])


def test_the_checksum_does_not_depend_on_the_order_of_rows() -> None:
    rows: list[dict[str, Any]] = [
        {"account_id": {"S": str(n)}, "entitlements": {"M": {"rate": {"N": str(Decimal(n) / 4)}}}} for n in range(40)
    ]
    mixed = random.Random(1).sample(rows, len(rows))
    assert verify.view_checksum(rows) == verify.view_checksum(mixed)
