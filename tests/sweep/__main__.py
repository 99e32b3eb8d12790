"""`make sweep`: every point of every scene, and a choice of pairs; the figures go into docs/guarantees.json.

`make sweep ARGS="--scene night"` plays one scene again, and keeps no figure.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import as_completed

from tests.guarantees import record
from tests.pool import pool
from tests.sweep.scenes import SCENES
from tests.sweep.sweeping import Stride, Swept, sweep_number

EVERY = Stride(points=1, pairs=7)


def main() -> int:
    """0 when nothing differed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("--scene", choices=[scene.name for scene in SCENES], help="only this one")
    asked = parser.parse_args().scene
    began = time.monotonic()
    whole = Swept()
    with pool() as processes:
        chosen = [(number, scene.name) for number, scene in enumerate(SCENES) if asked in (None, scene.name)]
        scenes = {processes.submit(sweep_number, number, EVERY): name for number, name in chosen}
        for future in as_completed(scenes):
            name, swept = scenes[future], future.result()
            whole += swept
            print(f"{name:30} {swept.points:4} points, {len(swept.differences)} differences", flush=True)
            for difference in swept.differences:
                print(f"  {difference}", flush=True)
            if swept.differences:
                print(f"""  again: make sweep ARGS="--scene '{name}'\"""", flush=True)
    print(
        f"{whole.points} points, {whole.pairs} of them pairs, {len(whole.differences)} differences "
        f"in {time.monotonic() - began:.0f} s"
    )
    if not asked:
        figures = {"crash_points": whole.points, "crash_pairs": whole.pairs}
        record(figures | {"crash_differences": len(whole.differences)})
    return 1 if whole.differences else 0


if __name__ == "__main__":
    sys.exit(main())
