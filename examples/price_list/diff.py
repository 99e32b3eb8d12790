"""What each price in the shop needs. Pure.

source               view                     decision
listed               none, or not for sale    grant: it is for sale
listed, differs      a price                  change
not listed, absent   a price                  revoke: it is no longer for sale
unreadable           any                      reject: the price stays
a leap               a price                  reject: more than tenfold, or less than a tenth, is a slip of the pen
else                                          nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from reconciler.checksum import canonical
from reconciler.decisions import CHANGE, GRANT, REVOKE, Decision, Effect
from reconciler.keys import unfit
from reconciler.merge import Pair
from reconciler.source import SourceRecord
from reconciler.stamp import unfit_version
from reconciler.view import ViewRow

VAT = Decimal("1.20")
CENT = Decimal("0.01")
MOST = Decimal(1_000_000)
CURRENCIES = ("EUR", "GBP")


def decide(pair: Pair[SourceRecord, ViewRow]) -> Decision:
    """What one product needs."""
    record, row = pair.record, pair.row
    if reason := _unreadable(pair):
        return Decision(pair, rejection=reason)
    desired = _for_sale(record) if record is not None and record.listed else {}
    actual = row.content if row is not None else {}
    if canonical(desired) == canonical(actual):
        return Decision(pair)
    if desired and actual and (reason := _leap(desired, actual)):
        return Decision(pair, rejection=reason)
    kind = REVOKE if not desired else CHANGE if actual else GRANT
    return Decision(pair, Effect(kind, pair.account_id, desired, row))


def _for_sale(record: SourceRecord) -> Mapping[str, object]:
    net = _net(record)
    assert net is not None
    return {"price": (net * VAT).quantize(CENT), "currency": record.currency}


def _net(record: SourceRecord) -> Decimal | None:
    """What the supplier asks; None unless it is a price."""
    try:
        net = Decimal(record.net) if isinstance(record.net, str) else None
    except InvalidOperation:
        return None
    return net if net is not None and net.is_finite() and CENT <= net <= MOST else None


def _leap(desired: Mapping[str, object], actual: Mapping[str, object]) -> str | None:
    before, after = actual["price"], desired["price"]
    assert isinstance(before, int | Decimal)
    assert isinstance(after, Decimal)
    same = desired["currency"] == actual["currency"]
    return f"price leaps from {before} to {after}" if same and not before / 10 <= after <= before * 10 else None


def _unreadable(pair: Pair[SourceRecord, ViewRow]) -> str | None:
    record, row = pair.record, pair.row
    if reason := unfit(pair.account_id):
        return f"SKU {reason}"
    if record is not None and record.listed:
        if _net(record) is None:
            return f"source price is not between {CENT} and {MOST}"
        if record.currency not in CURRENCIES:
            return f"source currency is not one of {', '.join(CURRENCIES)}"
    if row is not None:
        if reason := unfit_version(row.version):
            return f"view version {reason}"
        if row.content and not _is_price(row):
            return "view has half a price, or one that is no number"
    return None


def _is_price(row: ViewRow) -> bool:
    number = isinstance(row.price, int | Decimal) and not isinstance(row.price, bool) and row.price > 0
    return number and isinstance(row.currency, str)
