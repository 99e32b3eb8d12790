"""Reads tables that are keyed `segment`, `account_id`, in order and consistently."""

from __future__ import annotations

from typing import Any

from reconciler import keys
from reconciler.invocation import Invocation
from reconciler.items import from_item, to_item
from reconciler.keys import ACCOUNT_ID, SEGMENT


def read_accounts(
    table: str, segment: str, *, after: str | None, upto: str | None, limit: int, invocation: Invocation
) -> tuple[list[dict[str, Any]], str | None]:
    """One consistent Query of a table keyed `segment`, `account_id`: its rows, and where to go on.

    The bounds may be ids that no table can hold: DynamoDB refuses an empty or over-long key in any place.
    """
    values = {":segment": segment}
    names = {"#segment": SEGMENT}
    condition = "#segment = :segment"
    request: dict[str, Any] = {}
    if upto is not None:
        if not (upto := keys.floor(upto)):
            return [], None
        values[":upto"] = upto
        names["#account_id"] = ACCOUNT_ID
        condition += " AND #account_id <= :upto"
    if after:  # nothing sorts below the empty id, so that one bounds nothing
        request["ExclusiveStartKey"] = to_item({SEGMENT: segment, ACCOUNT_ID: keys.floor(after)})
    answer = invocation.read(
        "query",
        TableName=table,
        KeyConditionExpression=condition,
        ExpressionAttributeNames=names,
        ExpressionAttributeValues=to_item(values),
        ConsistentRead=True,
        Limit=limit,
        **request,
    )
    last = answer.get("LastEvaluatedKey")
    return [from_item(item) for item in answer["Items"]], last[ACCOUNT_ID]["S"] if last else None
