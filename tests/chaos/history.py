"""The transactions of the workers, read off the wire: who wrote which rows, in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.items import Row, from_item
from tests.chaos.traffic import Delivery, writer
from tests.faults import Writer
from tools.ledger import OK

ASSIGNED = re.compile(r"(#[\w.#]+) = (:\w+)")
NIGHT = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction, and the rows that it writes by sort key, those of the `view` by account: what it SETs of them."""

    delivery: Delivery
    writer: Writer | None
    rows: Mapping[str, Row]
    view: Mapping[str, Row]

    @classmethod
    def of(cls, delivery: Delivery) -> Written:
        rows: dict[str, Row] = {}
        view: dict[str, Row] = {}
        for action in delivery.call.request["TransactItems"]:
            ((kind, body),) = action.items()
            if kind != "ConditionCheck":
                key = from_item(body.get("Key") or body["Item"])
                (rows if "sk" in key else view)[key.get("sk") or key["account_id"]] = assigned(body)
        return cls(delivery, writer(delivery.call), rows, view)

    @property
    def applied(self) -> bool:
        """A repeat that the table answered from memory was not."""
        return self.delivery.entry.outcome == OK and not self.delivery.entry.replayed

    @property
    def caller(self) -> str:
        return self.delivery.call.caller

    def key(self, prefix: str) -> str:
        """The sort key of the row of a kind; "" when it writes none."""
        return next((name for name in self.rows if name.startswith(prefix)), "")

    @property
    def progress(self) -> Row:
        return self.rows.get(self.key("PROGRESS#"), {})

    @property
    def segment(self) -> str:
        """Of the lease that it writes; "" when it writes none."""
        return self.key("LEASE#").removeprefix("LEASE#")

    @property
    def generation(self) -> int:
        """The one under which it is written, or which it gives out; 0 when it tells none."""
        return max((int(row["generation"]) for row in self.rows.values() if "generation" in row), default=0)

    @property
    def night(self) -> str:
        found = NIGHT.search(self.key("PROGRESS#") or self.key("INTERVAL#"))
        return found[0] if found else ""

    def __str__(self) -> str:
        entry = self.delivery.entry
        outcome = "answered from memory" if entry.replayed else " ".join((entry.outcome, *entry.reasons[:3]))
        about = f"{self.night} generation {self.generation} {self.progress.get('checkpoint', '')!r}"
        return f"{entry.number:6} {self.caller:10} {self.writer:8} {about} {len(self.view)} effects: {outcome}"


def assigned(body: Mapping[str, Any]) -> Row:
    """What a Put stores, or an Update SETs, as plain values; the name of a path has dots."""
    if "Item" in body:
        return from_item(body["Item"])
    names, values = body["ExpressionAttributeNames"], from_item(body.get("ExpressionAttributeValues", {}))
    pairs = ASSIGNED.findall(body["UpdateExpression"])
    return {".".join(names[part] for part in path.split(".")): values[value] for path, value in pairs}


def history(deliveries: Iterable[Delivery]) -> list[Written]:
    """Every transaction, in the order of the answers."""
    return [Written.of(delivery) for delivery in deliveries]
