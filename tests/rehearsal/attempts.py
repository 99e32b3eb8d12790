"""What somebody with a role's credentials might try on a stack, whether the role is meant for it or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tests.rehearsal.account import Account
from tests.rehearsal.permissions import Permission
from tests.rehearsal.stack import Stack

Attempt = Callable[[Any, str, dict[str, Any]], object]
"""By whom, on which resource, and for a table the key of a row that it lacks."""

ABSENT = {"ConditionExpression": "attribute_exists(nothing)"}
"""No row has it: what is permitted is refused all the same, and changes nothing."""

ON_TABLES: dict[str, Attempt] = {
    "dynamodb:GetItem": lambda by, table, key: by.dynamodb.get_item(TableName=table, Key=key),
    "dynamodb:BatchGetItem": lambda by, table, key: by.dynamodb.batch_get_item(RequestItems={table: {"Keys": [key]}}),
    "dynamodb:Query": lambda by, table, key: by.dynamodb.query(
        TableName=table,
        KeyConditionExpression="#key = :key",
        ExpressionAttributeNames={"#key": next(iter(key))},
        ExpressionAttributeValues={":key": {"S": "nobody"}},
    ),
    "dynamodb:Scan": lambda by, table, _: by.dynamodb.scan(TableName=table, Limit=1),
    "dynamodb:PutItem": lambda by, table, key: by.dynamodb.put_item(TableName=table, Item=key, **ABSENT),
    "dynamodb:UpdateItem": lambda by, table, key: by.dynamodb.update_item(TableName=table, Key=key, **ABSENT),
    "dynamodb:DeleteItem": lambda by, table, key: by.dynamodb.delete_item(TableName=table, Key=key, **ABSENT),
    "dynamodb:BatchWriteItem": lambda by, table, key: by.dynamodb.batch_write_item(
        RequestItems={table: [{"DeleteRequest": {"Key": key}}]}
    ),
    "dynamodb:ConditionCheckItem": lambda by, table, key: by.dynamodb.transact_write_items(
        TransactItems=[{"ConditionCheck": {"TableName": table, "Key": key, **ABSENT}}]
    ),
    "dynamodb:DescribeTable": lambda by, table, _: by.dynamodb.describe_table(TableName=table),
    "dynamodb:UpdateTable": lambda by, table, _: by.dynamodb.update_table(
        TableName=table, BillingMode="PAY_PER_REQUEST"
    ),
    "dynamodb:DeleteTable": lambda by, table, _: by.dynamodb.delete_table(TableName=table),
}

ON_OTHERS: dict[str, tuple[str, Attempt]] = {
    "lambda:InvokeFunction": (
        "Function",
        lambda by, name, _: by.functions.invoke(FunctionName=name, InvocationType="DryRun"),
    ),
    "lambda:GetFunction": ("Function", lambda by, name, _: by.functions.get_function(FunctionName=name)),
    "sqs:SendMessage": ("Queue", lambda by, url, _: by.sqs.send_message(QueueUrl=url, MessageBody="tried")),
    "sqs:ReceiveMessage": ("Queue", lambda by, url, _: by.sqs.receive_message(QueueUrl=url)),
    "sns:Publish": ("Topic", lambda by, arn, _: by.sns.publish(TopicArn=arn, Message="tried")),
    "iam:GetRole": ("Role", lambda by, name, _: by.iam.get_role(RoleName=name)),
}
"""Action → the kind of resource that it is tried on, and how."""

QUEUES = ("Failed", "Undelivered")


def allowed(by: Account, stack: Stack) -> set[Permission]:
    """Try everything on every resource of a stack; what was not denied."""
    return {
        permission
        for permission, attempt, name, key in _attempts(stack)
        if not _denied(partial(attempt, by, name, key))
    }


def _attempts(stack: Stack) -> Iterator[tuple[Permission, Attempt, str, dict[str, Any]]]:
    for logical, physical in stack.resources.items():
        if logical.endswith("Table"):
            schema = stack.account.dynamodb.describe_table(TableName=physical)["Table"]["KeySchema"]
            key = {part["AttributeName"]: {"S": "nobody"} for part in schema}
            for action, attempt in ON_TABLES.items():
                yield Permission(action, logical), attempt, physical, key
        kind = "Queue" if logical in QUEUES else logical
        for action, (suffix, attempt) in ON_OTHERS.items():
            if kind.endswith(suffix):
                yield Permission(action, logical), attempt, physical, {}


def _denied(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    return False
