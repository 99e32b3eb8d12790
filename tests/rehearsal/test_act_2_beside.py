"""Act 2: a second stack beside the first, deployed as the README does for production."""

from __future__ import annotations

from tests.rehearsal.stack import Stack


def test_two_stacks_live_side_by_side_and_share_nothing(dev: Stack, prod: Stack) -> None:
    assert prod.described()[0] == "CREATE_COMPLETE"
    assert set(dev.resources.values()).isdisjoint(prod.resources.values())
    assert dev.described()[1] == dev.outputs


def test_the_production_environment_deploys_with_its_schedules_enabled(prod: Stack) -> None:
    states = {trigger: schedule["State"] for trigger, schedule in prod.schedules().items()}
    assert states == dict.fromkeys(("nightly", "tick", "watchdog"), "ENABLED")


def test_its_alarms_tell_the_address_what_to_do(prod: Stack) -> None:
    (subscription,) = prod.account.sns.list_subscriptions_by_topic(TopicArn=prod.resources["AlarmTopic"])[
        "Subscriptions"
    ]
    assert subscription["Endpoint"] == "you@example.com"
    alarms = prod.account.cloudwatch.describe_alarms()["MetricAlarms"]
    assert {alarm["AlarmName"] for alarm in alarms} <= set(prod.resources.values())
    topic = [prod.resources["AlarmTopic"]]
    assert {alarm["MetricName"] for alarm in alarms if alarm["AlarmActions"] == alarm["OKActions"] == topic} == {
        "SecondsPastDeadline",
        "SkippedIntervals",
        "IntervalsNeedingRepair",
        "ApproximateNumberOfMessagesVisible",
        "Errors",
    }
    assert all(prod.name in alarm["AlarmDescription"] and "${" not in alarm["AlarmDescription"] for alarm in alarms)
