"""The world of a seed: its accounts, its settings, who comes, and how much goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from reconciler import keys
from reconciler.items import to_item
from tests.simulator.faults import ACCENTS
from tests.simulator.ledger import Ledger

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

KINDS = ("grant", "grant", "grant", "change", "change", "revoke", "cancelled", "reject", "same", "none")


@dataclass(frozen=True, slots=True)
class Population:
    """`names` are the accounts that exist or may come to be; `nights` is how many pass at most.

    `live_rate` and `order_rate` are per turn, `fault_rate` is per message.
    """

    seed: int
    names: tuple[str, ...]
    settings: Mapping[str, object]
    turns: int
    workers: int
    live_rate: float
    order_rate: float
    nights: int
    fault_rate: float
    steps_clocks: bool
    accent: str

    @property
    def segment_count(self) -> int:
        return int(str(self.settings["segment_count"]))

    @classmethod
    def of(cls, seed: int) -> Population:
        rng = Random(f"world of {seed}")
        accent = ACCENTS[seed % len(ACCENTS)]
        names = tuple(f"a{index:02d}" for index in range(rng.randrange(5, 12)))
        settings = {
            "segment_count": rng.choice((1, 1, 1, 2, 3)),
            "range_size": rng.choice((1, 1, 2, 3)),
            "page_size": rng.choice((2, 3, 7)),
            "read_ahead": False,
            "max_attempts": rng.choice((2, 5, 100)),
            "backoff_seconds": rng.choice((0, 1, 60)),
            "backoff_max_seconds": 600,
            "max_revocations": rng.choice((1, 500, 500, 500)),
        }
        return cls(
            seed,
            names,
            settings,
            turns=rng.randrange(100, 320),
            workers=rng.choice((2, 2, 3, 4)),
            live_rate=0.15 if accent == "writers" else rng.choice((0, 0.03)),
            order_rate=rng.choice((0, 0, 0.01, 0.03)),
            nights=rng.choice((1, 2, 3)),
            fault_rate=rng.choice((0.01, 0.02, 0.05, 0.08)),
            steps_clocks=rng.random() < 0.5,
            accent=accent,
        )


def settle(population: Population, client: DynamoDBClient, ledger: Ledger) -> None:
    """Fill both sides: accounts to grant, to change, to revoke, to reject and to leave alone."""
    rng = Random(f"accounts of {population.seed}")
    quiet = population.accent == "copies" or rng.random() < 0.2
    for account_id in population.names:
        key = {"segment": keys.segment_of(account_id, population.segment_count), "account_id": account_id}
        sides = _sides(rng, quiet)
        for table, row in sides.items():
            client.put_item(TableName=ledger.tables[table], Item=to_item(key | row))
    ledger.settle()


def _sides(rng: Random, quiet: bool) -> dict[str, dict[str, Any]]:
    wanted = {"plan": rng.choice(("gold", "basic"))}
    active = {"status": "active", "entitlements": wanted}
    versions = [{}, {"version": 1}, {"version": 3}]
    old = {"entitlements": {"plan": "old"}, **rng.choice(versions)}
    kind = "same" if quiet and rng.random() < 0.8 else rng.choice(KINDS)
    sides: dict[str, dict[str, dict[str, Any]]] = {
        "grant": {"AccountsTable": active},
        "change": {"AccountsTable": active, "EntitlementsTable": old},
        "revoke": {"EntitlementsTable": old},
        "cancelled": {"AccountsTable": active | {"status": "cancelled"}, "EntitlementsTable": old},
        "reject": {"AccountsTable": {"status": "active", "entitlements": "unreadable"}},
        "same": {"AccountsTable": active, "EntitlementsTable": old | {"entitlements": wanted}},
        "none": {},
    }
    return sides[kind]
