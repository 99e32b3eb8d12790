"""Many seeds on all cores, and one seed in words."""

from __future__ import annotations

import atexit
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import lru_cache

from tests.simulator.simulation import simulate
from tests.simulator.stage import Stage, stage

BATCH = 10

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


def soak(seeds: range) -> Iterator[tuple[int, list[str]]]:
    """What each broken seed broke, on all cores."""
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as processes:
        for found in processes.map(violations, batches):
            yield from found


def told(seed: int, stage: Stage) -> str:
    """What happened in a seed, what that broke, and how to see it again."""
    played = simulate(seed, stage)
    world = f"seed {seed}: {dict(played.population.settings)}"
    ending = [f"VIOLATION {one}" for one in played.violations] or ["no violation"]
    return "\n".join([world, *played.schedule, *ending, f"again: make soak SEEDS={seed}"])
