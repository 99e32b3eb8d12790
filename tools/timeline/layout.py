"""Where everything of one panel stands, so that no words overlap. Pure; lengths in inches, x from the left edge.

What the words take up is told by `measure`, a function from text to its width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tools.timeline.attempts import RUNNING, Attempt
from tools.timeline.axis import Axis, axis
from tools.timeline.history import History, Mark
from tools.timeline.words import say, shortened, work

Measure = Callable[[str], float]

CUT, LEAST, MARGIN = 0.5, 0.6, 0.22
"""A stretch that is left out; the least that one moment gets; what keeps a bar clear of the next cut."""

GAP = 0.07
"""Between words and what stands beside them."""

MOST_ROWS = 14
"""Attempts that get a row each; where there are more, those of a segment share one."""

MOST_LEVELS = 9
"""Lines of event labels; where that is too few, some events get none."""

FIRST = ("scheduled", "deadline", "RERUN", "COMPLETED", "SKIPPED")
"""Events that get a label before others do."""

HOLDER, WORDS = 12, 46
"""Characters of a holder's name, and of an event's label."""


@dataclass(frozen=True, slots=True)
class Label:
    """An event at `x`, its words from `left` on, so many lines above the rows; `kind` is the event's name."""

    kind: str
    words: str
    x: float
    left: float
    level: int


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt in its row: at work from `begin` to `seen`, then unseen to `end`; its words stand from `left` on."""

    attempt: Attempt
    row: int
    begin: float
    seen: float
    end: float
    words: str
    left: float


@dataclass(frozen=True, slots=True)
class Layout:
    """A panel `width` inches wide. `rows` are the (holder, generation or segment) that name each row.

    `unlabelled` are the (x, kind) of the events that no label had a place for.
    """

    width: float
    axis: Axis
    rows: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    labels: tuple[Label, ...]
    unlabelled: tuple[tuple[float, str], ...] = ()

    @property
    def levels(self) -> int:
        """Lines of event labels."""
        return 1 + max((label.level for label in self.labels), default=0)


def layout(history: History, names: Mapping[str, str], now_ms: int, width: float, measure: Measure) -> Layout:
    """Lay one interval out; `names` are the short names of its owners."""
    moments = [history.scheduled_ms, history.deadline_ms, *(mark.at_ms for mark in history.marks)]
    spans = [(ms, ms) for ms in moments]
    spans += [(attempt.begin_ms, attempt.until_ms(now_ms)) for attempt in history.attempts]
    scale = axis(spans, cut=CUT / width, least=LEAST / width, margin=MARGIN / width)
    ordered = sorted(history.attempts, key=lambda attempt: (attempt.segment, attempt.begin_ms))
    several = len(history.segments) > 1
    if len(ordered) <= MOST_ROWS:
        rows = [
            (
                shortened(names[one.owner], HOLDER),
                f"{one.segment}/{one.generation}" if several else f"gen. {one.generation}",
            )
            for one in ordered
        ]
        row_of = list(range(len(ordered)))
    else:
        rows = [("segment", segment) for segment in history.segments]
        row_of = [history.segments.index(one.segment) for one in ordered]
    shared = len(rows) < len(ordered)
    labels, left_out = _stacked(_events(history, names, lambda ms: scale.place(ms) * width), width, measure)
    lines = (
        [label.x for label in labels]
        + [x for x, _ in left_out]
        + [(cut.left + cut.right) / 2 * width for cut in scale.cuts]
    )
    bars = []
    for attempt, row in zip(ordered, row_of, strict=True):
        begin, end = (scale.place(ms) * width for ms in (attempt.begin_ms, attempt.until_ms(now_ms)))
        seen_ms = now_ms if attempt.ended == RUNNING else attempt.seen_ms
        seen = begin if seen_ms is None else min(end, scale.place(seen_ms) * width)
        words = "" if shared else work(attempt)
        left = _words_at((begin, seen, end), measure(words), lines, width)
        bars.append(Bar(attempt, row, begin, seen, end, words, left))
    return Layout(width, scale, tuple(rows), tuple(bars), labels, left_out)


def _events(history: History, names: Mapping[str, str], place: Callable[[int], float]) -> list[tuple[float, str, str]]:
    """Place, kind and words of everything that gets a label."""
    due = place(history.scheduled_ms)
    events = [(due, "scheduled", "scheduled"), (place(history.deadline_ms), "deadline", "deadline")]
    for mark in history.marks:
        if mark.event == "OBSERVED" and abs(place(mark.at_ms) - due) < GAP:
            events[0] = due, "scheduled", "scheduled, OBSERVED"
        else:
            events.append((place(mark.at_ms), mark.event, _words(mark, names)))
    return events


def _words(mark: Mark, names: Mapping[str, str]) -> str:
    event, who, what = say(mark, names)
    if event in ("OBSERVED", "COMPLETED"):
        return event
    return shortened(": ".join(part for part in (f"{event} {who}".strip(), what) if part), WORDS)


def _words_at(bar: tuple[float, float, float], length: float, lines: Sequence[float], width: float) -> float:
    """Where the words of a bar (begin, seen, end) begin: right of it, left of it, or in it.

    No line crosses them if that can be.
    """
    begin, seen, end = bar
    places = [left for left in (end + GAP, begin - GAP - length) if 0 <= left <= width - length]
    clear = [left for left in places if not any(left < x < left + length for x in lines)]
    inside = [begin + GAP] if length + 2 * GAP < seen - begin else []
    return next(iter(clear or inside or places), max(0.0, width - length))


def _stacked(
    events: Sequence[tuple[float, str, str]], width: float, measure: Measure
) -> tuple[tuple[Label, ...], tuple[tuple[float, str], ...]]:
    """Each label on the lowest line where it crosses neither words nor the line of another event; and who has none.

    Where not all have a place, those of FIRST are placed before the others.
    """
    labels, left_out = _placed([events], width, measure)
    if left_out:
        first = [one for one in events if one[1] in FIRST]
        labels, left_out = _placed([first, [one for one in events if one[1] not in FIRST]], width, measure)
    return labels, left_out


def _placed(
    groups: Sequence[Sequence[tuple[float, str, str]]], width: float, measure: Measure
) -> tuple[tuple[Label, ...], tuple[tuple[float, str], ...]]:
    """Words begin at their event, from right to left, so that each line passes left of the words placed before; where
    the space does not suffice they end at it, from left to right, after all others of their group.
    """
    taken: list[tuple[float, float, Label]] = []
    left_out: list[tuple[float, str]] = []
    for events in groups:
        sized = [(x, kind, words, measure(words)) for x, kind, words in events]
        ordered = sorted((one for one in sized if one[0] + one[3] <= width), key=lambda one: -one[0])
        ordered += sorted((one for one in sized if one[0] + one[3] > width), key=lambda one: one[0])
        for x, kind, words, length in ordered:
            left = x if x + length <= width else max(0.0, x - length)
            free = (
                level
                for level in range(min(len(taken) + 1, MOST_LEVELS))
                if not any(_collide(level, x, left, left + length, *other) for other in taken)
            )
            level = next(free, None)
            if level is None or left + length > width:
                left_out.append((x, kind))
            else:
                taken.append((left, left + length, Label(kind, words, x, left, level)))
    return tuple(label for _, _, label in taken), tuple(left_out)


def _collide(level: int, x: float, left: float, right: float, from_x: float, to_x: float, other: Label) -> bool:
    if level == other.level:
        return left < to_x + GAP and from_x < right + GAP
    if level < other.level:
        return left < other.x < right
    return from_x < x < to_x
