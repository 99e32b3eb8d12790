"""Live writers: the source first, then the view, on the version read, which they raise.

One that dies in between leaves a source that the view does not follow; the next night makes it good.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from reconciler.items import from_item, to_item
from tests.simulator.ledger import Ledger

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


def change(client: DynamoDBClient, ledger: Ledger, rng: Random, account_id: str, mark: str) -> None:
    """Change one account on both sides. A row leaves the source only where the view keeps the account."""
    key = to_item({"segment": ledger.segment(account_id), "account_id": account_id})
    wanted: dict[str, Any] = {"plan": mark}
    kind = rng.random()
    with ledger.in_flight(account_id):
        if kind < 0.2 and ledger.view_row(account_id) is not None:
            client.delete_item(TableName=ledger.tables["AccountsTable"], Key=key)
            wanted = {}
        else:
            status = "cancelled" if kind < 0.35 else "active"
            row = to_item({"status": status, "entitlements": wanted})
            client.put_item(TableName=ledger.tables["AccountsTable"], Item=key | row)
            wanted = wanted if status == "active" else {}
        while not written(client, ledger.tables["EntitlementsTable"], key, wanted):
            pass


def written(client: DynamoDBClient, table: str, key: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Change the view, on the version read; False when somebody else came in between."""
    found = client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
    version = from_item(found).get("version") if found else None
    condition = "version = :read" if version is not None else "attribute_not_exists(version)"
    if found is None:
        condition = "attribute_not_exists(account_id)"
    values = {":wanted": wanted, ":next": (version or 0) + 1}
    if version is not None:
        values[":read"] = version
    try:
        client.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="SET entitlements = :wanted, version = :next REMOVE run_version",
            ConditionExpression=condition,
            ExpressionAttributeValues=to_item(values),
        )
    except client.exceptions.ConditionalCheckFailedException:
        return False
    return True
