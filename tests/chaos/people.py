"""What happens to accounts meanwhile: the source changes; live writers change the view too, after the source."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulator.writers import written
from tools.scene import Scene
from tools.verify import Row

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


@dataclass(slots=True)
class People:
    """`client` is that of live writers, whose messages nothing happens to."""

    client: DynamoDBClient
    scene: Scene
    chance: random.Random
    changes: int = 0
    _rows: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        rows = self.scene.rows("AccountsTable")
        self._rows = [row for row in rows if row["status"]["S"] == "active" and "M" in row["entitlements"]]

    def change(self, *, live: bool, accounts: int = 1) -> None:
        """So many accounts, on both sides when `live`."""
        for row in self.chance.choices(self._rows, k=accounts):
            self.changes += 1
            plan = f"change {self.changes}"
            source, view = self.scene.tables["AccountsTable"], self.scene.tables["EntitlementsTable"]
            self.client.put_item(TableName=source, Item={**row, "entitlements": {"M": {"plan": {"S": plan}}}})
            key = {name: row[name] for name in ("segment", "account_id")}
            while live and not written(self.client, view, key, {"plan": plan}):
                pass
