"""Reads of the ControlTable that several commands share; each raises as `Invocation.read`, and RowInvalid."""

from __future__ import annotations

from reconciler import control, keys
from reconciler.control import Control
from reconciler.intervals import shifted
from reconciler.invocation import Invocation
from reconciler.items import Row
from reconciler.keys import SORT_KEY
from reconciler.records import COMPLETED

LOOK_BACK_DAYS = 35
"""How far before the oldest open interval the last completed one is looked for."""


def control_or_new(invocation: Invocation) -> tuple[Control, bool]:
    """The CONTROL row, or before the first trigger what that would make of it; and whether there is one."""
    found = control.read(invocation=invocation)
    if found is not None:
        return found, True
    first = control.first_interval(invocation=invocation)
    return Control(first, first, invocation.settings.segment_count, None, 0), False


def interval_rows(open_from: str, invocation: Invocation) -> dict[str, Row]:
    """INTERVAL rows by id from LOOK_BACK_DAYS before `open_from` on, oldest first."""
    bounds = {":first": keys.interval(shifted(open_from, -LOOK_BACK_DAYS)), ":last": keys.interval("9999-12-31")}
    rows = invocation.control_rows("#sk BETWEEN :first AND :last", bounds)
    return {row[SORT_KEY].removeprefix("INTERVAL#"): row for row in rows}


def last_completed(rows: dict[str, Row]) -> tuple[str, Row] | None:
    """The newest completed interval, from whose figures those of a running one are estimated."""
    completed = [(interval_id, row) for interval_id, row in rows.items() if row.get("state") == COMPLETED]
    return completed[-1] if completed else None


def before_rerun(rows: dict[str, Row], invocation: Invocation) -> tuple[str, Row] | None:
    """The newest interval that was completed and then run again, with its run record as the rerun found it."""
    for interval_id, row in reversed(rows.items()):
        found = events(interval_id, invocation, kind="OPERATOR#") if row.get("rerun") else []
        for event in reversed(found):
            before = event.get("before") or {}
            if event.get("event") == "RERUN" and before.get("state") == COMPLETED:
                return interval_id, before
    return None


def lease_rows(invocation: Invocation) -> dict[str, Row]:
    """LEASE rows by segment; a lost one is absent."""
    rows = invocation.control_rows("begins_with(#sk, :prefix)", {":prefix": keys.lease("")})
    return {row[SORT_KEY].removeprefix("LEASE#"): row for row in rows}


def progress_rows(interval_id: str, pass_no: int, invocation: Invocation) -> dict[str, Row]:
    """PROGRESS rows of one pass by segment."""
    prefix = {":prefix": keys.progress_prefix(interval_id, pass_no)}
    rows = invocation.control_rows("begins_with(#sk, :prefix)", prefix)
    return {row[SORT_KEY].rpartition("#")[2]: row for row in rows}


def events(subject: str, invocation: Invocation, *, kind: str = "") -> list[Row]:
    """AUDIT rows of an interval or of the job in order of time: all, or those whose key goes on with `kind`."""
    prefix = {":prefix": f"AUDIT#{subject}#{kind}"}
    return in_order(invocation.control_rows("begins_with(#sk, :prefix)", prefix))


RUNS = "2"
"""The `kind` of what runs did: their keys go on with the time, rejections and commands do not."""


def in_order(rows: list[Row]) -> list[Row]:
    """AUDIT rows by the time they tell of."""
    return sorted(rows, key=lambda row: (str(row.get("at", "")), str(row.get(SORT_KEY, ""))))
