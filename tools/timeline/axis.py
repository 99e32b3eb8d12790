"""A time axis on which a night and a rerun a day later are both legible: long gaps are cut out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from reconciler import clock

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
STEPS_MS = (
    *(step * SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * MINUTE for step in (1, 2, 5, 10, 15, 30)),
    *(step * HOUR for step in (1, 2, 3, 6, 12)),
    *(step * DAY for step in (1, 2, 7, 28)),
)
LONGEST_GAP = 0.6
"""A stretch of nothing is kept while it is no longer than this share of everything that is kept besides."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time drawn from `left` to `right` (shares of the axis), evenly; or `cut`, with nothing in it."""

    begin_ms: int
    end_ms: int
    left: float
    right: float
    cut: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a place (share of the axis); `date` where the day is another than at the tick before."""

    place: float
    label: str
    date: str | None


@dataclass(frozen=True, slots=True)
class Axis:
    """Moments in epoch milliseconds to places from 0 to 1."""

    pieces: tuple[Piece, ...]
    margin: float

    def place(self, ms: int) -> float:
        """Where a moment stands; one before or after everything stands at the nearest end."""
        drawn = (one for one in self.pieces if not one.cut and one.begin_ms <= ms <= one.end_ms)
        between = (one for one in self.pieces if ms <= one.end_ms)
        piece = next(drawn, None) or next(between, self.pieces[-1])
        length = piece.end_ms - piece.begin_ms
        share = (ms - piece.begin_ms) / length if length else 0.5
        margin = 0 if piece.cut else self.margin
        left, right = piece.left + margin, piece.right - margin
        return left + min(max(share, 0.0), 1.0) * (right - left)

    @property
    def cuts(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.cut]

    def ticks(self, room: float) -> list[Tick]:
        """Labels that have at least `room` (a share of the axis) each, at round times where there is space for two."""
        found: list[Tick] = []
        day = ""
        for piece in self.pieces:
            if piece.cut:
                continue
            for ms, with_seconds in _labelled(piece, max(1, int((piece.right - piece.left) / room))):
                at = clock.text(ms)
                new_day = date(at) if at[:10] != day else None
                day = at[:10]
                found.append(Tick(self.place(ms), at[11 : 19 if with_seconds else 16], new_day))
        return found


def axis(spans: Iterable[tuple[int, int]], *, cut: float, least: float, margin: float = 0.0) -> Axis:
    """An axis on which all spans (begin and end in epoch milliseconds) lie; at least one.

    A cut takes `cut` of it, a span `least` or more, and `margin` keeps it clear of the cuts; all shares of the axis.
    """
    islands = _islands(_merged(spans))
    cut = min(cut, 0.4 / max(1, len(islands) - 1))
    widths = _widths([end - begin for begin, end in islands], 1 - cut * (len(islands) - 1), least)
    pieces: list[Piece] = []
    place = 0.0
    for (begin, end), width in zip(islands, widths, strict=True):
        if pieces:
            pieces.append(Piece(pieces[-1].end_ms, begin, place, place + cut, True))
            place += cut
        pieces.append(Piece(begin, end, place, place + width, False))
        place += width
    return Axis(tuple(pieces), min(margin, *(width / 3 for width in widths)))


def duration(ms: int) -> str:
    """A length of time in its two largest units, as in `19 h 30 min`."""
    units = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND))
    rest, said = round(ms / SECOND) * SECOND, []
    for name, size in units:
        count, rest = divmod(rest, size)
        if count:
            said.append(f"{count} {name}")
    return " ".join(said[:2]) or "0 s"


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _islands(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans joined over every gap that is worth drawing."""
    kept = sum(end - begin for begin, end in spans)
    bridged: set[int] = set()
    for gap, index in sorted((after[0] - before[1], index) for index, (before, after) in enumerate(pairwise(spans))):
        if gap > LONGEST_GAP * kept:
            break
        kept += gap
        bridged.add(index)
    islands = [spans[0]]
    for index, (begin, end) in enumerate(spans[1:]):
        if index in bridged:
            islands[-1] = islands[-1][0], end
        else:
            islands.append((begin, end))
    return islands


def _widths(lengths: Sequence[int], whole: float, least: float) -> list[float]:
    """Shares in proportion to the lengths, none below `least` as long as all can have that."""
    small: set[int] = set()
    while True:
        long = [index for index in range(len(lengths)) if index not in small]
        rest, total = whole - least * len(small), sum(lengths[index] for index in long)
        too_small = {index for index in long if not total or lengths[index] / total * rest < least}
        if not too_small:
            return [least if index in small else lengths[index] / total * rest for index in range(len(lengths))]
        if small | too_small == set(range(len(lengths))):
            return [whole / len(lengths)] * len(lengths)
        small |= too_small


def _labelled(piece: Piece, room_for: int) -> list[tuple[int, bool]]:
    """Moments to label in a piece that has room for so many labels, and whether the seconds matter."""
    length = piece.end_ms - piece.begin_ms
    for step in STEPS_MS:
        first = -(-piece.begin_ms // step) * step
        moments = list(range(first, piece.end_ms + 1, step)) if length / step < 100 else []
        if moments and len(moments) <= room_for and length:
            if len(moments) >= 2:
                return [(ms, step < MINUTE) for ms in moments]
            break
    return [(piece.begin_ms, piece.begin_ms % MINUTE != 0)]


def date(at: str) -> str:
    """The day of a stored UTC time, as in `29 Nov`."""
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{int(at[8:10])} {months[int(at[5:7]) - 1]}"
