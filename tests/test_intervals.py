"""The calendar: pure, in UTC, one interval a date."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import clock
from reconciler.intervals import Calendar, next_id, previous_id, shifted

DAY_MS = 86_400_000

NIGHTLY = Calendar(hour=2, minute=0, deadline_minutes=240)

calendars = st.builds(Calendar, st.integers(0, 23), st.integers(0, 59), st.integers(1, 10_080))
days = st.dates(date(1971, 1, 1), date(2199, 12, 31)).map(date.isoformat)
moments = st.integers(clock.parse_ms("1971-01-02T00:00:00Z"), clock.parse_ms("2199-12-30T00:00:00Z"))


def ms(text: str) -> int:
    return clock.parse_ms(text)


def test_an_interval_is_scheduled_in_utc_and_has_a_deadline() -> None:
    assert NIGHTLY.scheduled_ms("2026-11-29") == ms("2026-11-29T02:00:00Z")
    assert NIGHTLY.deadline_ms("2026-11-29") == ms("2026-11-29T06:00:00Z")


@pytest.mark.parametrize(
    ("moment", "first"),
    [
        ("2026-11-29T01:59:59.999Z", "2026-11-29"),
        ("2026-11-29T02:00:00.000Z", "2026-11-30"),
        ("2026-12-31T02:00:00.000Z", "2027-01-01"),
        ("2028-02-28T23:00:00.000Z", "2028-02-29"),
    ],
)
def test_the_first_interval_after_a_moment_is_scheduled_strictly_after_it(moment: str, first: str) -> None:
    assert NIGHTLY.first_after(ms(moment)) == first


@pytest.mark.parametrize(
    ("until", "due"),
    [
        ("2026-11-29T01:59:59.999Z", []),
        ("2026-11-29T02:00:00.000Z", ["2026-11-29"]),
        ("2026-12-01T03:00:00.000Z", ["2026-11-29", "2026-11-30", "2026-12-01"]),
        ("2026-11-01T00:00:00.000Z", []),
    ],
)
def test_due_is_every_interval_scheduled_up_to_a_moment_oldest_first(until: str, due: list[str]) -> None:
    assert NIGHTLY.due("2026-11-29", ms(until)) == due


@given(calendars, moments)
def test_no_interval_lies_between_a_moment_and_the_first_one_after_it(calendar: Calendar, moment_ms: int) -> None:
    first = calendar.first_after(moment_ms)
    assert calendar.scheduled_ms(previous_id(first)) <= moment_ms < calendar.scheduled_ms(first)


@given(calendars, days, st.integers(-40 * DAY_MS, 40 * DAY_MS))
def test_due_is_complete_without_gaps_and_ends_where_the_future_begins(
    calendar: Calendar, open_from: str, offset_ms: int
) -> None:
    until_ms = calendar.scheduled_ms(open_from) + offset_ms
    due = calendar.due(open_from, until_ms)
    assert bool(due) == (offset_ms >= 0)
    assert due == [shifted(open_from, number) for number in range(len(due))]
    assert all(calendar.scheduled_ms(interval_id) <= until_ms for interval_id in due)
    assert calendar.scheduled_ms(shifted(open_from, len(due))) > until_ms


@given(calendars, days)
def test_days_are_of_equal_length(calendar: Calendar, interval_id: str) -> None:
    """UTC has no repeated and no missing hour."""
    assert calendar.scheduled_ms(next_id(interval_id)) - calendar.scheduled_ms(interval_id) == DAY_MS


@given(moments, st.integers(-23, 23))
def test_a_time_survives_its_text_and_its_offset(moment_ms: int, hours: int) -> None:
    text = clock.text(moment_ms)
    elsewhere = datetime.fromisoformat(text).astimezone(timezone(timedelta(hours=hours))).isoformat()
    assert len(text) == len("2026-11-29T02:00:00.000Z")
    assert clock.parse_ms(text) == clock.parse_ms(elsewhere) == moment_ms


@given(moments, moments)
def test_times_sort_as_their_texts_do(one: int, other: int) -> None:
    assert (one < other) == (clock.text(one) < clock.text(other))


@pytest.mark.parametrize("told", ["2026-11-29T02:00:00", "2026-11-29", "", "now"])
def test_a_time_without_a_zone_is_no_time(told: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        clock.parse_ms(told)
