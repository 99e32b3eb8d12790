"""Runs every contender in every case, alternating, and takes medians; growth and cold starts beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import groupby
from statistics import median
from typing import Any

from bench import cases
from bench.cases import Case, Row
from bench.job import Job
from bench.stage import PYTHON, Stage, stage
from bench.tally import minimum
from reconciler.settings import Settings
from tools.emulator import ROOT
from tools.seed import plan

REPEATED = ("repeated_reads_after_kill", "repeated_rows_after_kill")


def contenders() -> list[str]:
    """Everyone; read-ahead only where the job has it."""
    has_read_ahead = any(setting.name == "read_ahead" for setting in fields(Settings))
    return [name for name in cases.CONTENDERS if has_read_ahead or name != cases.READ_AHEAD]


def measure(chosen: Iterable[Case], known: Sequence[str], rounds: int) -> Iterator[list[Row]]:
    """The rows of each case. Cases of the same accounts share an emulator."""
    for (accounts, share), same in groupby(chosen, key=lambda case: (case.accounts, case.changed_share)):
        say(f"{accounts:,} accounts, {share:.0%} changed: seeding")
        with stage(plan(accounts=accounts, changed=share)) as here:
            for case in same:
                yield _case(here, case, case.contenders(known), rounds)


def _case(here: Stage, case: Case, names: list[str], rounds: int) -> list[Row]:
    begun = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    counted = {name: _counted(here, case, name) for name in names}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        # every other round backwards, so that nobody always comes behind the same neighbour
        for name in names[:: -1 if number % 2 else 1]:
            if number < turns(name, runs, rounds):
                runs[name].append(here.measure(_job(here, case, name)))
                here.restore()
        say(f"{cases.name(case)}: round {number + 1} of {rounds}")
    return [
        Row(
            contender=name,
            **asdict(case),
            page_size=case.page_size,
            wall_s=round(median(run["wall_s"] for run in runs[name]), 4),
            cpu_s=round(median(run["cpu_s"] for run in runs[name]), 4),
            peak_mb=round(median(run["peak_mb"] for run in runs[name]), 1),
            rounds=len(runs[name]),
            run=begun,
            wall_runs=[round(run["wall_s"], 4) for run in runs[name]],
            cpu_runs=[round(run["cpu_s"], 4) for run in runs[name]],
            **counted[name],
        )
        for name in names
    ]


def _job(here: Stage, case: Case, name: str) -> Job:
    return here.job(name, source_latency_s=case.source_latency_s, page_size=case.page_size)


def turns(name: str, runs: Mapping[str, Sequence[Mapping[str, float]]], rounds: int) -> int:
    """In how many rounds a contender runs: in fewer if the first has shown it to be many times slower than the loop."""
    firsts = {each: figures[0]["wall_s"] for each, figures in runs.items() if figures}
    slow = name in firsts and firsts[name] > cases.SLOW * firsts.get(cases.BARE, firsts[name])
    return min(rounds, cases.SLOW_ROUNDS) if slow else rounds


def _counted(here: Stage, case: Case, name: str) -> dict[str, Any]:
    """What an undisturbed run asks for, and what one that is killed half way repeats; through the proxy, not timed."""
    repeated: dict[str, int | None] = dict.fromkeys(REPEATED)
    tally, figures = here.count(here.job(name, page_size=case.page_size))
    read_units, write_units = here.units(tally)
    here.restore()
    if case.killed:
        killed = here.count_killed(here.job(name), max(1, tally.work // 2))
        here.restore()
        repeated = dict(zip(REPEATED, (killed.reads - tally.reads, killed.rows - tally.rows), strict=True))
    say(f"{cases.name(case)}: {name} counted")
    return {
        "requests": dict(sorted(tally.operations.items())) | figures["others"],
        "read_units": read_units,
        "write_units": write_units,
        "minimum_requests": minimum(
            here.seeded,
            actions=cases.ACTIONS.get(name, 100),
            checkpointed=name in cases.CHECKPOINTED,
            page=case.page_size,
        ),
        **repeated,
    }


def grow(sizes: Iterable[int], rounds: int) -> Iterator[dict[str, float]]:
    """Seconds, the CPU among them, and peak memory for each number of accounts, the accounts' making taken off."""
    with stage(plan(accounts=14, changed=0)) as here:
        for accounts in sizes:
            runs = []
            for _ in range(1 if accounts > cases.LARGE else rounds):
                figures = here.measure(here.job("synthetic", accounts=accounts))
                making_s = figures["others"]["making_s"]
                times = {name: figures[name] - making_s for name in ("wall_s", "cpu_s")}
                runs.append(times | {"peak_mb": figures["peak_mb"]})
            medians = {name: round(median(run[name] for run in runs), 4) for name in runs[0]}
            say(f"growth: {accounts:,} accounts")
            yield {"accounts": accounts, "rounds": len(runs), **medians}


def cold_starts(rounds: int) -> dict[str, Any]:
    """Medians of a cold start of each kind, alternating."""
    runs: dict[str, list[dict[str, float]]] = {"imports": [], "idle_tick": []}
    with stage(plan(accounts=14, changed=0)) as here:
        job = here.job("idle")
        environment = here.variables(job, here.url)
        for number in range(rounds + 1):
            for kind, figures in runs.items():
                ran = subprocess.run(
                    [PYTHON, "-m", "bench.cold", kind], env=environment, cwd=ROOT, capture_output=True, text=True
                )
                if ran.returncode:
                    raise RuntimeError(f"cold start: {kind}: {ran.stderr[-2000:]}")
                if number:  # the first writes the byte code, and the first tick the job's rows
                    figures.append(json.loads(ran.stderr.splitlines()[-1]))
    say("cold starts")
    return {"rounds": rounds} | {
        kind: {name: round(median(run[name] for run in figures), 4) for name in figures[0]}
        for kind, figures in runs.items()
    }


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
