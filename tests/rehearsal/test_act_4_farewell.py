"""Act 4: one of the two stacks is deleted. What it knows is kept, and the other one does not notice."""

from __future__ import annotations

import re

import pytest
from botocore.exceptions import ClientError

from tests.rehearsal.conftest import Deleted
from tests.rehearsal.project import Project
from tests.rehearsal.stack import Stack
from tests.template import references
from tools.emulator import ROOT
from tools.tables import load_template

KEPT = {"ControlTable", "AccountsTable", "EntitlementsTable"}
DEPLOY = re.search(r"^## Deploy$(.*?)^## ", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
TRIES = re.findall(r"^.*sam remote invoke .*--event-file.*$", DEPLOY[1] if DEPLOY else "", re.MULTILINE)
"""The lines with which the README tries a stack that was just deployed."""


def test_deleting_a_stack_keeps_the_tables_that_say_so_and_nothing_else(dev: Stack, deleted: Deleted) -> None:
    tables = dev.account.dynamodb.list_tables()["TableNames"]
    there = {logical for logical, name in deleted.had.items() if logical.endswith("Table") and name in tables}
    assert there == deleted.skipped == KEPT
    said = [output for output in load_template()["Outputs"].values() if "Kept when" in output["Description"]]
    assert {name for output in said for name in references(output["Value"]) if name in deleted.had} == KEPT
    with pytest.raises(ClientError, match="ResourceNotFound"):
        dev.account.functions.get_function(FunctionName=deleted.had["ReconcileFunction"])


@pytest.mark.field("B69")
def test_no_log_group_outlives_its_stack(dev: Stack, deleted: Deleted) -> None:
    groups = {group["logGroupName"] for group in dev.account.logs.describe_log_groups()["logGroups"]}
    assert groups == {name for logical, name in dev.resources.items() if logical.endswith("Logs")}
    assert groups.isdisjoint(deleted.had.values())


def test_a_kept_control_table_is_still_protected_against_deletion(dev: Stack, deleted: Deleted) -> None:
    with pytest.raises(ClientError, match="protect"):
        dev.account.dynamodb.delete_table(TableName=deleted.had["ControlTable"])


def test_the_other_stack_goes_on_with_the_lines_of_the_readme(dev: Stack, project: Project, deleted: Deleted) -> None:
    watched, ran = map(project.type, TRIES)
    assert "UnfinishedIntervals" in watched
    assert '"outcome"' in ran
    assert dev.described()[1] == dev.outputs
