"""Where the accounts come from and which tables are the stack's own: by parameter, granted no further than used."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from reconciler.settings import HTTP, OWN, Settings
from tests.template import (
    FUNCTIONS,
    PARAMETERS,
    RESOURCES,
    TEMPLATE,
    VARIABLES,
    expanded,
    listed,
    of_type,
    references,
    resolve,
)
from tools.tables import environment

KEY = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider/token-AbC123"
PROVIDER = {"Source": HTTP, "SourceUrl": "https://provider.example/v1"}
HERE = {"AWS::Partition": "aws", "AWS::Region": "eu-central-1", "AWS::AccountId": "123456789012"}
TABLE = "arn:aws:dynamodb:eu-central-1:123456789012:table/"
ELSEWHERE = "arn:aws:dynamodb:eu-central-1:999999999999:table/"
CHINA = "arn:aws-cn:dynamodb:cn-north-1:123456789012:table/abc"
TABLES = {name: name for name in of_type("AWS::DynamoDB::Table")}

GIVEN = [
    source | accounts | view | token | key
    for source, accounts, view, token, key in product(
        ({}, PROVIDER, {"Source": OWN}),
        ({}, {"ExistingAccountsTable": "accounts"}),
        ({}, {"ExistingEntitlementsTable": f"{TABLE}view"}),
        ({}, {"SourceTokenSecretArn": SECRET}),
        ({}, {"KmsKeyArn": KEY}),
    )
]
"""Every choice of these parameters."""


def holds(condition: str, **given: str) -> bool:
    return bool(resolve({"Condition": condition}, **given))


def there(**given: str) -> dict[str, Any]:
    """Logical id → properties of the resources that a stack with these parameters has."""
    return {
        name: resolve(body["Properties"], **HERE | given)
        for name, body in expanded().items()
        if "Condition" not in body or holds(body["Condition"], **given)
    }


def on(sid: str, **given: str) -> list[Any]:
    """The resources of the job's statement of that name; none when it has none."""
    policies = resolve(RESOURCES["ReconcileRole"]["Properties"]["Policies"], **HERE | given)
    return [
        resource
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Sid"] == sid
        for resource in listed(statement["Resource"])
    ]


# ------------------------------------------------------------------------------------------------------- what they take


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "SourceUrl",
            ["", "https://provider.example", "https://a.b:8443/v1/x", "https://[2001:db8::1]/v1", "https://10.0.0.1/"],
            ["provider.example", "http://provider.example", "https://", "https://:443/v1", "https:///v1",
             "https://ada:pw@provider.example", "https://provider.example/v1?a=b", "https://provider.example/v1#x",
             "https://provider.example/v 1", "https://provider.example:port", "ftp://provider.example",
             "https://a..b", "https://.", "https://-/v1", "https://-a", "https://a-.b", "https://[::1].evil.example"],
        ),
        (
            "SourceTokenSecretArn",
            ["", SECRET, SECRET.replace("aws:", "aws-cn:", 1)],
            ["token", SECRET.removesuffix("-AbC123"), SECRET + "*", f"{TABLE}x", SECRET.replace(":secret:", ":")],
        ),
        *(
            (
                name,
                ["", "abc", "My_table.v2-x", "a" * 255, f"{TABLE}abc", f"{ELSEWHERE}abc", CHINA],
                ["a" * 256, "a b", "a/b", "a:b", "*", TABLE, f"{TABLE}abc/index/i", f"{TABLE}*", "arn:aws:s3:::x"],
            )
            for name in ("ExistingAccountsTable", "ExistingEntitlementsTable")
        ),
    ],
)  # fmt: skip
def test_a_parameter_takes_what_it_says(name: str, good: list[str], bad: list[str]) -> None:
    pattern = re.compile(PARAMETERS[name]["AllowedPattern"])
    assert [value for value in good if not pattern.fullmatch(value)] == []
    assert [value for value in bad if pattern.fullmatch(value)] == []
    if name == "SourceUrl":
        for url in filter(None, good):
            Settings.from_env(environment(TABLES, job="a-stack", parameters=PROVIDER | {"SourceUrl": url}))


