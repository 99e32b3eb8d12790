"""What only a deployment, or a night, would show about the template shows here: each rule, and that it can fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.iam_actions import exists
from tests.schedule_grammar import wrong_with
from tests.template import TEMPLATE, Template
from tests.template_rules import problems

FUNCTION = "Resources.ReconcileFunction.Properties"
NIGHTLY = f"{FUNCTION}.Events.Nightly.Properties"
TICK = f"{FUNCTION}.Events.Tick.Properties"
WATCHDOG = "Resources.WatchdogFunction.Properties"
WATCH = f"{WATCHDOG}.Events.Watch.Properties"
CONTROL_ACTIONS = "Resources.ReconcileRole.Properties.Policies.0.PolicyDocument.Statement.0.Action"
SOURCE_STATEMENT = "Resources.ReconcileRole.Properties.Policies.0.PolicyDocument.Statement.1.Fn::If.1"
LATE = "Resources.LateAlarm.Properties"
GONE = object()


def broken(path: str, value: Any) -> Template:
    """The template with one value replaced, or removed when it is GONE."""
    template: Template = json.loads(json.dumps(TEMPLATE))
    *steps, last = (int(step) if step.isdecimal() else step for step in path.split("."))
    place: Any = template
    for step in steps:
        place = place[step]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return template


def test_the_template_breaks_no_rule() -> None:
    assert problems(TEMPLATE) == []


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (f"{NIGHTLY}.ScheduleExpression", "cron(0 2 * * ?)", "cron takes 6 fields, not 5"),
        (f"{NIGHTLY}.ScheduleExpression", "cron(0 2 * * * *)", "one of cron's day-of-month and day-of-week must be ?"),
        (f"{NIGHTLY}.ScheduleExpression", "0 2 * * ? *", "none of rate"),
        (f"{NIGHTLY}.ScheduleExpression", {"Fn::Sub": "cron(${ScheduleHour} ${ScheduleMinute} * * ? *)"}, "hours"),
        ("Parameters.ScheduleHour.AllowedPattern", "^([0-9]|1[0-9]|2[0-4])$", "cron's hours cannot be '24'"),
        (f"{NIGHTLY}.ScheduleExpressionTimezone", "Europe/Lodnon", "there is no zone 'Europe/Lodnon'"),
        (f"{NIGHTLY}.RetryPolicy", GONE, "ReconcileFunctionNightly.RetryPolicy.MaximumRetryAttempts"),
        (f"{NIGHTLY}.RetryPolicy.MaximumEventAgeInSeconds", 30, "60 to 86400"),
        (f"{TICK}.ScheduleExpression", "rate(8 hour)", "rate takes 8 hours"),
        (f"{TICK}.ScheduleExpression", {"Fn::Sub": "rate(${TickMinutes} minutes)"}, "rate takes 1 minute"),
        (f"{TICK}.RetryPolicy.MaximumRetryAttempts", GONE, "MaximumRetryAttempts: must be stated"),
        (f"{WATCH}.ScheduleExpression", "rate(5 Minutes)", "WatchdogFunctionWatch.ScheduleExpression"),
        (f"{WATCH}.DeadLetterConfig", GONE, "WatchdogFunctionWatch.DeadLetterConfig"),
        (f"{FUNCTION}.Timeout", GONE, "ReconcileFunction.Timeout"),
        (f"{FUNCTION}.Timeout", 901, "ReconcileFunction.Timeout"),
        (f"{FUNCTION}.MemorySize", GONE, "ReconcileFunction.MemorySize"),
        (f"{WATCHDOG}.EventInvokeConfig", GONE, "WatchdogFunction.EventInvokeConfig.MaximumRetryAttempts"),
        (f"{WATCHDOG}.EventInvokeConfig.MaximumEventAgeInSeconds", 30, "60 to 21600"),
        (f"{WATCHDOG}.LoggingConfig", GONE, "WatchdogFunction.LoggingConfig.LogGroup"),
        (f"{CONTROL_ACTIONS}.0", "dynamodb:GetItems", "no action 'dynamodb:GetItems'"),
        (f"{CONTROL_ACTIONS}.0", "dynamodb:TransactWriteItems", "no action 'dynamodb:TransactWriteItems'"),
        (f"{CONTROL_ACTIONS}.0", "dynamodb:*", "no action 'dynamodb:*'"),
        (f"{SOURCE_STATEMENT}.Action", "dynamodb:Querry", "ReadTheSource.Action: IAM has no action 'dynamodb:Querry'"),
        (f"{SOURCE_STATEMENT}.Sid", GONE, "ReconcileRole.Statement: has no Sid"),
        ("Resources.SchedulerRole.Properties.Policies.0.PolicyDocument.Statement.0.Action", "lambda:Invoke", "Invoke'"),
        ("Resources.AlarmTopicPolicy.Properties.PolicyDocument.Statement.0.Action", "sns:Send", "no action 'sns:Send'"),
        (
            "Resources.SchedulerRole.Properties.AssumeRolePolicyDocument.Statement.0.Condition",
            {"StringEquals": {"aws:SourceAcount": "1"}},
            "unknown StringEquals ['aws:SourceAcount']",
        ),
        ("Resources.TracingGrants.Properties.PolicyDocument.Statement.0.Sid", GONE, "TracingGrants.Statement"),
        (f"{LATE}.DatapointsToAlarm", 2, "LateAlarm.DatapointsToAlarm: 2 of 1"),
        (f"{LATE}.DatapointsToAlarm", GONE, "LateAlarm.DatapointsToAlarm"),
        (f"{LATE}.EvaluationPeriods", 145, "LateAlarm.EvaluationPeriods: a window of 87000 seconds"),
        (f"{LATE}.Period", 90, "LateAlarm.Period: 90"),
        (f"{LATE}.TreatMissingData", GONE, "LateAlarm.TreatMissingData"),
        ("Resources.ControlTable.Properties.TimeToLiveSpecification.AttributeName", "ttl", "'expires_at'"),
        ("Resources.ControlTable.Properties.TimeToLiveSpecification.Enabled", False, "ControlTable.TimeToLive"),
        ("Resources.IdempotencyTable.Properties.TimeToLiveSpecification", GONE, "'expiration'"),
        (
            "Resources.EntitlementsTable.Properties.TimeToLiveSpecification",
            {"AttributeName": "updated_at", "Enabled": True},
            "EntitlementsTable.TimeToLiveSpecification",
        ),
        ("Resources.ControlTable.DeletionPolicy", GONE, "ControlTable.DeletionPolicy: must be Retain"),
        ("Resources.ControlTable.UpdateReplacePolicy", GONE, "ControlTable.UpdateReplacePolicy: must be Retain"),
        ("Resources.EntitlementsTable.UpdateReplacePolicy", "Delete", "EntitlementsTable.UpdateReplacePolicy"),
        ("Resources.Failed.DeletionPolicy", GONE, "Failed.DeletionPolicy"),
        ("Resources.ReconcileLogs.Properties.RetentionInDays", GONE, "ReconcileLogs.RetentionInDays"),
        ("Resources.ReconcileLogs.Properties.RetentionInDays", 15, "ReconcileLogs.RetentionInDays"),
        ("Parameters.LogRetentionDays.AllowedValues", [30, 100], "RetentionInDays"),
        ("Parameters.RangeSize.AllowedPattern", GONE, "RangeSize: needs AllowedPattern"),
        ("Parameters.RangeSize.ConstraintDescription", GONE, "RangeSize.ConstraintDescription"),
        ("Parameters.RangeSize.ConstraintDescription", "wrong value", "RangeSize.ConstraintDescription"),
        ("Parameters.RangeSize.Default", "0", "RangeSize.Default"),
        ("Parameters.RangeSize.Description", GONE, "RangeSize.Description"),
        ("Resources.Dashboard.Properties.DashboardName", "reconciler", "Dashboard.DashboardName: two stacks"),
        ("Resources.RunQuery.Properties.Name", "one run", "RunQuery.Name: two stacks"),
        (f"{NIGHTLY}.OmitName", False, "ReconcileFunctionNightly.Name"),
        ("Resources.ControlTable.Properties.TableName", "control", "ControlTable.TableName"),
    ],
)
def test_a_broken_template_is_told(path: str, value: Any, told: str) -> None:
    found = problems(broken(path, value))
    assert any(told in problem for problem in found), found


@pytest.mark.parametrize(
    "expression",
    [
        "rate(1 minute)",
        "rate(30 days)",
        "cron(0 2 * * ? *)",
        "cron(0/15 8-17 ? * MON-FRI *)",
        "cron(0,30 */6 L * ? 2026)",
        "cron(0 18 3W JAN-MAR,12 ? 2026-2030)",
        "cron(0 9 ? * 6#3 *)",
        "cron(0 9 ? * 6L *)",
        "at(2026-11-29T02:00:00)",
    ],
)
def test_an_expression_that_is_published_as_valid_passes(expression: str) -> None:
    assert wrong_with(expression) is None


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "rate(5)",
        "rate(0 minutes)",
        "rate(1 minutes)",
        "rate(5 minute)",
        "rate(1.5 hours)",
        "rate(5 weeks)",
        "rate(5  minutes)",
        "Rate(5 minutes)",
        "cron(60 2 * * ? *)",
        "cron(0 24 * * ? *)",
        "cron(0 2 0 * ? *)",
        "cron(0 2 32 * ? *)",
        "cron(0 2 * 13 ? *)",
        "cron(0 2 ? * 0 *)",
        "cron(0 2 ? * 8 *)",
        "cron(0 2 ? * MON/2 *)",
        "cron(0 2 * * ? 1969)",
        "cron(0 2 ? * ? *)",
        "cron(0 2 1 * MON *)",
        "cron(17-8 2 * * ? *)",
        "cron(1-2-3 2 * * ? *)",
        "cron(0/0 2 * * ? *)",
        "cron(-5 2 * * ? *)",
        "cron( 2 * * ? *)",
        "cron(0 2 ?,1 * ? *)",
        "at(2026-02-30T02:00:00)",
        "at(2026-11-29)",
    ],
)
def test_an_expression_that_scheduler_would_refuse_is_told(expression: str) -> None:
    assert wrong_with(expression)


def test_an_action_is_what_iam_calls_it_and_not_what_the_sdk_does() -> None:
    real = ["dynamodb:ConditionCheckItem", "lambda:InvokeFunction", "sqs:SendMessage", "kms:ReEncryptFrom"]
    real += ["secretsmanager:GetSecretValue"]
    assert [action for action in real if not exists(action)] == []
    not_real = ("lambda:Invoke", "sqs:SendMessageBatch", "dynamodb:getitem", "GetItem", "s4:GetObject", "kms:ReEncrypt")
    assert [action for action in not_real if exists(action)] == []
