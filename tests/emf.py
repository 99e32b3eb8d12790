"""Log lines to data points, as CloudWatch makes them: the embedded metric format by its published specification.

From the CloudWatch User Guide, "Specification: Embedded metric format". A line that is not JSON, or says nothing of
metrics, makes no data point. A line that claims to hold some and breaks a rule is a NotEmf here: CloudWatch would drop
it without a word, and a test must not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

DIMENSIONS_MAX, METRICS_MAX, VALUES_MAX, NAME_MAX = 30, 100, 100, 1024
"""Of a dimension set, of a directive, of one metric's array, and of a metric's name."""

LINE_MAX = 1024 * 1024
"""Bytes of a log event."""

Dimensions = frozenset[tuple[str, str]]


class NotEmf(ValueError):
    """A line that claims to hold metrics and breaks the format; the message says where."""


@dataclass(frozen=True, slots=True)
class Datapoint:
    """One value of one metric. A metric is its namespace, its name and exactly this set of dimensions."""

    namespace: str
    name: str
    dimensions: Dimensions
    at_ms: int
    value: float
    unit: str = "None"


def datapoints(lines: Iterable[str], *, at_ms: int | None = None) -> list[Datapoint]:
    """Every data point that the lines make, in their order.

    `at_ms` is when they were logged, in place of each line's own timestamp: for functions that run on a clock which
    the library that writes the lines does not know.
    """
    return [point for line in lines for point in _of_line(line, at_ms)]


def _of_line(line: str, at_ms: int | None) -> Iterator[Datapoint]:
    try:
        root = json.loads(line)
    except ValueError:
        return
    if not isinstance(root, dict) or "_aws" not in root:
        return
    _check(len(line.encode()) <= LINE_MAX, f"the line is longer than {LINE_MAX} bytes")
    meta = root["_aws"]
    _check(isinstance(meta, dict), "_aws is not an object")
    stamp, directives = meta.get("Timestamp"), meta.get("CloudWatchMetrics")
    _check(isinstance(stamp, int) and stamp > 0, "_aws.Timestamp is not a number of milliseconds")
    _check(isinstance(directives, list), "_aws.CloudWatchMetrics is not an array")
    for directive in directives:
        yield from _of_directive(root, directive, stamp if at_ms is None else at_ms)


def _of_directive(root: dict[str, Any], directive: Any, at_ms: int) -> Iterator[Datapoint]:
    _check(isinstance(directive, dict), "a directive is not an object")
    namespace, sets, metrics = (directive.get(name) for name in ("Namespace", "Dimensions", "Metrics"))
    _check(isinstance(namespace, str) and 0 < len(namespace) <= NAME_MAX, "Namespace is no text of 1 to 1024")
    _check(
        isinstance(sets, list) and all(isinstance(names, list) for names in sets), "Dimensions is not an array of sets"
    )
    _check(isinstance(metrics, list) and len(metrics) <= METRICS_MAX, f"Metrics is no array of at most {METRICS_MAX}")
    for metric in metrics:
        name: Any = metric.get("Name") if isinstance(metric, dict) else None
        _check(isinstance(name, str) and 0 < len(name) <= NAME_MAX, "a metric has no Name of 1 to 1024")
        for names in sets:
            dimensions = _dimensions(root, names)
            for value in _values(root, name):
                yield Datapoint(namespace, name, dimensions, at_ms, value, metric.get("Unit", "None"))


def _dimensions(root: dict[str, Any], names: list[str]) -> Dimensions:
    _check(len(names) <= DIMENSIONS_MAX, f"a set has more than {DIMENSIONS_MAX} dimensions")
    for name in names:
        target = root.get(name)
        _check(isinstance(target, str) and bool(target), f"dimension {name} has no text on the root")
    return frozenset((name, root[name]) for name in names)


def _values(root: dict[str, Any], name: str) -> list[float]:
    target = root.get(name)
    values: list[Any] = target if isinstance(target, list) else [target]
    _check(len(values) <= VALUES_MAX, f"{name} has more than {VALUES_MAX} values")
    for value in values:
        _check(isinstance(value, int | float) and not isinstance(value, bool), f"{name} has no number on the root")
    return values


def _check(holds: bool, why: str) -> None:
    if not holds:
        raise NotEmf(why)
