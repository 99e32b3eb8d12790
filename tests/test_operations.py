"""docs/operations.md names every alarm and every state, and only commands that exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from reconciler.observability import WORKER_METRICS
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED
from reconciler.run import CAUSES
from reconciler.triggers import parse_trigger
from tests.alarms import Stack
from tests.kit import command, delivered
from tests.world import TEMPLATE, World
from tools.ctl import verbs

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/operations.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT + README, re.DOTALL)).replace("\\\n", " ")
INLINE = re.findall(r"`([^`\n]+)`", TEXT)
SERVICES = {"logs tail": {"since", "filter-pattern"}}
"""Commands that the command line adds to those of the service."""
GLOBAL = {"query", "output", "region", "profile"}


def test_every_alarm_that_tells_has_its_row_and_every_state_its_meaning() -> None:
    for name in Stack().telling:
        assert f"| **{name.removesuffix('Alarm')}** |" in TEXT
    for state in (COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED):
        assert re.search(rf"^\| {state} \|", TEXT, re.MULTILINE), state
    for cause in (*CAUSES.values(), "paused", "behind_older"):
        assert f"`{cause}`" in TEXT


def test_every_command_of_reconcilectl_exists() -> None:
    named = set(re.findall(r"\./reconcilectl ([a-z-]+)", TEXT))
    known = {path.stem for path in (ROOT / "events").glob("*.json")}
    looking = {"status", "plan", "audit", "timeline"}
    assert {"status", "rerun", "resume", "release-lease"} <= named <= known | looking
    assert verbs


def aws_commands() -> list[list[str]]:
    lines = [*BLOCKS.replace("|\n", "| ").splitlines(), *INLINE]
    found = []
    for line in lines:
        if match := re.search(r"\baws [a-z]+ [a-z].*", line):
            text = re.sub(r"\"?\$\(out \w+\)\"?", "OUT", match[0]).split(" | ")[0].split("; }")[0]
            found.append(shlex.split(text, comments=True))
    return found


@pytest.mark.parametrize("words", aws_commands(), ids=lambda words: "-".join(words[1:3]))
def test_every_aws_command_exists_with_its_options(words: list[str]) -> None:
    _, service, name, *rest = words
    options = {word.removeprefix("--") for word in rest if word.startswith("--")} - GLOBAL
    if f"{service} {name}" in SERVICES:
        assert options <= SERVICES[f"{service} {name}"]
        return
    model = botocore.session.get_session().get_service_model(service)
    if name == "wait":
        assert rest[0] in ("table-exists", "table-not-exists")
        name = "describe-table"
    operations = {xform_name(each, "-"): each for each in model.operation_names}
    members = model.operation_model(operations[name]).input_shape
    assert members is not None
    known = {xform_name(member, "-"): shape for member, shape in members.members.items()}
    for option in options:
        positive = option.removeprefix("no-")
        assert option in known or known[positive].type_name == "boolean", option


def test_what_the_document_sets_again_is_what_the_template_sets() -> None:
    table = TEMPLATE["Resources"]["ControlTable"]["Properties"]
    assert f"AttributeName={table['TimeToLiveSpecification']['AttributeName']}" in TEXT
    assert set(re.findall(r"\$\(out (\w+)\)", TEXT)) <= set(TEMPLATE["Outputs"])
    for named in re.findall(r"--parameter-overrides (\w+)=", TEXT):
        assert named in TEMPLATE["Parameters"]
    for named in ("ScheduleHour", "ScheduleMinute", "DeadlineMinutes", "AlarmTopicArn"):
        assert f"`{named}`" in TEXT
        assert named in TEMPLATE["Parameters"]


def test_what_is_pasted_is_no_redirection() -> None:
    for line in BLOCKS.splitlines():
        if "<that name>" not in line:
            assert not re.search(r"<[\w ]+>", line), line


def test_the_metrics_that_the_document_explains_are_emitted() -> None:
    section = TEXT.partition("## What the metrics say")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| ([A-Z]\w+) \|", section, re.MULTILINE))
    assert {"RunDelay", "Takeovers", "LeaseLost"} <= named <= set(WORKER_METRICS)


def test_the_event_of_a_failed_invocation_may_be_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Lambda's destination writes it; the document's own lines take out the event and the message's handle."""
    sent = command("Pause", "p-1")
    message: dict[str, Any] = {
        "version": "1.0",
        "requestContext": {"condition": "RetriesExhausted", "approximateInvokeCount": 1},
        "requestPayload": sent,
        "responsePayload": {"errorType": "TransientFailure"},
    }
    (tmp_path / "failed.json").write_text(json.dumps({"Body": json.dumps(message), "ReceiptHandle": "h-1"}), "utf-8")
    lines = [line for line in BLOCKS.splitlines() if "open('failed.json')" in line]
    assert len(lines) == 2
    script = "\n".join([*lines, "cat event.json", 'echo "$H"'])
    printed = subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    event, handle = printed.splitlines()
    assert handle == "h-1"
    again = json.loads(event)
    assert parse_trigger(again, now_ms=world.clock.now_ms(), settings=world.settings).slot
    with world.deployed(monkeypatch):
        assert delivered(world, again)["outcome"] == "done"
        assert delivered(world, again)["outcome"] == "duplicate"


def test_no_line_is_longer_than_a_table_needs() -> None:
    for line in TEXT.splitlines():
        assert len(line) <= 160 or line.startswith("|"), line
