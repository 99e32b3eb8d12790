"""What was done to accounts, in numbers that add up over ranges and segments."""

from __future__ import annotations

from dataclasses import dataclass, fields

from reconciler.checksum import MODULUS, hex_text
from reconciler.items import Row, attribute


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
    def of(cls, row: Row) -> Totals:
        """Raises RowInvalid for anything but whole numbers and a checksum in hex; what is absent is zero."""
        counts = {f.name: attribute(row, f.name, int, optional=True) or 0 for f in fields(cls) if f.name != "checksum"}
        checksum = attribute(row, "checksum", str, parse=lambda text: int(text, 16), optional=True) or "0"
        return cls(**counts, checksum=int(checksum, 16) % MODULUS)
