"""What each account needs, and how many accounts make one range. Pure; yours to replace together with the source.

    source              view                decision
    active              none, or empty      grant
    active, differs     some                change
    cancelled, absent   some                revoke: the row stays, its entitlements become the empty map
    unreadable          any                 reject: the row stays as it is
    else                                    nothing

Entitlements are compared as canonical JSON: in Python `True == 1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from reconciler.checksum import canonical, digest
from reconciler.items import MAX_ITEM_BYTES, MAX_NAME_BYTES, size, storable
from reconciler.keys import MAX_ACCOUNT_ID_BYTES
from reconciler.merge import Pair
from reconciler.source import SourceRecord
from reconciler.totals import Totals
from reconciler.view import ViewRow

GRANT, CHANGE, REVOKE = "granted", "changed", "revoked"

MAX_EFFECTS = 98
"""Effects and rejections of one range: AWS's 100 actions, less LEASE and PROGRESS."""

MAX_BYTES = 3_500_000
"""Rough size of a range's effects, below AWS's 4 MB a transaction."""

EFFECT_OVERHEAD_BYTES = 1_000

ROW_OVERHEAD_BYTES = 500
"""Rough size of a view row without id and entitlements."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The view row of an account is to hold these entitlements; `row` is the row the decision was based on."""

    kind: str
    account_id: str
    entitlements: Mapping[str, object]
    row: ViewRow | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What one account needs: at most one of `effect` and `rejection` (a reason), else nothing."""

    pair: Pair[SourceRecord, ViewRow]
    effect: Effect | None = None
    rejection: str | None = None

    @property
    def account_id(self) -> str:
        return self.pair.account_id

    @property
    def writes(self) -> bool:
        return self.effect is not None or self.rejection is not None

    @property
    def revokes(self) -> bool:
        return self.effect is not None and self.effect.kind == REVOKE


def decide(pair: Pair[SourceRecord, ViewRow]) -> Decision:
    """What one account needs."""
    if reason := _unreadable(pair):
        return Decision(pair, rejection=reason)
    record, row = pair.record, pair.row
    desired = record.entitlements if record is not None and record.status == "active" else {}
    actual = row.entitlements if row is not None else {}
    assert isinstance(desired, Mapping)
    assert isinstance(actual, Mapping)
    if canonical(desired) == canonical(actual):
        return Decision(pair)
    kind = REVOKE if not desired else CHANGE if actual else GRANT
    return Decision(pair, Effect(kind, pair.account_id, desired, row))


def rejected(decision: Decision, reason: str) -> Decision:
    """The same account, given up for this run: its view row stays as it is."""
    return Decision(decision.pair, rejection=reason)


def totals(decisions: Sequence[Decision]) -> Totals:
    """What a range adds to the run's totals once it is committed; `checksum` is over the rows as it leaves them."""
    kinds = [decision.effect.kind for decision in decisions if decision.effect]
    left = [(d.account_id, owner.entitlements) for d in decisions if (owner := d.effect or d.pair.row)]
    return Totals(
        accounts=len(decisions),
        granted=kinds.count(GRANT),
        changed=kinds.count(CHANGE),
        revoked=kinds.count(REVOKE),
        rejected=sum(decision.rejection is not None for decision in decisions),
        view_rows=len(left),
        source_rows=sum(decision.pair.record is not None for decision in decisions),
        ranges=1,
        checksum=sum(digest(account_id, entitlements) for account_id, entitlements in left),
    )


def take_range(decisions: Sequence[Decision], size: int) -> int:
    """How many of the decisions, from the first, make one range: at most `size`, within AWS's limits, at least one."""
    writes = bytes_ = 0
    most = MAX_EFFECTS
    for index, decision in enumerate(decisions[:size]):
        writes += decision.writes
        if decision.revokes:
            most = MAX_EFFECTS - 1  # the interval's counter of revocations takes an action too
        bytes_ += _size(decision) if decision.writes else 0
        if index and (writes > most or bytes_ > MAX_BYTES):
            return index
    return min(size, len(decisions))


def _size(decision: Decision) -> int:
    effect, row = decision.effect, decision.pair.row
    if effect is None:
        return EFFECT_OVERHEAD_BYTES
    before = len(canonical(row.entitlements)) if row is not None and row.version is None else 0
    return EFFECT_OVERHEAD_BYTES + len(canonical(effect.entitlements)) + before


def _unreadable(pair: Pair[SourceRecord, ViewRow]) -> str | None:
    record, row = pair.record, pair.row
    if not pair.account_id:
        return "account_id is empty"
    if len(pair.account_id.encode("utf-8", "surrogatepass")) > MAX_ACCOUNT_ID_BYTES:
        return f"account_id is longer than {MAX_ACCOUNT_ID_BYTES} bytes"
    if record is not None:
        if record.unreadable is not None:
            return f"source {record.unreadable}"
        if record.status not in ("active", "cancelled"):
            return "source status is neither 'active' nor 'cancelled'"
        if record.status == "active" and (reason := _bad_entitlements(record.entitlements)):
            return f"source {reason}"
        if record.status == "active" and (reason := _too_large(pair.account_id, record.entitlements)):
            return f"source {reason}"
    if row is not None:
        if reason := _bad_entitlements(row.entitlements):
            return f"view {reason}"
        if row.version is not None and (isinstance(row.version, bool) or not isinstance(row.version, int)):
            return "view version is not a whole number"
        if row.version is not None and not storable(row.version + 1):
            return "view version cannot be raised"
    return None


def _bad_entitlements(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return "entitlements are not a map"
    for name, entry in value.items():
        if not isinstance(name, str):
            return "entitlements have a name that is not text"
        if not name or not storable(name):
            return f"entitlements have the name {name[:60]!r}, which DynamoDB cannot store"
        if (bytes_ := size(name)) > MAX_NAME_BYTES:
            return f"entitlement {name[:60]!r}… has a name of {bytes_} bytes, more than DynamoDB's {MAX_NAME_BYTES}"
        if not isinstance(entry, str | bool | int | Decimal):
            return f"entitlement {name[:60]!r} is neither text, number nor boolean"
        if not storable(entry):
            kind = "text" if isinstance(entry, str) else "number"
            return f"entitlement {name[:60]!r} is a {kind} that DynamoDB cannot store"
    return None


def _too_large(account_id: str, entitlements: object) -> str | None:
    bytes_ = ROW_OVERHEAD_BYTES + size(account_id) + size(entitlements)
    if bytes_ <= MAX_ITEM_BYTES:
        return None
    return f"entitlements make a row of {bytes_} bytes, more than DynamoDB's {MAX_ITEM_BYTES}"
