"""The source: what every account should have. Yours to replace by anything with the `read` of `merge.Side`.

The sample reads a DynamoDB table keyed `segment`, `account_id` with the attributes `status` and `entitlements`;
`http_source.py` reads somebody's REST interface.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from reconciler.invocation import Invocation
from reconciler.keys import ACCOUNT_ID
from reconciler.merge import Page, Side
from reconciler.tables import read_accounts


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """An account as the source holds it, not yet checked: `diff.decide` rejects what it cannot read.

    `unreadable` is why the source itself could not read the rest of it.
    """

    account_id: str
    status: object
    entitlements: object
    unreadable: str | None = None


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
    """A source that paces its requests, or tells its provider who asks; others need not know."""

    def read_by(self, reader: Reader) -> Side[SourceRecord]:
        """The source for one attempt."""


def read_by(reader: Reader, source: Side[SourceRecord]) -> Side[SourceRecord]:
    """The source as this reader reads it."""
    return source.read_by(reader) if isinstance(source, KnowsItsReader) else source


class AccountsTable:
    """The sample source; a merge.Side."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
        """See merge.Side."""
        table = self._invocation.settings.accounts_table
        rows, more_after = read_accounts(
            table, segment, after=after, upto=upto, limit=limit, invocation=self._invocation
        )
        records = (SourceRecord(row[ACCOUNT_ID], row.get("status"), row.get("entitlements")) for row in rows)
        return Page(tuple(records), more_after)
