"""Reads tables that are keyed `segment`, `account_id`, in order and consistently."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from reconciler import keys
from reconciler.errors import TableKeysMismatch
from reconciler.invocation import Invocation
from reconciler.items import from_item, to_item
from reconciler.keys import ACCOUNT_ID, SEGMENT

FIRST = "\0"
"""The lowest account id that a table can hold."""


def read_accounts(
    table: str, segment: str, *, after: str | None, upto: str | None, limit: int, invocation: Invocation
) -> tuple[list[dict[str, Any]], str | None]:
    """One consistent Query of a table keyed `segment`, `account_id`: its rows, and where to go on.

    The bounds may be ids that no table can hold: DynamoDB refuses an empty or over-long key in any place. Both keys are
    in every condition, so that a table with other keys is refused however empty it is: raises TableKeysMismatch.
    """
    bound = ">= :bound"
    values = {":segment": segment, ":bound": FIRST}
    request: dict[str, Any] = {}
    if upto is not None:
        if not (upto := keys.floor(upto)):
            return [], None
        bound = "<= :bound"
        values[":bound"] = upto
    if after:  # nothing sorts below the empty id, so that one bounds nothing
        request["ExclusiveStartKey"] = to_item({SEGMENT: segment, ACCOUNT_ID: keys.floor(after)})
    try:
        answer = invocation.read(
            "query",
            TableName=table,
            KeyConditionExpression=f"#segment = :segment AND #account_id {bound}",
            ExpressionAttributeNames={"#segment": SEGMENT, "#account_id": ACCOUNT_ID},
            ExpressionAttributeValues=to_item(values),
            ConsistentRead=True,
            Limit=limit,
            **request,
        )
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationException":
            wanted = f"{SEGMENT} (HASH) and {ACCOUNT_ID} (RANGE), both text"
            raise TableKeysMismatch(f"table {table} must be keyed {wanted}: {error}") from error
        raise
    last = answer.get("LastEvaluatedKey")
    return [from_item(item) for item in answer["Items"]], last[ACCOUNT_ID]["S"] if last else None
