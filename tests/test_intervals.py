"""The calendar and the catch-up plan: pure, in UTC, one interval a date."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import clock
from reconciler.intervals import EXPIRED, SUPERSEDED, Calendar, Skip, catch_up, next_id, shifted
from reconciler.records import COMPLETED, EXPECTED, NEEDS_REPAIR, RUNNING, SKIPPED, RunRecord
from reconciler.settings import Settings
from tests.histories import DAY_MS, controlled, recorded
from tests.kit import environ

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
    assert calendar.scheduled_ms(shifted(first, -1)) <= moment_ms < calendar.scheduled_ms(first)


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


SETTINGS = Settings.from_env(environ())
FIRST, NOW = "2026-11-25", "2026-11-29T02:00:05Z"
LETTERS = {"E": EXPECTED, "R": RUNNING, "C": COMPLETED, "N": NEEDS_REPAIR, "S": SKIPPED, "A": SKIPPED}
"""A is SKIPPED and acknowledged; a dot is an interval without a record."""


def history(letters: str) -> list[RunRecord]:
    """The run records of the nights from FIRST on."""
    return [
        recorded(shifted(FIRST, day), LETTERS[letter], NIGHTLY, acknowledged=letter == "A")
        for day, letter in enumerate(letters)
        if letter != "."
    ]


@pytest.mark.parametrize(
    ("policy", "nights", "places"),
    [
        ("each", ".....", "ssrrr"),
        ("each", "CCC..", "cccrr"),
        ("each", "RN.E.", "rwrrr"),
        ("each", "EENCE", "sswcr"),
        ("each", "SAS..", "wcwrr"),
        ("latest", ".....", "ssssr"),
        ("latest", "CCEE.", "ccssr"),
        ("latest", "..R..", "ssrsr"),
        ("latest", "..E.R", "ssssr"),
        ("latest", "..N.C", "sswsc"),
        ("latest", "....N", "ssssw"),
        ("latest", "..E.S", "sssrw"),
        ("latest", "...SA", "ssrwc"),
        ("latest", "SSSSS", "wwwww"),
    ],
)
def test_the_plan_of_five_nights_with_a_window_of_three_days(policy: str, nights: str, places: str) -> None:
    """What is known of the nights, and where the plan puts each: r(un), s(kip), w(aiting), c(losed)."""
    deployed = replace(SETTINGS, catch_up_policy=policy, catch_up_days=3)
    plan = catch_up(ms(NOW), deployed, history(nights), controlled(FIRST))
    found = dict.fromkeys(plan.run, "r") | {skip.interval_id: "s" for skip in plan.skip}
    found |= dict.fromkeys(plan.waiting, "w") | dict.fromkeys(plan.closed, "c")
    assert "".join(place for _, place in sorted(found.items())) == places
    assert plan.unrecorded == {shifted(FIRST, day) for day, letter in enumerate(nights) if letter == "."}


def test_a_skip_says_why() -> None:
    deployed = replace(SETTINGS, catch_up_policy="latest", catch_up_days=3)
    plan = catch_up(ms(NOW), deployed, history("CC..S"), controlled(FIRST))
    assert plan.skip == (Skip("2026-11-27", SUPERSEDED, "2026-11-28"),)
    deployed = replace(SETTINGS, catch_up_policy="each", catch_up_days=3)
    plan = catch_up(ms(NOW), deployed, history("CE"), controlled(FIRST))
    assert plan.skip == (Skip("2026-11-26", EXPIRED),)


@pytest.mark.parametrize(("seconds", "place"), [(-1, "run"), (0, "run"), (1, "skip")])
@pytest.mark.parametrize("nights", ["C....", "CE..."])
def test_a_night_expires_when_it_is_strictly_older_than_the_window(seconds: int, place: str, nights: str) -> None:
    now_ms = NIGHTLY.scheduled_ms("2026-11-26") + 3 * DAY_MS + seconds * 1000
    plan = catch_up(now_ms, replace(SETTINGS, catch_up_days=3), history(nights), controlled(FIRST))
    assert ("2026-11-26" in plan.run) == (place == "run")
    assert (Skip("2026-11-26", EXPIRED) in plan.skip) == (place == "skip")


def test_a_night_expires_by_the_schedule_it_was_recorded_with() -> None:
    deployed = replace(SETTINGS, schedule_hour=23, catch_up_days=3)
    plan = catch_up(ms(NOW), deployed, history("CE"), controlled(FIRST))
    assert plan.skip == (Skip("2026-11-26", EXPIRED),)
    assert plan.run == ("2026-11-27", "2026-11-28")


def test_nights_before_the_first_one_are_not_missed() -> None:
    plan = catch_up(ms(NOW), SETTINGS, [], controlled("2026-11-28"))
    assert (plan.run, plan.skip) == (("2026-11-28", "2026-11-29"), ())


def test_nothing_is_due_before_the_first_night() -> None:
    plan = catch_up(ms(NOW), SETTINGS, [], controlled("2026-12-24"))
    assert (plan.run, plan.skip, plan.waiting, plan.closed) == ((), (), (), ())
