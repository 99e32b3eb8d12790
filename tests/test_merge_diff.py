"""Two ordered streams become ranges, and ranges become effects: pure, so one line of data in and one out."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from decimal import Decimal
from enum import IntEnum
from hashlib import sha256
from itertools import pairwise, product
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.checksum import canonical, digest, hex_text, same
from reconciler.decisions import MAX_BYTES, MAX_EFFECTS, Decision, rejected, take_range, totals
from reconciler.diff import decide
from reconciler.errors import SourceOrderError
from reconciler.items import MAX_ITEM_BYTES
from reconciler.merge import Buffer, Page, Pair, merge
from reconciler.read_ahead import Ask, Asked
from reconciler.scan import Sides
from reconciler.source import SourceRecord
from reconciler.totals import Totals
from reconciler.view import ViewRow
from tests.kit import Rows

GOLD: dict[str, object] = {"plan": "gold"}
SILVER: dict[str, object] = {"plan": "silver"}


def record(account_id: str, entitlements: object = None, status: object = "active") -> SourceRecord:
    return SourceRecord(account_id, status, GOLD if entitlements is None else entitlements)


def row(account_id: str, entitlements: object = None, version: object = 1) -> ViewRow:
    return ViewRow(account_id, GOLD if entitlements is None else entitlements, version)


# ------------------------------------------------------------------------------------------------------------ merging

ids = st.text("ab/#é\uffff💡", min_size=1, max_size=4)
id_sets = st.lists(ids, unique=True, max_size=24).map(sorted)


@given(id_sets, id_sets)
def test_merging_gives_every_account_of_either_side_once_in_order(source: list[str], view: list[str]) -> None:
    pairs = merge([record(name) for name in source], [row(name) for name in view])
    assert [pair.account_id for pair in pairs] == sorted({*source, *view}, key=str.encode)
    for pair in pairs:
        assert (pair.record is not None, pair.row is not None) == (pair.account_id in source, pair.account_id in view)


class Later(Asked):
    """A page that is read when it is needed, as by a helper that comes to it last."""

    def __init__(self, read: Callable[[], Page[SourceRecord]]) -> None:
        self.page = read  # type: ignore[method-assign]


def at_once(read: Callable[[], Page[SourceRecord]]) -> Asked:
    """A page that is read when it is asked for, as by a helper that comes to it first."""
    page: Future[Page[SourceRecord]] = Future()
    page.set_result(read())
    return Asked(page)


def never(read: Callable[[], Page[SourceRecord]]) -> None:
    """For want of time."""


ASKS = (at_once, Later, never)


@given(id_sets, id_sets, st.integers(1, 6), st.data())
def test_a_scan_judges_every_account_once_whatever_the_pages_and_from_any_point(
    source: list[str], view: list[str], limit: int, data: st.DataObject
) -> None:
    """Pages may end early, as DynamoDB's do at 1 MB, and be empty, and be read ahead."""

    def cut(limit: int) -> int:
        return data.draw(st.integers(1, limit))

    after = data.draw(st.none() | ids)
    sides = Sides(Rows([record(n) for n in source], cut), Rows([row(n) for n in view], cut), "000", limit)
    ahead = data.draw(st.booleans())
    pages = list(sides.pages(after, (lambda read: data.draw(st.sampled_from(ASKS))(read)) if ahead else None))
    judged = [pair for page in pages for pair in page]
    wanted = [name for name in sorted({*source, *view}) if after is None or name > after]
    assert [pair.account_id for pair in judged] == wanted
    for pair in judged:
        assert (pair.record is not None) == (pair.account_id in source)
        assert (pair.row is not None) == (pair.account_id in view)


