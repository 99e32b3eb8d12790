"""template.yaml says what the code says: names, keys, limits, permissions. A difference shows before a deployment."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reconciler import keys
from reconciler.commands import VERBS
from reconciler.observability import WATCHDOG_METRICS, WORKER_METRICS
from reconciler.settings import EACH, LATEST, Settings
from reconciler.triggers import parse_trigger
from tests.template import (
    FUNCTIONS,
    PARAMETERS,
    RESOURCES,
    SCHEDULES,
    STACK_NAME,
    TEMPLATE,
    VARIABLES,
    expanded,
    expanded_of_type,
    listed,
    of_type,
    references,
    resolve,
)
from tools.tables import environment

ROOT = Path(__file__).resolve().parents[1]
TABLE_VARIABLES = {
    "CONTROL_TABLE": "ControlTable",
    "ACCOUNTS_TABLE": "AccountsTable",
    "ENTITLEMENTS_TABLE": "EntitlementsTable",
    "IDEMPOTENCY_TABLE": "IdempotencyTable",
}
TABLES = {logical_id: logical_id for logical_id in TABLE_VARIABLES.values()}
POWERTOOLS_VARIABLES = {"POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_LOG_LEVEL"}
ALARMS = of_type("AWS::CloudWatch::Alarm")
COMPOSITES = of_type("AWS::CloudWatch::CompositeAlarm")
OWN_ALARMS = {name: alarm for name, alarm in ALARMS.items() if not str(alarm["Namespace"]).startswith("AWS/")}


def statements(role: str) -> list[dict[str, Any]]:
    policies = resolve(RESOURCES[role]["Properties"]["Policies"])
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


# ------------------------------------------------------------------------------------------------------------ functions


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_handler_is_code_that_exists(name: str) -> None:
    module, _, function = FUNCTIONS[name]["Handler"].rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
    assert TEMPLATE["Globals"]["Function"]["CodeUri"] == "src/"


def test_the_environment_names_every_setting_and_nothing_else() -> None:
    settings = {name.upper() for name in Settings.__dataclass_fields__}
    assert set(VARIABLES) - POWERTOOLS_VARIABLES == settings
    assert set(VARIABLES) >= POWERTOOLS_VARIABLES
    by_default = {name: resolve(VARIABLES[name]) for name in TABLE_VARIABLES}
    assert by_default == {name: {"Ref": table} for name, table in TABLE_VARIABLES.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_states_its_limits(name: str) -> None:
    function = FUNCTIONS[name]
    assert "Environment" not in function, "both functions take the environment of Globals"
    assert function["Timeout"] <= 900
    assert function["MemorySize"] >= 128
    invoke = function["EventInvokeConfig"]
    assert invoke["MaximumRetryAttempts"] == 0, "the next tick is the retry"
    assert invoke["MaximumEventAgeInSeconds"] == int(PARAMETERS["TickMinutes"]["Default"]) * 60
    assert RESOURCES[name]["Type"] == "AWS::Serverless::Function"


def test_a_failed_event_of_the_job_is_kept() -> None:
    config = FUNCTIONS["ReconcileFunction"]["EventInvokeConfig"]
    assert config["DestinationConfig"] == {
        "OnFailure": {"Type": "SQS", "Destination": {"Fn::GetAtt": ["Failed", "Arn"]}}
    }
    assert "sqs:SendMessage" in granted("ReconcileRole")["Failed"]


def test_no_concurrency_is_reserved() -> None:
    text = json.dumps(expanded())
    assert "ReservedConcurrentExecutions" not in text
    assert "ProvisionedConcurrency" not in text


# --------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("table", "expected_keys", "ttl"),
    [
        ("ControlTable", (keys.PARTITION_KEY, keys.SORT_KEY), keys.CONTROL_TTL),
        ("AccountsTable", (keys.SEGMENT, keys.ACCOUNT_ID), None),
        ("EntitlementsTable", (keys.SEGMENT, keys.ACCOUNT_ID), None),
        ("IdempotencyTable", (keys.IDEMPOTENCY_KEY,), keys.IDEMPOTENCY_TTL),
    ],
)
def test_a_table_has_the_keys_and_the_ttl_of_the_code(
    table: str, expected_keys: tuple[str, ...], ttl: str | None
) -> None:
    properties = of_type("AWS::DynamoDB::Table")[table]
    schema = list(zip(expected_keys, ("HASH", "RANGE"), strict=False))
    assert [(key["AttributeName"], key["KeyType"]) for key in properties["KeySchema"]] == schema
    assert properties["AttributeDefinitions"] == [{"AttributeName": k, "AttributeType": "S"} for k in expected_keys]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    specification = {"AttributeName": ttl, "Enabled": True} if ttl else None
    assert properties.get("TimeToLiveSpecification") == specification


def test_what_cannot_be_made_again_outlives_the_stack() -> None:
    for table in ("ControlTable", "AccountsTable", "EntitlementsTable"):
        assert RESOURCES[table]["DeletionPolicy"] == "Retain", table
        assert RESOURCES[table]["UpdateReplacePolicy"] == "Retain", table
    control = RESOURCES["ControlTable"]["Properties"]
    assert control["DeletionProtectionEnabled"] is True
    assert control["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


# ----------------------------------------------------------------------------------------------------------- parameters


def bounds(parameter: str) -> tuple[int, int] | None:
    """The range that a parameter's message promises, if it is a whole number."""
    found = re.search(r"a whole number from (\d+) to (\d+)", PARAMETERS[parameter].get("ConstraintDescription", ""))
    return (int(found[1]), int(found[2])) if found else None


