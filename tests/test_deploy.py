"""The real `sam build` and `sam deploy`, with the repository's samconfig, to an emulator that enforces permissions;
then both deployed functions, each under its own role.

Where the emulator falls short of AWS the gap is bridged here, never in the product:
- its CloudFormation knows neither composite alarms nor saved queries: they are taken out of the built template;
- it runs functions on its own interpreter, whatever Runtime and Architectures say.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from botocore.config import Config

from reconciler import keys
from reconciler.observability import WATCHDOG_METRICS
from tools.emulator import emulator, emulator_python
from tools.tables import load_template

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient
    from types_boto3_cloudwatch import CloudWatchClient
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_dynamodb.type_defs import AttributeValueTypeDef
    from types_boto3_lambda import LambdaClient
    from types_boto3_logs import CloudWatchLogsClient
    from types_boto3_scheduler import EventBridgeSchedulerClient
    from types_boto3_sns import SNSClient

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / ".venv" / "wheels"
RUNTIME = str(load_template()["Globals"]["Function"]["Runtime"])
STACK = "scheduled-reconciler-dev"  # of samconfig's default environment
REGION = "eu-central-1"
EMULATOR_LACKS = ("AWS::CloudWatch::CompositeAlarm", "AWS::Logs::QueryDefinition")
# The emulator checks every request against the roles of the template; this one caller is the account's owner.
ENFORCED = {"AUTH": "true", "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


class Deployment:
    """A copy of the project, built, and deployed to an emulator as often as a test wants."""

    def __init__(self, project: Path, url: str) -> None:
        self.project = project
        self.url = url
        session = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)
        self.cloudformation: CloudFormationClient = session.client("cloudformation", endpoint_url=url)
        self.cloudwatch: CloudWatchClient = session.client("cloudwatch", endpoint_url=url)
        self.dynamodb: DynamoDBClient = session.client("dynamodb", endpoint_url=url)
        self.logs: CloudWatchLogsClient = session.client("logs", endpoint_url=url)
        self.scheduler: EventBridgeSchedulerClient = session.client("scheduler", endpoint_url=url)
        self.sns: SNSClient = session.client("sns", endpoint_url=url)
        # Whoever invokes waits longer than the function may run and never asks twice: a repeated call is a second run.
        patient = Config(retries={"max_attempts": 0}, read_timeout=930)
        self.functions: LambdaClient = session.client("lambda", endpoint_url=url, config=patient)

    def sam(self, *arguments: str) -> None:
        """Run a SAM command in the copy; fails with what it said."""
        home = self.project.parent
        environ = {
            "PATH": os.pathsep.join([str(python_of_the_runtime().parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(home),
            "TMPDIR": str(home),
            "LC_ALL": "C.UTF-8",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAM_CLI_TELEMETRY": "0",
            # The bundle comes from wheels that `make install` laid down: no network.
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(WHEELS),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        command = [str(emulator_python().parent / "sam"), *arguments]
        done = subprocess.run(
            command, cwd=self.project, env=environ, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    def deploy(self, **parameters: str) -> dict[str, str]:
        """`sam deploy` with samconfig's default environment, and parameters in place of its own; return the outputs."""
        overrides = ["--parameter-overrides", *(f"{n}={v}" for n, v in parameters.items())] if parameters else []
        self.sam("deploy", *overrides)
        (stack,) = self.cloudformation.describe_stacks(StackName=STACK)["Stacks"]
        assert stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def schedules(self) -> dict[str, tuple[str, str]]:
        """Name of each deployed schedule → its state and what it sends."""
        names = [schedule["Name"] for schedule in self.scheduler.list_schedules()["Schedules"]]
        details = [self.scheduler.get_schedule(Name=name) for name in names]
        return {detail["Name"]: (detail["State"], detail["Target"]["Input"]) for detail in details}

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        """Invoke a deployed function once and return its answer."""
        answer = self.functions.invoke(FunctionName=function, Payload=json.dumps(event).encode())
        payload = answer["Payload"].read().decode()
        assert "FunctionError" not in answer, payload
        return json.loads(payload)

    def log_lines(self, group: str) -> list[dict[str, Any]]:
        """The JSON lines of a log group."""
        streams = self.logs.describe_log_streams(logGroupName=group)["logStreams"]
        events = [
            event
            for stream in streams
            for event in self.logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"])["events"]
        ]
        return [json.loads(event["message"]) for event in events if event["message"].startswith("{")]


