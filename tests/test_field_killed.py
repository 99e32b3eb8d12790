"""A worker process is killed in the middle of a range (SIGKILL), and its event is delivered again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler import keys
from reconciler.observability import WATCHDOG_METRICS
from tests.conftest import live_client
from tests.kit import everything, grants, numbered
from tests.world import World
from tools.faults import Hold
from tools.proxy import proxy
from tools.scene import scheduled_event
from tools.wire import Call
from tools.worker import Worker

ACCOUNTS, RANGE, KILLED_AFTER = 20, 4, 2
REMAINING_S = 9.0
"""Time of the killed invocation; Powertools keeps its slot for as long."""


@dataclass(frozen=True, slots=True)
class Night:
    """What was there, and what came back, at each step."""

    checkpoint: str
    generation: int
    beside: dict[str, Any]
    before_beside: dict[str, Any]
    after_beside: dict[str, Any]
    late: dict[str, float]
    emitted: set[str]
    again: dict[str, Any]
    versions: dict[str, int | None]
    interval: dict[str, Any]


@pytest.fixture(scope="module")
def night(emulator_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    due = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    world = World(
        live_client(emulator_url),
        SCHEDULE_HOUR=due.hour,
        SCHEDULE_MINUTE=due.minute,
        DEADLINE_MINUTES=15,
        RANGE_SIZE=RANGE,
        PAGE_SIZE=RANGE,
        LEASE_SECONDS=7,
        CLOCK_SKEW_SECONDS=0.2,
        BACKOFF_SECONDS=0,
        CONNECT_TIMEOUT_SECONDS=0.3,
        READ_TIMEOUT_SECONDS=0.9,
        SDK_MAX_ATTEMPTS=1,
    )
    grants(world, *numbered(ACCOUNTS))
    event = scheduled_event("nightly", due)
    interval_id = f"{due:%Y-%m-%d}"
    directory: Path = tmp_path_factory.mktemp("workers")
    with proxy(emulator_url) as between:
        third_commit = Hold("before")
        between.on(is_commit, lambda call, forward: forward(), times=KILLED_AFTER)
        between.on(is_commit, third_commit)
        with (
            Worker("a", world.environ, endpoint=between.url, directory=directory) as a,
            Worker("b", world.environ, endpoint=between.url, directory=directory) as b,
            Worker("w", world.environ, endpoint=between.url, directory=directory) as watchdog,
        ):
            for worker in (a, b, watchdog):
                worker.ready()
            a.send(event, remaining_s=REMAINING_S)
            third_commit.wait(20)
            a.kill()
            third_commit.drop()
            progress = world.progress(interval_id=interval_id)

            before = everything(world)
            beside = b.call(event).result
            after = everything(world)
            late = watchdog.call(scheduled_event("watchdog", due), handler="watchdog").result

            (slot,) = world.scan("IdempotencyTable")
            lease = world.lease()
            ends_ms = max(slot["in_progress_expiration"], lease["expires_at_ms"] + world.settings.skew_ms)
            time.sleep(max(0.0, ends_ms / 1000 - time.time()) + 0.2)
            again = b.call(event).result
            yield Night(
                checkpoint=progress["checkpoint"],
                generation=lease["generation"],
                beside=beside,
                before_beside=before,
                after_beside=after,
                late=late,
                emitted={name for name, _, _ in watchdog.metrics()},
                again=again,
                versions=world.versions(),
                interval=world.row(keys.interval(interval_id)),
            )


def is_commit(call: Call) -> bool:
    return call.operation == "TransactWriteItems" and len(call.request["TransactItems"]) == 2 + RANGE


@pytest.mark.field("B49")
def test_a_delivery_while_the_dead_one_counts_as_running_is_a_clean_skip(night: Night) -> None:
    assert (night.beside["outcome"], night.beside["first"]) == ("duplicate", None)
    assert night.after_beside == night.before_beside


@pytest.mark.field("B09", "B49")
def test_the_same_delivery_after_that_takes_over_without_an_operator(night: Night) -> None:
    (attempt,) = night.again["attempts"]
    assert (attempt["outcome"], attempt["generation"]) == ("completed", night.generation + 1)
    assert night.interval["state"] == "COMPLETED"
    assert night.interval["repair_owner"].startswith("b/")


@pytest.mark.field("B09", "B49", "B51")
def test_it_goes_on_after_the_last_committed_range(night: Night) -> None:
    (attempt,) = night.again["attempts"]
    assert night.checkpoint == numbered(ACCOUNTS)[KILLED_AFTER * RANGE - 1]
    assert attempt["resumed_after"] == night.checkpoint
    assert attempt["accounts"] == ACCOUNTS - KILLED_AFTER * RANGE


@pytest.mark.field("B51")
def test_each_account_took_effect_once(night: Night) -> None:
    assert night.versions == dict.fromkeys(numbered(ACCOUNTS), 1)
    assert night.interval["granted"] == ACCOUNTS


@pytest.mark.field("B57")
def test_the_age_of_the_night_was_told_while_nobody_worked(night: Night) -> None:
    assert set(night.late) == night.emitted == set(WATCHDOG_METRICS)
    assert night.late["SecondsPastDeadline"] >= 15 * 60