@pytest.mark.parametrize("name", ["SourceRequestsPerSecond", "BackfillRequestsPerSecond"])
def test_a_rate_is_a_number_from_a_tenth_to_a_thousand(name: str) -> None:
    pattern = re.compile(PARAMETERS[name]["AllowedPattern"])
    tenths = {n for n in range(12_000) if pattern.fullmatch(f"{n / 10:.1f}") or pattern.fullmatch(f"{n / 10:g}")}
    assert tenths == set(range(1, 10_001))
    for wrong in ("", "0", "0.0", "0.05", "00.1", "01", "1.", ".5", "1e1", "-1", "+1", " 1", "1.25", "1000.1", "10000"):
        assert not pattern.fullmatch(wrong), wrong
    assert "0.1 to 1000" in PARAMETERS[name]["Description"]


def test_a_backlog_is_worked_off_more_slowly_by_default() -> None:
    rates = [float(PARAMETERS[f"{name}RequestsPerSecond"]["Default"]) for name in ("Source", "Backfill")]
    assert rates[0] > rates[1] > 0


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({}, True),
        (PROVIDER, True),
        ({"Source": HTTP}, False),
        ({"SourceUrl": PROVIDER["SourceUrl"]}, True),
        ({"Source": OWN}, True),
    ],
)
def test_a_provider_without_an_address_is_refused_before_anything_is_deployed(
    given: dict[str, str], accepted: bool
) -> None:
    rule = TEMPLATE["Rules"]["AProviderHasAnAddress"]
    (assertion,) = rule["Assertions"]
    applies = resolve(rule["RuleCondition"], **given)
    assert (not applies or resolve(assertion["Assert"], **given)) is accepted
    assert "Source=http needs SourceUrl" in assertion["AssertDescription"]


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({}, True),
        ({"ExistingAccountsTable": "abc"}, True),
        ({"ExistingEntitlementsTable": "abc"}, True),
        ({"ExistingAccountsTable": "abc", "ExistingEntitlementsTable": "abcd"}, True),
        ({"ExistingAccountsTable": "abc", "ExistingEntitlementsTable": "abc"}, False),
        ({"ExistingAccountsTable": f"{TABLE}abc", "ExistingEntitlementsTable": f"{TABLE}abc"}, False),
        (PROVIDER | {"ExistingAccountsTable": "abc", "ExistingEntitlementsTable": "abc"}, True),
    ],
)
def test_a_view_that_is_its_own_source_is_refused_before_anything_is_deployed(
    given: dict[str, str], accepted: bool
) -> None:
    rule = TEMPLATE["Rules"]["AViewIsNotItsOwnSource"]
    (assertion,) = rule["Assertions"]
    assert (not resolve(rule["RuleCondition"], **given) or resolve(assertion["Assert"], **given)) is accepted


# ------------------------------------------------------------------------------------------------------ what they make


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: "-".join(given) or "default")
def test_a_stack_has_what_it_uses_and_refers_to_nothing_that_it_lacks(given: dict[str, str]) -> None:
    made = there(**given)
    assert ("AccountsTable" in made) == ("Source" not in given and "ExistingAccountsTable" not in given)
    assert ("EntitlementsTable" in made) == ("ExistingEntitlementsTable" not in given)
    outputs = {
        name: resolve(body, **given)
        for name, body in TEMPLATE["Outputs"].items()
        if "Condition" not in body or holds(body["Condition"], **given)
    }
    assert ("AccountsTableName" in outputs) == ("Source" not in given)
    known = {*made, *(name for name in references(TEMPLATE) if name.startswith("AWS"))}
    for where, part in (made | outputs | {"variables": resolve(VARIABLES, **given)}).items():
        assert set(references(part)) <= known, where


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: "-".join(given) or "default")
def test_the_functions_are_told_the_tables_and_their_settings_are_valid(given: dict[str, str]) -> None:
    settings = Settings.from_env(environment(TABLES, job="a-stack", parameters=given))
    own = "" if "Source" in given else "AccountsTable"
    assert settings.accounts_table == given.get("ExistingAccountsTable", own)
    assert settings.entitlements_table == given.get("ExistingEntitlementsTable", "EntitlementsTable")
    assert settings.source == given.get("Source", "dynamodb")
    assert settings.source_token_secret == given.get("SourceTokenSecretArn", "")