def python_of_the_runtime() -> Path:
    """A working interpreter of the runtime's version, which `sam build` needs; else the one that runs this test."""
    candidates = [Path(sys.executable)]
    if found := shutil.which(RUNTIME):
        candidates.append(Path(found))
    if pyenv := shutil.which("pyenv"):
        asked = subprocess.run(
            [pyenv, "prefix", RUNTIME.removeprefix("python")], capture_output=True, text=True, timeout=30, check=False
        )
        if asked.returncode == 0:
            candidates.append(Path(asked.stdout.strip()) / "bin" / RUNTIME)
    return next((python for python in candidates if is_runtime(python)), Path(sys.executable))


def is_runtime(python: Path) -> bool:
    """Whether an interpreter starts, is of the runtime's version and has pip (a pyenv shim may do none of it)."""
    script = "import sys, pip; print('python%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    return done.stdout.strip() == RUNTIME


def copy_of_the_project(directory: Path) -> Path:
    """template.yaml, samconfig.toml and src/ in a directory of their own: nothing is written to the repository."""
    project = directory / "project"
    project.mkdir()
    shutil.copy(ROOT / "samconfig.toml", project)
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "template.yaml").read_text("utf-8")
    if not is_runtime(python_of_the_runtime()):
        text = text.replace(f"Runtime: {RUNTIME}", f"Runtime: python{sys.version_info[0]}.{sys.version_info[1]}")
    (project / "template.yaml").write_text(text, "utf-8")
    # SAM looks for a newer version of itself once a week; it just did.
    (directory / ".aws-sam").mkdir()
    (directory / ".aws-sam" / "metadata.json").write_text(json.dumps({"lastVersionCheck": time.time()}), "utf-8")
    return project


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The stack as `sam deploy` left it, after one night: what each step answered."""

    deployment: Deployment
    outputs: dict[str, str]
    states: set[str]
    alarms: int
    night: datetime
    first: dict[str, Any]
    again: dict[str, Any]
    watched: dict[str, Any]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Build and deploy with schedules disabled, seed three accounts, deliver the latest night twice, look once."""
    assert WHEELS.is_dir(), f"{WHEELS} is missing: run `make install` first"
    project = copy_of_the_project(tmp_path_factory.mktemp("deploy"))
    with emulator(settings=ENFORCED) as url:
        deployment = Deployment(project, url)
        deployment.sam("build")
        built = project / ".aws-sam" / "build" / "template.yaml"
        template = load_template(built)
        kept = {name: body for name, body in template["Resources"].items() if body["Type"] not in EMULATOR_LACKS}
        template["Resources"] = kept
        built.write_text(yaml.safe_dump(template, sort_keys=False), "utf-8")
        outputs = deployment.deploy()
        seed(deployment.dynamodb, outputs)
        states = {state for state, _ in deployment.schedules().values()}
        alarms = len(deployment.cloudwatch.describe_alarms()["MetricAlarms"])

        now = datetime.now(UTC)
        night = now.replace(hour=2, minute=0, second=0, microsecond=0)
        night -= timedelta(days=night > now)
        event = sent_by(deployment, "nightly", night)
        yield Deployed(
            deployment=deployment,
            outputs=outputs,
            states=states,
            alarms=alarms,
            night=night,
            first=deployment.invoke(outputs["ReconcileFunctionName"], event),
            again=deployment.invoke(outputs["ReconcileFunctionName"], event),
            watched=deployment.invoke(outputs["WatchdogFunctionName"], sent_by(deployment, "watchdog", now)),
        )


