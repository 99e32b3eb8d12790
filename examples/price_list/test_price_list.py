"""The price list keeps the contract and the promises: copied to `tests/` together with the three files of the job."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from reconciler import keys
from reconciler.diff import decide
from reconciler.errors import TransientFailure
from reconciler.merge import Pair, Side
from reconciler.source import PriceList, SourceRecord
from reconciler.view import ShopPrices, ViewRow
from tests.contract import PLAIN, SourceContract
from tests.faults import Wire, meanwhile
from tests.kit import killed, later, ordered
from tests.test_contract import TableContract
from tests.world import NIGHT, World


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty price list."""
    path = tmp_path / "prices.db"
    monkeypatch.setenv("PRICE_LIST", str(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE prices (sku TEXT NOT NULL PRIMARY KEY, net TEXT, currency TEXT, listed INT)")
    return path


def fill(path: Path, rows: Sequence[tuple[str, str, str, bool]]) -> None:
    """The supplier's list from now on."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM prices")
        connection.executemany("INSERT INTO prices VALUES (?, ?, ?, ?)", rows)


# the contract


class TestPriceList(SourceContract):
    @pytest.fixture(autouse=True)
    def _store(self, world: World, path: Path) -> None:
        self.world, self.path = world, path

    def holding(self, ids: Sequence[str], *, segments: int = 1, paging: str = PLAIN) -> Side[Any]:
        self.world.set(segment_count=segments)
        fill(self.path, [(name, "1.00", "EUR", True) for name in ids])
        return PriceList(self.world.invocation())


class TestShopPrices(TableContract):
    table = "EntitlementsTable"

    @pytest.fixture(autouse=True)
    def _world(self, world: World) -> None:
        self.begin(world)

    def side(self) -> Side[Any]:
        return ShopPrices(self.world.invocation())


def test_a_list_that_does_not_answer_costs_no_attempt(world: World, path: Path) -> None:
    path.unlink()
    with pytest.raises(TransientFailure, match="does not answer"):
        PriceList(world.invocation()).read("000", after=None, upto=None, limit=1)


# the decisions


def listed(net: object = "10.00", currency: object = "EUR", listed: object = 1) -> SourceRecord:
    return SourceRecord("sku", net, currency, listed)


def shown(price: object = Decimal("12.00"), currency: object = "EUR", version: object = 1) -> ViewRow:
    return ViewRow("sku", price, currency, version)


FOR_SALE = {"price": Decimal("12.00"), "currency": "EUR"}


@pytest.mark.parametrize(
    ("record", "row", "wanted"),
    [
        (listed(), None, ("granted", FOR_SALE)),
        (listed(), shown(None, None), ("granted", FOR_SALE)),
        (listed(), shown(), None),
        (listed(), shown(12), None),
        (listed("9.99"), shown(), ("changed", {"price": Decimal("11.99"), "currency": "EUR"})),
        (listed(currency="GBP"), shown(version=None), ("changed", FOR_SALE | {"currency": "GBP"})),
        (listed(listed=0), shown(), ("revoked", {})),
        (None, shown(), ("revoked", {})),
        (None, shown(None, None), None),
        (listed("1e2"), shown(), ("changed", {"price": Decimal("120.00"), "currency": "EUR"})),
        (listed("100.01"), shown(), "price leaps from 12.00 to 120.01"),
        (listed("0.99"), shown(), "price leaps from 12.00 to 1.19"),
        (listed("ten"), shown(), "source price is not between 0.01 and 1000000"),
        (listed("NaN"), None, "source price is not between 0.01 and 1000000"),
        (listed(10), None, "source price is not between 0.01 and 1000000"),
        (listed(currency="FRF"), None, "source currency is not one of EUR, GBP"),
        (listed(), shown("12"), "view has half a price, or one that is no number"),
        (listed(), shown(currency=None), "view has half a price, or one that is no number"),
        (listed(), shown(version="1"), "view version is not a whole number"),
    ],
)
def test_what_a_price_needs(record: SourceRecord | None, row: ViewRow | None, wanted: object) -> None:
    decision = decide(Pair("sku", record, row))
    effect = decision.effect and (decision.effect.kind, decision.effect.content)
    assert (effect or decision.rejection) == wanted


# a night


def rows(world: World) -> dict[str, tuple[object, object, object]]:
    """Price, currency and version by SKU."""
    return {
        row["account_id"]: (row.get("price"), row.get("currency"), row.get("version"))
        for row in world.scan("EntitlementsTable")
    }


@pytest.fixture
def night(world: World, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A grant, a change, a row without version, a leap, one as it should be, a revocation, a row nobody lists."""
    fill(
        path,
        [
            ("a", "10.00", "EUR", True),
            ("b", "20.00", "EUR", True),
            ("c", "30.00", "EUR", True),
            ("d", "4000", "EUR", True),
            ("e", "50.00", "EUR", True),
            ("f", "60.00", "EUR", False),
        ],
    )
    for name, price, version in (("b", 23, 4), ("c", 35, None), ("d", 48, 1), ("e", 60, 1), ("f", 72, 1), ("g", 84, 2)):
        extra = {} if version is None else {"version": version}
        world.put("EntitlementsTable", name, price=price, currency="EUR", **extra)
    world.set(range_size=2, page_size=2)
    with world.deployed(monkeypatch):
        yield world


AFTER = {
    "a": (12, "EUR", 1),
    "b": (24, "EUR", 5),
    "c": (36, "EUR", 1),
    "d": (48, "EUR", 1),
    "e": (60, "EUR", 1),
    "f": (None, None, 2),
    "g": (None, None, 3),
}


def test_a_night_that_is_killed_goes_on_and_does_nothing_twice(night: World) -> None:
    told = ordered(night, "Preview")
    assert (told["granted"], told["changed"], told["revoked"], told["rejected"]) == (1, 2, 2, 1)
    assert {row["account_id"]: row["after"] for row in told["first"]}["f"] == "{}"
    killed(night, Wire(night.client), "commit", 3)
    assert rows(night)["c"] == (36, "EUR", 1)
    assert rows(night)["f"] == (72, "EUR", 1)
    assert later(night)[0].outcome == "completed"
    assert rows(night) == AFTER
    record = night.interval()
    assert (record["granted"], record["changed"], record["revoked"], record["rejected"]) == (1, 2, 2, 1)
    verified = ordered(night, "Verify", interval=NIGHT)
    assert (verified["matches"], verified["touched"]) == (True, 0)


@pytest.mark.parametrize("name", ["b", "c"], ids=["by its version", "without one, by what it says"])
def test_a_price_that_somebody_sets_meanwhile_is_read_again_and_never_overwritten(
    night: World, path: Path, name: str
) -> None:
    def somebody() -> None:
        """The source first, then the view, with a new version where there is one."""
        fill(path, [("a", "10.00", "EUR", True), (name, "25.00", "EUR", True)])
        extra = {"version": 5} if name == "b" else {}
        night.put("EntitlementsTable", name, price=30, currency="EUR", **extra)

    wire = Wire(night.client)
    wire.next("commit", *([meanwhile(lambda: None)] if name == "c" else []), meanwhile(somebody))
    assert night.run("nightly")[0].outcome == "completed"
    assert rows(night)[name] == (30, "EUR", 5 if name == "b" else None)
    assert night.counted()["RangeConflicts"] == 1


def test_several_segments_share_the_list(world: World, path: Path) -> None:
    names = [f"sku-{index:02}" for index in range(20)]
    world.set(segment_count=3, page_size=4)
    fill(path, [(name, "10.00", "EUR", True) for name in names])
    assert [result.outcome for result in world.run("nightly")] == ["completed"] * 3
    found = {row["account_id"]: row["segment"] for row in world.scan("EntitlementsTable")}
    assert found == {name: keys.segment_of(name, 3) for name in names}
