"""The stories of which alarms tell, each played once through the real handlers and remembered as data points."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest
from moto import mock_aws

from tests.alarms import Story, physical
from tests.conftest import SESSION
from tests.emf import Datapoint
from tests.kit import grants, numbered, refusal, watched
from tests.stage import Stage
from tests.world import NIGHT, World, event

MINUTE, HOUR = 60, 3600


STORIES: dict[str, Callable[[Stage], None]] = {}


def story(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
    STORIES[play.__name__] = play
    return play


@cache
def played(name: str) -> Story:
    """The story of that name; played once for all tests."""
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        stage = Stage(World(SESSION.client("dynamodb")))
        grants(stage.world, *numbered(3))
        patch.setattr(random, "uniform", lambda low, high: high)  # the backoff's jitter
        with stage.world.deployed(patch):
            STORIES[name](stage)
        return Story(
            tuple(stage.points), stage.began_s, stage.now_s // MINUTE * MINUTE, dict(stage.moments), tuple(stage.failed)
        )


@story
def fresh(stage: Stage) -> None:
    """A new stack, its first night and the morning after it."""
    stage.begin(f"{NIGHT}T00:00:07Z")
    stage.until(f"{NIGHT}T07:00:00Z")


@story
def idle_job(stage: Stage) -> None:
    """The job's own schedules are off for two nights; then somebody turns them on."""
    stage.begin(f"{NIGHT}T05:00:00Z")
    stage.until(f"{NIGHT}T05:59:00Z", job=False)
    stage.world.clock.set(f"{NIGHT}T06:00:00.600Z")
    stage.note("late")
    stage.invoke("watchdog", event("watchdog", f"{NIGHT}T06:00:00Z"))
    stage.until("2026-11-30T06:30:00Z", job=False)
    stage.until("2026-11-30T06:36:00Z")
    stage.note_last("done", "ConsistencyLag")
    stage.until("2026-11-30T08:00:00Z")


@story
def silent_while_late(stage: Stage) -> None:
    """A night is late, and then the watchdog cannot read any more for three hours."""
    stage.begin(f"{NIGHT}T05:30:00Z")
    stage.until(f"{NIGHT}T06:30:00Z", job=False)
    stage.note_last("last word", "UnfinishedIntervals")
    unable(stage, lambda: stage.until(f"{NIGHT}T09:30:00Z", job=False))


@story
def silent(stage: Stage) -> None:
    """The watchdog cannot read any more after a good night, and can again two hours later."""
    stage.begin(f"{NIGHT}T01:30:00Z")
    stage.until(f"{NIGHT}T04:00:00Z")
    stage.note_last("last word", "UnfinishedIntervals")
    unable(stage, lambda: stage.until(f"{NIGHT}T06:00:00Z"))
    stage.until(f"{NIGHT}T06:02:00Z")
    stage.note_last("speaks", "UnfinishedIntervals")
    stage.until(f"{NIGHT}T07:00:00Z")


@story
def never_a_word(stage: Stage) -> None:
    """A new stack whose watchdog never gets anywhere."""
    stage.begin(f"{NIGHT}T03:00:00Z")
    unable(stage, lambda: stage.until(f"{NIGHT}T04:00:00Z"))


@story
def skipped(stage: Stage) -> None:
    """After a long outage one night lies before the catch-up window; a person reads that and says so."""
    stage.turn = 1
    stage.begin("2026-12-02T05:00:00Z")
    stage.until("2026-12-02T05:30:00Z", job=False)
    stage.note("skipped")
    stage.until("2026-12-02T06:00:00Z")
    stage.order("Acknowledge", interval=NIGHT)
    stage.note("acknowledged")
    stage.until("2026-12-02T07:00:00Z")


@story
def attempts(stage: Stage) -> None:
    """The source refuses every read until the night needs repair; a person corrects that and has it run again."""
    stage.begin(f"{NIGHT}T01:30:00Z")

    def refuses(sent: str) -> None:
        if sent == "Query AccountsTable":
            raise refusal("AccessDeniedException")

    with watched(stage.world.client, refuses):
        stage.until(f"{NIGHT}T02:45:00Z")
    assert stage.world.interval()["state"] == "NEEDS_REPAIR"
    stage.until(f"{NIGHT}T03:30:00Z")
    stage.order("Rerun", interval=NIGHT)
    stage.until(f"{NIGHT}T03:36:00Z")
    stage.note_last("done", "ConsistencyLag")
    stage.until(f"{NIGHT}T05:00:00Z")


