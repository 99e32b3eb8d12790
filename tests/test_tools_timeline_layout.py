"""On the axis time never runs backwards, and in a panel no words overlap, whatever an interval went through."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import clock
from tests.test_tools_timeline import lines
from tools.timeline import Timeline, draw
from tools.timeline.attempts import BEGINNINGS, ENDINGS, LOST, RUNNING, SILENT, Attempt
from tools.timeline.axis import DAY, HOUR, MINUTE, SECOND, axis, duration
from tools.timeline.history import COUNTS, History, Mark
from tools.timeline.layout import GAP, MOST_LEVELS, MOST_ROWS, Label, layout
from tools.timeline.times import times
from tools.timeline.words import short_names

NIGHT = "2026-11-29"
START = clock.parse_ms(f"{NIGHT}T02:00:00Z")
WIDTH = 6.45

moments = st.one_of(st.integers(-HOUR, 3 * DAY), st.integers(0, 40 * MINUTE), st.integers(0, 10 * SECOND))
words = st.one_of(st.just(""), st.sampled_from(["lease held", "a bad import 日本", "x" * 200, "[red]$a_b^2$\n--"]))


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Any interval: attempts one after the other on up to three segments, events at any time."""
    attempts = []
    for segment in ("000", "001", "002")[: draw(st.integers(1, 3))]:
        at_ms = START
        for generation in range(1, draw(st.integers(1, 7))):
            at_ms += abs(draw(moments))
            length = abs(draw(moments))
            ended = draw(st.sampled_from((*ENDINGS, LOST)))
            seen_ms = draw(st.sampled_from((None, at_ms, at_ms + length // 2)))
            attempt = Attempt(
                segment=segment,
                generation=generation,
                owner=draw(st.sampled_from((f"f/{generation}0000000-1", "worker-a/1-2", "w" * 60, "[b]"))),
                pass_no=1,
                began=draw(st.sampled_from(BEGINNINGS)),
                took_from=draw(st.sampled_from((None, generation - 1))),
                begin_ms=at_ms,
                ended=ended,
                end_ms=at_ms + length,
                seen_ms=seen_ms,
                ranges=draw(st.sampled_from((None, 0, 1, 1234))),
                accounts=None,
                reason=draw(words),
            )
            attempts.append(attempt)
            at_ms += length
    events = st.sampled_from(["OBSERVED", "DELAYED", "RERUN", "SKIPPED", "COMPLETED", "killed"])
    marks = [
        Mark(at_ms=START + draw(moments), event=draw(events), who=draw(words), what=draw(words))
        for _ in range(draw(st.integers(0, 9)))
    ]
    return History(
        interval_id=NIGHT,
        state="COMPLETED",
        run_id=f"entitlements/{NIGHT}/1",
        pass_no=1,
        scheduled_ms=START,
        deadline_ms=START + 4 * HOUR,
        completed_ms=None,
        late_by_s=None,
        counts=dict.fromkeys(COUNTS, 3),
        attempts=tuple(attempts),
        marks=tuple(marks),
    )


def measure(text: str) -> float:
    return 0.08 * len(text)


spans = st.lists(st.tuples(moments, st.integers(0, HOUR)), min_size=1, max_size=12).map(
    lambda found: [(START + begin, START + begin + length) for begin, length in found]
)


@given(spans)
def test_time_never_runs_backwards_on_the_axis(spans: list[tuple[int, int]]) -> None:
    scale = axis(spans, cut=0.08, least=0.09, margin=0.03)
    places = [scale.place(ms) for ms in sorted(ms for span in spans for ms in span)]
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert scale.pieces[0].left == 0
    assert scale.pieces[-1].right == pytest.approx(1)
    assert all(before.right == pytest.approx(after.left) for before, after in pairwise(scale.pieces))
    for cut in scale.cuts:
        assert not any(begin < cut.end_ms and cut.begin_ms < end for begin, end in spans)


@given(spans)
def test_times_have_the_room_they_need(spans: list[tuple[int, int]]) -> None:
    scale = axis(spans, cut=0.08, least=0.09, margin=0.03)
    ticks = scale.ticks(0.11)
    assert ticks
    assert ticks[0].date is not None
    for piece in scale.pieces:
        inside = [tick.place for tick in ticks if piece.left < tick.place < piece.right]
        assert len(inside) <= max(1, (piece.right - piece.left) / 0.11)


def test_a_day_between_two_runs_is_cut_out_and_a_pause_between_two_attempts_is_not() -> None:
    night = (START, START + 20 * MINUTE), (START + 25 * MINUTE, START + 40 * MINUTE)
    again = (START + DAY, START + DAY + 40 * MINUTE)
    scale = axis([*night, again], cut=0.1, least=0.1, margin=0.05)
    (cut,) = scale.cuts
    assert duration(cut.end_ms - cut.begin_ms) == "23 h 20 min"
    assert scale.place(START) == pytest.approx(0.05)
    assert scale.place(START + 40 * MINUTE) == pytest.approx(0.40)
    assert scale.place(START + DAY) == pytest.approx(0.60)
    assert [tick.label for tick in scale.ticks(0.2)] == ["02:00", "02:30", "02:00", "02:30"]
    assert [tick.date for tick in scale.ticks(0.2)] == ["29 Nov", None, "30 Nov", None]


def test_however_many_stretches_there_are_they_share_the_axis() -> None:
    scale = axis([(START + day * DAY, START + day * DAY) for day in range(40)], cut=0.1, least=0.1)
    widths = [piece.right - piece.left for piece in scale.pieces]
    assert min(widths) > 0
    assert sum(widths) == pytest.approx(1)


def test_seconds_are_shown_where_they_matter() -> None:
    scale = axis([(START, START + 10 * SECOND)], cut=0.1, least=0.1)
    assert [tick.label for tick in scale.ticks(0.3)] == ["02:00:00", "02:00:05", "02:00:10"]
    odd = axis([(START + 3 * SECOND, START + 3 * SECOND)], cut=0.1, least=0.1)
    assert [(tick.label, tick.place) for tick in odd.ticks(0.3)] == [("02:00:03", 0.5)]


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 s"),
        (59_600, "1 min"),
        (19 * HOUR + 30 * MINUTE, "19 h 30 min"),
        (2 * DAY + 5 * SECOND, "2 d 5 s"),
        (90_000, "1 min 30 s"),
    ],
)
def test_a_duration_is_said_in_two_units(ms: int, said: str) -> None:
    assert duration(ms) == said


def crosses(one: Label, other: Label) -> bool:
    """Whether the words of two labels of one line meet."""
    begin, end = max(one.left, other.left), min(one.left + measure(one.words), other.left + measure(other.words))
    return one.level == other.level and begin < end


@given(histories())
def test_no_labels_overlap_and_everything_stays_in_its_panel(history: History) -> None:
    names = short_names(attempt.owner for attempt in history.attempts)
    panel = layout(history, names, START + 4 * DAY, WIDTH, measure)
    assert not any(crosses(*pair) for pair in combinations(panel.labels, 2))
    assert all(label.left >= 0 for label in panel.labels)
    assert all(label.left + measure(label.words) <= WIDTH + 1e-9 for label in panel.labels)
    assert panel.levels <= MOST_LEVELS
    assert len(panel.bars) == len(history.attempts)
    for bar in panel.bars:
        assert 0 <= bar.begin <= bar.seen <= bar.end <= WIDTH + 1e-9
        assert bar.left >= 0
        assert bar.left + measure(bar.words) <= WIDTH + 1e-9
    assert len(panel.rows) <= max(MOST_ROWS, len(history.segments))


@given(histories())
def test_no_times_below_the_axis_overlap_and_none_is_cut_off(history: History) -> None:
    panel = layout(history, short_names(one.owner for one in history.attempts), START + 4 * DAY, WIDTH, measure)
    found = times(panel.axis, WIDTH, measure)
    ends = sorted((one.x - span / 2, one.x + span / 2) for one in found for span in [max(map(measure, one.lines))])
    assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
    assert ends == [] or (ends[0][0] >= -1e-9 and max(end for _, end in ends) <= WIDTH + 1e-9)


def test_a_time_without_place_hands_its_date_to_the_next_one_of_its_day() -> None:
    day = [START + number * 20 * SECOND * 60 for number in range(6)]
    scale = axis([(ms, ms) for ms in [*day, *(ms + DAY for ms in day)]], cut=0.01, least=0.01)
    found = [one for one in times(scale, 2.0, measure) if not one.gap]
    assert len(found) < len(scale.ticks(0.36))
    assert [one.lines[1] for one in found if len(one.lines) > 1] == ["29 Nov", "30 Nov"]


@pytest.mark.parametrize("spread", [20 * SECOND, 40 * MINUTE, 3 * DAY])
def test_25_marks_stay_legible_and_the_rest_is_counted(tmp_path: Path, spread: int) -> None:
    marks = tuple(
        Mark(
            at_ms=START + number * spread // 25, event="RERUN" if number == 20 else "VERIFIED", who="ada", what="w" * 40
        )
        for number in range(25)
    )
    history = night(attempt(), marks=marks)
    panel = layout(history, {attempt().owner: "a"}, START + 4 * DAY, WIDTH, measure)
    assert panel.levels <= MOST_LEVELS
    assert len(panel.labels) + len(panel.unlabelled) == 27
    assert {"scheduled", "deadline", "RERUN"} <= {label.kind for label in panel.labels}
    assert not any(crosses(*pair) for pair in combinations(panel.labels, 2))
    draw(Timeline("entitlements", START + 4 * DAY, (history,)), tmp_path / "many.svg")
    assert "more events, named in the text -->" in (tmp_path / "many.svg").read_text("utf-8")


@given(histories())
def test_no_line_is_longer_than_80_columns(history: History) -> None:
    shown = lines(Timeline("entitlements", START + 4 * DAY, (history,)))
    assert max(map(len, shown)) <= 80
    assert sum("█" in line for line in shown) == len(history.attempts)


def attempt(number: int = 1, **known: Any) -> Attempt:
    """The first half hour of the night, completed, unless something else is known."""
    blank: dict[str, Any] = {
        "segment": "000",
        "generation": number,
        "owner": f"[w]-{number} $x^2$",
        "pass_no": None,
        "began": "RESUMED",
        "took_from": number - 1,
        "begin_ms": START,
        "ended": "COMPLETED",
        "end_ms": START + 30 * MINUTE,
        "seen_ms": START + 30 * MINUTE,
        "ranges": 3,
        "accounts": None,
    }
    return Attempt(**blank | known)


def night(*attempts: Attempt, marks: tuple[Mark, ...] = ()) -> History:
    return History(
        interval_id=NIGHT,
        state="RUNNING",
        run_id="",
        pass_no=2,
        scheduled_ms=START,
        deadline_ms=START + HOUR,
        completed_ms=None,
        late_by_s=None,
        counts=dict.fromkeys(COUNTS, 0),
        attempts=attempts,
        marks=marks,
    )


def test_words_stand_beside_their_bar_or_in_it_where_no_line_crosses_them() -> None:
    short = attempt(end_ms=START + 40 * MINUTE, seen_ms=START + 40 * MINUTE)
    (bar,) = layout(night(short), {short.owner: "a"}, START, WIDTH, measure).bars
    assert bar.words == "3 ranges, COMPLETED"
    assert bar.left == pytest.approx(bar.end + GAP)
    long = attempt(end_ms=START + 59 * MINUTE, seen_ms=START + 59 * MINUTE)
    (bar,) = layout(night(long), {long.owner: "a"}, START, WIDTH, measure).bars
    assert bar.left == pytest.approx(bar.begin + GAP)


@pytest.mark.parametrize("ended", [RUNNING, SILENT, LOST])
@pytest.mark.parametrize("count", [2, MOST_ROWS + 1])
def test_any_words_and_many_attempts_can_be_drawn(tmp_path: Path, ended: str, count: int) -> None:
    mark = Mark(at_ms=START, event="RERUN", who="日本 <&>", what="a\x07b -- c\nd $\\frac$")
    attempts = [
        attempt(number, begin_ms=START + number * HOUR, ended=ended, end_ms=None, seen_ms=None, ranges=None)
        for number in range(count)
    ]
    draw(Timeline("entitlements", START + 2 * DAY, (night(*attempts, marks=(mark,)), night())), tmp_path / "odd.svg")
    drawn = (tmp_path / "odd.svg").read_text("utf-8")
    ElementTree.fromstring(drawn)
    assert ("<!-- segment -->" in drawn) == (count > MOST_ROWS)
    assert "<!-- no attempt -->" in drawn