@given(id_sets, id_sets, st.integers(1, 6), st.sampled_from((None, *ASKS)))
def test_the_view_is_read_before_the_source_for_the_same_accounts(
    source: list[str], view: list[str], limit: int, ask: Ask | None
) -> None:
    """So what the view says is never newer than what the source says, and a stale decision meets a changed version."""
    read_at: dict[tuple[str, str], int] = {}
    moments = iter(range(10_000))

    class Timed(Rows[Any]):
        name = ""

        def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[Any]:
            page = super().read(segment, after=after, upto=upto, limit=limit)
            moment = next(moments)
            end = page.rows[-1].account_id if page.more_after else upto
            read_at.update(
                {(self.name, n): moment for n in {*source, *view} if n > (after or "") and (end is None or n <= end)}
            )
            return page

    class Source(Timed):
        name = "source"

    class View(Timed):
        name = "view"

    sides = Sides(Source([record(n) for n in source]), View([row(n) for n in view]), "000", limit)
    for judged in ([one for page in sides.pages(None, ask) for one in page], sides.between(None, "\uffff")):
        for decision in judged:
            assert read_at["view", decision.account_id] < read_at["source", decision.account_id]


@given(id_sets, id_sets, st.integers(1, 6), st.none() | ids, ids)
def test_reading_a_range_again_judges_exactly_its_accounts(
    source: list[str], view: list[str], limit: int, after: str | None, upto: str
) -> None:
    sides = Sides(Rows([record(n) for n in source]), Rows([row(n) for n in view]), "000", limit)
    wanted = [n for n in sorted({*source, *view}) if (after is None or n > after) and n <= upto]
    assert [decision.account_id for decision in sides.between(after, upto)] == wanted


@pytest.mark.parametrize("ask", [None, *ASKS])
@pytest.mark.parametrize("accounts", [0, 1, 99, 100, 101, 1_000])
def test_the_source_is_read_as_often_as_it_has_pages(accounts: int, ask: Ask | None) -> None:
    names = [f"acct-{index:05d}" for index in range(accounts)]
    source, view = Rows([record(n) for n in names]), Rows([row(n) for n in names])
    list(Sides(source, view, "000", 100).pages(None, ask))
    assert len(source.reads) <= accounts // 100 + 1
    assert len(view.reads) <= accounts // 100 + 1


def read_ahead(source: Sequence[str], view: Sequence[str], limit: int, view_page: int) -> tuple[int, int, int]:
    """How many pages of the source were read without and with reading ahead, and how many of these ahead."""
    ahead = 0

    def ask(read: Callable[[], Page[SourceRecord]]) -> Asked:
        nonlocal ahead
        ahead += 1
        return at_once(read)

    reads = []
    for asks in (None, ask):
        side = Rows([record(n) for n in source])
        pages = Sides(side, Rows([row(n) for n in view], lambda _: view_page), "000", limit).pages(None, asks)
        assert [pair.account_id for page in pages for pair in page] == sorted({*source, *view})
        reads.append(len(side.reads))
    return reads[0], reads[1], ahead


@pytest.mark.parametrize("rows_for_each", [1.0, 1.4, 2, 4, 5, 6, 7, 8])
def test_a_view_of_many_rows_that_the_source_lacks_costs_no_more_reads_for_reading_ahead(rows_for_each: float) -> None:
    """Revoked accounts keep their rows."""
    view = [f"{index:06d}" for index in range(2_000)]
    without, with_it, ahead = read_ahead(sorted(Random(1).sample(view, round(2_000 / rows_for_each))), view, 20, 20)
    assert with_it <= without + 1
    assert rows_for_each > 2 or ahead >= 0.9 * with_it


@pytest.mark.parametrize("view_page", [7, 10, 30, 46, 49, 50, 51, 66, 100])
def test_however_small_the_views_pages_are_nearly_every_page_of_the_source_is_read_ahead(view_page: int) -> None:
    names = [f"{index:06d}" for index in range(3_000)]
    _, pages, ahead = read_ahead(names, names, 100, view_page)
    assert ahead >= pages - 3


