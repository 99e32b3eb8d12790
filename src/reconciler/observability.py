"""The one logger, the one metrics namespace, and the names of all metrics.

Every line carries the platform's request id. One about a run carries `run_id` and `interval`; one about an attempt also
`segment`, `generation` and `range`, the number of the range in work. Lines name accounts, and may name an entitlement
that is malformed; they never hold the value of one. What a source or a view raises is logged with its message: no
payload belongs into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

WORKER_METRICS = {
    "RunDelay": MetricUnit.Seconds,
    "DuplicateDeliveries": MetricUnit.Count,
    "IdempotencyUnavailable": MetricUnit.Count,
    "LeaseContended": MetricUnit.Count,
    "LeaseLost": MetricUnit.Count,
    "Takeovers": MetricUnit.Count,
    "RangesCommitted": MetricUnit.Count,
    "AccountsScanned": MetricUnit.Count,
    "ChangesApplied": MetricUnit.Count,
    "RangeConflicts": MetricUnit.Count,
    "AccountsRejected": MetricUnit.Count,
    "ConsistencyLag": MetricUnit.Seconds,
    "SourceRequests": MetricUnit.Count,
    "SourceThrottled": MetricUnit.Count,
    "SourceWaitSeconds": MetricUnit.Seconds,
}
"""Emitted by the reconcile function when there is something to count."""

WATCHDOG_METRICS = {
    "SecondsPastDeadline": MetricUnit.Seconds,
    "OldestUnfinishedAge": MetricUnit.Seconds,
    "UnfinishedIntervals": MetricUnit.Count,
    "SkippedIntervals": MetricUnit.Count,
    "IntervalsNeedingRepair": MetricUnit.Count,
    "SecondsSinceProgress": MetricUnit.Seconds,
}
"""Emitted by the watchdog every time, zero included."""

logger = Logger()
metrics = Metrics()

_counting = Lock()
"""Powertools counts into a plain map, and what is read ahead is counted by another thread."""


def count(name: str, value: float = 1) -> None:
    """Add a value to a metric of this invocation; a name that is not declared above is a KeyError."""
    unit = WORKER_METRICS.get(name) or WATCHDOG_METRICS[name]
    with _counting:
        metrics.add_metric(name=name, unit=unit, value=value)


@contextmanager
def emitting() -> Iterator[None]:
    """Emit what was counted, also when the handler raises."""
    try:
        yield
    finally:
        if metrics.metric_set:
            metrics.flush_metrics()
