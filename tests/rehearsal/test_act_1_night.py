"""Act 1: deployed, the night begins, its process is killed, and everybody who looks is told so."""

from __future__ import annotations

import re

import pytest

from reconciler.observability import WATCHDOG_METRICS
from tests.rehearsal.conftest import ACCOUNTS, INTERVAL, NIGHT, Killed
from tests.rehearsal.stack import Stack
from tools.emulator import ROOT


def test_the_default_environment_deploys_with_its_schedules_disabled_and_without_alarms(dev: Stack) -> None:
    assert dev.described()[0] == "CREATE_COMPLETE"
    assert {trigger: schedule["State"] for trigger, schedule in dev.schedules().items()} == dict.fromkeys(
        ("nightly", "tick", "watchdog"), "DISABLED"
    )
    assert not [name for name in dev.resources if name.endswith("Alarm")]


@pytest.mark.field("B63")
def test_what_is_deployed_is_what_was_built_with_its_dependencies(dev: Stack) -> None:
    required = re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "src/requirements.txt").read_text("utf-8"), re.MULTILINE)
    for function in ("ReconcileFunction", "WatchdogFunction"):
        deployed = dev.package(dev.resources[function])
        assert "reconciler/app.py" in deployed
        assert {f"{name.replace('-', '_')}-{version}.dist-info/METADATA" for name, version in required} <= deployed


def test_a_killed_night_stays_on_record_with_its_checkpoint(killed: Killed) -> None:
    assert killed.record["state"] == "RUNNING"
    assert killed.progress["checkpoint"]
    assert 0 < killed.progress["accounts"] < ACCOUNTS.accounts


def test_a_killed_invocation_is_not_repeated_and_its_event_is_kept(dev: Stack, killed: Killed) -> None:
    assert killed.failed["requestPayload"] == dev.event("nightly", NIGHT)
    assert killed.progress["generation"] == 1


def test_a_duplicate_of_the_killed_delivery_does_nothing(killed: Killed) -> None:
    assert killed.again.error is None
    assert (killed.again.payload["outcome"], killed.again.payload["first"]) == ("duplicate", None)


def test_the_watchdog_sees_the_killed_night_and_emits_every_metric(dev: Stack, killed: Killed) -> None:
    assert killed.watched["UnfinishedIntervals"] == 1
    assert killed.watched["SecondsSinceProgress"] > 0
    emitted = next(line for line in dev.log_lines("WatchdogLogGroup") if "_aws" in line)
    (directive,) = emitted["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("ScheduledReconciler", [["service"]])
    assert {metric["Name"] for metric in directive["Metrics"]} == set(WATCHDOG_METRICS)
    assert emitted["service"] == dev.name


def test_reconcilectl_shows_who_holds_the_killed_night_and_that_the_next_tick_waits(killed: Killed) -> None:
    (interval,), (segment,), (step,) = killed.status["intervals"], killed.status["segments"], killed.plan["steps"]
    assert (interval["interval"], interval["state"]) == (INTERVAL, "RUNNING")
    assert segment["holder"] in step["why"]
    assert (step["does"], step["until"]) == ("wait", segment["expires_at"])
