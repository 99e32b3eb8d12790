"""What a message changed, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.items import Row


@dataclass(frozen=True, slots=True)
class Write:
    """One row of a message: `name` is its sort key in the ControlTable, its account in the view."""

    table: str
    name: str
    before: Row | None
    after: Row | None

    def __getitem__(self, attribute: str) -> tuple[Any, Any]:
        """An attribute before and after; None where there is none."""
        return (self.before or {}).get(attribute), (self.after or {}).get(attribute)


def named(writes: Sequence[Write], prefix: str) -> list[Write]:
    return [write for write in writes if write.table == "ControlTable" and write.name.startswith(prefix)]
