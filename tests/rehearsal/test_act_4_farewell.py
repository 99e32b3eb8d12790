"""Act 4: one of the two stacks is deleted. What it knows is kept, and the other one does not notice."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from tests.rehearsal.project import Project
from tests.rehearsal.stack import Stack
from tools.tables import load_template

KEPT = {"ControlTable", "AccountsTable", "EntitlementsTable"}


@pytest.fixture(scope="session")
def deleted(prod: Stack, project: Project) -> dict[str, str]:
    """The resources that the second stack had, logical id → physical id; it is deleted now."""
    had = dict(prod.resources)
    project.delete("prod")
    return had


def test_deleting_a_stack_keeps_the_tables_that_say_so_and_nothing_else(dev: Stack, deleted: dict[str, str]) -> None:
    tables = set(dev.account.dynamodb.list_tables()["TableNames"])
    assert {name for name, physical in deleted.items() if name.endswith("Table") and physical in tables} == KEPT
    outputs = load_template()["Outputs"]
    said = {
        output["Value"]["Ref"]
        for output in outputs.values()
        if "Kept when the stack is deleted" in output["Description"]
    }
    assert said == KEPT
    with pytest.raises(ClientError, match="ResourceNotFound"):
        dev.account.functions.get_function(FunctionName=deleted["ReconcileFunction"])


def test_a_kept_control_table_is_still_protected_against_deletion(dev: Stack, deleted: dict[str, str]) -> None:
    with pytest.raises(ClientError, match="protect"):
        dev.account.dynamodb.delete_table(TableName=deleted["ControlTable"])


def test_the_other_stack_goes_on(dev: Stack, deleted: dict[str, str]) -> None:
    reply = dev.deliver("tick", datetime.now(UTC))
    assert reply.error is None, reply.error
