"""`make sweep`: every point of every scene, and a choice of pairs; the figures go into docs/guarantees.json."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.guarantees import record
from tests.sweep.scenes import SCENES
from tests.sweep.sweeping import Stride, Swept, sweep_number

EVERY = Stride(points=1, pairs=7)


def main() -> int:
    """0 when nothing differed."""
    began = time.monotonic()
    whole = Swept()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        scenes = {pool.submit(sweep_number, number, EVERY): scene for number, scene in enumerate(SCENES)}
        for future in as_completed(scenes):
            swept = future.result()
            whole += swept
            told = f"{swept.points:4} points, {len(swept.differences)} differences"
            print(f"{scenes[future].name:30} {told}", flush=True)
    print(*whole.differences, sep="\n", end="\n" if whole.differences else "")
    print(
        f"{whole.points} points, {whole.pairs} of them pairs, {len(whole.differences)} differences "
        f"in {time.monotonic() - began:.0f} s"
    )
    record({"crash_points": whole.points, "crash_differences": len(whole.differences)})
    return 1 if whole.differences else 0


if __name__ == "__main__":
    sys.exit(main())
