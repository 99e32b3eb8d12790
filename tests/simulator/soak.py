"""Many seeds on all cores, and one seed in words."""

from __future__ import annotations

import atexit
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from functools import lru_cache

from tests.pool import pool
from tests.simulator.simulation import simulate
from tests.simulator.stage import Stage, stage

BATCH = 10

LEGEND = """\
sends X: the message is about to leave; awaits X (status): it was applied, its answer is on the way; behind a dash what
becomes of either: unsent, late (arrives later), twice (a copy arrives later), lost, throttled, conflict, mixed, kill"""

_KEPT = ExitStack()
atexit.register(_KEPT.close)


@lru_cache(maxsize=1)
def _stage() -> Stage:
    """This process's stage, which lasts as long as the process."""
    return _KEPT.enter_context(stage())


def violations(seeds: Sequence[int]) -> list[tuple[int, list[str]]]:
    """What each broken seed broke, in this process."""
    played = ((seed, simulate(seed, _stage()).violations) for seed in seeds)
    return [(seed, found) for seed, found in played if found]


def soak(seeds: range) -> Generator[list[tuple[int, list[str]]]]:
    """What each broken seed of a batch broke, batch by batch, on all cores."""
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    with pool() as processes:
        yield from processes.map(violations, batches)


def told(seed: int, stage: Stage) -> str:
    """What happened in a seed, what that broke, and how to see it again."""
    played = simulate(seed, stage)
    people = played.population
    world = f"seed {seed}: mostly {people.accent}, {people.workers} workers, accounts {' '.join(people.names)}"
    ending = [f"VIOLATION {one}" for one in played.violations] or ["no violation"]
    again = f"again: make soak SEEDS={seed}"
    return "\n".join([world, str(dict(people.settings)), LEGEND, *played.schedule, *ending, again])
