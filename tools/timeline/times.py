"""The words below an axis: times of day, and how long the stretches are that were cut out. Pure; lengths in inches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.timeline.axis import Axis, duration

ROOM, CLEAR = 0.72, 0.05
"""What a time gets of the axis; the least between two labels."""


@dataclass(frozen=True, slots=True)
class Words:
    """Lines of text whose middle is at `x`, for the moment at `place`, or for a `gap`."""

    x: float
    lines: tuple[str, ...]
    place: float
    gap: bool = False


def times(scale: Axis, width: float, measure: Callable[[str], float]) -> list[Words]:
    """Times first, then gaps; what has no place is left out, a gap's second unit before the gap.

    No words meet, all lie between 0 and `width`, and a date stands at the first time that is shown of a day.
    """
    found: list[Words] = []
    date = None
    for tick in scale.ticks(ROOM / width):
        date = tick.date or date
        words = _placed((tick.label, date) if date else (tick.label,), tick.place * width, width, measure)
        if words is not None and _free(words, found, measure):
            found.append(words)
            date = None
    for piece in scale.cuts:
        said = duration(piece.end_ms - piece.begin_ms).split(" ")
        units = tuple(" ".join(said[at : at + 2]) for at in range(0, len(said), 2))
        middle = (piece.left + piece.right) / 2 * width
        for lines in (units, units[:1]):
            words = _placed(lines, middle, width, measure, gap=True)
            if words is not None and _free(words, found, measure):
                found.append(words)
                break
    return found


def _placed(
    lines: tuple[str, ...], place: float, width: float, measure: Callable[[str], float], *, gap: bool = False
) -> Words | None:
    """Words as near to their place as the edges allow."""
    half = max(map(measure, lines)) / 2
    return Words(min(max(place, half), width - half), lines, place, gap) if 2 * half <= width else None


def _free(words: Words, others: Sequence[Words], measure: Callable[[str], float]) -> bool:
    def length(one: Words) -> float:
        return max(map(measure, one.lines))

    return all(abs(words.x - one.x) >= (length(words) + length(one)) / 2 + CLEAR for one in others)
