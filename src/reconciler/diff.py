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

from reconciler.checksum import same
from reconciler.decisions import CHANGE, GRANT, REVOKE, Decision, Effect
from reconciler.items import MAX_ITEM_BYTES, MAX_NAME_BYTES, size, storable
from reconciler.keys import unfit
from reconciler.merge import Pair
from reconciler.source import SourceRecord
from reconciler.stamp import unfit_version
from reconciler.view import ViewRow

ROW_OVERHEAD_BYTES = 500
"""Rough size of a view row without id and entitlements."""

_KINDS = str | int | Decimal
"""Of an entitlement; a boolean is an int."""


def decide(pair: Pair[SourceRecord, ViewRow]) -> Decision:
    """What one account needs."""
    record, row = pair.record, pair.row
    if reason := _bad_account(pair.account_id, record):
        return Decision(pair, rejection=reason)
    desired = record.entitlements if record is not None and record.status == "active" else {}
    actual = row.entitlements if row is not None else {}
    assert isinstance(desired, Mapping)
    equal = isinstance(actual, Mapping) and same(desired, actual)
    bad_row = _bad_row(row, readable=equal)
    if equal and bad_row is None:
        return Decision(pair)
    if reason := _too_large(pair.account_id, desired) or bad_row:
        return Decision(pair, rejection=reason)
    kind = REVOKE if not desired else CHANGE if actual else GRANT
    return Decision(pair, Effect(kind, pair.account_id, desired, row))


def _bad_account(account_id: str, record: SourceRecord | None) -> str | None:
    if reason := unfit(account_id):
        return f"account_id {reason}"
    if record is None or record.status == "cancelled":
        return None
    if record.status != "active":
        return "source status is neither 'active' nor 'cancelled'"
    reason = _bad_entitlements(record.entitlements)
    return reason and f"source {reason}"


def _bad_row(row: ViewRow | None, readable: bool) -> str | None:
    """`readable` where its entitlements are the same as some that were found good."""
    if row is None:
        return None
    if not readable and (reason := _bad_entitlements(row.entitlements)):
        return f"view {reason}"
    reason = unfit_version(row.version)
    return reason and f"view version {reason}"


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
        if not isinstance(entry, _KINDS):
            return f"entitlement {name[:60]!r} is neither text, number nor boolean"
        if not storable(entry):
            kind = "text" if isinstance(entry, str) else "number"
            return f"entitlement {name[:60]!r} is a {kind} that DynamoDB cannot store"
    return None


def _too_large(account_id: str, entitlements: Mapping[str, object]) -> str | None:
    bytes_ = ROW_OVERHEAD_BYTES + size(account_id) + size(entitlements)
    if bytes_ <= MAX_ITEM_BYTES:
        return None
    return f"source entitlements make a row of {bytes_} bytes, more than DynamoDB's {MAX_ITEM_BYTES}"
