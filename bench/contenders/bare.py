"""Contender 1: the loop alone. A kill loses everything, two at once work against each other, and nobody would know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import loop
from bench.job import Job, client_of


def prepare(job: Job) -> Callable[[], None]:
    client = client_of(job)

    def run() -> None:
        waiting: list[dict[str, Any]] = []
        for _, found in loop.accounts(client, job):
            waiting += loop.effects(found, job.view)
            full = len(waiting) - len(waiting) % loop.ACTIONS
            loop.write(client, waiting[:full])
            waiting = waiting[full:]
        loop.write(client, waiting)

    return run
