"""The view of a price list: the prices that a shop shows, one row for each product, and how one is written.

Rows: `segment`, `account_id` (the SKU), `price`, `currency`, and what `stamp.py` puts on them. The row of a product
that is no longer for sale stays, with neither price nor currency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr, ConditionBase

from reconciler.invocation import Invocation
from reconciler.keys import ACCOUNT_ID, SEGMENT
from reconciler.merge import Page
from reconciler.stamp import Stamp, stamped, version_of
from reconciler.tables import read_accounts
from reconciler.transactions import Step, as_read, update

if TYPE_CHECKING:
    from reconciler.decisions import Effect
    from reconciler.leases import Holding

CONTENT = ("price", "currency")


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A row as read, not yet checked; None where an attribute is absent."""

    account_id: str
    price: object
    currency: object
    version: object
    stamp: Stamp = field(default=Stamp(), compare=False)

    @property
    def content(self) -> Mapping[str, object]:
        """What the row says: in the checksum, in a preview, and what an effect replaces."""
        return {name: value for name in CONTENT if (value := getattr(self, name)) is not None}


class ShopPrices:
    """A merge.Side."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[ViewRow]:
        """See merge.Side."""
        table = self._invocation.settings.entitlements_table
        rows, more_after = read_accounts(
            table, segment, after=after, upto=upto, limit=limit, invocation=self._invocation
        )
        view_rows = (
            ViewRow(row[ACCOUNT_ID], row.get("price"), row.get("currency"), version_of(row), Stamp.of(row))
            for row in rows
        )
        return Page(tuple(view_rows), more_after)


def effect_step(effect: Effect, holding: Holding, *, invocation: Invocation) -> Step:
    """Write one effect, on the condition that the row is what the decision was based on."""
    version = effect.row.version if effect.row else None
    return update(
        "VIEW",
        invocation.settings.entitlements_table,
        {SEGMENT: holding.lease.segment, ACCOUNT_ID: effect.account_id},
        set={**effect.content, **stamped(version, holding, invocation=invocation)},
        remove=[name for name in CONTENT if name not in effect.content],
        when=_unchanged(effect.row),
        account_id=effect.account_id,
    )


def _unchanged(row: ViewRow | None) -> ConditionBase:
    if row is None:
        absent: ConditionBase = Attr(ACCOUNT_ID).not_exists()
        return absent
    if row.version is not None:
        return as_read("version", row.version)
    as_found: ConditionBase = Attr(ACCOUNT_ID).exists() & Attr("version").not_exists()
    for name in CONTENT:
        as_found &= as_read(name, row.content.get(name))
    return as_found


EntitlementsTable = ShopPrices
"""The name by which the project knows the view."""
