"""The view: what every account has, and how one effect is written to it. Yours to replace.

Rows: `segment`, `account_id`, `entitlements`, and what `stamp.py` puts on them: `version`, `interval_id`, `run_id`,
`run_version`, `generation`, `updated_at`. Live writers may write it too: the source first, then the view, raising
`version` and setting `updated_at`.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view row as read, not yet checked. `version` is None only where the row has none: somebody else made it."""

    account_id: str
    entitlements: object
    version: object
    stamp: Stamp = field(default=Stamp(), compare=False)

    @property
    def content(self) -> object:
        """What the row says: in the checksum, in a preview, and what an effect replaces."""
        return self.entitlements


class EntitlementsTable:
    """The sample view; a merge.Side."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    def read(self, segment: str, *, after: str | None, upto: str | None, limit: int) -> Page[ViewRow]:
        """See merge.Side."""
        table = self._invocation.settings.entitlements_table
        rows, more_after = read_accounts(
            table, segment, after=after, upto=upto, limit=limit, invocation=self._invocation
        )
        view_rows = (ViewRow(row[ACCOUNT_ID], row.get("entitlements"), version_of(row), Stamp.of(row)) for row in rows)
        return Page(tuple(view_rows), more_after)


def effect_step(effect: Effect, holding: Holding, *, invocation: Invocation) -> Step:
    """Write one effect, on the condition that the row is what the decision was based on."""
    version = effect.row.version if effect.row else None
    return update(
        "VIEW",
        invocation.settings.entitlements_table,
        {SEGMENT: holding.lease.segment, ACCOUNT_ID: effect.account_id},
        set={"entitlements": effect.content, **stamped(version, holding, invocation=invocation)},
        when=_unchanged(effect.row),
        account_id=effect.account_id,
    )


def _unchanged(row: ViewRow | None) -> ConditionBase:
    if row is None:
        absent: ConditionBase = Attr(ACCOUNT_ID).not_exists()
        return absent
    if row.version is None:
        exists: ConditionBase = Attr(ACCOUNT_ID).exists() & Attr("version").not_exists()
        return exists & as_read("entitlements", row.entitlements)
    return as_read("version", row.version)
