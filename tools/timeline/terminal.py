"""A timeline on a terminal: a bar for each attempt, and below them what else happened, in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.timeline.attempts import LOST, SILENT, Attempt
from tools.timeline.axis import Axis, axis
from tools.timeline.history import History
from tools.timeline.words import ENDED, headline, moment, say, short_names, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tools.timeline import Timeline

COLOURS = {"COMPLETED": "green", "FAILED": "red", "NEEDS_REPAIR": "red", LOST: "yellow", SILENT: "yellow"}
GENERATION, SEGMENT, HOLDER, RANGES, END = 4, 4, 12, 6, 16
"""Columns that a row of the attempts needs besides its time and its bar."""


def render(timeline: Timeline, width: int) -> RenderableType:
    """Everything a timeline holds. At 80 columns or more, no line is longer than `width`."""
    parts: list[RenderableType] = []
    for history in timeline.histories:
        parts += [*([Text()] if parts else []), *_parts(history, timeline.now_ms, width)]
    return Group(*parts)


def _parts(history: History, now_ms: int, width: int) -> list[RenderableType]:
    names = short_names(attempt.owner for attempt in history.attempts)
    head = Text.assemble((history.interval_id, "bold"), "  ")
    head.append(headline(history, now_ms), COLOURS.get(history.state, ""))
    parts: list[RenderableType] = [head]
    if history.attempts:
        parts += [_attempts(history, names, now_ms, width)]
    return [*parts, _events(history, names, width)]


def _attempts(history: History, names: Mapping[str, str], now_ms: int, width: int) -> Table:
    spans = [(attempt.begin_ms, attempt.until_ms(now_ms)) for attempt in history.attempts]
    begins = {attempt.begin_ms: moment(attempt.begin_ms, history.interval_id) for attempt in history.attempts}
    time = max(map(len, begins.values()))
    several = len(history.segments) > 1
    columns = [GENERATION, *([SEGMENT] if several else []), HOLDER, time, RANGES, END]
    bar = max(8, width - sum(columns) - len(columns))
    scale = axis(spans, cut=2 / bar, least=2 / bar)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=width)
    table.add_column("gen.", width=GENERATION, justify="right", no_wrap=True)
    if several:
        table.add_column("seg.", width=SEGMENT, no_wrap=True)
    table.add_column("holder", width=HOLDER, no_wrap=True, overflow="ellipsis")
    table.add_column("from", width=time, no_wrap=True)
    table.add_column(_ends(spans, history.interval_id, bar), width=bar, no_wrap=True, overflow="crop")
    table.add_column("ranges", width=RANGES, justify="right", no_wrap=True)
    table.add_column("end", width=END, no_wrap=True)
    for attempt in history.attempts:
        table.add_row(
            str(attempt.generation),
            *([attempt.segment] if several else []),
            Text(shortened(names[attempt.owner], 40)),
            begins[attempt.begin_ms],
            Text(_bar(attempt, scale, bar, now_ms), COLOURS.get(attempt.ended, "cyan")),
            "?" if attempt.ranges is None else f"{attempt.ranges:,}",
            ENDED.get(attempt.ended, attempt.ended),
        )
    return table


def _ends(spans: list[tuple[int, int]], day: str, bar: int) -> str:
    """What a bar's column spans, as far as there is space to say it."""
    first, last = moment(min(spans)[0], day), moment(max(end for _, end in spans), day)
    return f"{first}{last:>{bar - len(first)}}" if len(first) + len(last) < bar else ""


def _bar(attempt: Attempt, scale: Axis, bar: int, now_ms: int) -> str:
    """`█` at work, `░` no sign of life, `┊` time in which nothing happened and which is left out."""
    cells = [" "] * bar
    for piece in scale.cuts:
        cells[min(bar - 1, round((piece.left + piece.right) / 2 * bar))] = "┊"
    begin, end = (scale.place(ms) * bar for ms in (attempt.begin_ms, attempt.until_ms(now_ms)))
    seen = scale.place(now_ms if attempt.ended == "RUNNING" else attempt.seen_ms or attempt.begin_ms) * bar
    first = min(int(begin), bar - 1)
    for cell in range(first, max(first + 1, min(bar, round(end)))):
        cells[cell] = "█" if cell == first or cell < round(seen) else "░"
    return "".join(cells)


def _events(history: History, names: Mapping[str, str], width: int) -> Table:
    events = [(mark.at_ms, *say(mark, names)) for mark in history.marks]
    events += [(history.scheduled_ms, "scheduled", "", ""), (history.deadline_ms, "deadline", "", "")]
    for attempt in history.attempts:
        holder = names[attempt.owner]
        if attempt.took_from is not None:
            events.append((attempt.begin_ms, attempt.began, holder, f"from generation {attempt.took_from}"))
        if attempt.reason and attempt.end_ms is not None:
            events.append((attempt.end_ms, attempt.ended, holder, attempt.reason))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False, width=width)
    table.add_column(no_wrap=True)
    table.add_column(max_width=14, no_wrap=True, overflow="ellipsis")
    table.add_column(max_width=16, overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    for at_ms, event, who, what in sorted(events):
        table.add_row(moment(at_ms, history.interval_id), *map(Text, (event, who, what)))
    return table
