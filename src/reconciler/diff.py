"""What each account needs, and what is wrong with one that cannot be read. Pure; yours to replace.

    source              view                decision
    active              none, or empty      grant
    active, differs     some                change
    cancelled, absent   some                revoke: the row stays, its entitlements become the empty map
    unreadable          any                 reject: the row stays as it is
    else                                    nothing

Entitlements are compared as canonical JSON: in Python `True == 1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from reconciler.checksum import canonical
from reconciler.decisions import CHANGE, GRANT, REVOKE, Decision, Effect
from reconciler.items import MAX_ITEM_BYTES, MAX_NAME_BYTES, size, storable
from reconciler.keys import unfit
from reconciler.merge import Pair
from reconciler.source import SourceRecord
from reconciler.stamp import unfit_version
from reconciler.view import ViewRow

ROW_OVERHEAD_BYTES = 500
"""Rough size of a view row without id and entitlements."""


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


def _unreadable(pair: Pair[SourceRecord, ViewRow]) -> str | None:
    record, row = pair.record, pair.row
    if reason := unfit(pair.account_id):
        return f"account_id {reason}"
    if record is not None:
        if record.status not in ("active", "cancelled"):
            return "source status is neither 'active' nor 'cancelled'"
        if record.status == "active" and (reason := _bad_entitlements(record.entitlements)):
            return f"source {reason}"
        if record.status == "active" and (reason := _too_large(pair.account_id, record.entitlements)):
            return f"source {reason}"
    if row is not None:
        if reason := _bad_entitlements(row.entitlements):
            return f"view {reason}"
        if reason := unfit_version(row.version):
            return f"view version {reason}"
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
