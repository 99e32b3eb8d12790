"""Who reads the source, for a source that paces its requests or tells its provider who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from reconciler.merge import Side

if TYPE_CHECKING:
    from reconciler.source import SourceRecord


@dataclass(frozen=True, slots=True)
class Reader:
    """On whose behalf a source is read.

    `attempt` counts from 1 since the last progress. `backlog` tells that a newer interval is due already, or that a
    person only looks. `patience_s` are the seconds that one read may wait now: a quarter of the lease, or what lease
    and invocation still allow, 0 at least.
    """

    run_id: str
    attempt: int
    backlog: bool
    patience_s: Callable[[], float]


@runtime_checkable
class KnowsItsReader(Protocol):
    """A source with one method more than `merge.Side` has; a source need not have it."""

    def read_by(self, reader: Reader) -> Side[SourceRecord]:
        """The source for one attempt: called once when it begins, and the attempt reads what this returns."""


def read_by(reader: Reader, source: Side[SourceRecord]) -> Side[SourceRecord]:
    """The source as this reader reads it."""
    return source.read_by(reader) if isinstance(source, KnowsItsReader) else source
