"""What an organisation may ask for: a permissions boundary, its own key, a VPC, tracing, tags. Off by default."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.template import FUNCTIONS, PARAMETERS, RESOURCES, TEMPLATE, expanded, expanded_of_type, of_type, resolve

KEY = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
BOUNDARY = "arn:aws:iam::123456789012:policy/team/boundary"
VPC = {"SubnetIds": "subnet-0123456789abcdef0,subnet-01234567", "SecurityGroupIds": "sg-0123456789abcdef0"}
TAGGABLE = {
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::DynamoDB::Table",
    "AWS::IAM::Role",
    "AWS::Lambda::Function",
    "AWS::Logs::LogGroup",
    "AWS::SNS::Topic",
    "AWS::SQS::Queue",
}
NOT_TAGGABLE = {
    "AWS::IAM::ManagedPolicy",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Logs::QueryDefinition",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "AWS::Scheduler::Schedule",
}
"""By CloudFormation's resource schemas."""


def optional_grants(role: str, **parameters: str) -> set[str]:
    """The policies beside its own that a role has with these parameters."""
    return {policy["Ref"] for policy in resolve(RESOURCES[role]["Properties"]["ManagedPolicyArns"], **parameters)}


def statement(policy: str) -> dict[str, Any]:
    """The one statement of an optional policy."""
    (only,) = RESOURCES[policy]["Properties"]["PolicyDocument"]["Statement"]
    assert only["Effect"] == "Allow"
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("PermissionsBoundaryArn", ["", BOUNDARY, "arn:aws-cn:iam::aws:policy/X"], ["x", "arn:aws:iam::1:role/x"]),
        ("KmsKeyArn", ["", KEY, KEY.replace("key/", "key/mrk-")], ["alias/aws/sns", KEY.replace("key/", "alias/")]),
        ("SubnetIds", ["", VPC["SubnetIds"]], ["subnet-1", "subnet-01234567, subnet-01234567", "vpc-01234567"]),
        ("SubnetIds", [",".join(["subnet-01234567"] * 16)], [",".join(["subnet-01234567"] * 17)]),
        ("SecurityGroupIds", ["", ",".join(["sg-01234567"] * 5)], ["sg-x", ",".join(["sg-01234567"] * 6)]),
        ("ApplicationTag", ["scheduled-reconciler", "Team A: nights"], ["", "a" * 257, "a,b"]),
    ],
)  # fmt: skip
def test_an_option_takes_what_it_says(name: str, good: list[str], bad: list[str]) -> None:
    pattern = re.compile(PARAMETERS[name]["AllowedPattern"])
    assert [value for value in good if not pattern.fullmatch(value)] == []
    assert [value for value in bad if pattern.fullmatch(value)] == []


@pytest.mark.parametrize("role", of_type("AWS::IAM::Role"))
def test_by_default_a_role_has_nothing_beside_its_own_policy_and_no_boundary(role: str) -> None:
    properties = resolve(RESOURCES[role]["Properties"])
    assert (properties["ManagedPolicyArns"], "PermissionsBoundary" in properties) == ([], False)


def test_every_role_takes_the_boundary() -> None:
    for name, role in expanded_of_type("AWS::IAM::Role").items():
        assert resolve(role["PermissionsBoundary"], PermissionsBoundaryArn=BOUNDARY) == BOUNDARY, name


def test_the_key_encrypts_every_table_queue_and_log_group_and_none_by_default() -> None:
    tables, queues = of_type("AWS::DynamoDB::Table"), of_type("AWS::SQS::Queue")
    for name, table in tables.items():
        encrypted = resolve(table, KmsKeyArn=KEY)["SSESpecification"]
        assert encrypted == {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}, name
        assert "SSESpecification" not in resolve(table), name
    for name, queue in queues.items():
        given, default = resolve(queue, KmsKeyArn=KEY), resolve(queue)
        assert given["KmsMasterKeyId"] == KEY, name
        assert "SqsManagedSseEnabled" not in given, "SQS takes one of the two"
        assert (default["SqsManagedSseEnabled"], "KmsMasterKeyId" in default) == (True, False), name
    for name, group in of_type("AWS::Logs::LogGroup").items():
        assert resolve(group, KmsKeyArn=KEY)["KmsKeyId"] == KEY, name
        assert "KmsKeyId" not in resolve(group), name


def test_no_key_comes_between_the_alarms_and_the_topic() -> None:
    """CloudWatch drops without a word what it cannot encrypt, and the key's policy is not ours."""
    assert "KmsMasterKeyId" not in RESOURCES["AlarmTopic"]["Properties"]


