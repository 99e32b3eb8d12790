"""The source of a price list: what the supplier asks for each product, in a table of a SQL database.

sqlite3 stands for the driver of your database; the path of its file is in PRICE_LIST. What `merge.Side` asks for is in
the statement: `>`, `<=`, a limit, and an order by bytes. SQLite's is one; PostgreSQL needs `COLLATE "C"` on the column.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from reconciler.errors import TransientFailure
from reconciler.invocation import Invocation
from reconciler.keys import segment_of
from reconciler.merge import Page

SELECT = """
    SELECT sku, net, currency, listed FROM prices
    WHERE (:after IS NULL OR sku > :after) AND (:upto IS NULL OR sku <= :upto)
    ORDER BY sku LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A product as the supplier lists it, not yet checked; the account id is the SKU, `net` a price as text."""

    account_id: str
    net: object
    currency: object
    listed: object
    unreadable: str | None = None


class PriceList:
    """A merge.Side. Each segment reads the whole list and leaves out what is not its own: a page may be empty."""

    def __init__(self, invocation: Invocation) -> None:
        self._settings = invocation.settings

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[SourceRecord]:
        """See merge.Side."""
        bounds = {"after": after, "upto": upto, "limit": limit}
        try:
            with closing(self._connect()) as connection:
                read = [SourceRecord(*row) for row in connection.execute(SELECT, bounds)]
        except sqlite3.OperationalError as error:
            raise TransientFailure(f"the price list does not answer: {error}") from error
        ours = (record for record in read if segment_of(record.account_id, self._settings.segment_count) == segment)
        return Page(tuple(ours), read[-1].account_id if len(read) == limit else None)

    def _connect(self) -> sqlite3.Connection:
        """Whatever a driver may wait must end within the call budget, like every other call of a run."""
        path = f"file:{os.environ['PRICE_LIST']}?mode=ro"
        return sqlite3.connect(path, uri=True, timeout=self._settings.read_timeout_seconds)


AccountsTable = PriceList
"""The name by which the project knows the source."""
