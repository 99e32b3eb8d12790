"""A timeline as a picture: a panel for each interval, in it a row for each attempt, and above them what else happened.

Drawn without a display and without pyplot; the same timeline gives the same SVG, byte for byte.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextToPath

from tools.timeline.attempts import RUNNING
from tools.timeline.layout import Bar, Label, Layout, layout
from tools.timeline.style import (
    BY_HAND,
    COLOURS,
    DOTS,
    EVENTS,
    FAINT,
    FOOT,
    GROUND,
    INK,
    LEFT,
    LEGEND_COLUMNS,
    LEVEL,
    LINE,
    PALE,
    RIGHT,
    ROW,
    SIZE,
    SMALL,
    STYLE,
    TICKS,
    TITLE,
    WIDTH,
    legend_of,
)
from tools.timeline.times import times
from tools.timeline.words import headline, short_names, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tools.timeline import Timeline


def picture(timeline: Timeline, path: Path) -> None:
    """Write the picture; the suffix says whether as SVG or PNG."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a person's words, in whatever script
        matplotlib.rcdefaults()  # nothing of a reader's own settings
        matplotlib.rcParams.update(STYLE)
        figure = _figure(timeline)
        said = {"Title": f"Timeline of {timeline.job}", "Description": summary(timeline.histories, timeline.now_ms)}
        metadata = {**said, "Date": None} if path.suffix.lower() == ".svg" else said
        figure.savefig(path, dpi=160, metadata=metadata)


