"""The acts that more than one module looks at: what is deployed, and the night that is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from tests.rehearsal.account import ENFORCED, Account
from tests.rehearsal.project import Project, stack_name
from tests.rehearsal.stack import Json, Reply, Stack
from tests.rehearsal.worker import kill_worker
from tools.emulator import emulator
from tools.interpreter import LACKING, python_of_the_runtime
from tools.seed import Seeded, plan, seed

NIGHT = (datetime.now(UTC) - timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
"""The last scheduled time: the schedules are given its hour, so that no other night becomes due in the rehearsal."""
INTERVAL = NIGHT.strftime("%Y-%m-%d")
PARAMETERS = {"ScheduleHour": str(NIGHT.hour), "LeaseSeconds": "60", "RangeSize": "20"}
ACCOUNTS = plan(accounts=1500, changed=1.0)


@dataclass(frozen=True, slots=True)
class Killed:
    """A night whose process was killed in mid-run, and what became of it then."""

    failed: Json
    again: Reply
    progress: Json
    record: Json
    watched: Json
    status: Json
    plan: Json


@dataclass(frozen=True, slots=True)
class Deleted:
    """The second stack: the resources it had, logical id → physical id, and those that CloudFormation left alone."""

    name: str
    had: dict[str, str]
    skipped: set[str]


@pytest.fixture(scope="session")
def account() -> Iterator[Account]:
    if python_of_the_runtime() is None:
        pytest.skip(LACKING)
    with emulator(settings=ENFORCED) as url:
        yield Account(url)


@pytest.fixture(scope="session")
def project(account: Account, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The clone that everything is deployed from, built."""
    project = Project(tmp_path_factory.mktemp("rehearsal"), account.url)
    project.build()
    return project


@pytest.fixture(scope="session")
def dev(account: Account, project: Project) -> Stack:
    """samconfig's default stack, deployed, with accounts on both sides."""
    project.deploy("default", **PARAMETERS)
    stack = Stack(account, stack_name("default"))
    fill(stack, ACCOUNTS)
    return stack


def fill(stack: Stack, rows: Seeded) -> None:
    tables = stack.outputs
    seed(
        stack.account.dynamodb,
        rows,
        accounts_table=tables["AccountsTableName"],
        entitlements_table=tables["EntitlementsTableName"],
    )


@pytest.fixture(scope="session")
def killed(dev: Stack, project: Project) -> Killed:
    """The nightly schedule fires; when some ranges are committed the process is killed. Then a look from every side."""
    dev.deliver("nightly", NIGHT, wait=False)
    until("some ranges are committed", lambda: any(row.get("ranges", 0) >= 3 for row in dev.control("PROGRESS#")))
    kill_worker(dev.outputs["ReconcileFunctionName"])
    (failed,) = dev.account.sqs.receive_message(QueueUrl=dev.outputs["FailedQueueUrl"], WaitTimeSeconds=20)["Messages"]
    again = dev.deliver("nightly", NIGHT)
    watched = dev.deliver("watchdog", datetime.now(UTC))
    (progress,), (record,) = dev.control("PROGRESS#"), dev.control("INTERVAL#")
    asked = (f"./reconcilectl {command} --stack-name {dev.name} --json" for command in ("status", "plan"))
    status, foreseen = (json.loads(project.type(line)) for line in asked)
    return Killed(json.loads(failed["Body"]), again, progress, record, watched.payload, status, foreseen)


def until(what: str, come: Callable[[], object], within_s: float = 90) -> None:
    """Wait until it has come; fails, saying what has not."""
    give_up = time.monotonic() + within_s
    while not come():
        assert time.monotonic() < give_up, f"after {within_s:g} s it is not true that {what}"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def prod(account: Account, project: Project, killed: Killed) -> Stack:
    """The second stack, deployed beside the first as the README says, while the lease of the killed night runs out."""
    hour = {"ScheduleHour": str(NIGHT.hour)}
    project.deploy("prod", ScheduleState="ENABLED", AlarmEmail="you@example.com", **hour)
    return Stack(account, stack_name("prod"))


@pytest.fixture(scope="session")
def deleted(prod: Stack, project: Project) -> Deleted:
    cloudformation, had = prod.account.cloudformation, dict(prod.resources)
    known = cloudformation.describe_stacks(StackName=prod.name)["Stacks"][0]["StackId"]
    project.sam("delete", "--config-env", "prod")
    events = cloudformation.describe_stack_events(StackName=known)["StackEvents"]
    return Deleted(
        prod.name, had, {event["LogicalResourceId"] for event in events if event["ResourceStatus"] == "DELETE_SKIPPED"}
    )
