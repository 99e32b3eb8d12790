"""What a run leaves on every view row that it writes, so that a row tells which run that was, and who came after it.

`run_version` is the version that the run wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler import clock
from reconciler.items import Row

if TYPE_CHECKING:
    from reconciler.clock import Clock
    from reconciler.leases import Holding


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a row says of the run that wrote it last, not checked either; None where it says nothing."""

    run_id: object = None
    run_version: object = None
    generation: object = None
    updated_at: object = None

    @property
    def written_at(self) -> str | None:
        """`updated_at`, where it is a time as we write it."""
        try:
            return self.updated_at if isinstance(self.updated_at, str) and clock.parse_ms(self.updated_at) else None
        except ValueError:
            return None

    @classmethod
    def of(cls, row: Row) -> Stamp:
        return cls(row.get("run_id"), row.get("run_version"), row.get("generation"), row.get("updated_at"))


def stamped(version: int, holding: Holding, clock_: Clock) -> Row:
    """The attributes of a row written by this holder, `version` included."""
    return {
        "version": version,
        "run_version": version,
        "interval_id": holding.record.interval_id,
        "run_id": holding.record.run_id,
        "generation": holding.lease.generation,
        "updated_at": clock.text(clock_.now_ms()),
    }
