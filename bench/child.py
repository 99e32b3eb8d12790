"""A contender in a process of its own: one `bench.job.Job` in, what the run took out.

Lines of JSON on stdin and stdout: the job; {} when it is prepared; anything to start; the figures.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.job import Job

MODULES = {"reconciler_read_ahead": "reconciler"}
"""Contenders that are another's module, in another environment."""


def measured(run: Callable[[], None]) -> dict[str, float]:
    """Wall and CPU seconds of a run, all threads of this process, and the process's peak memory so far in MB."""
    before, began = _cpu_s(), time.perf_counter()
    run()
    return {"wall_s": time.perf_counter() - began, "cpu_s": _cpu_s() - before, "peak_mb": peak_mb()}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    """Where there is /proc: `ru_maxrss` there starts with what the parent held when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Serve one job."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the handler prints goes to the log, not between the replies
    job = Job(**json.loads(sys.stdin.readline()))
    contender: Any = import_module(f"bench.contenders.{MODULES.get(job.contender, job.contender)}")
    run = contender.prepare(job)
    print("{}", file=replies, flush=True)
    sys.stdin.readline()
    figures: dict[str, Any] = measured(run)
    figures["others"] = dict(getattr(contender, "others", {}))
    print(json.dumps(figures), file=replies, flush=True)


if __name__ == "__main__":
    main()