def sent_by(deployment: Deployment, trigger: str, at: datetime) -> dict[str, Any]:
    """What the deployed schedule of a trigger sends, its time substituted as EventBridge Scheduler does."""
    (text,) = [text for _, text in deployment.schedules().values() if json.loads(text)["detail"]["trigger"] == trigger]
    event: dict[str, Any] = json.loads(
        text.replace("<aws.scheduler.scheduled-time>", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    )
    return event


def seed(client: DynamoDBClient, outputs: dict[str, str]) -> None:
    """Two active accounts that the view lacks, one cancelled account that it still entitles."""
    for account, status in (("account-1", "active"), ("account-2", "active"), ("account-3", "cancelled")):
        key: dict[str, AttributeValueTypeDef] = {
            keys.SEGMENT: {"S": keys.segment_of(account, 1)},
            keys.ACCOUNT_ID: {"S": account},
        }
        entitlements: dict[str, AttributeValueTypeDef] = {"entitlements": {"M": {"seats": {"N": "5"}}}}
        client.put_item(TableName=outputs["AccountsTableName"], Item=key | {"status": {"S": status}} | entitlements)
        if status == "cancelled":
            client.put_item(
                TableName=outputs["EntitlementsTableName"], Item=key | {"version": {"N": "1"}} | entitlements
            )


def test_a_deployed_night_completes(deployed: Deployed) -> None:
    interval = deployed.night.strftime("%Y-%m-%d")
    assert deployed.first["outcome"] == "completed", deployed.first
    row = deployed.deployment.dynamodb.get_item(
        TableName=deployed.outputs["ControlTableName"],
        Key={keys.PARTITION_KEY: {"S": STACK}, keys.SORT_KEY: {"S": keys.interval(interval)}},
        ConsistentRead=True,
    )["Item"]
    counts = {name: int(row[name]["N"]) for name in ("accounts", "granted", "changed", "revoked", "rejected")}
    assert row["state"] == {"S": "COMPLETED"}
    assert row["run_id"] == {"S": f"{STACK}/{interval}/1"}
    assert counts == {"accounts": 3, "granted": 2, "changed": 0, "revoked": 1, "rejected": 0}


def test_a_deployed_night_brings_the_view_in_line(deployed: Deployed) -> None:
    rows = deployed.deployment.dynamodb.scan(TableName=deployed.outputs["EntitlementsTableName"], ConsistentRead=True)
    seen = {row[keys.ACCOUNT_ID]["S"]: (row["entitlements"], row["version"]) for row in rows["Items"]}
    seats = {"M": {"seats": {"N": "5"}}}
    assert seen == {
        "account-1": (seats, {"N": "1"}),
        "account-2": (seats, {"N": "1"}),
        "account-3": ({"M": {}}, {"N": "2"}),
    }


def test_a_deployed_duplicate_is_answered_and_does_nothing(deployed: Deployed) -> None:
    assert deployed.again["outcome"] == "duplicate"
    assert deployed.again["first"] == deployed.first


def test_the_deployed_watchdog_answers_and_emits_every_metric(deployed: Deployed) -> None:
    assert set(deployed.watched) == set(WATCHDOG_METRICS)
    assert deployed.watched["SecondsPastDeadline"] == 0
    lines = deployed.deployment.log_lines(deployed.outputs["WatchdogLogGroup"])
    emf = next(line for line in lines if "_aws" in line)
    (directive,) = emf["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "ScheduledReconciler"
    assert directive["Dimensions"] == [["service"]]
    assert {metric["Name"] for metric in directive["Metrics"]} == set(WATCHDOG_METRICS)
    assert emf["service"] == STACK


def test_the_default_environment_deploys_without_schedules_and_alarms(deployed: Deployed) -> None:
    assert deployed.states == {"DISABLED"}
    assert deployed.alarms == 0


def test_enabling_the_schedules_brings_the_alarms_and_keeps_what_was_done(deployed: Deployed) -> None:
    deployment = deployed.deployment
    outputs = deployment.deploy(ScheduleState="ENABLED", TickMinutes="1", AlarmEmail="on-call@example.com")
    assert outputs == deployed.outputs, "an update replaces nothing"
    assert {state for state, _ in deployment.schedules().values()} == {"ENABLED"}
    (subscription,) = deployment.sns.list_subscriptions()["Subscriptions"]
    assert subscription["Endpoint"] == "on-call@example.com"
    alarms = deployment.cloudwatch.describe_alarms()["MetricAlarms"]
    told = {alarm["MetricName"]: alarm["AlarmActions"] for alarm in alarms if alarm["AlarmActions"]}
    assert set(told) == {
        "SecondsPastDeadline",
        "SkippedIntervals",
        "IntervalsNeedingRepair",
        "ApproximateNumberOfMessagesVisible",
        "Errors",
    }
    assert all(actions == [subscription["TopicArn"]] for actions in told.values())
    assert all(is_told_by(alarm["AlarmDescription"]) for alarm in alarms)
    attempts = deployment.invoke(outputs["ReconcileFunctionName"], sent_by(deployment, "tick", datetime.now(UTC)))[
        "attempts"
    ]
    assert deployed.first["attempts"][-1]["run_id"] not in {a["run_id"] for a in attempts}, (
        "the night is still complete"
    )


def is_told_by(description: str) -> bool:
    """Whether every placeholder of a description was replaced."""
    return STACK in description and "${" not in description
