"""Real workers, stepped message by message in seeded orders: what must hold after every write holds.

And it is looked for: without one of the conditions that the promises rest on, the same seeds report violations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.guarantees import record
from tests.simulator import mutations
from tests.simulator.population import Population
from tests.simulator.simulation import simulate
from tests.simulator.soak import told
from tests.simulator.stage import Stage, stage

SEEDS = 200
BATCH = 10
ONCE_BROKEN = (632,)
"""Seeds that have shown a defect, here or in the rules themselves."""

BOUND = 30
"""Seeds of one accent within which a missing condition is noticed."""


@pytest.fixture(scope="module")
def played() -> Iterator[Stage]:
    with stage() as found:
        yield found


BATCHES = [range(first, first + BATCH) for first in range(0, SEEDS, BATCH)]


@pytest.mark.parametrize("seeds", [*BATCHES, ONCE_BROKEN], ids=str)
def test_no_interleaving_breaks_an_invariant(seeds: Sequence[int], played: Stage, figures: Callable[..., None]) -> None:
    broken = [(seed, found) for seed in seeds if (found := simulate(seed, played).violations)]
    figures(seeds=len(seeds), seed_violations=len(broken))
    assert not broken, "\n".join(f"seed {seed}: {found[0]}: make soak SEEDS={seed}" for seed, found in broken)


@pytest.mark.parametrize(
    ("mutate", "accent"),
    [
        (mutations.without_the_fence, "stalls"),
        (mutations.without_the_checkpoint, "copies"),
        (mutations.without_the_version, "writers"),
        (mutations.without_a_token_of_the_release, "outages"),
        (mutations.without_the_guard, "outages"),
        (mutations.without_the_pause, "stalls"),
        (mutations.without_an_expiry, "outages"),
        (mutations.without_a_renewal, "copies"),
        (mutations.without_counting_attempts, "copies"),
        (mutations.without_consistency, "copies"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_missing_condition_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None], accent: str, played: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    seeds = [seed for seed in range(1000) if Population.of(seed).accent == accent][:BOUND]
    found = next((broken for seed in seeds if (broken := simulate(seed, played).violations)), None)
    assert found
    assert "raised" not in found[0]
    assert "cannot be judged" not in found[0]


def test_a_seed_is_the_same_every_time(played: Stage) -> None:
    for seed in range(4):
        first, second = simulate(seed, played), simulate(seed, played)
        assert first.schedule == second.schedule
        assert len(first.schedule) > 50


def test_a_failing_seed_prints_its_schedule_and_how_to_see_it_again(
    played: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutations.without_the_fence(monkeypatch)
    words = next(words for seed in range(0, 1000, 4) if "VIOLATION" in (words := told(seed, played)))
    assert "sends commit" in words
    assert words.endswith(f"again: make soak SEEDS={words.split(':')[0].removeprefix('seed ')}")


def test_the_figures_stand_beside_those_of_other_commands(tmp_path: Path) -> None:
    path = tmp_path / "guarantees.json"
    path.write_text('{"crash_points": 7, "seeds": 1}')
    record({"seeds": 2000, "seed_violations": 0}, path)
    assert json.loads(path.read_text()) == {"crash_points": 7, "seeds": 2000, "seed_violations": 0}
