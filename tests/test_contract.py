"""The contract of the seam, kept by every side the project ships, and noticed wherever a side breaks it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler import keys
from reconciler.errors import SourceOrderError
from reconciler.items import to_item
from reconciler.merge import Page, Side
from reconciler.source import AccountsTable
from reconciler.view import EntitlementsTable
from tests.contract import EMPTY_AT_THE_END, EMPTY_BETWEEN, FIVE, PLAIN, SourceContract, ids, walk
from tests.kit import keys_as_dynamodb_takes_them
from tests.providers import source
from tests.world import World
from tools.provider import Provider
from tools.provider_faults import Draft

ALL = (PLAIN, EMPTY_BETWEEN, EMPTY_AT_THE_END)


# ------------------------------------------------------------------------------------------------------ the sample's


class TableContract(SourceContract):
    """A table keyed `segment`, `account_id`, whose answers are made to page oddly on their way to the client."""

    pagings = ALL
    table: str
    world: World

    def side(self) -> Side[Any]:
        raise NotImplementedError

    def begin(self, world: World) -> None:
        self.world, self.held, self.paging = world, set[tuple[str, str]](), PLAIN
        events = world.client.meta.events
        events.register("provide-client-params.dynamodb.Query", keys_as_dynamodb_takes_them)
        events.register("provide-client-params.dynamodb.Query", self._asked)
        events.register("after-call.dynamodb.Query", self._answered)

    def holding(self, ids: Sequence[str], *, segments: int = 1, paging: str = PLAIN) -> Side[Any]:
        wanted = {(keys.segment_of(name, segments), name) for name in ids}
        for segment, name in self.held - wanted:
            key = to_item({"segment": segment, "account_id": name})
            self.world.client.delete_item(TableName=self.world.tables[self.table], Key=key)
        for segment, name in wanted - self.held:
            self.world.put_row(self.table, segment=segment, account_id=name, status="active", entitlements={})
        self.held, self.paging = wanted, paging
        return self.side()

    def test_a_page_that_ends_at_a_megabyte_goes_on(self) -> None:
        side = self.holding(())
        for name in FIVE:
            self.world.put_row(self.table, segment="000", account_id=name, entitlements={"plan": "x" * 300_000})
        pages = walk(side, limit=100)
        assert ids(pages) == list(FIVE)
        assert [len(page.rows) for page in pages] == [3, 2]

    def _asked(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["start"] = params.get("ExclusiveStartKey", {}).get("account_id", {}).get("S", "")

    def _answered(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        items = parsed["Items"]
        if not items or self.paging == PLAIN:
            return
        key = {name: items[-1][name] for name in ("segment", "account_id")}
        if self.paging == EMPTY_AT_THE_END:
            parsed.setdefault("LastEvaluatedKey", key)
        elif not context["start"].endswith("\x01"):
            parsed["Items"] = []
            parsed["LastEvaluatedKey"] = key | {"account_id": {"S": f"{context['start']}\x01"}}


class Accounts(TableContract):
    table = "AccountsTable"

    def side(self) -> Side[Any]:
        return AccountsTable(self.world.invocation())


class Entitlements(TableContract):
    table = "EntitlementsTable"

    def side(self) -> Side[Any]:
        return EntitlementsTable(self.world.invocation())


class TestAccountsTable(Accounts):
    @pytest.fixture(autouse=True)
    def _world(self, world: World) -> None:
        self.begin(world)


class TestAccountsTableOnTheEmulator(Accounts):
    @pytest.fixture(autouse=True)
    def _world(self, live: World) -> None:
        self.begin(live)


class TestEntitlementsTable(Entitlements):
    @pytest.fixture(autouse=True)
    def _world(self, world: World) -> None:
        self.begin(world)


class TestEntitlementsTableOnTheEmulator(Entitlements):
    @pytest.fixture(autouse=True)
    def _world(self, live: World) -> None:
        self.begin(live)


@dataclass(slots=True)
class OddProvider(Provider):
    """Its pages go on though they are empty, or though nothing is left."""

    paging: str = PLAIN

    def page(self, query: dict[str, str]) -> Draft:
        draft = Provider.page(self, query)
        if draft.accounts and self.paging == EMPTY_AT_THE_END:
            draft.on = draft.on or json.loads(draft.accounts[-1])["account_id"]
        after = query.get("after", "")
        if draft.accounts and self.paging == EMPTY_BETWEEN and not after.endswith("\x01"):
            return Draft([], f"{after}\x01")
        return draft


class TestHttpSource(SourceContract):
    pagings = ALL

    @pytest.fixture(autouse=True)
    def _provider(self, world: World) -> Iterator[None]:
        self.world = world
        with OddProvider(now=world.clock.monotonic) as self.provider:
            world.set(source="http", source_url=self.provider.url)
            world.set(source_requests_per_second=10_000.0, backfill_requests_per_second=10_000.0)
            yield

    def holding(self, ids: Sequence[str], *, segments: int = 1, paging: str = PLAIN) -> Side[Any]:
        self.world.set(segment_count=segments)
        self.provider.paging = paging
        self.provider.accounts.clear()
        for name in ids:
            self.provider.put(name, plan="gold")
        return source(self.world)


# -------------------------------------------------------------------------------------------------------- the suite's


@dataclass(slots=True)
class Store:
    """Accounts in memory."""

    ids: list[str] = field(default_factory=list)
    segments: int = 1
    paging: str = PLAIN


@dataclass(frozen=True, slots=True)
class Account:
    account_id: str


class Right:
    """A side that keeps the contract; each of those below breaks one part of it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def held(self, segment: str) -> list[str]:
        return sorted(name for name in self.store.ids if keys.segment_of(name, self.store.segments) == segment)

    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        held = self.held(segment)
        return [name for name in held if (after is None or name > after) and (upto is None or name <= upto)]

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        found = self.within(segment, after, upto)
        if found and self.store.paging == EMPTY_BETWEEN and not (after or "").endswith("\x01"):
            return Page((), f"{after or ''}\x01")
        taken = found[:limit]
        on = len(taken) < len(found) or (taken and self.store.paging == EMPTY_AT_THE_END)
        return Page(tuple(Account(name) for name in taken), taken[-1] if on else None)


