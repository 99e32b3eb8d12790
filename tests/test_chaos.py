"""Real workers in processes of their own, raced, frozen, killed, and cut off: a choice of what `make chaos` plays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos import mutations
from tests.chaos.kills import kills
from tests.chaos.mutations import Matters
from tests.chaos.network import rough
from tests.chaos.race import race
from tests.chaos.stage import Outcome, Prepare
from tests.chaos.stalls import stalls
from tools.scene import Scene

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
    figures = kept(race(25, SEED))
    assert figures == {"race_rounds": 25, "race_double_winners": 0}


def test_nights_on_a_bad_network_complete_and_change_nothing_twice(kept: Kept) -> None:
    figures = kept(rough(100, SEED, nights=8))
    assert figures["network_faults"] >= 100


def test_a_holder_that_wakes_up_late_changes_nothing_that_is_not_its_own(kept: Kept) -> None:
    figures = kept(stalls(2, SEED))
    assert figures["stalls_holding_the_lease"] == 2


def test_nights_complete_however_many_processes_are_killed(kept: Kept) -> None:
    figures = kept(kills(5, SEED))
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
