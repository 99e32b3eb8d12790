"""What was done to accounts, in numbers that add up over ranges and segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from reconciler.checksum import MODULUS, hex_text
from reconciler.items import Row


@dataclass(frozen=True, slots=True)
class Totals:
    """What was done to accounts; adds up over ranges and segments. `checksum` is the sum as an integer."""

    accounts: int = 0
    granted: int = 0
    changed: int = 0
    revoked: int = 0
    rejected: int = 0
    view_rows: int = 0
    source_rows: int = 0
    ranges: int = 0
    checksum: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def stored(self) -> Row:
        """The attributes of a row; the checksum as hex text, since it exceeds DynamoDB's numbers."""
        row: Row = {f.name: getattr(self, f.name) for f in fields(self)}
        return row | {"checksum": hex_text(self.checksum)}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Totals:
        counts = {f.name: int(row.get(f.name, 0)) for f in fields(cls) if f.name != "checksum"}
        return cls(**counts, checksum=int(row.get("checksum", "0"), 16) % MODULUS)