def test_what_lies_beyond_a_page_is_no_orphan() -> None:
    """The view has five rows, the first source page two: the other three are not judged by it."""
    names = "abcde"
    sides = Sides(Rows([record(n) for n in names], lambda limit: 2), Rows([row(n) for n in names]), "000", 5)
    assert [len(page) for page in sides.pages(None)] == [2, 2, 1]
    assert not any(decide(pair).writes for page in sides.pages(None) for pair in page)


@pytest.mark.parametrize(
    ("rows", "more_after", "problem"),
    [
        ("ba", None, "'a' came after 'b'"),
        ("aa", None, "'a' came after 'a'"),
        ("A", None, "'A' came after 'B'"),
        ("z", None, "'z' lies beyond 'y'"),
        ("ab", "a", "go on after 'a'"),
        ("", "B", "go on after 'B'"),
    ],
)
def test_a_page_that_breaks_the_contract_of_a_side_is_refused(rows: str, more_after: str | None, problem: str) -> None:
    with pytest.raises(SourceOrderError, match=problem):
        Page(tuple(record(name) for name in rows), more_after).checked("B", "y")


def test_order_is_by_utf8_bytes() -> None:
    """UTF-8 keeps the order of code points; UTF-16 would put the last two the other way round."""
    page = Page((record("Z"), record("a"), record("é"), record("\uffff"), record("💡")), None)
    assert page.checked(None, None) is page


def test_a_buffer_keeps_what_lies_beyond_a_page() -> None:
    buffer: Buffer[ViewRow] = Buffer()
    buffer = buffer.extended(Page((row("a"), row("c")), "c"))
    assert buffer.horizon == "c"
    taken, rest = buffer.split("b")
    assert [one.account_id for one in taken] == ["a"]
    assert [one.account_id for one in rest.rows] == ["c"]
    assert rest.extended(Page((), None)).horizon is None


# ----------------------------------------------------------------------------------------------------------- deciding


@pytest.mark.parametrize(
    ("source", "view", "decision"),
    [
        pytest.param(record("a"), None, ("granted", GOLD), id="new"),
        pytest.param(record("a"), row("a", {}), ("granted", GOLD), id="revoked before"),
        pytest.param(record("a"), row("a", SILVER), ("changed", GOLD), id="differs"),
        pytest.param(record("a"), row("a"), None, id="equal"),
        pytest.param(record("a", {"x": 1, "y": 2}), row("a", {"y": 2, "x": 1}), None, id="equal in another order"),
        pytest.param(record("a", {"x": Decimal("1.0")}), row("a", {"x": 1}), None, id="equal in another notation"),
        pytest.param(record("a", {"x": True}), row("a", {"x": 1}), ("changed", {"x": True}), id="flag and number"),
        pytest.param(record("a", {"x": "1"}), row("a", {"x": 1}), ("changed", {"x": "1"}), id="text and number"),
        pytest.param(None, row("a"), ("revoked", {}), id="absent"),
        pytest.param(record("a", status="cancelled"), row("a"), ("revoked", {}), id="cancelled"),
        pytest.param(record("a", {}), row("a"), ("revoked", {}), id="active without entitlements"),
        pytest.param(None, row("a", {}), None, id="absent, revoked before"),
        pytest.param(record("a", status="cancelled"), None, None, id="cancelled, never granted"),
        pytest.param(record("a", "junk", "cancelled"), row("a"), ("revoked", {}), id="cancelled, whatever it held"),
        pytest.param(record("a"), row("a", SILVER, None), ("changed", GOLD), id="row without version"),
    ],
)
def test_what_an_account_needs(
    source: SourceRecord | None, view: ViewRow | None, decision: tuple[str, dict[str, object]] | None
) -> None:
    decided = decide(Pair("a", source, view))
    assert decided.rejection is None
    assert (decided.effect and (decided.effect.kind, decided.effect.content)) == decision


