"""Audit rows: one per event, written in the transaction of what they tell about. The only rows with a TTL."""

from __future__ import annotations

import uuid

from reconciler import clock, keys
from reconciler.invocation import Invocation
from reconciler.items import SCHEMA, to_item
from reconciler.transactions import Step

KEPT_DAYS = 400


def audit(
    event: str, interval_id: str, run_id: str, *, invocation: Invocation, sort_key: str = "", **details: object
) -> Step:
    """One event, kept for KEPT_DAYS; absent details are left out."""
    now_ms = invocation.clock.now_ms()
    at = clock.text(now_ms)
    row = invocation.row_key(sort_key or keys.audit(interval_id, at, uuid.uuid4().hex)) | {
        "schema": SCHEMA,
        "event": event,
        "at": at,
        "actor": invocation.owner,
        "run_id": run_id,
        keys.CONTROL_TTL: now_ms // 1000 + KEPT_DAYS * 86_400,
    }
    row |= {name: value for name, value in details.items() if value is not None}
    return Step("AUDIT", {"Put": {"TableName": invocation.table, "Item": to_item(row)}})
