"""Act 2: the roles of the second stack, both ways: each permission is needed, and nothing else is possible."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from tests.rehearsal.attempts import allowed
from tests.rehearsal.conftest import INTERVAL, NIGHT, fill
from tests.rehearsal.permissions import Permission, permissions, without
from tests.rehearsal.stack import Reply, Stack
from tools.seed import plan

EXEMPT = {"logs:CreateLogStream", "logs:PutLogEvents", "xray:PutTraceSegments", "xray:PutTelemetryRecords"}
"""Lambda's own calls, which no call of ours needs: logging and tracing."""

FIRST_QUERY = "a look at an unfinished night" if NIGHT.date() == datetime.now(UTC).date() else "a first look"
"""Records are read up to today's: in the first hour of a day the night that comes next is today's already."""

NEEDED = {
    "ReconcileRole": {
        Permission("dynamodb:GetItem", "ControlTable"): "the night",
        Permission("dynamodb:Query", "ControlTable"): "the night",
        Permission("dynamodb:PutItem", "ControlTable"): "the night",
        Permission("dynamodb:UpdateItem", "ControlTable"): "the night",
        Permission("dynamodb:ConditionCheckItem", "ControlTable"): "the night",
        Permission("dynamodb:DescribeTable", "ControlTable"): "the night",
        Permission("dynamodb:Query", "AccountsTable"): "the night",
        Permission("dynamodb:Query", "EntitlementsTable"): "the night",
        Permission("dynamodb:UpdateItem", "EntitlementsTable"): "the night",
        Permission("dynamodb:PutItem", "IdempotencyTable"): "the night",
        Permission("dynamodb:UpdateItem", "IdempotencyTable"): "the night",
        Permission("dynamodb:DeleteItem", "IdempotencyTable"): "a refused command",
        Permission("sqs:SendMessage", "Failed"): "a failed event",
    },
    "WatchdogRole": {
        Permission("dynamodb:GetItem", "ControlTable"): "a first look",
        Permission("dynamodb:Query", "ControlTable"): FIRST_QUERY,
        Permission("dynamodb:DescribeTable", "ControlTable"): "a first look",
    },
    "SchedulerRole": {
        Permission("lambda:InvokeFunction", "WatchdogFunction"): "a first look",
        Permission("lambda:InvokeFunction", "ReconcileFunction"): "the night",
        Permission("sqs:SendMessage", "Undelivered"): "an undelivered event",
    },
}
"""Role → permission → the first of CALLS that is denied something without it."""


def commanded(verb: str, **detail: object) -> Callable[[Stack], Reply]:
    """What an operator sends about the night."""

    def send(stack: Stack) -> Reply:
        said = {"interval": INTERVAL, "requested_by": "rehearsal", "reason": "to see what it needs", **detail}
        event = {"source": "operator", "detail-type": verb, "id": uuid.uuid4().hex, "detail": said}
        return stack.send(stack.resources["ReconcileFunction"], event)

    return send


def put_aside(role: str, queue: str) -> Callable[[Stack], Reply]:
    """What Lambda and EventBridge Scheduler do, under that role, with an event that came to nothing."""

    def send(stack: Stack) -> Reply:
        by = stack.account.as_role(stack.resources[role])
        by.sqs.send_message(QueueUrl=stack.resources[queue], MessageBody="an event")
        return Reply({}, None, "")

    return send


CALLS: dict[str, Callable[[Stack], Reply]] = {
    "a first look": lambda stack: stack.deliver("watchdog", datetime.now(UTC)),
    "the night": lambda stack: stack.deliver("nightly", NIGHT),
    "the night again": lambda stack: stack.deliver("nightly", NIGHT),
    "a refused command": commanded("Skip"),
    "a rerun": commanded("Rerun", force=True),
    "a look at an unfinished night": lambda stack: stack.deliver("watchdog", datetime.now(UTC)),
    "a failed event": put_aside("ReconcileRole", "Failed"),
    "an undelivered event": put_aside("SchedulerRole", "Undelivered"),
}


def first_denied(stack: Stack) -> tuple[str, str] | None:
    """Make the calls in their order on a stack that never ran; the first one that was denied an action, and which."""
    never_ran(stack)
    for name, call in CALLS.items():
        try:
            reply = call(stack)
            said = f"{reply.error} {reply.log}"
        except ClientError as error:
            said = str(error)
        if denied := re.search(r"not authorized to perform: (\w+:\w+)", said):
            return name, denied[1]
    return None


