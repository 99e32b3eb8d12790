"""A world as it was, to be had again: rows and clock."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table

from reconciler.items import to_item
from reconciler.observability import metrics
from tests.kit import everything
from tests.world import ManualClock, World

TRACKED: tuple[Any, ...] = (Table, Item)
"""Moto remembers every one of these that it ever copied; thousands of them make each collection of garbage long."""

KEYS = {"ControlTable": ("pk", "sk"), "IdempotencyTable": ("id",)}
"""Of the tables whose key is another than `segment` and `account_id`."""


@dataclass(slots=True)
class Snapshot:
    """Each time it is restored the clock is a millisecond ahead: no two requests are the same, nor are their tokens."""

    world: World
    rows: Callable[[], None]
    clock: ManualClock
    restored: int = 0

    def restore(self) -> None:
        """The world is as it was."""
        self.restored += 1
        self.rows()
        self.world.clock.wall_ms = self.clock.wall_ms + self.restored
        self.world.clock.seconds = self.clock.seconds
        self.world.requests.clear()
        metrics.clear_metrics()


def on_moto(world: World) -> Snapshot:
    """Moto's tables are put back as a whole, which is faster by far than any request."""
    backend: Any = dynamodb_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"]
    saved = copy.deepcopy(backend.tables)

    def rows() -> None:
        for kind in TRACKED:
            kind.instances_tracked.clear()
        backend.tables = copy.deepcopy(saved)

    return Snapshot(world, rows, copy.copy(world.clock))


def row_by_row(world: World) -> Snapshot:
    """On any backend."""
    saved = everything(world)

    def rows() -> None:
        for table, stand in everything(world).items():
            names = KEYS.get(table, ("segment", "account_id"))
            for row in stand:
                if row not in saved[table]:
                    key = to_item({name: row[name] for name in names})
                    world.client.delete_item(TableName=world.tables[table], Key=key)
            for row in saved[table]:
                if row not in stand:
                    world.put_row(table, **row)

    return Snapshot(world, rows, copy.copy(world.clock))
