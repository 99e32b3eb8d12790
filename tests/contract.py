"""The contract of `merge.Side` as tests, for any source or view: subclass `SourceContract` and say how to fill yours.

    class TestMySource(SourceContract):
        @pytest.fixture(autouse=True)
        def _store(self, ...) -> None: ...        # whatever `holding` needs

        def holding(self, ids, *, segments=1, paging=PLAIN):
            ...                                   # put exactly these accounts in, take all others out
            return MySource(...)

It needs nothing of this project but `merge.py` and `keys.py`, and knows no kind of store.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from reconciler import keys
from reconciler.merge import Page, Side

PLAIN = "pages as they come"
EMPTY_BETWEEN = "an empty page that goes on, between any two"
EMPTY_AT_THE_END = "a page that goes on, though nothing is left"

FIVE = ("acct-1", "acct-2", "acct-3", "acct-4", "acct-5")

ODD = (
    *("9", "10", "A", "a", "é", "～", "😀"),  # numbers, cases, and one that UTF-16 would sort elsewhere
    *("A#", "#B", "A#B", "a/b", "a b", "a%2Fb", "a+b", "a&after=z", "a'--", 'a"'),  # what separates, escapes or quotes
    *("a ", "a%", "a_", "a\\", "a\n"),  # what is cut off, or stands for something in a pattern
    *("012345670123", "12345670123", "1e10", "null", "true", "NaN"),  # what a parser would make something else of
    *("e\u0301", "e", "eé", "ee\u0301"),  # "e\u0301" is "é" to a reader, and another account
    *("x" * 1_024, "é" * 512, "x" * 1_023 + "y"),  # as long as an id can be
)

NO_IDS = ("", "x" * 1_000 + "é" * 50)
"""Ids that no table can hold; a checkpoint or a bound may all the same."""


class SourceContract:
    """What `merge.Side` promises. A subclass gives `holding`; its name begins with `Test`."""

    pagings: tuple[str, ...] = (PLAIN,)
    """How the store can be made to page; add EMPTY_BETWEEN and EMPTY_AT_THE_END where it can."""

    segment_counts: tuple[int, ...] = (1, 4)

    def holding(self, ids: Sequence[str], *, segments: int = 1, paging: str = PLAIN) -> Side[Any]:
        """A side whose store holds exactly these accounts, divided into so many segments.

        Called again in one test, it changes the store under the sides it gave before: accounts come and go.
        """
        raise NotImplementedError

    def test_ids_are_kept_exactly_and_ordered_by_their_bytes(self) -> None:
        assert unicodedata.normalize("NFC", "e\u0301") == "é"
        side = self.holding(ODD[::-1])
        wanted = sorted(ODD, key=str.encode)
        for limit in (1, 4, 100):
            assert ids(walk(side, limit=limit)) == wanted

    def test_above_any_id_are_the_ids_that_its_bytes_come_before(self) -> None:
        side = self.holding(ODD)
        wanted = sorted(ODD, key=str.encode)
        for index, name in enumerate(wanted, start=1):
            assert ids(walk(side, after=name, limit=100)) == wanted[index:]
            assert ids(walk(side, upto=name, limit=100)) == wanted[:index]

    def test_pages_of_any_size_from_any_point_hold_every_account_once(self) -> None:
        for paging in self.pagings:
            side = self.holding(FIVE, paging=paging)
            for limit in range(1, len(FIVE) + 2):
                for after in (None, *points(FIVE)):
                    assert ids(walk(side, after=after, limit=limit)) == between(FIVE, after)

    def test_wherever_reading_stops_it_goes_on_with_the_next_account(self) -> None:
        """After every single account: none is read twice, none is lost."""
        for paging in self.pagings:
            side = self.holding(FIVE, paging=paging)
            for limit in (1, 2, 3):
                seen: list[str] = []
                while (page := first(side, after=seen[-1] if seen else None, limit=limit)).rows:
                    assert len(seen) < len(FIVE), "it does not end"
                    seen.append(page.rows[0].account_id)
                assert seen == list(FIVE)

    def test_no_page_holds_more_than_was_asked_for(self) -> None:
        side = self.holding(FIVE)
        for limit in range(1, len(FIVE) + 2):
            for after in (None, *points(FIVE)):
                assert len(first(side, after=after, limit=limit).rows) <= limit

    def test_nothing_beyond_the_upper_bound_is_read_and_nothing_up_to_it_is_left_out(self) -> None:
        for paging in self.pagings:
            side = self.holding(FIVE, paging=paging)
            for limit in (1, 3):
                for upto in points(FIVE):
                    for after in (None, *(point for point in points(FIVE)[::3] if point < upto)):
                        assert ids(walk(side, after=after, upto=upto, limit=limit)) == between(FIVE, after, upto)

    def test_the_last_account_is_followed_by_the_end(self) -> None:
        for paging in self.pagings:
            side = self.holding(FIVE, paging=paging)
            for upto in (None, FIVE[-1], "b"):
                assert ids(walk(side, after=FIVE[-2], upto=upto, limit=1)) == [FIVE[-1]]
            assert ids(walk(side, after=FIVE[-1], limit=1)) == []

    def test_an_empty_store_is_at_its_end(self) -> None:
        for paging in self.pagings:
            side = self.holding((), paging=paging)
            for after, upto in ((None, None), ("a", None), (None, "a"), ("a", "b")):
                assert ids(walk(side, after=after, upto=upto, limit=2)) == []

    def test_reading_goes_on_behind_an_account_that_is_gone(self) -> None:
        for gone in FIVE:
            side = self.holding(FIVE)
            assert gone in ids(walk(side, limit=3))
            left = [name for name in FIVE if name != gone]
            self.holding(left)
            for limit in (1, 3):
                assert ids(walk(side, after=gone, limit=limit)) == between(left, gone)
                assert ids(walk(side, upto=gone, limit=limit)) == between(left, None, gone)

    def test_accounts_that_come_and_go_are_seen_ahead_and_not_behind(self) -> None:
        side = self.holding(FIVE)
        assert ids(walk(side, upto=FIVE[2], limit=3)) == list(FIVE[:3])
        now = ["acct-0", "acct-2", "acct-2a", "acct-3", "acct-3a", "acct-5", "acct-9"]
        self.holding(now)
        assert ids(walk(side, after=FIVE[2], limit=3)) == ["acct-3a", "acct-5", "acct-9"]
        assert ids(walk(side, limit=3)) == now, "nothing is kept from an earlier read"

    def test_what_a_page_goes_on_to_may_be_gone_by_then(self) -> None:
        side = self.holding(FIVE)
        on = first(side, limit=3).more_after
        assert on is not None
        self.holding(between(FIVE, None, on))
        assert ids(walk(side, after=on, limit=3)) == []

    def test_a_read_can_be_repeated_in_any_order(self) -> None:
        side = self.holding(FIVE)
        bounds = [(after, upto) for after in (None, *points(FIVE)[::2]) for upto in (None, FIVE[3])]
        bounds = [(after, upto) for after, upto in bounds if after is None or upto is None or after < upto]
        once = [first(side, after=after, upto=upto, limit=2) for after, upto in bounds]
        again = [first(side, after=after, upto=upto, limit=2) for after, upto in reversed(bounds)]
        assert once == again[::-1]

    def test_any_thread_may_go_on_where_another_one_stopped(self) -> None:
        """One at a time: a helper reads ahead."""
        side = self.holding(FIVE)
        assert first(side, limit=1).rows[0].account_id == FIVE[0]
        with ThreadPoolExecutor(max_workers=1) as another:
            for after, follows in pairwise(FIVE):
                page = another.submit(first, side, after=after, limit=1).result()
                assert page.rows == first(side, after=after, limit=1).rows
                assert page.rows[0].account_id == follows

    def test_a_bound_may_be_an_id_that_no_table_can_hold(self) -> None:
        names = sorted(("a", "x", "x" * 1_001, "xx", "y"))
        side = self.holding(names)
        for bound in NO_IDS:
            for limit in (1, 10):
                assert ids(walk(side, after=bound, limit=limit)) == between(names, bound)
                assert ids(walk(side, upto=bound, limit=limit)) == between(names, None, bound)

    def test_every_account_is_in_its_segment_and_in_no_other(self) -> None:
        names = [f"acct-{index:02}" for index in range(20)]
        for count in self.segment_counts:
            side = self.holding(names, segments=count)
            for segment in keys.segments(count):
                wanted = [name for name in names if keys.segment_of(name, count) == segment]
                for limit in (1, 3, 20):
                    assert ids(walk(side, segment, limit=limit)) == wanted

    def test_the_bounds_hold_within_each_segment(self) -> None:
        """Most of them are the ids of other segments' accounts."""
        names = [f"acct-{index:02}" for index in range(20)]
        for count in self.segment_counts:
            side = self.holding(names, segments=count)
            for segment in keys.segments(count):
                own = [name for name in names if keys.segment_of(name, count) == segment]
                for upto in names[::3]:
                    for after in (None, names[4]):
                        if after is None or after < upto:
                            pages = walk(side, segment, after=after, upto=upto, limit=3)
                            assert ids(pages) == between(own, after, upto)