def never_ran(stack: Stack) -> None:
    """Empty the tables that the job writes."""
    dynamodb = stack.account.dynamodb
    for output in ("ControlTableName", "EntitlementsTableName", "IdempotencyTableName"):
        table = stack.outputs[output]
        names = [part["AttributeName"] for part in dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]]
        for row in stack.rows(output):
            dynamodb.delete_item(TableName=table, Key={name: row[name] for name in names})


@pytest.fixture(scope="session")
def filled(prod: Stack) -> Stack:
    """The second stack with a few accounts."""
    fill(prod, plan(accounts=16, changed=1.0))
    return prod


@pytest.fixture(scope="session")
def possible(prod: Stack) -> dict[str, set[Permission]]:
    """Role → what its credentials can do to its own stack."""
    return {role: allowed(prod.account.as_role(prod.resources[role]), prod) for role in NEEDED}


def test_with_every_permission_no_call_is_denied_anything(filled: Stack) -> None:
    assert first_denied(filled) is None


@pytest.mark.parametrize("role", NEEDED)
def test_a_role_has_the_permissions_that_are_shown_to_be_needed(prod: Stack, role: str) -> None:
    had = [permission for permission in permissions(prod, role) if permission.action not in EXEMPT]
    assert sorted(had) == sorted(NEEDED[role])


@pytest.mark.parametrize(
    ("role", "permission", "call"),
    [
        pytest.param(role, permission, call, id=f"{role}-{permission.action}-{permission.resource}")
        for role, needed in NEEDED.items()
        for permission, call in needed.items()
    ],
)
def test_without_one_permission_a_call_fails(filled: Stack, role: str, permission: Permission, call: str) -> None:
    with without(filled, role, permission):
        assert first_denied(filled) == (call, permission.action)


@pytest.mark.parametrize(
    ("role", "service"),
    [
        ("ReconcileRole", "lambda.amazonaws.com"),
        ("WatchdogRole", "lambda.amazonaws.com"),
        ("SchedulerRole", "scheduler.amazonaws.com"),
    ],
)
def test_a_role_can_be_taken_on_by_the_service_that_needs_it_only(prod: Stack, role: str, service: str) -> None:
    found = prod.account.iam.get_role(RoleName=prod.resources[role])["Role"]
    (statement,) = found["AssumeRolePolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sts:AssumeRole")
    assert statement["Principal"] == {"Service": service}
    if role == "SchedulerRole":  # any account's schedules could name it otherwise
        assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": found["Arn"].split(":")[4]}}


@pytest.mark.parametrize("role", NEEDED)
def test_a_role_can_do_nothing_else_to_its_stack(possible: dict[str, set[Permission]], role: str) -> None:
    assert possible[role] == set(NEEDED[role])


@pytest.mark.parametrize("role", NEEDED)
def test_a_role_can_do_nothing_to_another_stack(dev: Stack, prod: Stack, role: str) -> None:
    assert allowed(prod.account.as_role(prod.resources[role]), dev) == set()


def test_no_role_can_delete_a_control_row(possible: dict[str, set[Permission]]) -> None:
    on_control = {action for can in possible.values() for action, resource in can if resource == "ControlTable"}
    assert on_control.isdisjoint({"dynamodb:DeleteItem", "dynamodb:BatchWriteItem", "dynamodb:DeleteTable"})


def test_no_role_can_write_the_source(possible: dict[str, set[Permission]]) -> None:
    on_source = {action for can in possible.values() for action, resource in can if resource == "AccountsTable"}
    assert on_source == {"dynamodb:Query"}


def test_the_watchdog_can_only_read_the_control_table(possible: dict[str, set[Permission]]) -> None:
    reads = ("dynamodb:GetItem", "dynamodb:Query", "dynamodb:DescribeTable")
    assert possible["WatchdogRole"] == {Permission(action, "ControlTable") for action in reads}


def test_the_schedules_can_only_call_their_functions_and_fill_their_queue(
    possible: dict[str, set[Permission]],
) -> None:
    calls = {Permission("lambda:InvokeFunction", name) for name in ("ReconcileFunction", "WatchdogFunction")}
    assert possible["SchedulerRole"] == {*calls, Permission("sqs:SendMessage", "Undelivered")}
