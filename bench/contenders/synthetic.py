"""Not a contender: the reconciler on accounts that are made up, to see how it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.contenders import reconciler
from bench.growth import Synthetic
from bench.job import Job
from reconciler import app, aws
from reconciler.settings import Settings

others: dict[str, float] = {}


def prepare(job: Job) -> Callable[[], None]:
    made: Any = Synthetic(aws.dynamodb(Settings.from_env()), job.source, job.view, job.accounts)
    app._client = lambda _: made  # type: ignore[assignment]  # the seam of a warm environment's client
    run_job = reconciler.prepare(job)

    def run() -> None:
        run_job()
        others["making_s"] = made.making_s

    return run