@story
def two_failures(stage: Stage) -> None:
    """Two attempts fail, the third one does the night."""
    stage.begin(f"{NIGHT}T01:30:00Z")
    times = iter(range(2))

    def refuses(sent: str) -> None:
        if sent == "Query AccountsTable" and next(times, None) is not None:
            raise refusal("AccessDeniedException")

    with watched(stage.world.client, refuses):
        stage.until(f"{NIGHT}T04:00:00Z")


@story
def guarded(stage: Stage) -> None:
    """The source is empty all of a sudden; the job pauses itself, and a person says that this is right."""
    stage.turn = 1
    stage.begin(f"{NIGHT}T01:30:00Z")
    for name in numbered(3):
        stage.world.delete("AccountsTable", name)
        stage.world.view_row(name, plan="gold")
    stage.until(f"{NIGHT}T03:00:00Z")
    assert "pause" in stage.world.row("CONTROL")
    stage.order("Rerun", interval=NIGHT, revocation_bound=3)
    stage.until(f"{NIGHT}T03:06:00Z")
    stage.note_last("done", "ConsistencyLag")
    stage.until(f"{NIGHT}T04:00:00Z")


@story
def undelivered(stage: Stage) -> None:
    """One trigger ends in the schedules' queue, which had been idle; hours later its message is deleted."""
    stage.begin(f"{NIGHT}T00:00:00Z")
    stage.note("arrived")
    queue(stage, stage.now_s + 15 * MINUTE, stage.now_s + 5 * HOUR, 1.0)
    stage.moments["deleted"] = stage.now_s + 5 * HOUR
    queue(stage, stage.now_s + 5 * HOUR, stage.now_s + 11 * HOUR, 0.0)
    stage.world.clock.set(f"{NIGHT}T20:00:00Z")


@story
def left_undelivered(stage: Stage) -> None:
    """A message comes into a queue in use and stays there, and the queue, being idle, reports no more."""
    stage.begin(f"{NIGHT}T00:00:00Z")
    queue(stage, stage.now_s, stage.now_s + HOUR, 0.0)
    stage.moments["arrived"] = stage.now_s + HOUR
    queue(stage, stage.now_s + HOUR, stage.now_s + 6 * HOUR, 1.0)
    stage.world.clock.set(f"{NIGHT}T20:00:00Z")


@story
def rerun_of_an_old_night(stage: Stage) -> None:
    """A completed night is run again at noon, long after its deadline, and waits for the next tick."""
    stage.begin(f"{NIGHT}T01:30:00Z")
    stage.until(f"{NIGHT}T02:30:00Z")
    stage.until(f"{NIGHT}T12:00:00Z", job=False)
    stage.order("Rerun", interval=NIGHT, force=True)
    stage.note("rerun")
    stage.until(f"{NIGHT}T12:21:00Z", job=False)
    stage.until(f"{NIGHT}T12:26:00Z")
    stage.note_last("done", "ConsistencyLag")
    stage.until(f"{NIGHT}T13:30:00Z")


def unable(stage: Stage, meanwhile: Callable[[], None]) -> None:
    """The control table answers nobody meanwhile."""

    def refuses(sent: str) -> None:
        if sent.endswith("ControlTable"):
            raise refusal("AccessDeniedException")

    with watched(stage.world.client, refuses):
        meanwhile()


def queue(stage: Stage, from_s: int, to_s: int, messages: float) -> None:
    """What SQS reports of the schedules' queue while it is in use, once a minute."""
    dimensions = frozenset({("QueueName", physical("Undelivered"))})
    name = "ApproximateNumberOfMessagesVisible"
    for at_s in range(from_s, to_s, MINUTE):
        stage.points.append(Datapoint("AWS/SQS", name, dimensions, at_s * 1000, messages, "Count"))
