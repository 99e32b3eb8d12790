"""The next tick as text. 80 columns do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tools.ctl.format import full
from tools.ctl.plan import WORKS, Forecast, Step


def text(forecast: Forecast) -> RenderableType:
    """One block a step, long spans of skipped nights as one. Readable on 80 columns."""
    parts: list[RenderableType] = [
        Text(f"{forecast.job} · {forecast.target}"),
        Text(f"{full(forecast.at)} UTC"),
        Text(),
    ]
    if not forecast.steps:
        return Group(*parts, Text("The next tick finds nothing to do."))
    for _, group in groupby(forecast.steps, key=lambda step: (step.does, step.why, step.segment)):
        parts += _block(list(group))
    if any(step.does in WORKS for step in forecast.steps):
        parts += [Text(), Text(_estimate(forecast))]
    return Group(*parts)


def _block(steps: list[Step]) -> Iterator[RenderableType]:
    """Consecutive steps that differ in nothing but the interval."""
    one = steps[0]
    name = one.interval if len(steps) == 1 else f"{one.interval} to {steps[-1].interval} ({len(steps)} nights)"
    segment = "" if one.segment is None else f"  segment {one.segment}"
    reads = "" if one.source_reads is None else f", at least {_count(one.source_reads)}"
    yield Text.assemble(f"{name}{segment}  ", (one.does.replace("_", " "), "bold"), reads)
    until = f", until {full(one.until)}" if one.until else ""
    yield Padding(Text(one.why + until, overflow="fold"), (0, 0, 0, 4), expand=False)


def _estimate(forecast: Forecast) -> str:
    if forecast.source_reads is None:
        return "How many source reads that takes is unknown: no completed night to estimate it from."
    return f"At least {_count(forecast.source_reads)}, by the rows of {forecast.estimated_from}."


def _count(reads: int) -> str:
    return f"{reads:,} source read{'' if reads == 1 else 's'}"