NUMBERS = [name for name in PARAMETERS if bounds(name)]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_explains_itself_and_its_default_is_valid(name: str) -> None:
    parameter = PARAMETERS[name]
    assert parameter["Description"].endswith(".")
    assert parameter["ConstraintDescription"].startswith("must be ")
    assert ("AllowedPattern" in parameter) != ("AllowedValues" in parameter)
    if "AllowedValues" in parameter:
        assert parameter["Default"] in parameter["AllowedValues"]
    else:
        assert re.fullmatch(parameter["AllowedPattern"], parameter["Default"])
    group = TEMPLATE["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sum(name in shown["Parameters"] for shown in group) == 1


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_takes_exactly_the_range_it_promises(name: str) -> None:
    low, high = bounds(name) or (0, 0)
    pattern = re.compile(PARAMETERS[name]["AllowedPattern"])
    around = {*range(12_000), *range(high - 3, high + 4), high * 10}
    assert {n for n in around if pattern.fullmatch(str(n))} == {n for n in around if low <= n <= high}
    for wrong in ("", " 5", "5 ", "-1", "+5", "2.5", "05", "1e1", "0x1", "five"):
        assert not pattern.fullmatch(wrong), wrong
    assert f"{low} to {high}" in PARAMETERS[name]["Description"]


def test_missed_nights_are_caught_up_by_a_policy_that_the_code_knows() -> None:
    policy = PARAMETERS["CatchUpPolicy"]
    assert (policy["AllowedValues"], policy["Default"]) == ([EACH, LATEST], EACH)
    for value in policy["AllowedValues"]:
        assert f"{value} - " in policy["Description"], "each choice is explained"
        chosen = environment(TABLES, job="a-stack", parameters={"CatchUpPolicy": value})
        assert Settings.from_env(chosen).catch_up_policy == value


@pytest.mark.parametrize("end", [0, 1])
def test_the_settings_take_every_value_the_parameters_allow(end: int) -> None:
    values = {name: str((bounds(name) or (0, 0))[end]) for name in NUMBERS}
    settings = Settings.from_env(environment(TABLES, job="a-stack", parameters=values))
    assert settings.schedule_hour == int(values["ScheduleHour"])
    assert settings.lease_seconds == float(values["LeaseSeconds"])


def test_the_defaults_are_valid_settings() -> None:
    settings = Settings.from_env(environment(TABLES, job="a-stack"))
    assert settings.job_name == "a-stack"
    assert settings.control_table == "ControlTable"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "AlarmEmail",
            ["", "on-call@example.com"],
            ["on-call", "a b@example.com", "a@b", "a@example.com,b@example.com"],
        ),
        (
            "AlarmTopicArn",
            ["", "arn:aws:sns:eu-central-1:123456789012:alarms", "arn:aws-cn:sns:cn-north-1:123456789012:a_B-9"],
            ["alarms", "arn:aws:sqs:eu-central-1:123456789012:alarms", "arn:aws:sns:eu-central-1:123456789012:a.fifo"],
        ),
    ],
)
def test_a_notification_target_is_checked_before_it_is_deployed(name: str, good: list[str], bad: list[str]) -> None:
    pattern = re.compile(PARAMETERS[name]["AllowedPattern"])
    assert [value for value in good if not pattern.fullmatch(value)] == []
    assert [value for value in bad if pattern.fullmatch(value)] == []