def first(side: Side[Any], *, after: str | None = None, upto: str | None = None, limit: int) -> Page[Any]:
    """The first page that has rows, or is the end."""
    pages = walk(side, after=after, upto=upto, limit=limit)
    return next((page for page in pages if page.rows), pages[-1])


def walk(
    side: Side[Any], segment: str = "000", *, after: str | None = None, upto: str | None = None, limit: int
) -> list[Page[Any]]:
    """Every page to the end, each of them checked as a run checks it."""
    pages: list[Page[Any]] = []
    at = after
    while True:
        page = side.read(segment, after=at, upto=upto, limit=limit).checked(at, upto)
        assert len(page.rows) <= limit
        pages.append(page)
        if page.more_after is None:
            return pages
        assert len(pages) < 1_000, "it does not end"
        at = page.more_after


def ids(pages: Sequence[Page[Any]]) -> list[str]:
    return [row.account_id for page in pages for row in page.rows]


def points(names: Sequence[str]) -> list[str]:
    """Every id, one below all, one in each gap and one above all."""
    gaps = [f"{name}!" for name in names]
    found = sorted({"A", *names, *gaps})
    assert all(one < other for one, other in pairwise(found))
    return found


def between(names: Sequence[str], after: str | None, upto: str | None = None) -> list[str]:
    return [name for name in names if (after is None or name > after) and (upto is None or name <= upto)]