def test_with_a_key_each_role_may_use_it_as_far_as_it_reaches_and_through_that_service_only() -> None:
    tables, queues = statement("TableKeyGrants"), statement("QueueKeyGrants")
    assert optional_grants("ReconcileRole", KmsKeyArn=KEY) == {"TableKeyGrants", "QueueKeyGrants"}
    assert optional_grants("WatchdogRole", KmsKeyArn=KEY) == {"TableKeyGrants"}
    assert optional_grants("SchedulerRole", KmsKeyArn=KEY) == {"QueueKeyGrants"}
    assert tables["Action"] == "kms:Decrypt"
    assert queues["Action"] == ["kms:GenerateDataKey", "kms:Decrypt"]
    for service, granted in (("dynamodb", tables), ("sqs", queues)):
        assert granted["Resource"] == {"Ref": "KmsKeyArn"}
        via = {"Fn::Sub": f"{service}.${{AWS::Region}}.${{AWS::URLSuffix}}"}
        assert granted["Condition"] == {"StringEquals": {"kms:ViaService": via}}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_joins_the_vpc_that_is_given_and_none_by_default(name: str) -> None:
    config = expanded_of_type("AWS::Lambda::Function")[name]
    assert resolve(config, **VPC)["VpcConfig"] == {
        "SubnetIds": VPC["SubnetIds"].split(","),
        "SecurityGroupIds": [VPC["SecurityGroupIds"]],
    }
    assert "VpcConfig" not in resolve(config)


def test_in_a_vpc_lambda_may_manage_interfaces_and_the_code_of_the_functions_may_not() -> None:
    for role in ("ReconcileRole", "WatchdogRole"):
        assert optional_grants(role, **VPC) == {"NetworkGrants"}
    assert optional_grants("SchedulerRole", **VPC) == set()
    network = statement("NetworkGrants")
    assert {action.removeprefix("ec2:") for action in network["Action"]} == {
        "CreateNetworkInterface",
        "DescribeNetworkInterfaces",
        "DescribeSubnets",
        "DeleteNetworkInterface",
        "AssignPrivateIpAddresses",
        "UnassignPrivateIpAddresses",
    }
    assert network["Condition"] == {"Null": {"lambda:SourceFunctionArn": "true"}}


@pytest.mark.parametrize(
    ("given", "accepted"), [({}, True), (VPC, True), *(({name: VPC[name]}, False) for name in VPC)]
)
def test_subnets_without_security_groups_are_refused_before_anything_is_deployed(
    given: dict[str, str], accepted: bool
) -> None:
    (assertion,) = TEMPLATE["Rules"]["SubnetsAndSecurityGroupsTogether"]["Assertions"]
    assert resolve(assertion["Assert"], **given) is accepted
    assert set(VPC) <= set(assertion["AssertDescription"].split())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tracing_is_off_until_it_is_switched_on(name: str) -> None:
    function = expanded_of_type("AWS::Lambda::Function")[name]
    assert PARAMETERS["Tracing"]["Default"] == "Off"
    assert resolve(function["TracingConfig"]) == {"Mode": "PassThrough"}
    assert resolve(function["TracingConfig"], Tracing="On") == {"Mode": "Active"}
    assert optional_grants(function["Role"]["Fn::GetAtt"][0], Tracing="On") == {"TracingGrants"}
    assert statement("TracingGrants")["Action"] == ["xray:PutTraceSegments", "xray:PutTelemetryRecords"]


def test_only_interfaces_and_traces_are_granted_without_a_resource() -> None:
    wild = {name for name in of_type("AWS::IAM::ManagedPolicy") if statement(name)["Resource"] == "*"}
    assert wild == {"NetworkGrants", "TracingGrants"}


def test_an_optional_policy_exists_exactly_while_a_role_has_it() -> None:
    for given in ({}, {"KmsKeyArn": KEY}, VPC, {"Tracing": "On"}, {"KmsKeyArn": KEY, "Tracing": "On", **VPC}):
        made = {
            name
            for name in of_type("AWS::IAM::ManagedPolicy")
            if resolve(TEMPLATE["Conditions"][RESOURCES[name]["Condition"]], **given)
        }
        assert made == set().union(*(optional_grants(role, **given) for role in of_type("AWS::IAM::Role")))


def test_every_resource_that_takes_tags_says_whose_it_is() -> None:
    for name, body in expanded().items():
        if body["Type"] not in NOT_TAGGABLE:
            assert body["Type"] in TAGGABLE
            tags = {tag["Key"]: tag["Value"] for tag in body["Properties"]["Tags"]}
            assert tags["application"] == {"Ref": "ApplicationTag"}, name
            assert tags["stack"] == {"Ref": "AWS::StackName"}, name