@pytest.mark.parametrize(
    ("source", "view", "reason"),
    [
        (record("a", status=None), None, "source status"),
        (record("a", status="Active"), None, "source status"),
        (record("a", "gold"), None, "source entitlements are not a map"),
        (record("a", ["gold"]), row("a"), "source entitlements are not a map"),
        (record("a", {"x": None}), None, "source entitlement 'x'"),
        (record("a", {"x": ["y"]}), None, "source entitlement 'x'"),
        (record("a", {"x": 0.5}), None, "source entitlement 'x'"),
        (record("a"), row("a", "gold"), "view entitlements are not a map"),
        (None, row("a", {"x": {"y": 1}}), "view entitlement 'x'"),
        (record("a"), row("a", SILVER, "one"), "view version"),
        (record("a"), row("a", SILVER, True), "view version"),
        (record("a"), row("a", SILVER, Decimal("1.5")), "view version"),
    ],
)
def test_an_account_that_cannot_be_read_is_rejected_with_the_reason(
    source: SourceRecord | None, view: ViewRow | None, reason: str
) -> None:
    decided = decide(Pair("a", source, view))
    assert decided.effect is None
    assert decided.rejection is not None
    assert decided.rejection.startswith(reason)


HUGE = {"plan": "x" * (MAX_ITEM_BYTES - 450)}
"""With the rest of its row too large, if that is as large as it can be."""


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (row("a", HUGE), None),
        (None, "source entitlements make a row of"),
        (row("a", SILVER), "source entitlements make a row of"),
        (row("a", "gold"), "source entitlements make a row of"),
        (row("a", HUGE, "one"), "source entitlements make a row of"),
    ],
)
def test_only_what_would_be_written_has_to_fit_into_a_row(view: ViewRow | None, reason: str | None) -> None:
    decided = decide(Pair("a", record("a", HUGE), view))
    assert decided.effect is None
    assert decided.rejection is None if reason is None else (decided.rejection or "").startswith(reason)


def test_a_row_that_is_too_large_can_be_revoked() -> None:
    assert decide(Pair("a", record("a", HUGE, "cancelled"), row("a", HUGE))).revokes


# ------------------------------------------------------------------------------------------------------------- ranges

NOTHING = decide(Pair("a", record("a"), row("a")))
GRANTED = decide(Pair("a", record("a"), None))
REVOKED = decide(Pair("a", None, row("a")))
REJECTED = rejected(NOTHING, "no reason")
BIG = decide(Pair("a", record("a", {"x": "y" * 300_000}), None))
BIG_WITHOUT_VERSION = decide(Pair("a", record("a", {"x": "y" * 300_000}), row("a", {"x": "z" * 300_000}, None)))


@pytest.mark.parametrize(
    ("decisions", "size", "taken"),
    [
        ([], 10, 0),
        ([NOTHING] * 10_000, 5_000, 5_000),
        ([NOTHING] * 3, 5_000, 3),
        ([GRANTED] * 200, 5_000, 98),
        ([REJECTED] * 200, 5_000, 98),
        ([GRANTED, REJECTED] * 100, 5_000, 98),
        ([REVOKED] * 200, 5_000, 97),
        ([GRANTED] * 97 + [REVOKED] * 2, 5_000, 97),
        ([GRANTED] * 96 + [REVOKED] * 2, 5_000, 97),
        ([REVOKED] + [GRANTED] * 200, 5_000, 97),
        ([GRANTED] * 98 + [NOTHING] * 50, 5_000, 148),
        ([BIG] * 50, 5_000, 11),
        ([BIG_WITHOUT_VERSION] * 50, 5_000, 5),
        ([GRANTED] * 200, 1, 1),
    ],
)
def test_a_range_ends_at_its_size_and_at_what_a_transaction_takes(
    decisions: list[Decision], size: int, taken: int
) -> None:
    """100 actions, of which LEASE and PROGRESS take two, and INTERVAL one as soon as something is revoked."""
    assert take_range(decisions, size) == taken