class Shuffled(Right):
    def held(self, segment: str) -> list[str]:
        return sorted(super().held(segment), key=lambda name: keys.segment_of(name, 64))


class ByTheAlphabet(Right):
    def held(self, segment: str) -> list[str]:
        return sorted(super().held(segment), key=str.casefold)


class ByUtf16(Right):
    def held(self, segment: str) -> list[str]:
        return sorted(super().held(segment), key=lambda name: name.encode("utf-16-be"))


class ByNumber(Right):
    def held(self, segment: str) -> list[str]:
        return sorted(super().held(segment), key=lambda name: (0, int(name)) if name.isdecimal() else (1, name))


class Normalised(Right):
    def held(self, segment: str) -> list[str]:
        return sorted({unicodedata.normalize("NFC", name) for name in super().held(segment)})


class WithoutLeadingZeros(Right):
    def held(self, segment: str) -> list[str]:
        return sorted({name.lstrip("0") for name in super().held(segment)})


class Padded(Right):
    """As the type CHAR of SQL has it."""

    def held(self, segment: str) -> list[str]:
        return sorted({name.rstrip(" ") for name in super().held(segment)})


class CutOff(Right):
    def held(self, segment: str) -> list[str]:
        return sorted({name[:255] for name in super().held(segment)})


class DropsTheFirst(Right):
    """An exclusive bound, moved on by one more."""

    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        return super().within(segment, after, upto)[after is not None :]


class RepeatsTheLast(Right):
    """>= where > was meant."""

    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        found = super().within(segment, after, upto)
        return [after, *found] if after in self.held(segment) else found


class IgnoresUpto(Right):
    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        return super().within(segment, after, None)


class StopsShortOfUpto(Right):
    """< where <= was meant."""

    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        return [name for name in super().within(segment, after, upto) if name != upto]


class LooksUpTheEndInItsSegment(Right):
    """Up to the row of that id; all, where the segment has none."""

    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        theirs = upto in self.store.ids and upto not in self.held(segment)
        return super().within(segment, after, None if theirs else upto)


class LooksUpItsPosition(Right):
    def within(self, segment: str, after: str | None, upto: str | None) -> list[str]:
        found = super().within(segment, after, upto)
        return found if after is None or after in self.held(segment) else []


class AnotherSegmentsToo(Right):
    def held(self, segment: str) -> list[str]:
        return sorted(self.store.ids)


class Changed(Right):
    """Answers as the right side does, and then something is done to the answer."""

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        return self.changed(super().read(segment, after=after, upto=upto, limit=limit), upto, limit)

    def changed(self, page: Page[Account], upto: str | None, limit: int) -> Page[Account]:
        raise NotImplementedError


class EndsAtAnEmptyPage(Changed):
    def changed(self, page: Page[Account], upto: str | None, limit: int) -> Page[Account]:
        return page if page.rows else Page((), None)


