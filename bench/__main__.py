"""`make bench`: measure, write bench/results.json, and draw and write what docs/performance.md tells of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import cases, growth, report
from bench.measure import cold_starts, contenders, grow, measure
from bench.results import Results

RESULTS = Path(__file__).with_name("results.json")
PARTS = ("cold", "growth", "contenders")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; what is measured is kept case by case, and replaces what was measured of it before."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What safety costs, side by side.")
    parser.add_argument("--part", type=several(str), default=list(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--accounts", type=several(int), help="sizes, e.g. 10000,100000; also those of the growth")
    parser.add_argument("--share", type=several(float), default=list(cases.SHARES), help="shares changed, e.g. 0,0.01")
    parser.add_argument("--latency", type=several(float), default=[0.0, cases.FAR_S], help="seconds to the source")
    parser.add_argument("--contenders", type=several(str), help="a choice; compared with nobody measured before")
    parser.add_argument("--rounds", type=int, default=5, help="runs of which medians are taken (default: 5)")
    parser.add_argument("--anew", action="store_true", help="forget what the raw rows have, as another machine's")
    parser.add_argument("--resume", action="store_true", help="leave out what the raw rows have already")
    parser.add_argument("--quick", action="store_true", help="medians of 3, of 10 k accounts only, growth to 100 k")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file of the raw rows (no report for another)")
    parser.add_argument("--report", action="store_true", help="measure nothing, write docs/performance.md anew")
    asked = parser.parse_args(arguments)
    if asked.anew:
        asked.output.unlink(missing_ok=True)
    try:
        results = Results(asked.output, None if asked.report else report.machine())
    except ValueError as error:
        parser.error(str(error))
    rounds = min(asked.rounds, 3) if asked.quick else asked.rounds
    parts = () if asked.report else asked.part
    if "cold" in parts and not (asked.resume and results.held["cold_start"]):
        results.add_cold_start(cold_starts(max(rounds, 5)))
    if "growth" in parts:
        sizes = asked.accounts or (growth.SIZES[:-1] if asked.quick else growth.SIZES)
        for size in grow([each for each in sizes if not (asked.resume and results.has_growth(each))], rounds):
            results.add_growth(size)
    if "contenders" in parts:
        known = asked.contenders or contenders()
        sizes = asked.accounts or ([cases.SMALL] if asked.quick else [cases.SMALL, cases.LARGE])
        chosen = cases.cases(sizes, asked.share, asked.latency)
        left = [case for case in chosen if not (asked.resume and results.has(case, case.contenders(known)))]
        for rows in measure(left, known, rounds):
            results.add(rows)
    if asked.output == RESULTS:
        report.write(results.held)
    return 0


def several(one: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [one(each) for each in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
