"""What is known of the tables and the accounts, read from moto itself and not from what workers say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table

from reconciler import keys
from reconciler.checksum import digest
from reconciler.items import Row, from_item
from reconciler.settings import Settings
from tests.simulator.clock import Time
from tests.world import JOB

BEFORE_ALL = -1
SIDES = ("AccountsTable", "EntitlementsTable")
"""The step of whatever was there from the beginning."""


def stored(table: str) -> Table:
    """moto's own table."""
    return dynamodb_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].tables[table]


def _plain(item: Item) -> Row:
    return from_item(item.to_json()["Attributes"])


@dataclass(slots=True)
class Ledger:
    """Accounts and commits as they really were; `step` counts the messages applied so far.

    `stands` is the step from which a side has held an account's row, `touched` that of the account's last live change,
    `leased` the one at which a segment's present holder acquired it, `revocations` those committed by run id, `effects`
    all of them.
    """

    tables: Mapping[str, str]
    settings: Settings
    time: Time
    clocks_are_right: bool
    step: int = 0
    accounts: set[str] = field(default_factory=set)
    stands: dict[tuple[str, str], int] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)
    leased: dict[str, int] = field(default_factory=dict)
    revocations: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    fences: set[tuple[str, int, str]] = field(default_factory=set)
    _writing: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def in_flight(self, account_id: str) -> Iterator[None]:
        """A live writer is at work on the account; it stays so when the writer dies between its two sides."""
        self._writing[account_id] += 1
        yield
        self._writing[account_id] -= 1

    def settled(self, account_id: str) -> bool:
        """Whether no live writer is between source and view of the account."""
        return not self._writing[account_id]

    def row(self, table: str, hash_key: str, range_key: str) -> Row | None:
        """A row as stored."""
        found = stored(self.tables[table]).get_item(DynamoType({"S": hash_key}), DynamoType({"S": range_key}))
        return None if found is None else _plain(found)

    def control(self, sort_key: str) -> Row | None:
        return self.row("ControlTable", JOB, sort_key)

    def controls(self, prefix: str) -> dict[str, Row]:
        """Every ControlTable row whose sort key begins so."""
        rows = stored(self.tables["ControlTable"]).items[DynamoType({"S": JOB})]
        found = sorted((key.value, item) for key, item in rows.items() if key.value.startswith(prefix))
        return {name: _plain(item) for name, item in found}

    def source_row(self, account_id: str) -> Row | None:
        return self.row("AccountsTable", self.segment(account_id), account_id)

    def view_row(self, account_id: str) -> Row | None:
        return self.row("EntitlementsTable", self.segment(account_id), account_id)

    def segment(self, account_id: str) -> str:
        return keys.segment_of(account_id, self.settings.segment_count)

    def desired(self, account_id: str) -> Any:
        """What the view should hold by the source as it is now; None where the source cannot be read as valid."""
        row = self.source_row(account_id)
        if row is None or row["status"] == "cancelled":
            return {}
        return row["entitlements"] if isinstance(row["entitlements"], dict) else None

    def between(self, segment: str, after: str | None, upto: str) -> list[str]:
        """The segment's accounts above one id and up to another, in order."""
        known = (account_id for account_id in self.accounts if self.segment(account_id) == segment)
        return sorted(one for one in known if (after is None or one > after) and one <= upto)

    def stood(self, account_id: str, since: int) -> bool:
        """Whether one of the sides has held the account ever since: nobody can have read past it."""
        return any(self.stands.get((side, account_id), since) < since for side in SIDES)

    def checksum(self, accounts: list[str]) -> tuple[int, int]:
        """How many of the accounts have a view row, and what those rows add to a checksum."""
        rows = [(one, row["entitlements"]) for one in accounts if (row := self.view_row(one)) is not None]
        return len(rows), sum(digest(account_id, entitlements) for account_id, entitlements in rows)

    def notice(self, account_id: str) -> None:
        """Somebody other than a run has written the account, on either side."""
        self.touched[account_id] = self.step
        self.look(account_id)

    def look(self, account_id: str) -> None:
        """Note on which side the account is, from when on."""
        self.accounts.add(account_id)
        for side in SIDES:
            if self.row(side, self.segment(account_id), account_id) is None:
                self.stands.pop((side, account_id), None)
            else:
                self.stands.setdefault((side, account_id), self.step)

    def settle(self) -> None:
        """What is there now was there before all."""
        self.stands.update(dict.fromkeys(self.stands, BEFORE_ALL))
        self.touched.update(dict.fromkeys(self.touched, BEFORE_ALL))
