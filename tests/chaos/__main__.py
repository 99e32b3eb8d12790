"""`make chaos`: every scenario in full; the figures go into docs/guarantees.json."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context

from tests.chaos.kills import kills
from tests.chaos.network import rough
from tests.chaos.race import race
from tests.chaos.stage import Outcome
from tests.chaos.stalls import stalls
from tests.guarantees import record

FULL: tuple[Callable[[int], Outcome], ...] = (
    partial(kills, 20),
    partial(race, 200),
    partial(rough, 400, nights=12),
    partial(stalls, 12),
)
"""Each takes a seed."""

AT_ONCE = 2
"""Half the time they wait for leases to expire."""

KEPT = ("race_rounds", "race_double_winners", "random_kills", "network_faults", "stalls_holding_the_lease")


def main() -> int:
    """0 when nothing was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="other chances, the same scenarios (%(default)s)")
    seed = parser.parse_args().seed
    began = time.monotonic()
    figures: dict[str, int] = {}
    broken = 0
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(scenario, seed) for scenario in FULL]):
            outcome = future.result()
            print(outcome, flush=True)
            figures |= outcome.figures
            broken += len(outcome.violations)
    print(f"{broken} violations in {time.monotonic() - began:.0f} s (seed {seed})")
    record({name: figures[name] for name in KEPT} | {"chaos_violations": broken})
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
