"""Act 5: the deleted stack is deployed anew on the source and the view that it left behind, then reads a provider."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from reconciler.settings import HTTP
from tests.rehearsal.account import Account
from tests.rehearsal.attempts import allowed
from tests.rehearsal.conftest import INTERVAL, NIGHT, Deleted, fill
from tests.rehearsal.permissions import Permission
from tests.rehearsal.project import Project
from tests.rehearsal.stack import Stack
from tools.seed import plan
from tools.verify import out_of_line

KEPT = ("AccountsTable", "EntitlementsTable")
ACCOUNTS = plan(accounts=16, changed=1.0)
PROVIDER = {"Source": HTTP, "SourceUrl": "https://provider.example/v1"}


@pytest.fixture(scope="session")
def anew(account: Account, project: Project, deleted: Deleted) -> Stack:
    """The second stack once more, on the source by its name and on the view by its ARN, with a few accounts in them."""
    view = account.dynamodb.describe_table(TableName=deleted.had["EntitlementsTable"])["Table"]["TableArn"]
    existing = {"ExistingAccountsTable": deleted.had["AccountsTable"], "ExistingEntitlementsTable": view}
    project.deploy("prod", ScheduleState="DISABLED", ScheduleHour=str(NIGHT.hour), **existing)
    stack = Stack(account, deleted.name)
    fill(stack, ACCOUNTS)
    return stack


@pytest.fixture(scope="session")
def possible(anew: Stack, deleted: Deleted) -> set[Permission]:
    """What the job can do to the tables that were there before it."""
    return on_kept(anew, deleted)


def on_kept(stack: Stack, deleted: Deleted) -> set[Permission]:
    tables = Stack(stack.account, stack.name)
    tables.resources = {name: deleted.had[name] for name in KEPT}
    return allowed(stack.account.as_role(stack.resources["ReconcileRole"]), tables)


@pytest.fixture(scope="session")
def provided(anew: Stack, possible: set[Permission]) -> tuple[Stack, dict[str, str]]:
    """The same stack, told to read a provider with a token; ARN of each of two secrets, the first one the token's."""
    arns = {
        name: anew.account.secrets.create_secret(Name=name, SecretString=name)["ARN"] for name in ("token", "other")
    }
    updated(anew, SourceTokenSecretArn=arns["token"], ExistingAccountsTable="", **PROVIDER)
    return Stack(anew.account, anew.name), arns


def updated(stack: Stack, **parameters: str) -> None:
    """Change parameters, and nothing else; fails with what CloudFormation says."""
    cloudformation = stack.account.cloudformation
    (known,) = cloudformation.describe_stacks(StackName=stack.name)["Stacks"]
    given: list[Any] = [
        {"ParameterKey": name, "ParameterValue": parameters[name]}
        if name in parameters
        else {"ParameterKey": name, "UsePreviousValue": True}
        for name in (one["ParameterKey"] for one in known["Parameters"])
    ]
    capabilities: Any = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    cloudformation.update_stack(
        StackName=stack.name, UsePreviousTemplate=True, Parameters=given, Capabilities=capabilities
    )
    cloudformation.get_waiter("stack_update_complete").wait(
        StackName=stack.name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )


def test_a_stack_takes_over_a_source_and_a_view_and_makes_none(anew: Stack, deleted: Deleted) -> None:
    assert anew.described()[0] == "CREATE_COMPLETE"
    assert set(KEPT).isdisjoint(anew.resources)
    assert anew.outputs["AccountsTableName"] == deleted.had["AccountsTable"]
    assert anew.outputs["EntitlementsTableName"].endswith(f":table/{deleted.had['EntitlementsTable']}")


def test_the_job_can_do_to_them_what_it_could_to_its_own(possible: set[Permission]) -> None:
    assert possible == {
        Permission("dynamodb:Query", "AccountsTable"),
        Permission("dynamodb:Query", "EntitlementsTable"),
        Permission("dynamodb:UpdateItem", "EntitlementsTable"),
    }


def test_its_night_brings_that_view_in_line(anew: Stack) -> None:
    reply = anew.deliver("nightly", NIGHT)
    assert (reply.error, reply.payload.get("outcome")) == (None, "completed")
    (record,) = anew.control(f"INTERVAL#{INTERVAL}")
    accounts, view = anew.rows("AccountsTableName"), anew.rows("EntitlementsTableName")
    counted = {name: record[name] for name in ("accounts", "changed", "revoked", "rejected")}
    assert counted == {name: getattr(ACCOUNTS, name) for name in counted}
    assert len(out_of_line(accounts, view)) == ACCOUNTS.rejected


def test_a_provider_without_an_address_is_refused_and_changes_nothing(anew: Stack) -> None:
    with pytest.raises(ClientError, match="Source=http needs SourceUrl"):
        updated(anew, Source=HTTP)
    assert anew.described()[0] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")


def test_with_a_provider_the_job_reads_the_token_and_no_table_of_accounts(
    provided: tuple[Stack, dict[str, str]], possible: set[Permission], deleted: Deleted
) -> None:
    stack, arns = provided
    assert on_kept(stack, deleted) == {one for one in possible if one.resource != "AccountsTable"}
    assert "AccountsTableName" not in stack.outputs
    by = stack.account.as_role(stack.resources["ReconcileRole"])
    assert by.secrets.get_secret_value(SecretId=arns["token"])["SecretString"] == "token"
    with pytest.raises(ClientError, match="AccessDenied"):
        by.secrets.get_secret_value(SecretId=arns["other"])
    watchdog = stack.account.as_role(stack.resources["WatchdogRole"])
    with pytest.raises(ClientError, match="AccessDenied"):
        watchdog.secrets.get_secret_value(SecretId=arns["token"])


def test_with_a_provider_the_settings_of_the_functions_are_valid(provided: tuple[Stack, dict[str, str]]) -> None:
    stack, _ = provided
    answer = stack.send(stack.resources["WatchdogFunction"], {})
    assert (answer.error, "UnfinishedIntervals" in answer.payload) == (None, True)