# ------------------------------------------------------------------------------------------------------------ schedules

KIND_OF_SCHEDULE = {"Nightly": "nightly", "Tick": "tick", "Watch": "watchdog"}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_sends_a_trigger_that_the_code_understands(name: str) -> None:
    kind = KIND_OF_SCHEDULE[name]
    sent = json.loads(SCHEDULES[name]["Input"])
    assert sent == json.loads((ROOT / "events" / f"{kind}.json").read_text("utf-8"))
    assert sent["time"] == "<aws.scheduler.scheduled-time>"
    settings = Settings.from_env(environment(TABLES, job="a-stack"))
    now = datetime(2026, 11, 29, 2, 0, 7, tzinfo=UTC)
    event = sent | {"time": "2026-11-29T02:00:00Z"}
    trigger = parse_trigger(event, now_ms=round(now.timestamp() * 1000), settings=settings)
    assert trigger.kind == kind
    assert trigger.slot == f"{kind}#2026-11-29T02:00:00.000Z"


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_states_how_it_delivers(name: str) -> None:
    schedule = SCHEDULES[name]
    assert schedule["OmitName"] is True
    assert schedule["State"] == {"Ref": "ScheduleState"}
    assert schedule["RoleArn"] == {"Fn::GetAtt": ["SchedulerRole", "Arn"]}
    assert schedule["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["Undelivered", "Arn"]}}
    assert schedule["RetryPolicy"] == {
        "MaximumRetryAttempts": 3,
        "MaximumEventAgeInSeconds": int(PARAMETERS["TickMinutes"]["Default"]) * 60,
    }


def test_the_expressions_are_those_of_eventbridge_scheduler() -> None:
    """cron(minute hour day month weekday year), one of day and weekday `?`; rate(1 minute), rate(n minutes)."""
    for hour, minute in (("0", "0"), ("2", "0"), ("23", "59")):
        nightly = resolve(SCHEDULES["Nightly"]["ScheduleExpression"], ScheduleHour=hour, ScheduleMinute=minute)
        assert nightly == f"cron({minute} {hour} * * ? *)"
    tick = SCHEDULES["Tick"]["ScheduleExpression"]
    assert [resolve(tick, TickMinutes=n) for n in ("1", "2", "60")] == [
        "rate(1 minute)",
        "rate(2 minutes)",
        "rate(60 minutes)",
    ]
    assert SCHEDULES["Watch"]["ScheduleExpression"] == "rate(5 minutes)"


def test_the_night_is_in_utc_whatever_the_region() -> None:
    assert SCHEDULES["Nightly"]["ScheduleExpressionTimezone"] == "UTC"


# ---------------------------------------------------------------------------------------------------------------- roles


def granted(role: str) -> dict[str, set[str]]:
    """Logical id of a resource → actions that a role has on it. Fails on a wildcard or a missing Sid."""
    grants: dict[str, set[str]] = {}
    for statement in statements(role):
        assert re.fullmatch(r"[A-Za-z0-9]+", statement["Sid"])
        assert statement["Effect"] == "Allow"
        for resource in listed(statement["Resource"]):
            assert set(resource) == {"Fn::GetAtt"}, f"{role}: {resource} is not one resource of this stack"
            actions = grants.setdefault(resource["Fn::GetAtt"][0], set())
            actions |= set(listed(statement["Action"]))
    assert not any("*" in action for actions in grants.values() for action in actions)
    return grants


LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
CONTROL_WRITES = {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"}
CONTROL_READS = {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:DescribeTable"}
IDEMPOTENCY = {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (
            "ReconcileRole",
            {
                "ControlTable": CONTROL_READS | CONTROL_WRITES,
                "AccountsTable": {"dynamodb:Query"},
                "EntitlementsTable": {"dynamodb:Query", "dynamodb:UpdateItem"},
                "IdempotencyTable": IDEMPOTENCY,
                "Failed": {"sqs:SendMessage"},
                "ReconcileLogs": LOGS,
            },
        ),
        ("WatchdogRole", {"ControlTable": CONTROL_READS, "WatchdogLogs": LOGS}),
        (
            "SchedulerRole",
            {
                "ReconcileFunction": {"lambda:InvokeFunction"},
                "WatchdogFunction": {"lambda:InvokeFunction"},
                "Undelivered": {"sqs:SendMessage"},
            },
        ),
    ],
)
def test_a_role_may_do_exactly_what_it_needs(role: str, expected: dict[str, set[str]]) -> None:
    assert granted(role) == expected
    assert resolve(RESOURCES[role]["Properties"]["ManagedPolicyArns"]) == [], "nothing more unless a parameter asks"


def test_every_role_is_one_of_these_three() -> None:
    assert set(expanded_of_type("AWS::IAM::Role")) == {"ReconcileRole", "WatchdogRole", "SchedulerRole"}
    roles = {name: function["Role"] for name, function in expanded_of_type("AWS::Lambda::Function").items()}
    assert roles == {
        "ReconcileFunction": {"Fn::GetAtt": ["ReconcileRole", "Arn"]},
        "WatchdogFunction": {"Fn::GetAtt": ["WatchdogRole", "Arn"]},
    }


# ----------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.field("B69")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_logs_only_to_a_group_that_ends(name: str) -> None:
    group = FUNCTIONS[name]["LoggingConfig"]["LogGroup"]["Ref"]
    assert RESOURCES[group]["Type"] == "AWS::Logs::LogGroup"
    assert RESOURCES[group]["Properties"]["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    role = FUNCTIONS[name]["Role"]["Fn::GetAtt"][0]
    assert {r: a for r, a in granted(role).items() if any(x.startswith("logs:") for x in a)} == {group: LOGS}


@pytest.mark.field("B69")
def test_a_schedule_cannot_fire_before_the_log_group_exists() -> None:
    def behind(name: str) -> set[str]:
        direct = {other for other in references(expanded()[name]["Properties"]) if other in expanded()}
        return direct.union(*(behind(other) for other in direct))

    schedules = expanded_of_type("AWS::Scheduler::Schedule")
    groups = {name: behind(name) & set(expanded_of_type("AWS::Logs::LogGroup")) for name in schedules}
    assert len(groups) == 3
    assert all(groups.values()), groups


# --------------------------------------------------------------------------------------------------------------- alarms

PERIOD_OF_WATCHDOG_S = 300
INGESTION_S = 120  # what CloudWatch may take to make a metric of a log line


@pytest.mark.parametrize("name", OWN_ALARMS)
def test_an_alarm_reads_a_metric_that_the_watchdog_declares(name: str) -> None:
    alarm = OWN_ALARMS[name]
    assert alarm["MetricName"] in WATCHDOG_METRICS
    assert alarm["Namespace"] == VARIABLES["POWERTOOLS_METRICS_NAMESPACE"]
    assert alarm["Dimensions"] == [{"Name": "service", "Value": STACK_NAME}]
    assert VARIABLES["POWERTOOLS_SERVICE_NAME"] == STACK_NAME


EMIT = """
import json, sys
from moto import mock_aws
import boto3
from tools.tables import create_tables
with mock_aws():
    create_tables(boto3.client("dynamodb"), suffix="emitted")
    from reconciler import app
    class Context:
        function_name = "function"
        memory_limit_in_mb = 128
        invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:function"
        aws_request_id = "request"
        def get_remaining_time_in_millis(self): return 600_000
    for handler, event in json.loads(sys.argv[1]):
        getattr(app, handler)(event, Context())
"""


@cache
def emitted() -> dict[str, list[dict[str, Any]]]:
    """Handler → its EMF lines: both run once on moto, in a process that has just the deployed environment."""
    now = datetime.now(UTC)
    night = now.replace(hour=2, minute=0, second=0, microsecond=0)
    night -= timedelta(days=night > now)
    lines = {}
    for handler, kind in (("reconcile", "nightly"), ("watchdog", "watchdog")):
        event = json.loads((ROOT / "events" / f"{kind}.json").read_text("utf-8")) | {"time": night.isoformat()}
        tables = {logical_id: f"{logical_id}-emitted" for logical_id in TABLES}
        variables = environment(tables, job="a-stack") | {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        command = [sys.executable, "-c", EMIT, json.dumps([[handler, event]])]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        parsed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        lines[handler] = [line for line in parsed if "_aws" in line]
    return lines


def emitted_names(handler: str) -> set[str]:
    """Names of the metrics that a handler emitted in the alarms' namespace with the alarms' dimension, and no other."""
    names = set()
    for line in emitted()[handler]:
        for directive in line["_aws"]["CloudWatchMetrics"]:
            assert directive["Namespace"] == VARIABLES["POWERTOOLS_METRICS_NAMESPACE"]
            assert directive["Dimensions"] == [["service"]]
            assert line["service"] == "a-stack"
            names |= {metric["Name"] for metric in directive["Metrics"]}
    return names


@pytest.mark.field("B73")
def test_an_alarm_reads_a_metric_that_the_watchdog_really_emits() -> None:
    assert emitted_names("watchdog") == set(WATCHDOG_METRICS)
    assert {alarm["MetricName"] for alarm in OWN_ALARMS.values()} <= emitted_names("watchdog")


def test_the_job_emits_only_metrics_that_it_declares() -> None:
    assert emitted_names("reconcile")
    assert emitted_names("reconcile") <= set(WORKER_METRICS)


@pytest.mark.parametrize(
    ("name", "metric", "rule", "missing"),
    [
        ("LateAlarm", "SecondsPastDeadline", "Maximum GreaterThanThreshold 0", "ignore"),
        ("SkippedAlarm", "SkippedIntervals", "Maximum GreaterThanThreshold 0", "ignore"),
        ("NeedsRepairAlarm", "IntervalsNeedingRepair", "Maximum GreaterThanThreshold 0", "ignore"),
        ("WatchdogQuietAlarm", "UnfinishedIntervals", "SampleCount LessThanThreshold 1", "breaching"),
        ("UndeliveredAlarm", "ApproximateNumberOfMessagesVisible", "Maximum GreaterThanThreshold 0", "ignore"),
        ("ErrorsAlarm", "Errors", "Sum GreaterThanOrEqualToThreshold 3", "notBreaching"),
    ],
)
def test_an_alarm_means_what_its_name_says(name: str, metric: str, rule: str, missing: str) -> None:
    alarm = ALARMS[name]
    assert alarm["MetricName"] == metric
    assert f"{alarm['Statistic']} {alarm['ComparisonOperator']} {alarm['Threshold']}" == rule
    assert alarm["TreatMissingData"] == missing


def test_an_alarm_on_an_aws_metric_names_our_queue_and_our_function() -> None:
    queue = {"Name": "QueueName", "Value": {"Fn::GetAtt": ["Undelivered", "QueueName"]}}
    assert ALARMS["UndeliveredAlarm"]["Dimensions"] == [queue]
    assert ALARMS["ErrorsAlarm"]["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": "ReconcileFunction"}}]
    assert ALARMS["ErrorsAlarm"]["Period"] * ALARMS["ErrorsAlarm"]["EvaluationPeriods"] == 30 * 60


@pytest.mark.field("B55")
def test_silence_of_the_watchdog_is_told_but_not_before_its_first_word() -> None:
    silent = COMPOSITES["WatchdogSilentAlarm"]
    assert silent["AlarmRule"] == {"Fn::Sub": 'ALARM("${WatchdogQuietAlarm}")'}
    quiet = ALARMS["WatchdogQuietAlarm"]
    assert (quiet["Period"], quiet["DatapointsToAlarm"], quiet["EvaluationPeriods"]) == (300, 3, 3)
    assert quiet["TreatMissingData"] == "breaching"
    assert silent["ActionsSuppressorWaitPeriod"] >= PERIOD_OF_WATCHDOG_S + INGESTION_S
    never = ALARMS[silent["ActionsSuppressor"]["Fn::GetAtt"][0]]
    assert (never["Statistic"], never["ComparisonOperator"], never["Threshold"]) == (
        "SampleCount",
        "LessThanThreshold",
        0,
    )
    assert never["TreatMissingData"] == "notBreaching", "a suppressor that fires would hide the silence"


@pytest.mark.field("B55")
def test_lateness_comes_from_the_watchdog_and_outlasts_its_silence() -> None:
    late = ALARMS["LateAlarm"]
    assert late["MetricName"] not in WORKER_METRICS, "a job that never ran must turn late too"
    assert late["TreatMissingData"] == "ignore"
    assert "SecondsPastDeadline" in emitted_names("watchdog"), "emitted on empty tables, where nothing ever ran"


NOT_TOLD = {"WatchdogQuietAlarm", "NeverAlarm"}  # parts of WatchdogSilentAlarm


@pytest.mark.parametrize("name", [*ALARMS, *COMPOSITES])
def test_an_alarm_exists_with_the_schedules_and_says_what_to_do(name: str) -> None:
    alarm = (ALARMS | COMPOSITES)[name]
    assert RESOURCES[name]["Condition"] == "SchedulesEnabled"
    description = alarm["AlarmDescription"]["Fn::Sub"]
    assert "${AWS::StackName}" in description or "${ReconcileFunction}" in description
    assert len(description) < 700, "CloudWatch keeps 1024 characters, and the names are longer than their placeholders"
    assert ("AlarmActions" in alarm) == (name not in NOT_TOLD)
    assert alarm.get("OKActions") == alarm.get("AlarmActions")


COMMANDS = {re.sub("(?<=[a-z])(?=[A-Z])", "-", verb).lower() for verb in VERBS} | {"status", "audit"}
"""What reconcilectl can do about an alarm: every verb, and looking."""


def described(name: str) -> str:
    text: str = (ALARMS | COMPOSITES)[name]["AlarmDescription"]["Fn::Sub"]
    return text


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("LateAlarm", {"status", "resume"}),
        ("SkippedAlarm", {"status", "audit", "rerun", "acknowledge"}),
        ("NeedsRepairAlarm", {"audit", "preview", "rerun", "acknowledge"}),
        ("WatchdogSilentAlarm", {"status"}),
        ("ErrorsAlarm", {"pause", "resume"}),
    ],
)
def test_an_alarm_names_the_commands_that_help(name: str, named: set[str]) -> None:
    said = set(re.findall(r"`reconcilectl ([a-z-]+)", described(name)))
    assert said == named
    assert said <= COMMANDS
    assert "(--stack-name ${AWS::StackName})" in described(name)


