"""What every view row says of its version, and of the run that wrote it last, whatever else the row holds.

A row's `version` rises with every write, ours or a live writer's; rows that others made may lack it. `run_version` is
the version that a run wrote, so a row tells whether somebody came after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler import clock
from reconciler.items import Row, storable

if TYPE_CHECKING:
    from reconciler.invocation import Invocation
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


def version_of(row: Row) -> object:
    """The version of a row as read; None only where it has none, so that NULL is a version too, if an unfit one."""
    return "NULL" if row.get("version", 0) is None else row.get("version")


def unfit_version(version: object) -> str | None:
    """Why a row of this version cannot be written; None when it can."""
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int):
        return "is not a whole number"
    return None if storable(version + 1) else "cannot be raised"


def stamped(version: object, holding: Holding, *, invocation: Invocation) -> Row:
    """The attributes that an effect leaves on a row of that version (None: without one, or no row)."""
    assert version is None or isinstance(version, int)
    raised = (version or 0) + 1
    return {
        "version": raised,
        "run_version": raised,
        "interval_id": holding.record.interval_id,
        "run_id": holding.record.run_id,
        "generation": holding.lease.generation,
        "updated_at": clock.text(invocation.clock.now_ms()),
    }
