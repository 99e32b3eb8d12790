"""What `sam validate` and cfn-lint let pass, and what then fails when it is deployed, or months later.

Each rule takes a template and its expanded resources, and yields what is wrong, beginning with where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from zoneinfo import available_timezones

from reconciler import keys
from tests.iam_actions import CONDITION_KEYS, exists
from tests.schedule_grammar import wrong_with
from tests.template import NO_VALUE, Resources, Template, expand, listed, of_type, references, resolve

MINUTE, HOUR, DAY = 60, 3600, 86_400
KEPT = {"ControlTable", "AccountsTable", "EntitlementsTable"}
TTL = {"ControlTable": keys.CONTROL_TTL, "IdempotencyTable": keys.IDEMPOTENCY_TTL}
STATEFUL = ("AWS::DynamoDB::Table", "AWS::Logs::LogGroup", "AWS::SQS::Queue")
RETENTIONS = {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
"""Days that PutRetentionPolicy takes."""

ZONES = available_timezones() | {"UTC"}

NAMES = {
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::CompositeAlarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Role": "RoleName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::Logs::QueryDefinition": "Name",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::Scheduler::Schedule": "Name",
}
"""The property that would give a resource of each type a name of its own."""

NAMELESS = {"AWS::Lambda::EventInvokeConfig", "AWS::SNS::TopicPolicy", "AWS::SNS::Subscription"}

Problems = Iterator[str]


def problems(template: Template) -> list[str]:
    """Everything that is wrong with a template."""
    resources = expand(template)
    return [problem for rule in RULES for problem in rule(template, resources)]


def values(name: str, template: Template) -> list[str]:
    """The values a parameter takes: those it lists, else the whole numbers up to 1500 that its pattern lets pass."""
    parameter = template["Parameters"][name]
    if "AllowedValues" in parameter:
        return [str(value) for value in parameter["AllowedValues"]]
    return [str(number) for number in range(1501) if re.fullmatch(parameter["AllowedPattern"], str(number))]


def schedules(template: Template, resources: Resources) -> Problems:
    """Expressions are checked with every value of the parameters they are made of."""
    for name, schedule in of_type("AWS::Scheduler::Schedule", resources).items():
        expression = schedule["ScheduleExpression"]
        used = {ref for ref in references(expression) if ref in template["Parameters"]}
        used |= {"TickMinutes"} if "Fn::If" in expression else set()
        for chosen in product(*(values(parameter, template) for parameter in used)):
            resolved = resolve(expression, template, **dict(zip(used, chosen, strict=True)))
            if wrong := wrong_with(resolved):
                yield f"{name}.ScheduleExpression: {resolved}: {wrong}"
                break
        zone = schedule.get("ScheduleExpressionTimezone", "UTC")
        if zone not in ZONES:
            yield f"{name}.ScheduleExpressionTimezone: there is no zone {zone!r}"
        retry = schedule["Target"].get("RetryPolicy", {})
        if not 0 <= retry.get("MaximumRetryAttempts", -1) <= 185:
            yield f"{name}.RetryPolicy.MaximumRetryAttempts: must be stated, 0 to 185"
        if not MINUTE <= retry.get("MaximumEventAgeInSeconds", 0) <= DAY:
            yield f"{name}.RetryPolicy.MaximumEventAgeInSeconds: must be stated, 60 to 86400"
        if "DeadLetterConfig" not in schedule["Target"]:
            yield f"{name}.DeadLetterConfig: must be stated"


def functions(template: Template, resources: Resources) -> Problems:
    configured = of_type("AWS::Lambda::EventInvokeConfig", resources).values()
    invokes = {config["FunctionName"]["Ref"]: config for config in configured}
    for name, function in of_type("AWS::Lambda::Function", resources).items():
        if not 1 <= function.get("Timeout", 0) <= 900:
            yield f"{name}.Timeout: must be stated, 1 to 900 (Lambda's own is 3)"
        if not 128 <= function.get("MemorySize", 0) <= 10_240:
            yield f"{name}.MemorySize: must be stated, 128 to 10240"
        invoke = invokes.get(name, {})
        if not 0 <= invoke.get("MaximumRetryAttempts", -1) <= 2:
            yield f"{name}.EventInvokeConfig.MaximumRetryAttempts: must be stated, 0 to 2 (Lambda's own is 2)"
        if not MINUTE <= invoke.get("MaximumEventAgeInSeconds", 0) <= 6 * HOUR:
            yield f"{name}.EventInvokeConfig.MaximumEventAgeInSeconds: must be stated, 60 to 21600"
        group = function.get("LoggingConfig", {}).get("LogGroup", {}).get("Ref")
        if resources.get(group, {}).get("Type") != "AWS::Logs::LogGroup":
            yield f"{name}.LoggingConfig.LogGroup: must be a log group of this stack"


def statements(resources: Resources) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement of every policy document, with where it stands, whatever it depends on."""

    def stated(statement: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for one in statement["Fn::If"][1:] if one != NO_VALUE] if "Fn::If" in statement else [statement]

    def within(where: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(value, dict):
            for name, part in value.items():
                if name == "Statement":
                    every = (one for statement in part for one in stated(statement))
                    yield from ((f"{where}.{one.get('Sid', 'Statement')}", one) for one in every)
                else:
                    yield from within(where, part)
        elif isinstance(value, list):
            for part in value:
                yield from within(where, part)

    for name, body in resources.items():
        yield from within(name, body.get("Properties", {}))


def permissions(template: Template, resources: Resources) -> Problems:
    for where, statement in statements(resources):
        for action in listed(statement["Action"]):
            if not exists(action):
                yield f"{where}.Action: IAM has no action {action!r}"
        for operator, tests in statement.get("Condition", {}).items():
            if operator not in ("StringEquals", "Null") or not set(tests) <= CONDITION_KEYS:
                yield f"{where}.Condition: unknown {operator} {sorted(tests)}"
        if "Sid" not in statement:
            yield f"{where}: has no Sid"


def alarms(template: Template, resources: Resources) -> Problems:
    """PutMetricAlarm: M ≤ N, and a window of a day at most, or of a week with periods of an hour and more."""
    for name, alarm in of_type("AWS::CloudWatch::Alarm", resources).items():
        needed, of, period = (alarm.get(p, 0) for p in ("DatapointsToAlarm", "EvaluationPeriods", "Period"))
        if not 1 <= needed <= of:
            yield f"{name}.DatapointsToAlarm: {needed} of {of}"
        if period not in (10, 20, 30) and (period < MINUTE or period % MINUTE):
            yield f"{name}.Period: {period} is neither 10, 20, 30 nor a multiple of 60"
        if period * of > (DAY if period < HOUR else 7 * DAY):
            yield f"{name}.EvaluationPeriods: a window of {period * of} seconds is too long"
        if alarm.get("TreatMissingData") not in ("breaching", "notBreaching", "ignore", "missing"):
            yield f"{name}.TreatMissingData: must be stated"


def tables(template: Template, resources: Resources) -> Problems:
    for name, table in of_type("AWS::DynamoDB::Table", resources).items():
        ttl = table.get("TimeToLiveSpecification", {})
        if ttl.get("AttributeName") != TTL.get(name) or ttl.get("Enabled", True) is not True:
            yield f"{name}.TimeToLiveSpecification: the code writes {TTL.get(name)!r}, not {ttl}"


def lifetimes(template: Template, resources: Resources) -> Problems:
    """CloudFormation keeps nothing by itself, and a replacement has a policy of its own."""
    for name, body in resources.items():
        if body["Type"] in STATEFUL:
            wanted = "Retain" if name in KEPT else "Delete"
            for policy in ("DeletionPolicy", "UpdateReplacePolicy"):
                if body.get(policy) != wanted:
                    yield f"{name}.{policy}: must be {wanted}"
    for name, group in of_type("AWS::Logs::LogGroup", resources).items():
        days = group.get("RetentionInDays")
        chosen = values(days["Ref"], template) if isinstance(days, dict) else [str(days)]
        if not chosen or not set(chosen) <= set(map(str, RETENTIONS)):
            yield f"{name}.RetentionInDays: must be stated, as days that CloudWatch Logs takes"


def parameters(template: Template, resources: Resources) -> Problems:
    for name, parameter in template["Parameters"].items():
        if ("AllowedPattern" in parameter) == ("AllowedValues" in parameter):
            yield f"{name}: needs AllowedPattern or AllowedValues"
            continue
        default = parameter.get("Default")
        pattern, allowed = parameter.get("AllowedPattern"), parameter.get("AllowedValues")
        if default not in allowed if allowed else not re.fullmatch(pattern, str(default)):
            yield f"{name}.Default: {default!r} is not allowed"
        if not re.match(r"must be .{6,}", parameter.get("ConstraintDescription", "")):
            yield f"{name}.ConstraintDescription: must say what to write"
        if not parameter.get("Description", "").endswith("."):
            yield f"{name}.Description: must say what it is"


def names(template: Template, resources: Resources) -> Problems:
    """Two stacks live side by side: no name, or one made of the stack's."""
    for name, body in resources.items():
        if body["Type"] not in NAMELESS:
            given = body["Properties"].get(NAMES[body["Type"]])
            if given is not None and "${AWS::StackName}" not in str(given):
                yield f"{name}.{NAMES[body['Type']]}: two stacks would fight over {given!r}"


RULES = (schedules, functions, permissions, alarms, tables, lifetimes, parameters, names)
