"""A cold start: from an interpreter that has begun to the answer of a handler, in a process of its own.

`imports` only imports boto3 and the parts of Powertools that the job uses; `idle_tick` imports the job and answers a
tick for which there is nothing to do, its client made on the way.
"""

from __future__ import annotations

import json
import sys
import time


def imports() -> float:
    """Returns the seconds it took."""
    began = time.perf_counter()
    import boto3  # noqa: F401 - the imports are what is measured
    from aws_lambda_powertools import Logger, Metrics

    Logger()
    Metrics()
    return time.perf_counter() - began


def idle_tick() -> float:
    """Returns the seconds until the job was imported."""
    began = time.perf_counter()
    from reconciler import app, clock
    from tools.runtime import Context

    imported = time.perf_counter() - began
    stamp = clock.text(time.time_ns() // 1_000_000)  # to the millisecond: another one within a second is no duplicate
    event = {"source": "aws.scheduler", "detail-type": "Scheduled Event", "time": stamp, "detail": {"trigger": "tick"}}
    answer = app.reconcile(event, Context(900, "cold"))  # type: ignore[arg-type]  # what it reads of a context is there
    if answer["outcome"] != "idle":
        raise RuntimeError(f"not idle: {answer}")
    return imported


def main() -> None:
    began, cpu = time.perf_counter(), time.process_time()
    imported = {"imports": imports, "idle_tick": idle_tick}[sys.argv[1]]()
    figures = {"import_s": imported, "wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    print(json.dumps(figures), file=sys.stderr)


if __name__ == "__main__":
    main()
