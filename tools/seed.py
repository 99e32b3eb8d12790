"""Fills the source and the view with accounts of which a known number need granting, changing and revoking.

The same seed always gives the same rows, so a story can be told twice. `plan` is pure; `seed` writes it.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeSerializer

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

ODD_IDS = ("012345670123", "000000000001", "A#", "#B", "a/b", "a|b", "é", "～", "😀", "1e10", "null", "true", "NaN")
"""Ids that some format would change, split or sort wrongly."""

SHARES = {"grant": 0.3, "change": 0.5, "revoke": 0.2}
"""How the accounts out of line are divided; half of the revocations are cancelled, half gone from the source."""

MINIMUM_ACCOUNTS = len(ODD_IDS) + 1
BATCH = 25
"""AWS limit of items in one BatchWriteItem."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seeded:
    """The rows of both sides, and what a reconciliation has to find: accounts out of line by kind, and rejected."""

    source: tuple[Row, ...]
    view: tuple[Row, ...]
    granted: int
    changed: int
    revoked: int
    rejected: int

    @property
    def accounts(self) -> int:
        """Accounts on either side."""
        return len({row["account_id"] for row in (*self.source, *self.view)})


def plan(*, accounts: int, seed: int = 0, changed: float = 0.2, segment_count: int = 1) -> Seeded:
    """Return `accounts` accounts, one of them malformed, `changed` (0 to 1) of the others out of line.

    Raises ValueError when there are too few accounts for the odd ids, or when the share is not one.
    """
    if accounts < MINIMUM_ACCOUNTS:
        raise ValueError(f"accounts must be at least {MINIMUM_ACCOUNTS}, not {accounts}")
    if not 0 <= changed <= 1:
        raise ValueError(f"changed must be between 0 and 1, not {changed}")
    chance = random.Random(seed)
    ids = _ids(accounts, chance)
    chance.shuffle(ids)
    out_of_line = round((accounts - 1) * changed)
    grants, changes = round(out_of_line * SHARES["grant"]), round(out_of_line * SHARES["change"])
    kinds = ["malformed"] + ["grant"] * grants + ["change"] * changes
    kinds += [("cancelled", "gone")[n % 2] for n in range(out_of_line - grants - changes)]
    kinds += ["in line"] * (accounts - len(kinds))
    source, view = [], []
    for account_id, kind in zip(ids, kinds, strict=True):
        key = {"segment": f"{zlib.crc32(account_id.encode()) % segment_count:03d}", "account_id": account_id}
        wanted = _entitlements(chance)
        if kind != "gone":
            status = "cancelled" if kind == "cancelled" else "active"
            source.append({**key, "status": status, "entitlements": "gold" if kind == "malformed" else wanted})
        if kind != "grant":
            present = {**wanted, "seats": wanted["seats"] + 1} if kind == "change" else wanted
            view.append({**key, "entitlements": present, "version": chance.randint(1, 9)})
    return Seeded(tuple(source), tuple(view), grants, changes, out_of_line - grants - changes, rejected=1)


def _ids(accounts: int, chance: random.Random) -> list[str]:
    """The odd ids and as many twelve-digit ones as are missing, each once."""
    ids = dict.fromkeys(ODD_IDS)
    while len(ids) < accounts:
        ids[f"{chance.randrange(10**12):012d}"] = None
    return list(ids)


def _entitlements(chance: random.Random) -> Row:
    """Text, whole and broken numbers, more digits than a float has, and a boolean."""
    return {
        "plan": chance.choice(("basic", "plus", "énorme")),
        "seats": chance.randint(1, 500),
        "rate": Decimal(chance.choice(("0.5", "2.25", "1E+2"))),
        "quota": 2**53 + 1 + chance.randint(0, 10**6),
        "support": chance.random() < 0.5,
    }


def seed(client: DynamoDBClient, rows: Seeded, *, accounts_table: str, entitlements_table: str) -> None:
    """Write both sides in batches."""
    _write(client, accounts_table, rows.source)
    _write(client, entitlements_table, rows.view)


def _write(client: DynamoDBClient, table: str, rows: Iterable[Row]) -> None:
    serialize = TypeSerializer().serialize
    puts: list[Any] = [{"PutRequest": {"Item": serialize(row)["M"]}} for row in rows]
    for start in range(0, len(puts), BATCH):
        waiting: Any = {table: puts[start : start + BATCH]}
        while waiting:
            waiting = client.batch_write_item(RequestItems=waiting)["UnprocessedItems"]
