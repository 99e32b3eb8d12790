"""What the tables say, found out without the engine: none of its code is used here, so that it can be wrong alone.

The checksum is the sum, modulo 2^256, of the SHA-256 of the canonical JSON of each row's [account_id, entitlements]:
sorted keys, no spaces, ASCII escapes, numbers in their shortest plain notation.
"""

from __future__ import annotations

from decimal import Decimal
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Row = dict[str, Any]


def pages(client: DynamoDBClient, table: str, segment: str, page_size: int) -> list[list[Row]]:
    """Read a segment from its first to its last row, and return the pages: the fewest reads there can be."""
    found: list[list[Row]] = []
    start: dict[str, Any] = {}
    while not found or start:
        answer = client.query(
            TableName=table,
            KeyConditionExpression="#segment = :segment",
            ExpressionAttributeNames={"#segment": "segment"},
            ExpressionAttributeValues={":segment": {"S": segment}},
            ConsistentRead=True,
            Limit=page_size,
            **start,
        )
        found.append([dict(item) for item in answer["Items"]])
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]} if "LastEvaluatedKey" in answer else {}
    return found


def view_checksum(rows: list[Row]) -> str:
    """Return the checksum of view rows in DynamoDB's own notation, as 64 hex digits."""
    total = 0
    for row in rows:
        text = f"[{dumps(row['account_id']['S'])},{_canonical(row['entitlements'])}]"
        total += int.from_bytes(sha256(text.encode("ascii")).digest(), "big")
    return f"{total % 2**256:064x}"


def _canonical(value: dict[str, Any]) -> str:
    """Canonical JSON of one attribute value, e.g. {"N": "2.50"} → 2.5."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            plain = f"{Decimal(content):f}" if Decimal(content) else "0"
            return plain.rstrip("0").rstrip(".") if "." in plain else plain
        case "M":
            return "{" + ",".join(f"{dumps(name)}:{_canonical(content[name])}" for name in sorted(content)) + "}"
        case "L":
            return "[" + ",".join(map(_canonical, content)) + "]"
        case "BOOL":
            return "true" if content else "false"
        case "NULL":
            return "null"
        case _:
            return dumps(content)


def versions(rows: list[Row]) -> dict[str, int]:
    """Return account id → version, 0 for a row without one."""
    return {row["account_id"]["S"]: int(row.get("version", {}).get("N", 0)) for row in rows}


def growth(before: list[Row], after: list[Row]) -> dict[str, int]:
    """Return account id → by how much its version rose; a new row rose from 0."""
    start = versions(before)
    return {account_id: version - start.get(account_id, 0) for account_id, version in versions(after).items()}


def out_of_line(source: list[Row], view: list[Row]) -> set[str]:
    """Return the accounts whose view is not what the source says; a source row that cannot be read says nothing."""
    wanted = {
        row["account_id"]["S"]: row["entitlements"] if row["status"]["S"] == "active" else {"M": {}} for row in source
    }
    actual = {row["account_id"]["S"]: row["entitlements"] for row in view}
    nothing: Row = {"M": {}}
    return {
        account_id
        for account_id in wanted | actual
        if _canonical(wanted.get(account_id, nothing)) != _canonical(actual.get(account_id, nothing))
    }
