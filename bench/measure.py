"""Runs every contender in every case, alternating, and takes medians; growth and cold starts beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from statistics import median
from typing import Any

from bench import cases
from bench.cases import Case, Row
from bench.stage import PYTHON, Stage, stage
from bench.tally import minimum
from reconciler.settings import Settings
from tools.emulator import ROOT
from tools.seed import plan


def contenders() -> list[str]:
    """Everyone; read-ahead only where the job has it."""
    everyone = [cases.BARE, cases.RECONCILER, cases.LOCK, cases.POWERTOOLS, cases.DURABLE]
    return [*everyone, cases.READ_AHEAD] if has_read_ahead() else everyone


def has_read_ahead() -> bool:
    return any(setting.name == "read_ahead" for setting in fields(Settings))


def measure(chosen: Iterable[Case], known: Iterable[str], rounds: int) -> Iterator[Row]:
    """Every row of every case; each case has an emulator of its own."""
    for case in chosen:
        say(f"{cases.name(case)}: seeding")
        with stage(plan(accounts=case.accounts, changed=case.changed_share)) as here:
            yield from _case(here, case, case.contenders(known), rounds)


def _case(here: Stage, case: Case, names: list[str], rounds: int) -> Iterator[Row]:
    counted = {name: _counted(here, case, name) for name in names}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        # every other round backwards, so that nobody always comes behind the same neighbour
        for name in names[:: -1 if number % 2 else 1]:
            runs[name].append(here.measure(here.job(name, source_latency_s=case.source_latency_s)))
            here.restore()
        say(f"{cases.name(case)}: round {number + 1} of {rounds}")
    for name in names:
        yield Row(
            contender=name,
            **asdict(case),
            wall_s=round(median(run["wall_s"] for run in runs[name]), 4),
            cpu_s=round(median(run["cpu_s"] for run in runs[name]), 4),
            peak_mb=round(median(run["peak_mb"] for run in runs[name]), 1),
            wall_runs=[round(run["wall_s"], 4) for run in runs[name]],
            cpu_runs=[round(run["cpu_s"], 4) for run in runs[name]],
            **counted[name],
        )


def _counted(here: Stage, case: Case, name: str) -> dict[str, Any]:
    """What an undisturbed run asks for, and what one that is killed half way repeats; through the proxy, not timed."""
    tally, figures = here.count(here.job(name))
    read_units, write_units = here.units(tally)
    here.restore()
    repeated: dict[str, int | None] = {"repeated_reads_after_kill": None, "repeated_rows_after_kill": None}
    if not case.source_latency_s:
        killed = here.count_killed(here.job(name), max(1, tally.work // 2))
        here.restore()
        repeated = {
            "repeated_reads_after_kill": killed.reads - tally.reads,
            "repeated_rows_after_kill": killed.rows - tally.rows,
        }
    say(f"{cases.name(case)}: {name} counted")
    return {
        "requests": dict(sorted(tally.operations.items())) | figures["others"],
        "read_units": read_units,
        "write_units": write_units,
        "minimum_requests": minimum(
            here.seeded, actions=cases.ACTIONS.get(name, 100), checkpointed=name in cases.CHECKPOINTED
        ),
        **repeated,
    }


def grow(sizes: Iterable[int], rounds: int) -> list[dict[str, float]]:
    """Seconds, the CPU among them, and peak memory for each number of accounts, the accounts' making taken off."""
    found = []
    with stage(plan(accounts=14, changed=0)) as here:
        for accounts in sizes:
            runs = []
            for _ in range(1 if accounts > cases.LARGE else rounds):
                figures = here.measure(here.job("synthetic", accounts=accounts))
                making = figures["others"]
                runs.append(
                    {
                        "wall_s": figures["wall_s"] - making["making_s"],
                        "cpu_s": figures["cpu_s"] - making["making_cpu_s"],
                        "peak_mb": figures["peak_mb"],
                    }
                )
            medians = {name: round(median(run[name] for run in runs), 4) for name in runs[0]}
            found.append({"accounts": accounts, "rounds": len(runs), **medians})
            say(f"growth: {accounts:,} accounts")
    return found


def cold_starts(rounds: int) -> dict[str, dict[str, float]]:
    """Medians of a cold start of each kind, alternating."""
    runs: dict[str, list[dict[str, float]]] = {"imports": [], "idle_tick": []}
    with stage(plan(accounts=14, changed=0)) as here:
        job = here.job("reconciler")
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
    return {
        kind: {name: round(median(run[name] for run in figures), 4) for name in figures[0]}
        for kind, figures in runs.items()
    }


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
