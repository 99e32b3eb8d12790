"""The source: what every account should have. Yours to replace by anything that keeps the contract of `merge.Side`.

The sample reads a DynamoDB table keyed `segment`, `account_id` with the attributes `status` and `entitlements`;
`http_source.py` reads somebody's REST interface. A source that also has the `read_by` of `reader.KnowsItsReader` is
told, once for each attempt, who reads it and how long a read may wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.invocation import Invocation
from reconciler.keys import ACCOUNT_ID
from reconciler.merge import Page
from reconciler.tables import read_accounts


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """An account as the source holds it, not yet checked: `diff.decide` rejects what it cannot read.

    `unreadable` is why the source itself could not read it: such an account is rejected before `decide` sees it.
    """

    account_id: str
    status: object
    entitlements: object
    unreadable: str | None = None


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