class EndsAtAShortPage(Changed):
    def changed(self, page: Page[Account], upto: str | None, limit: int) -> Page[Account]:
        return page if len(page.rows) == limit else Page(page.rows, None)


class NeverEnds(Right):
    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        page = super().read(segment, after=after, upto=upto, limit=limit)
        last = page.rows[-1].account_id if page.rows else after or ""
        return page if page.more_after or upto else Page(page.rows, f"{last}!")


class AlwaysGivesThree(Right):
    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        return super().read(segment, after=after, upto=upto, limit=max(limit, 3))


class GoesOnBehindTheRowThatItLeftOut(Right):
    """Reads one row more to know whether there is more, and goes on behind that one."""

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        page = super().read(segment, after=after, upto=upto, limit=limit + 1)
        return Page(page.rows[:limit], page.more_after)


class KeepsItsCursor(Right):
    """Goes on where it was, whatever it is asked for."""

    cursor: str | None = None

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        page = super().read(segment, after=None if after is None else self.cursor, upto=upto, limit=limit)
        self.cursor = page.more_after
        return page


class KeepsWhatItRead(Right):
    """One download for all reads."""

    kept: list[str] | None = None

    def held(self, segment: str) -> list[str]:
        if self.kept is None:
            self.kept = sorted(self.store.ids)
        return [name for name in self.kept if keys.segment_of(name, self.store.segments) == segment]


class TakesNoOddBound(Right):
    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Account]:
        for bound in (after, upto):
            if bound is not None and not 0 < len(bound.encode()) <= 1_024:
                raise ValueError("no such id")
        return super().read(segment, after=after, upto=upto, limit=limit)


def broken_by(made: type[Right]) -> set[str]:
    """The names of the contract's tests that a side fails."""

    class Memory(SourceContract):
        pagings = ALL

        def __init__(self) -> None:
            self.store = Store()

        def holding(self, ids: Sequence[str], *, segments: int = 1, paging: str = PLAIN) -> Side[Any]:
            self.store.ids, self.store.segments, self.store.paging = list(ids), segments, paging
            return made(self.store)

    failed = set()
    for name in TESTS:
        try:
            getattr(Memory(), name)()
        except (AssertionError, SourceOrderError, ValueError):
            failed.add(name.removeprefix("test_"))
    return failed


TESTS = [name for name in vars(SourceContract) if name.startswith("test_")]

BREAKS: dict[type[Right], str] = {
    Shuffled: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    ByTheAlphabet: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    ByUtf16: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    ByNumber: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    Normalised: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    WithoutLeadingZeros: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    Padded: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    LooksUpTheEndInItsSegment: "the_bounds_hold_within_each_segment",
    CutOff: "ids_are_kept_exactly_and_ordered_by_their_bytes",
    DropsTheFirst: "wherever_reading_stops_it_goes_on_with_the_next_account",
    RepeatsTheLast: "pages_of_any_size_from_any_point_hold_every_account_once",
    IgnoresUpto: "nothing_beyond_the_upper_bound_is_read_and_nothing_up_to_it_is_left_out",
    StopsShortOfUpto: "nothing_beyond_the_upper_bound_is_read_and_nothing_up_to_it_is_left_out",
    LooksUpItsPosition: "reading_goes_on_behind_an_account_that_is_gone",
    AnotherSegmentsToo: "every_account_is_in_its_segment_and_in_no_other",
    EndsAtAnEmptyPage: "pages_of_any_size_from_any_point_hold_every_account_once",
    EndsAtAShortPage: "pages_of_any_size_from_any_point_hold_every_account_once",
    NeverEnds: "an_empty_store_is_at_its_end",
    AlwaysGivesThree: "no_page_holds_more_than_was_asked_for",
    GoesOnBehindTheRowThatItLeftOut: "pages_of_any_size_from_any_point_hold_every_account_once",
    KeepsItsCursor: "a_read_can_be_repeated_in_any_order",
    KeepsWhatItRead: "accounts_that_come_and_go_are_seen_ahead_and_not_behind",
    TakesNoOddBound: "a_bound_may_be_an_id_that_no_table_can_hold",
}
"""A side that breaks the contract → the test whose business that is."""


def test_a_side_that_keeps_the_contract_passes() -> None:
    assert broken_by(Right) == set()


@pytest.mark.parametrize("made", BREAKS, ids=lambda made: made.__name__)
def test_a_side_that_breaks_the_contract_fails(made: type[Right]) -> None:
    assert BREAKS[made] in broken_by(made)


def test_no_test_of_the_contract_passes_whatever_a_side_does() -> None:
    found = set().union(*map(broken_by, BREAKS))
    assert {f"test_{name}" for name in found} == set(TESTS)