@given(
    st.lists(
        st.sampled_from([NOTHING, GRANTED, REVOKED, REJECTED, BIG, BIG_WITHOUT_VERSION]), min_size=1, max_size=250
    ),
    st.integers(1, 300),
)
def test_a_range_is_never_empty_never_too_much_and_never_smaller_than_it_must_be(
    decisions: list[Decision], size: int
) -> None:
    taken = take_range(decisions, size)
    assert 1 <= taken <= min(size, len(decisions))
    assert taken == 1 or fits(decisions[:taken])
    assert taken == min(size, len(decisions)) or not fits(decisions[: taken + 1])


def fits(decisions: Sequence[Decision]) -> bool:
    actions = 2 + any(decision.revokes for decision in decisions) + sum(decision.writes for decision in decisions)
    texts = [canonical(d.effect.content) for d in decisions if d.effect]
    conditions = [
        canonical(d.pair.row.entitlements) for d in decisions if d.effect and d.pair.row and not d.pair.row.version
    ]
    extra = 1_000 * sum(decision.writes for decision in decisions)
    return actions <= MAX_EFFECTS + 2 and sum(map(len, texts + conditions)) + extra <= MAX_BYTES


# ---------------------------------------------------------------------------------------------- totals and checksums

numbers = st.integers(-(10**20), 10**20) | st.decimals("-1e9", "1e9", places=4)
entitlement_maps = st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.booleans() | numbers, max_size=5)
views = st.dictionaries(st.text(min_size=1, max_size=6), entitlement_maps, max_size=12)


@given(views, st.randoms())
def test_the_checksum_does_not_depend_on_the_order_or_on_the_ranges(view: dict[str, Any], chance: Any) -> None:
    rows = list(view.items())
    whole = hex_text(sum(digest(*one) for one in rows))
    chance.shuffle(rows)
    middle = chance.randint(0, len(rows))
    parts = [Totals(checksum=sum(digest(*one) for one in part)) for part in (rows[:middle], rows[middle:])]
    stored = [Totals.of(part.stored()) for part in parts]
    assert sum(stored, Totals()).stored()["checksum"] == whole


@given(views, st.data())
def test_the_checksum_tells_any_change_of_one_row(view: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.text(min_size=1, max_size=6))
    changed = {**view, name: data.draw(entitlement_maps)}
    same = name in view and canonical(view[name]) == canonical(changed[name])
    before, after = (hex_text(sum(digest(*one) for one in rows.items())) for rows in (view, changed))
    assert (before == after) == same


def test_the_checksum_is_the_documented_one() -> None:
    text = '["acct-1",{"active":true,"name":"\\u00e9","rate":0.5,"seats":3}]'
    row = ("acct-1", {"seats": Decimal("3.0"), "rate": Decimal("0.50"), "active": True, "name": "é"})
    assert canonical(list(row)) == text
    assert hex_text(digest(*row)) == sha256(text.encode()).hexdigest()
    assert hex_text(2 * digest(*row)) == f"{2 * int(sha256(text.encode()).hexdigest(), 16) % 2**256:064x}"
    assert hex_text(0) == "0" * 64


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+3"), "1000"),
        (Decimal("1000"), "1000"),
        (Decimal("-0"), "0"),
        (Decimal("0.000"), "0"),
        (Decimal("1E-7"), "0.0000001"),
        (2**53 + 1, "9007199254740993"),
        (Decimal(2**53 + 1), "9007199254740993"),
        (True, "true"),
        (1, "1"),
        ("1", '"1"'),
        (None, "null"),
        ({}, "{}"),
        ({"b": 1, "a": [1, {"c": False}]}, '{"a":[1,{"c":false}],"b":1}'),
        ({"b", "a"}, '["a","b"]'),
        (b"\x01", '"01"'),
    ],
)
def test_canonical_json_is_exact_sorted_and_short(value: object, text: str) -> None:
    assert canonical(value) == text


