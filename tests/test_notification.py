"""From an alarm to a person, on the emulator: the template's own topic, policy and subscription, and one test-fire.

No state of an alarm is believed here: an alarm is set, as the document tells people to, and what arrives is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.alarms import Stack
from tests.world import TEMPLATE
from tools.emulator import emulator

ROOT = Path(__file__).parents[1]
ADDRESS = "on-call@example.com"
CUT = ("AlarmTopic", "AlarmTopicPolicy", "AlarmSubscription", "LateAlarm")
ANYBODY = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}


@dataclass(frozen=True, slots=True)
class Notified:
    """The deployed cut, and a queue that listens to its topic in the address's place."""

    url: str
    resources: dict[str, str]
    queue: str

    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self.url)  # type: ignore[call-overload]  # any service

    def heard(self) -> list[dict[str, Any]]:
        """What came since the last time."""
        answer = self.client("sqs").receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        return [json.loads(json.loads(message["Body"])["Message"]) for message in answer.get("Messages", [])]


def cut() -> dict[str, Any]:
    """The notification path of the template as one of its own: what the alarm's text refers to is replaced by words."""
    resources = json.loads(json.dumps({name: TEMPLATE["Resources"][name] for name in CUT}))
    late = resources["LateAlarm"]["Properties"]
    late["AlarmDescription"] = {"Fn::Sub": re.sub(r"\$\{(?!AWS)[\w.]+\}", "it", late["AlarmDescription"]["Fn::Sub"])}
    conditions = {name: TEMPLATE["Conditions"][name] for name in ("SchedulesEnabled", "HasEmail", "HasTopic")}
    parameters = {name: TEMPLATE["Parameters"][name] for name in ("ScheduleState", "AlarmEmail", "AlarmTopicArn")}
    return {"Parameters": parameters, "Conditions": conditions, "Resources": resources}


@pytest.fixture(scope="module")
def path() -> Iterator[Notified]:
    with emulator() as url:
        cloudformation = boto3.client("cloudformation", endpoint_url=url)
        given = {"ScheduleState": "ENABLED", "AlarmEmail": ADDRESS}
        cloudformation.create_stack(
            StackName="cut",
            TemplateBody=json.dumps(cut()),
            Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()],
        )
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName="cut", WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )
        found = cloudformation.describe_stack_resources(StackName="cut")["StackResources"]
        resources = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}
        sqs, sns = boto3.client("sqs", endpoint_url=url), boto3.client("sns", endpoint_url=url)
        policy: Any = {"Policy": json.dumps({"Statement": [ANYBODY]})}
        queue = sqs.create_queue(QueueName="on-call", Attributes=policy)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=resources["AlarmTopic"], Protocol="sqs", Endpoint=arn)
        yield Notified(url, resources, queue)


def test_the_topic_has_the_address_and_lets_alarms_of_this_account_publish(path: Notified) -> None:
    sns, topic = path.client("sns"), path.resources["AlarmTopic"]
    listed = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert [s["Endpoint"] for s in listed if s["Protocol"] == "email"] == [ADDRESS]
    attributes = sns.get_topic_attributes(TopicArn=topic)["Attributes"]
    assert not attributes.get("KmsMasterKeyId")
    policy = json.loads(attributes["Policy"])
    (statement,) = [s for s in policy["Statement"] if s.get("Sid") == "AlarmsOfThisAccountOnly"]
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert (statement["Effect"], statement["Action"], statement["Resource"]) == ("Allow", "sns:Publish", topic)
    account = topic.split(":")[4]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": account}}


def test_a_test_fire_as_documented_reaches_the_topic_both_ways(path: Notified) -> None:
    documented = (ROOT / "docs/operations.md").read_text("utf-8")
    assert "aws cloudwatch set-alarm-state --alarm-name <that name> --state-value ALARM --state-reason" in documented
    cloudwatch = path.client("cloudwatch")
    found = cloudwatch.describe_alarms(AlarmNamePrefix="cut-LateAlarm")["MetricAlarms"]
    names = [alarm["AlarmName"] for alarm in found]
    assert names == [path.resources["LateAlarm"]], "the document's prefix finds it"
    path.heard()
    for state in ("ALARM", "OK"):
        cloudwatch.set_alarm_state(AlarmName=names[0], StateValue=state, StateReason="test of the notification path")
        (message,) = path.heard()
        assert (message["AlarmName"], message["NewStateValue"]) == (names[0], state)
        assert "cut" in message["AlarmDescription"]


def test_no_topic_has_a_key_that_cloudwatch_cannot_use() -> None:
    """The key alias/aws/sns has a policy that nobody can change, and CloudWatch is not in it."""
    for name, body in TEMPLATE["Resources"].items():
        if body["Type"] == "AWS::SNS::Topic":
            assert "alias/aws/sns" not in json.dumps(body), name
    assert set(Stack().telling) == {n for n, alarm in Stack().alarms.items() if alarm.get("OKActions")}
