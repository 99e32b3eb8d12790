"""`make bench`: measure, write bench/results.json, and draw and write what docs/performance.md tells of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import cases, growth, report
from bench.measure import cold_starts, contenders, grow, measure

RESULTS = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; `--report` only reports what was measured before."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What safety costs, side by side.")
    parser.add_argument("--quick", action="store_true", help="10 k accounts only, medians of 3, growth to 100 k")
    parser.add_argument("--rounds", type=int, help="runs of which medians are taken (default: 5, or 3)")
    parser.add_argument("--contenders", help="comma-separated choice")
    parser.add_argument("--accounts", type=int, help="only cases of this size, or one of it")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file of the raw rows (no report for another)")
    parser.add_argument("--report", action="store_true", help="write docs/performance.md anew from the raw rows")
    asked = parser.parse_args(arguments)
    if not asked.report:
        rounds = asked.rounds or (3 if asked.quick else 5)
        chosen = cases.cases(quick=asked.quick)
        if asked.accounts:
            chosen = [cases.Case(asked.accounts, case.changed_share, case.source_latency_s) for case in chosen]
            chosen = list(dict.fromkeys(chosen))
        known = asked.contenders.split(",") if asked.contenders else contenders()
        sizes = growth.SIZES[:-1] if asked.quick else growth.SIZES
        results = {
            "machine": report.machine(),
            "rounds": rounds,
            "cold_start": cold_starts(max(rounds, 5)),
            "growth": grow(sizes, rounds),
            "rows": [asdict(row) for row in measure(chosen, known, rounds)],
        }
        asked.output.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    if asked.output == RESULTS:
        report.write(json.loads(RESULTS.read_text("utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