@pytest.mark.parametrize(
    ("name", "verbs"), [("SkippedAlarm", {"Rerun", "Acknowledge"}), ("NeedsRepairAlarm", {"Rerun", "Acknowledge"})]
)
def test_an_alarm_that_waits_for_a_person_names_the_events_to_send(name: str, verbs: set[str]) -> None:
    files = re.findall(r"events/[a-z-]+\.json", described(name))
    assert {json.loads((ROOT / file).read_text("utf-8"))["detail-type"] for file in files} == verbs


def test_the_alarms_exist_only_while_the_schedules_are_enabled() -> None:
    assert resolve(TEMPLATE["Conditions"]["SchedulesEnabled"], ScheduleState="ENABLED") is True
    assert resolve(TEMPLATE["Conditions"]["SchedulesEnabled"], ScheduleState="DISABLED") is False


def test_an_alarm_tells_the_address_and_the_topic_that_were_given() -> None:
    arn = "arn:aws:sns:eu-central-1:123456789012:mine"
    nobody, topic = {"Ref": "AWS::NoValue"}, {"Ref": "AlarmTopic"}
    for name, alarm in (ALARMS | COMPOSITES).items():
        if name not in NOT_TOLD:
            email = {"AlarmEmail": "on-call@example.com"}
            for given, expected in (
                ({}, [nobody, nobody]),
                (email, [topic, nobody]),
                ({"AlarmTopicArn": arn}, [nobody, {"Ref": "AlarmTopicArn"}]),
                (email | {"AlarmTopicArn": arn}, [topic, {"Ref": "AlarmTopicArn"}]),
            ):
                assert [branch(action, **given) for action in alarm["AlarmActions"]] == expected, name


