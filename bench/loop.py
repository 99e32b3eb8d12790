"""The loop that a careful person writes without any of the promises, and that contenders 1 to 4 share.

Both sides are read with the Queries of the job, but for its bound on the account id, each page once; rows become plain
values by the job's own code, as what is compared here is what the promises cost. Effects are conditioned on the version
that was read, and every row that is written raises it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from bench.job import SEGMENT, Job
from reconciler.items import from_item, to_item

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

ACTIONS = 100
"""AWS limit of actions in one transaction."""

Row = dict[str, Any]
Account = tuple[str, Row | None, Row | None]
"""Account id, its source record, its view row."""


def pages(
    client: DynamoDBClient, table: str, limit: int, after: str | None = None
) -> Iterator[tuple[list[Row], str | None]]:
    """The rows of a table in order, a Query at a time, and where to go on (None: that was all)."""
    request: dict[str, Any] = {
        "TableName": table,
        "KeyConditionExpression": "#segment = :segment",
        "ExpressionAttributeNames": {"#segment": "segment"},
        "ExpressionAttributeValues": {":segment": {"S": SEGMENT}},
        "ConsistentRead": True,
        "Limit": limit,
    }
    if after is not None:
        request["ExclusiveStartKey"] = {"segment": {"S": SEGMENT}, "account_id": {"S": after}}
    while True:
        answer = client.query(**request)
        last = answer.get("LastEvaluatedKey")
        yield [from_item(item) for item in answer["Items"]], last["account_id"]["S"] if last else None
        if last is None:
            return
        request["ExclusiveStartKey"] = last


def accounts(client: DynamoDBClient, job: Job, after: str | None = None) -> Iterator[tuple[str | None, list[Account]]]:
    """The accounts of either side above `after`, a source page at a time, and up to which id that is (None: all)."""
    view = pages(client, job.view, job.page_size, after)
    rows: dict[str, Row] = {}
    reached = after or ""
    ended = False
    for records, upto in pages(client, job.source, job.page_size, after):
        while not ended and (upto is None or reached < upto):
            more, on = next(view)
            rows.update((row["account_id"], row) for row in more)
            reached, ended = on or "", on is None
        found: list[Account] = [
            (record["account_id"], record, rows.pop(record["account_id"], None)) for record in records
        ]
        gone = rows if upto is None else [*takewhile(upto.__ge__, rows)]
        found += [(account_id, None, rows.pop(account_id)) for account_id in [*gone]]
        yield upto, found


def effect(account: Account, table: str) -> dict[str, Any] | None:
    """The Update that brings one account in line; None when it is, or cannot be read."""
    account_id, record, row = account
    wanted = record["entitlements"] if record is not None and record["status"] == "active" else {}
    present = row["entitlements"] if row is not None else {}
    if wanted == present or not isinstance(wanted, dict):
        return None
    version = row["version"] if row is not None else 0
    values = {":entitlements": wanted, ":version": version + 1, ":now": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    if row is None:
        condition = "attribute_not_exists(account_id)"
    else:
        condition = "version = :read"
        values[":read"] = version
    return {
        "TableName": table,
        "Key": {"segment": {"S": SEGMENT}, "account_id": {"S": account_id}},
        "UpdateExpression": "SET entitlements = :entitlements, version = :version, updated_at = :now",
        "ConditionExpression": condition,
        "ExpressionAttributeValues": to_item(values),
    }


def effects(found: list[Account], table: str) -> list[dict[str, Any]]:
    """The effects of many accounts, as actions of a transaction."""
    return [{"Update": update} for account in found if (update := effect(account, table)) is not None]


def write(client: DynamoDBClient, actions: list[Any]) -> None:
    """Write them in as few transactions as AWS allows."""
    for start in range(0, len(actions), ACTIONS):
        client.transact_write_items(TransactItems=actions[start : start + ACTIONS])
