"""`python -m tests.simulator 17` replays a seed; `0:2000` runs them all, and `--write` keeps the figures."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from tests.guarantees import record
from tests.simulator.soak import BATCH, soak, told
from tests.simulator.stage import stage

FULL = 2000
"""So many seeds make a figure to keep."""

EVERY = 200
"""After so many seeds it says how far it is."""


def main() -> int:
    """1 when a seed broke something."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("seeds", help="one seed, or first:end")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/guarantees.json")
    asked = parser.parse_args()
    first, colon, end = asked.seeds.partition(":")
    if not colon:
        with stage() as played:
            words = told(int(first), played)
        print(words)
        return int("VIOLATION" in words)
    broken = []
    seeds = int(end) - int(first)
    with closing(soak(range(int(first), int(end)))) as batches:
        for number, batch in enumerate(batches, 1):
            for seed, found in batch:
                broken.append(seed)
                print(f"seed {seed}: {found[0]}\n    again: make soak SEEDS={seed}", flush=True)
            if number * BATCH % EVERY == 0:
                print(f"{number * BATCH} of {seeds} seeds", flush=True)
    print(f"{seeds} seeds, {len(broken)} with violations")
    if asked.write and seeds >= FULL:
        record({"seeds": seeds, "seed_violations": len(broken)})
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
