"""A story that cannot go on says what did not happen, and does not wait for ever."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tools import director as module
from tools.director import Director, StoryError, last_attempt, outcome, result
from tools.worker import Reply

NIGHT = datetime(2026, 11, 29, 2, tzinfo=UTC)


class Seen:
    """A Show that remembers."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def step(self, text: str) -> None: ...

    def accounts(self, done: int) -> None:
        self.done.append(done)


def director(lease: dict[str, Any], show: Seen | None = None, tick: timedelta = timedelta(hours=1)) -> Director:
    stage: Any = SimpleNamespace(
        lease=lambda: lease, progress=lambda _: {"accounts": 7}, environment={"CLOCK_SKEW_SECONDS": "0.2"}
    )
    return Director(stage, show or Seen(), NIGHT, tick)


def worker(answered: bool) -> Any:
    return SimpleNamespace(answered=answered, reply=lambda: Reply(result={"outcome": "yielded"}))


def test_waiting_shows_the_accounts_done_until_it_is_reached() -> None:
    show, calls = Seen(), iter([False, False, True])
    director({}, show).until(lambda: next(calls), "three looks", worker(answered=False))
    assert show.done == [7, 7]


def test_waiting_ends_when_the_worker_has_ended_before() -> None:
    with pytest.raises(StoryError, match=r"it did not come to this: range 5; the worker answered .*yielded"):
        director({}).until(lambda: False, "range 5", worker(answered=True))


def test_waiting_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    with pytest.raises(StoryError, match=r"within 0\.1 s: range 5"):
        director({}).until(lambda: False, "range 5")


def test_a_lease_is_waited_for_until_expiry_and_skew() -> None:
    expires_at = time.time() + 0.2
    director({"expires_at_ms": expires_at * 1000}).expiry()
    assert time.time() > expires_at + 0.2


def test_a_lease_that_nobody_holds_ends_the_story() -> None:
    with pytest.raises(StoryError, match="nobody holds the lease"):
        director({}).expiry()


def test_every_tick_is_a_slot_of_its_own_in_the_past_and_on_the_grid() -> None:
    one = director({})
    times = [one.tick()["time"] for _ in range(4)]
    assert len(set(times)) == 4
    assert max(times) < f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert all(moment.endswith(":00:00Z") for moment in times)


def test_replies_are_read_or_end_the_story() -> None:
    good = Reply(result={"outcome": "completed", "attempts": [{"generation": 1}, {"generation": 2}]})
    assert (outcome(good), last_attempt(good)) == ("completed", {"generation": 2})
    with pytest.raises(StoryError, match="SettingsError: LEASE_SECONDS"):
        result(Reply(error="SettingsError", message="LEASE_SECONDS is not set"))
    with pytest.raises(StoryError, match="nothing to do"):
        last_attempt(Reply(result={"outcome": "idle", "attempts": []}))