def test_by_default_nothing_is_anybody_elses_and_everything_is_output() -> None:
    assert {name: PARAMETERS[name]["Default"] for name in ("ExistingAccountsTable", "ExistingEntitlementsTable")} == {
        "ExistingAccountsTable": "",
        "ExistingEntitlementsTable": "",
    }
    for name, table in (("AccountsTableName", "AccountsTable"), ("EntitlementsTableName", "EntitlementsTable")):
        assert resolve(TEMPLATE["Outputs"][name]["Value"]) == {"Ref": table}
        assert resolve(TEMPLATE["Outputs"][name]["Value"], **{f"Existing{table}": "theirs"}) == "theirs"


# ------------------------------------------------------------------------------------------------------ what they grant


@pytest.mark.parametrize(
    ("given", "granted"),
    [
        ("", [{"Fn::GetAtt": ["AccountsTable", "Arn"]}]),
        ("accounts", [f"{TABLE}accounts"]),
        ("arn", [f"{TABLE}arn"]),
        ("table.arn", [f"{TABLE}table.arn"]),
        (f"{TABLE}accounts", [f"{TABLE}accounts"]),
        (f"{TABLE}arn", [f"{TABLE}arn"]),
        (f"{ELSEWHERE}accounts", [f"{ELSEWHERE}accounts"]),
    ],
)
def test_the_job_may_read_exactly_the_accounts_table_that_is_named_and_no_table_for_another_source(
    given: str, granted: list[Any]
) -> None:
    assert on("ReadTheSource", ExistingAccountsTable=given) == granted
    for elsewhere in (PROVIDER, {"Source": OWN}):
        assert on("ReadTheSource", ExistingAccountsTable=given, **elsewhere) == []


@pytest.mark.parametrize(
    ("given", "granted"),
    [
        ("", [{"Fn::GetAtt": ["EntitlementsTable", "Arn"]}]),
        ("view", [f"{TABLE}view"]),
        ("table", [f"{TABLE}table"]),
        (f"{TABLE}view", [f"{TABLE}view"]),
        (f"{ELSEWHERE}view", [f"{TABLE}view"]),
    ],
)
def test_the_job_may_correct_exactly_the_view_that_is_named_and_none_elsewhere(given: str, granted: list[Any]) -> None:
    """No transaction spans accounts: were a view elsewhere readable, each account would be rejected for it."""
    assert on("ReadAndCorrectTheView", ExistingEntitlementsTable=given) == granted


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: "-".join(given) or "default")
def test_the_token_is_granted_to_the_job_alone_and_only_while_a_provider_asks_for_it(given: dict[str, str]) -> None:
    token = {"TokenGrants"} if {"SourceUrl", "SourceTokenSecretArn"} <= set(given) else set()
    token |= {"TokenKeyGrants"} if token and "KmsKeyArn" in given else set()
    keys = {"TableKeyGrants", "QueueKeyGrants"} if "KmsKeyArn" in given else set()
    had = {
        role: {policy["Ref"] for policy in resolve(RESOURCES[role]["Properties"]["ManagedPolicyArns"], **given)}
        for role in of_type("AWS::IAM::Role")
    }
    assert had["ReconcileRole"] == token | keys
    assert had["WatchdogRole"] | had["SchedulerRole"] == keys
    assert token <= set(there(**given))


def test_of_secrets_only_the_token_and_of_keys_only_the_one_that_is_given_can_be_used() -> None:
    def granted(policy: str) -> dict[str, Any]:
        (statement,) = RESOURCES[policy]["Properties"]["PolicyDocument"]["Statement"]
        return {name: part for name, part in statement.items() if name != "Sid"}

    read = {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": {"Ref": "SourceTokenSecretArn"}}
    assert granted("TokenGrants") == read
    via = {"Fn::Sub": "secretsmanager.${AWS::Region}.${AWS::URLSuffix}"}
    assert granted("TokenKeyGrants") == {
        "Effect": "Allow",
        "Action": "kms:Decrypt",
        "Resource": {"Ref": "KmsKeyArn"},
        "Condition": {"StringEquals": {"kms:ViaService": via}},
    }


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: "-".join(given) or "default")
def test_the_watchdog_gets_nothing_new(given: dict[str, str]) -> None:
    def own(**parameters: str) -> Any:
        return resolve(RESOURCES["WatchdogRole"]["Properties"]["Policies"], **parameters)

    assert own(**given) == own()
    assert set(FUNCTIONS) == {"ReconcileFunction", "WatchdogFunction"}
