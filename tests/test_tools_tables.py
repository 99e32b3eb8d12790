"""Tables and environment come from template.yaml, and from nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tools.tables import TemplateError, create_tables, environment, load_template, table_resources

TABLE: dict[str, Any] = {
    "Type": "AWS::DynamoDB::Table",
    "Properties": {
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    },
}


def template(**variables: Any) -> dict[str, Any]:
    return {
        "Parameters": {"Hour": {"Type": "Number", "Default": 2}, "Mail": {"Type": "String"}},
        "Globals": {"Function": {"Environment": {"Variables": variables}}},
        "Resources": {"SomeTable": TABLE, "Queue": {"Type": "AWS::SQS::Queue"}},
    }


def test_the_tables_have_the_keys_billing_and_ttl_of_the_template() -> None:
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        names = create_tables(client, suffix="x1")
        for logical_id, properties in table_resources(load_template()).items():
            assert names[logical_id] == f"{logical_id}-x1"
            made = client.describe_table(TableName=names[logical_id])["Table"]
            assert made["KeySchema"] == properties["KeySchema"]
            assert made["BillingModeSummary"]["BillingMode"] == properties["BillingMode"]
            ttl = client.describe_time_to_live(TableName=names[logical_id])["TimeToLiveDescription"]
            wanted = properties.get("TimeToLiveSpecification", {}).get("AttributeName")
            assert ttl.get("AttributeName") == wanted


def test_two_sets_of_tables_live_side_by_side() -> None:
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        first, second = create_tables(client, suffix="x1"), create_tables(client, suffix="x2")
        assert not set(first.values()) & set(second.values())


def test_the_environment_holds_every_variable_of_the_template_as_text() -> None:
    tables = {logical_id: f"{logical_id}-x1" for logical_id in table_resources(load_template())}
    found = environment(tables, job="nightly-job")
    declared = load_template()["Globals"]["Function"]["Environment"]["Variables"]
    assert set(found) == set(declared)
    assert all(isinstance(value, str) for value in found.values())
    assert found["JOB_NAME"] == "nightly-job"
    assert found["CONTROL_TABLE"] == "ControlTable-x1"
    assert found["SCHEDULE_HOUR"] == load_template()["Parameters"]["ScheduleHour"]["Default"]


def test_parameters_replace_defaults_and_overrides_come_last() -> None:
    body = template(HOUR={"Ref": "Hour"}, TABLE={"Ref": "SomeTable"}, NAME={"Fn::Sub": "${AWS::StackName}-${Hour}"})
    tables = {"SomeTable": "some-x1"}
    assert environment(tables, job="j", template=body) == {"HOUR": "2", "TABLE": "some-x1", "NAME": "j-2"}
    found = environment(tables, job="j", template=body, parameters={"Hour": 5}, overrides={"NAME": 1, "NEW": 0.5})
    assert found == {"HOUR": "5", "TABLE": "some-x1", "NAME": "1", "NEW": "0.5"}


def test_an_unknown_parameter_is_refused_by_name() -> None:
    with pytest.raises(TemplateError, match="no parameter Huor"):
        environment({}, job="j", template=template(), parameters={"Huor": 1})


@pytest.mark.parametrize(
    ("hour", "theirs", "table"), [("2", "", "own"), ("2", "x", "x"), ("3", "", ""), ("3", "x", "x")]
)
def test_a_condition_on_parameters_decides(hour: str, theirs: str, table: str) -> None:
    body = template(TABLE={"Fn::If": ["Own", {"Ref": "SomeTable"}, {"Ref": "Theirs"}]})
    body["Parameters"]["Theirs"] = {"Type": "String", "Default": ""}
    body["Conditions"] = {
        "AtTwo": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Hour"}, "3"]}]},
        "Own": {"Fn::And": [{"Condition": "AtTwo"}, {"Fn::Equals": [{"Ref": "Theirs"}, ""]}]},
    }
    given = {"Hour": hour, "Theirs": theirs}
    assert environment({"SomeTable": "own"}, job="j", template=body, parameters=given) == {"TABLE": table}


@pytest.mark.parametrize("condition", [None, {"Fn::Or": [True, False]}, {"Fn::Equals": [{"Ref": "Queue"}, ""]}])
def test_a_condition_that_needs_a_deployed_stack_is_refused_by_the_name_of_its_variable(condition: Any) -> None:
    body = template(WHERE={"Fn::If": ["Here", "a", "b"]}) | {"Conditions": {"Here": condition} if condition else {}}
    with pytest.raises(TemplateError, match="environment variable WHERE"):
        environment({}, job="j", template=body)


@pytest.mark.parametrize("value", [{"Ref": "Mail"}, {"Ref": "Queue"}, {"Fn::GetAtt": ["Queue", "Arn"]}, ["list"]])
def test_what_needs_a_deployed_stack_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TemplateError, match="environment variable WHERE"):
        environment({}, job="j", template=template(WHERE=value))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("!Ref Name", {"Ref": "Name"}),
        ("!GetAtt Thing.Part.Arn", {"Fn::GetAtt": ["Thing", "Part.Arn"]}),
        ("!Sub '${A}-b'", {"Fn::Sub": "${A}-b"}),
        ("!If [Busy, !Ref A, 2]", {"Fn::If": ["Busy", {"Ref": "A"}, 2]}),
        ("!Condition Yes", {"Condition": "Yes"}),
        ("2010-09-09", "2010-09-09"),
    ],
)
def test_short_tags_are_read_in_their_long_form(tmp_path: Path, text: str, read: Any) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(f"Value: {text}\n", "utf-8")
    assert load_template(path) == {"Value": read}


@pytest.mark.parametrize("text", [None, "- a list", "a: [", ""])
def test_an_unreadable_template_is_refused_by_its_path(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "other.yaml"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(TemplateError, match=r"other\.yaml"):
        load_template(path)


def test_a_template_without_tables_or_environment_is_refused() -> None:
    with pytest.raises(TemplateError, match="DynamoDB"):
        table_resources({})
    with pytest.raises(TemplateError, match="Globals"):
        environment({}, job="j", template={"Resources": {}})
