"""What a timeline's picture looks like: sizes, colours, fonts. All of it is legible at 800 pixels of width."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tools.timeline.attempts import LOST, RUNNING, SILENT
from tools.timeline.words import ENDED

WIDTH, LEFT, RIGHT = 8.3, 1.7, 0.15
"""Inches: of the picture, and of what stands left and right of a panel."""

ROW, LEVEL, TITLE, TICKS, FOOT = 0.3, 0.21, 0.38, 0.56, 0.22
"""Inches: the height of an attempt, of a line of events, of a title, of a panel's times, of a line of the legend."""

LEGEND_COLUMNS = 4

DOTS = 0.2
"""Inches from which a stretch that is left out is marked with three dots."""

SIZE, SMALL = 10.0, 9.0
"""Points."""

INK, FAINT, GROUND, LINE = "#1f2933", "#66727f", "#f1f4f7", "#b8c2cc"
DEADLINE, BY_HAND = "#a4133c", "#6a3d9a"
COLOURS = {
    "COMPLETED": "#0072b2",
    "YIELDED": "#56b4e9",
    "FAILED": "#d55e00",
    "NEEDS_REPAIR": "#d55e00",
    LOST: "#e69f00",
    SILENT: "#e69f00",
    RUNNING: "#009e73",
}
"""Okabe and Ito's, which nearly everybody can tell apart; the words beside the bars say the same."""

PALE = (COLOURS["YIELDED"], COLOURS[LOST])
EVENTS = {"deadline": DEADLINE, "COMPLETED": COLOURS["COMPLETED"]} | dict.fromkeys(
    ("scheduled", "OBSERVED", "DELAYED"), FAINT
)
"""What is on record of people is BY_HAND; what was noted from outside is in small letters, and INK."""


STYLE: dict[Any, Any] = {
    "svg.hashsalt": "timeline",
    "svg.fonttype": "path",  # the same shapes whatever fonts the reader has
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": SIZE,
    "hatch.linewidth": 1.1,
    "text.color": INK,
    "text.parse_math": False,
}


def legend_of(ended: Iterable[str]) -> list[Patch | Line2D]:
    """What the colours of attempts with these ends mean."""
    ends = set(ended)
    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, label=ENDED.get(end, end.lower().replace("_", " ")))
        for end, colour in COLOURS.items()
        if end in ends
    ]
    if ends & {LOST, SILENT}:
        colour = COLOURS[LOST]
        handles.append(Patch(facecolor="white", edgecolor=colour, hatch="////", label="no sign of life until replaced"))
    handles.append(Line2D([], [], color=DEADLINE, ls=(0, (4, 2)), lw=1.2, label="deadline"))
    return handles