class Text(str):
    """As a provider's library may have it."""


class Level(IntEnum):
    ONE = 1


plain = st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)).map(Text) | st.just(Level.ONE)
names = st.text(st.characters(codec=None), max_size=3)


@given(st.recursive(plain, lambda some: st.lists(some) | st.dictionaries(names, some), max_leaves=5))
def test_canonical_json_is_json(value: Any) -> None:
    assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


alike = [1, True, Level.ONE, Decimal("1.0"), Decimal("1E0"), 0, False, Decimal("-0"), "1", Text("1"), "", "true"]
alike += [10**37, Decimal("1E+37"), Decimal("1E+39"), 10**39, 2**53, 2**53 + 1, Decimal(2**53 + 1), Decimal("0.10")]
few = st.dictionaries(st.sampled_from([*"abc", Text("a")]), st.sampled_from(alike), max_size=3)
kinds = st.sampled_from([dict, OrderedDict, MappingProxyType, lambda one: OrderedDict(reversed(one.items()))])


@given(few, few | st.none(), kinds, kinds)
@example({"a": 1, "b": 2}, {"b": 2, "a": 1}, OrderedDict, OrderedDict)
def test_what_is_the_same_is_the_same_canonical_json(
    one: dict[str, object], other: dict[str, object] | None, kind: Any, other_kind: Any
) -> None:
    ours, theirs = kind(one), other_kind(one if other is None else other)
    assert same(ours, theirs) == (canonical(ours) == canonical(theirs))


def test_one_value_is_the_same_as_another_that_has_its_canonical_json() -> None:
    for value, other in product(alike, alike):
        assert same({"a": value}, {"a": other}) == (canonical(value) == canonical(other)), (value, other)


@given(numbers)
def test_equal_numbers_have_one_notation_and_different_ones_two(number: Any) -> None:
    assert canonical(Decimal(number)) == canonical(number)
    assert Decimal(canonical(number)) == number


def test_totals_count_what_a_range_leaves_behind() -> None:
    """Rejected rows count for the checksum as they are, rows that were never there do not."""
    granted = decide(Pair("a", record("a"), None))
    kept = decide(Pair("b", record("b"), row("b")))
    revoked = decide(Pair("c", None, row("c")))
    refused = decide(Pair("d", record("d", "junk"), row("d", SILVER)))
    absent = decide(Pair("e", record("e", "junk"), None))
    changed = decide(Pair("f", record("f"), row("f", SILVER)))
    left = {"a": GOLD, "b": GOLD, "c": {}, "d": SILVER, "f": GOLD}
    assert totals([granted, kept, revoked, refused, absent, changed]) == Totals(
        accounts=6,
        granted=1,
        changed=1,
        revoked=1,
        rejected=2,
        view_rows=5,
        source_rows=5,
        ranges=1,
        checksum=sum(digest(name, entitlements) for name, entitlements in left.items()),
    )


def test_a_rejected_account_leaves_its_row_as_it_is() -> None:
    given_up = rejected(decide(Pair("a", record("a"), row("a", SILVER))), "too busy")
    assert (given_up.effect, given_up.rejection) == (None, "too busy")
    assert totals([given_up]).checksum == digest("a", SILVER)


@given(st.builds(Totals, *[st.integers(0, 10**6)] * 8, checksum=st.integers(0, 2**256 - 1)))
def test_totals_survive_their_row(one: Totals) -> None:
    assert Totals.of(one.stored()) == one
    assert Totals.of((one + Totals()).stored()) == one


@given(id_sets)
def test_consecutive_ranges_cover_all_decisions(names: list[str]) -> None:
    left = [replace(GRANTED, pair=Pair(name, record(name), None)) for name in names]
    seen: list[str] = []
    while left:
        taken = take_range(left, 3)
        seen += [decision.account_id for decision in left[:taken]]
        left = left[taken:]
    assert seen == names
    assert all(one < other for one, other in pairwise(seen))
