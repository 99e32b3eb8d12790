"""Real workers in processes of their own, raced, frozen, killed, and cut off: a choice of what `make chaos` plays."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.chaos import __main__ as command
from tests.chaos import mutations, network
from tests.chaos.kills import kills
from tests.chaos.mutations import Matters
from tests.chaos.network import Network, rough
from tests.chaos.race import race
from tests.chaos.stage import Outcome, Prepare
from tests.chaos.stalls import stalls
from tools.scene import Scene
from tools.wire import Answer, Call, parse

SEED = 2026

Kept = Callable[[Outcome], dict[str, int]]


@pytest.fixture
def kept(figures: Callable[..., None]) -> Kept:
    """Tells what a scenario came to; returns its figures when nothing was broken."""

    def judged(outcome: Outcome) -> dict[str, int]:
        figures(**{f"{outcome.name}: {name}": count for name, count in outcome.figures.items()})
        assert not outcome.violations, str(outcome)
        return dict(outcome.figures)

    return judged


def test_of_eight_processes_exactly_one_gets_the_lease_in_every_round(kept: Kept) -> None:
    figures = kept(race(20, SEED))
    assert figures == {"race_rounds": 20, "race_double_winners": 0}


def test_nights_on_a_bad_network_complete_and_change_nothing_twice(kept: Kept) -> None:
    figures = kept(rough(60, SEED, nights=6))
    assert figures["takeovers"] + figures["completed_meanwhile"] >= 1, "the faults left no work for anybody"


def test_a_holder_that_wakes_up_late_changes_nothing_that_is_not_its_own(kept: Kept) -> None:
    figures = kept(stalls(2, SEED))
    assert figures["stalls_holding_the_lease"] == 2


def test_nights_complete_however_many_processes_are_killed(kept: Kept) -> None:
    figures = kept(kills(6, SEED))
    assert figures["random_kills"] >= 1


# --------------------------------------------------------------------------- they notice that a condition is missing


def without(loses: Matters, patch: pytest.MonkeyPatch) -> Prepare:
    def prepare(scene: Scene) -> None:
        mutations.without(loses, patch, scene.proxy)

    return prepare


def test_a_second_winner_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = race(2, SEED, prepare=without(mutations.whole_acquire, monkeypatch))
    assert outcome.figures == {"race_rounds": 1, "race_double_winners": 1}
    assert any("8 won" in one for one in outcome.violations)
    assert "acquire" in str(outcome)
    assert f"seed {SEED}" in str(outcome)


def test_a_holder_without_a_fence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = stalls(1, SEED, prepare=without(mutations.fence, monkeypatch))
    assert any("applied after generation" in one for one in outcome.violations)


# --------------------------------------------------------------------------- figures count what has happened


class Chosen(random.Random):
    """Something happens to every message, namely this, and as soon as it may."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def random(self) -> float:
        return 0.0

    def choice(self, options: Any) -> Any:
        assert self.kind in options
        return self.kind

    def uniform(self, a: float, b: float) -> float:
        return a


CALL = parse(1, "POST", "/", {"X-Amz-Target": "DynamoDB_20120810.GetItem"}, b"{}")
ANSWER = Answer(200, {}, b"{}")


def test_a_message_that_nobody_overtook_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(network.LATE, "taken over", (0.0, 0.01))
    quiet = Network(Chosen(network.OVERTAKEN), lambda call: None)
    assert quiet(CALL, lambda: ANSWER) == ANSWER
    quiet.settle()
    assert quiet.met == Counter()


@pytest.mark.parametrize("broken", [False, True])
def test_a_copy_counts_when_it_was_sent_and_is_told_when_it_could_not_be(broken: bool) -> None:
    def again(call: Call) -> None:
        if broken:
            raise LookupError("a defect")

    copying = Network(Chosen(network.LATER), again)
    assert copying(CALL, lambda: ANSWER) == ANSWER
    copying.settle()
    assert copying.met == ({} if broken else {network.LATER: 1})
    assert copying.copied == ([] if broken else [CALL])
    assert [("GetItem" in one, "a defect" in one) for one in copying.broken] == [(True, True)] * broken


def came_to(figures: Mapping[str, int], seed: int) -> Outcome:
    return Outcome("fine", seed, figures, [], [])


def broke(seed: int) -> Outcome:
    raise TimeoutError(f"not within {seed} s")


@pytest.mark.parametrize("seed", [0, 7])
def test_a_scenario_that_raises_is_a_violation_and_the_others_keep_their_figures(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Mapping[str, int]] = []
    monkeypatch.setattr(command, "FULL", {"broken": broke, "fine": partial(came_to, {"random_kills": 3, "others": 4})})
    monkeypatch.setattr(command, "record", written.append)
    monkeypatch.setattr(sys, "argv", ["chaos", "--seed", str(seed)])
    assert command.main() == 1
    told = capsys.readouterr().out
    assert f"broken (seed {seed}): raised\n  VIOLATION TimeoutError('not within {seed} s')" in told
    assert "1 violations" in told
    assert written == ([] if seed else [{"random_kills": 3, "chaos_violations": 1}])
    assert ("not written" in told) == bool(seed)