def _figure(timeline: Timeline) -> Figure:
    width = WIDTH - LEFT - RIGHT
    panels = []
    for history in timeline.histories:
        names = short_names(attempt.owner for attempt in history.attempts)
        panels.append((history, layout(history, names, timeline.now_ms, width, _measure)))
    heights = [_height(panel) for _, panel in panels]
    legend = legend_of(bar.attempt.ended for _, panel in panels for bar in panel.bars)
    foot = FOOT * -(-len(legend) // LEGEND_COLUMNS) + 0.1
    height = sum(heights) + len(panels) * (TITLE + TICKS) + foot
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    top = height
    for (history, panel), inner in zip(panels, heights, strict=True):
        top -= TITLE
        figure.text(0.1 / WIDTH, (top + 0.1) / height, history.interval_id, weight="bold", size=SIZE + 2)
        said = headline(history, timeline.now_ms)
        if panel.unlabelled:
            said += f" · +{len(panel.unlabelled)} more events, named in the text"
        figure.text((WIDTH - RIGHT) / WIDTH, (top + 0.1) / height, said, ha="right", size=SIZE)
        top -= inner
        axes = figure.add_axes((LEFT / WIDTH, top / height, width / WIDTH, inner / height))
        _panel(axes, panel, inner)
        top -= TICKS
    figure.legend(
        handles=legend,
        loc="lower left",
        bbox_to_anchor=(0.0, 0.0),
        ncols=LEGEND_COLUMNS,
        frameon=False,
        fontsize=SMALL,
        handlelength=1.6,
        columnspacing=1.6,
    )
    return figure


def _height(panel: Layout) -> float:
    return panel.levels * LEVEL + max(1, len(panel.rows)) * ROW + 0.14


def _panel(axes: Axes, panel: Layout, height: float) -> None:
    """In inches from the upper left corner: events first, then the rows."""
    axes.set_xlim(0, panel.width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    rows_top = panel.levels * LEVEL + 0.08
    for piece in panel.axis.pieces:
        if not piece.cut:
            corner = (piece.left * panel.width, rows_top - 0.04)
            size = ((piece.right - piece.left) * panel.width, height - rows_top + 0.04)
            axes.add_patch(Rectangle(corner, *size, facecolor=GROUND, clip_on=False))
    for label in panel.labels:
        _event(axes, label, rows_top, height, panel)
    for x, kind in panel.unlabelled:
        axes.plot([x] * 2, [rows_top - 0.04, height], color=_colour(kind), lw=0.7, zorder=1)
    for row, (holder, place) in enumerate(panel.rows or [("no attempt", "")]):
        y = rows_top + (row + 0.5) * ROW
        axes.text(-LEFT + 0.1, y, holder, va="center", size=SIZE)
        axes.text(-0.1, y, place, va="center", ha="right", size=SMALL, color=FAINT)
    for bar in panel.bars:
        _bar(axes, bar, panel, rows_top)
    _times(axes, panel, height)


def _event(axes: Axes, label: Label, rows_top: float, height: float, panel: Layout) -> None:
    colour = _colour(label.kind)
    y = (panel.levels - label.level - 0.5) * LEVEL
    style = (0, (4, 2)) if label.kind == "deadline" else "-"
    axes.plot([label.x] * 2, [y, height], color=colour, lw=1.2 if label.kind == "deadline" else 0.7, ls=style, zorder=1)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.text(label.left, y, label.words, va="center", size=SMALL, color=colour, bbox=behind, zorder=4)


def _colour(kind: str) -> str:
    return EVENTS.get(kind, INK if kind.islower() else BY_HAND)


def _bar(axes: Axes, bar: Bar, panel: Layout, rows_top: float) -> None:
    y, thick = rows_top + bar.row * ROW + 0.05, ROW - 0.1
    colour = COLOURS.get(bar.attempt.ended, INK)
    solid = max(bar.seen - bar.begin, 0.03)
    axes.add_patch(Rectangle((bar.begin, y), solid, thick, facecolor=colour, edgecolor="none", zorder=3))
    if bar.end > bar.begin + solid:
        rest = (bar.end - bar.begin - solid, thick)
        axes.add_patch(
            Rectangle(
                (bar.begin + solid, y), *rest, facecolor="white", edgecolor=colour, hatch="////", lw=0.8, zorder=3
            )
        )
    if bar.attempt.ended == RUNNING:
        axes.plot([bar.end], [y + thick / 2], marker=">", ms=9, color=colour, zorder=4, clip_on=False)
    if bar.words:
        inside = bar.begin < bar.left < bar.seen
        behind = {"facecolor": colour if inside else GROUND, "edgecolor": "none", "pad": 0.8}
        ink = "white" if inside and colour not in PALE else INK
        middle = y + thick / 2
        order = 4 if inside else 2
        axes.text(bar.left, middle, bar.words, va="center", size=SMALL, color=ink, bbox=behind, zorder=order)
    loser = next((one for one in panel.bars if _lost_to(one, bar)), None)
    if loser is not None and loser.row != bar.row:
        start, stop = rows_top + loser.row * ROW + 0.05 + thick, y
        arrow = {"arrowstyle": "-|>", "color": INK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (bar.begin, stop), (bar.begin, start), arrowprops=arrow, zorder=6)


def _lost_to(loser: Bar, winner: Bar) -> bool:
    one, other = loser.attempt, winner.attempt
    return one.segment == other.segment and one.generation == other.took_from


def _times(axes: Axes, panel: Layout, height: float) -> None:
    for piece in panel.axis.pieces:
        left, right = piece.left * panel.width, piece.right * panel.width
        if piece.cut:
            dots = "···" if right - left > DOTS else "·"
            axes.text((left + right) / 2, height - 0.02, dots, ha="center", color=FAINT, size=SIZE)
        else:
            axes.plot([left, right], [height] * 2, color=LINE, lw=1, clip_on=False)
    axes.text(-0.1, height + 0.08, "UTC", ha="right", va="top", size=SMALL, color=FAINT)
    for words in times(panel.axis, panel.width, _measure):
        about = {"size": SMALL - 0.5, "color": FAINT, "style": "italic"} if words.gap else {"size": SMALL}
        if not words.gap:
            axes.plot([words.place] * 2, [height, height + 0.05], color=FAINT, lw=0.8, clip_on=False)
        top = height + (0.05 if words.gap else 0.08)
        axes.text(words.x, top, "\n".join(words.lines), ha="center", va="top", **about)


def _measure(words: str) -> float:
    """The width of a label, in inches."""
    found = TextToPath().get_text_width_height_descent(words, FontProperties(family="DejaVu Sans", size=SMALL), False)
    width: float = found[0]
    return width / 72