def branch(value: Any, **parameters: str) -> Any:
    """The branch that a condition takes, itself unresolved."""
    condition, yes, no = value["Fn::If"]
    return yes if resolve(TEMPLATE["Conditions"][condition], **parameters) else no


def test_the_topic_is_one_that_cloudwatch_can_publish_to() -> None:
    topic = RESOURCES["AlarmTopic"]["Properties"]
    assert "KmsMasterKeyId" not in topic, "CloudWatch may not use alias/aws/sns, and drops the message silently"
    (statement,) = RESOURCES["AlarmTopicPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statement["Action"] == "sns:Publish"
    assert {RESOURCES[n]["Condition"] for n in ("AlarmTopic", "AlarmTopicPolicy", "AlarmSubscription")} == {"HasEmail"}


# ------------------------------------------------------------------------------------------- what a deployment carries


@pytest.mark.field("B71")
@pytest.mark.parametrize(
    "name", ["template.yaml", "samconfig.toml", ".ci/smoke", ".github/workflows/deploy.yml", "src/reconciler/*.py"]
)
def test_no_region_and_no_partition_is_written_down(name: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in ROOT.glob(name))
    assert text
    assert not re.findall(r"arn:aws[a-z-]*:", text)
    assert not re.findall(r"\b(?:af|ap|ca|cn|eu|il|me|mx|sa|us)-(?:gov-|iso[a-z]*-)?[a-z]+-\d\b", text)
    assert "LayerVersion" not in text
    assert not any("Layers" in function for function in FUNCTIONS.values())


def pins(name: str) -> dict[str, str]:
    """Package → version of a requirements file."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    return {package.lower().replace("_", "-"): version for package, version in found}


@pytest.mark.field("B71")
def test_the_versions_deployed_are_the_versions_tested() -> None:
    deployed, locked = pins("src/requirements.txt"), pins("requirements-dev.lock")
    assert "aws-lambda-powertools" in deployed
    for package, version in deployed.items():
        assert locked[package] == version == importlib.metadata.version(package), package
    needed = {
        re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower().replace("_", "-")
        for package in deployed
        for requirement in importlib.metadata.requires(package) or []
        if "extra ==" not in requirement
    }
    assert needed <= set(deployed), "what the bundle needs is pinned too"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"aws-lambda-powertools=={deployed['aws-lambda-powertools']}" in project["dependencies"]


def test_a_deployment_takes_what_was_built() -> None:
    """`template_file` under deploy would package the source without its dependencies; environments do not inherit."""
    config = tomllib.loads((ROOT / "samconfig.toml").read_text("utf-8"))
    environments = {name: body for name, body in config.items() if name != "version"}
    assert set(environments) == {"default", "prod"}
    for commands in environments.values():
        assert set(commands) == {"global", "build", "validate", "deploy"}
        deploy = commands["deploy"]["parameters"]
        assert not {"template", "template_file"} & set(deploy)
        assert deploy["resolve_s3"] is True
        assert deploy["capabilities"] == "CAPABILITY_IAM"
        assert commands["validate"]["parameters"]["lint"] is True
        given = dict(override.split("=", 1) for override in deploy["parameter_overrides"])
        assert set(given) <= set(PARAMETERS)
    overrides = {n: body["deploy"]["parameters"]["parameter_overrides"] for n, body in environments.items()}
    assert overrides == {"default": ["ScheduleState=DISABLED"], "prod": ["ScheduleState=ENABLED"]}
    names = {body["global"]["parameters"]["stack_name"] for body in environments.values()}
    assert len(names) == 2


@pytest.mark.parametrize("name", ["requirements-dev.lock", "requirements-emulator.lock", "src/requirements.txt"])
def test_a_lock_pins_packages_and_names_no_host(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert "://" not in text
    assert not re.findall(r"^[a-z][^=\n]*$", text, re.MULTILINE), "each requirement is one exact version"
    if name.endswith(".lock"):
        assert not re.findall(r"^[a-z].*==(?!.* \\\n    --hash=sha256:)", text, re.MULTILINE), "each with its hashes"


def test_every_resource_is_explained() -> None:
    """A comment stands directly above each resource of the template."""
    lines = (ROOT / "template.yaml").read_text("utf-8").splitlines()
    for name in RESOURCES:
        above = lines[lines.index(f"  {name}:") - 1]
        assert above.lstrip().startswith("#"), name
