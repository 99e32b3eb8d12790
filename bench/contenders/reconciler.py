"""Contender 5: the real handler in a warm execution environment, with the template's settings.

Before the measured run an idle tick creates the job's rows, as every deployment's first tick does. The clock is moved,
so that the night is due however fast runs follow each other, and so that a dead holder's lease has run out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bench.job import Job, delayed
from reconciler import app
from reconciler.clock import SystemClock
from reconciler.settings import Settings
from tools.runtime import Context


class Moved(SystemClock):
    """Real time, so many milliseconds ahead."""

    def __init__(self, to_ms: int) -> None:
        self._ahead_ms = to_ms - super().now_ms()

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


def prepare(job: Job) -> Callable[[], None]:
    delayed(app._client(Settings.from_env()), job)
    if not job.resumed:
        _handle("tick", job, job.due_ms - 300_000)

    def run() -> None:
        minutes = 10 if job.resumed else 0
        answer = _handle("tick" if job.resumed else "nightly", job, job.due_ms + minutes * 60_000)
        if answer["outcome"] != "completed":
            raise RuntimeError(f"{job.contender}: {answer}")

    return run


def _handle(trigger: str, job: Job, at_ms: int) -> dict[str, Any]:
    app.CLOCK = Moved(at_ms + 30_000)
    stamp = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    event = {"source": "aws.scheduler", "detail-type": "Scheduled Event", "time": stamp, "detail": {"trigger": trigger}}
    return app.reconcile(event, Context(900, job.name))  # type: ignore[arg-type]  # what it reads of a context is there
