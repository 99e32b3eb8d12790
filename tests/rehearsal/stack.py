"""A deployed stack: its resources, its schedules' deliveries, its answers and its rows."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen
from zipfile import ZipFile

from boto3.dynamodb.types import TypeDeserializer

from reconciler import keys
from tests.rehearsal.account import Account

if TYPE_CHECKING:
    from types_boto3_dynamodb.type_defs import AttributeValueTypeDef

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the Lambda API answered: the function's answer or its error, and the end of its log (4 KB)."""

    payload: Json
    error: str | None
    log: str


class Stack:
    """A stack of that name in an account; nothing of it is known that a person could not look up."""

    def __init__(self, account: Account, name: str) -> None:
        self.account = account
        self.name = name

    def described(self) -> tuple[str, dict[str, str]]:
        """The stack's status and its outputs, now."""
        (stack,) = self.account.cloudformation.describe_stacks(StackName=self.name)["Stacks"]
        return stack["StackStatus"], {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    @cached_property
    def outputs(self) -> dict[str, str]:
        return self.described()[1]

    @cached_property
    def resources(self) -> dict[str, str]:
        """Logical id → physical id."""
        pages = self.account.cloudformation.get_paginator("list_stack_resources").paginate(StackName=self.name)
        return {
            found["LogicalResourceId"]: found["PhysicalResourceId"]
            for page in pages
            for found in page["StackResourceSummaries"]
        }

    @cached_property
    def as_scheduler(self) -> Account:
        """The account as EventBridge Scheduler sees it when it delivers for this stack."""
        return self.account.as_role(self.resources["SchedulerRole"])

    def schedules(self) -> dict[str, Json]:
        """Trigger → the deployed schedule that sends it."""
        listed = {found["Name"] for found in self.account.scheduler.list_schedules()["Schedules"]}
        mine = listed & set(self.resources.values())
        details: list[Any] = [self.account.scheduler.get_schedule(Name=name) for name in mine]
        return {json.loads(detail["Target"]["Input"])["detail"]["trigger"]: detail for detail in details}

    def event(self, trigger: str, at: datetime) -> Json:
        """What the deployed schedule of a trigger sends, substituted as EventBridge Scheduler does."""
        schedule = self.schedules()[trigger]
        text = schedule["Target"]["Input"]
        for attribute, value in (
            ("scheduled-time", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
            ("schedule-arn", schedule["Arn"]),
            ("execution-id", "d32c5kddcf5bb8c3"),
            ("attempt-number", "1"),
        ):
            text = text.replace(f"<aws.scheduler.{attribute}>", value)
        event: Json = json.loads(text)
        return event

    def deliver(self, trigger: str, at: datetime, *, wait: bool = True) -> Reply:
        """As EventBridge Scheduler delivers: under its role, to the target's ARN. It never waits for the answer."""
        target = self.schedules()[trigger]["Target"]["Arn"]
        return self.send(target, self.event(trigger, at), wait=wait, account=self.as_scheduler)

    def send(self, function: str, event: Json, *, wait: bool = True, account: Account | None = None) -> Reply:
        """Hand an event to a function of that name or ARN."""
        answer = (account or self.account).functions.invoke(
            FunctionName=function,
            InvocationType="RequestResponse" if wait else "Event",
            LogType="Tail" if wait else "None",
            Payload=json.dumps(event).encode(),
        )
        payload = json.loads(answer["Payload"].read() or b"{}")
        log = base64.b64decode(answer.get("LogResult", "")).decode("utf-8", "replace")
        error = json.dumps(payload) if "FunctionError" in answer else None
        return Reply(payload, error, log)

    def package(self, function: str) -> set[str]:
        """The names of the files that a function was deployed with."""
        location = self.account.functions.get_function(FunctionName=function)["Code"]["Location"]
        with urlopen(location, timeout=30) as answer, ZipFile(io.BytesIO(answer.read())) as archive:
            return set(archive.namelist())

    def rows(self, output: str) -> list[dict[str, AttributeValueTypeDef]]:
        """Every row of the table that an output names, in DynamoDB's notation."""
        pages = self.account.dynamodb.get_paginator("scan").paginate(
            TableName=self.outputs[output], ConsistentRead=True
        )
        return [row for page in pages for row in page["Items"]]

    def control(self, prefix: str) -> list[Json]:
        """The rows of the job whose key begins so, as Python values, in the order of their keys."""
        found = self.account.dynamodb.query(
            TableName=self.outputs["ControlTableName"],
            KeyConditionExpression="#pk = :job AND begins_with(#sk, :prefix)",
            ExpressionAttributeNames={"#pk": keys.PARTITION_KEY, "#sk": keys.SORT_KEY},
            ExpressionAttributeValues={":job": {"S": self.name}, ":prefix": {"S": prefix}},
            ConsistentRead=True,
        )["Items"]
        return [TypeDeserializer().deserialize({"M": row}) for row in found]

    def log_lines(self, output: str) -> list[Json]:
        """The JSON lines of the log group that an output names."""
        group = self.outputs[output]
        streams = self.account.logs.describe_log_streams(logGroupName=group)["logStreams"]
        messages = [
            event["message"]
            for stream in streams
            for event in self.account.logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"])[
                "events"
            ]
        ]
        return [json.loads(message) for message in messages if message.startswith("{")]
