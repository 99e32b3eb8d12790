"""What a disturbed scene must have in common with the undisturbed one, and what must hold in any case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from typing import Any, Protocol

from reconciler import keys
from reconciler.records import COMPLETED
from reconciler.settings import Settings
from tests.faults import BEGINNINGS


class Stored(Protocol):
    """What the tables hold: a `World`, or the tables of processes that work elsewhere."""

    @property
    def settings(self) -> Settings: ...

    def control(self) -> dict[str, dict[str, Any]]:
        """Every ControlTable row by sort key."""

    def scan(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table, by its logical id."""

    def view_checksum(self) -> str:
        """That of the view as it stands."""


STAMPS = {
    **dict.fromkeys(("generation", "token", "owner", "actor", "worker", "who"), "who did it, in which attempt"),
    **dict.fromkeys(("previous_owner", "previous_generation", "checkpoint_generation"), "the attempt before it"),
    **dict.fromkeys(("loser", "loser_generation"), "whom that attempt replaced"),
    **dict.fromkeys(("when", "at", "late_by_s", "audit"), "when it was done: an audit key holds a time"),
    **dict.fromkeys(("repair_owner", "last_error", "delays"), "what happened on the way"),
    "ranges": "an attempt that follows one without progress makes smaller ranges",
    "attempts": "a killed attempt has counted itself; a segment that is done has none, see `_records`",
    "expires_at": "a time to live",
}
"""Attributes that may differ, and why; so may every time (`_at`, `_ms`)."""

TOLD_ONCE = ("OBSERVED", "SKIPPED", "COMPLETED", "NEEDS_REPAIR", "RELEASED", "REJECTED")
"""Audit events that do not tell of an attempt: as many as without the disturbance."""


def kept(value: Any, without: Container[str] = STAMPS) -> Any:
    """The value, at any depth without these attributes and without times."""
    if isinstance(value, Mapping):
        told = {name: kept(inner, without) for name, inner in value.items() if name not in without}
        return {name: inner for name, inner in told.items() if not name.endswith(("_at", "_ms"))}
    return [kept(inner, without) for inner in value] if isinstance(value, list) else value


def lasting(world: Stored) -> dict[str, Any]:
    """Every row that lasts, without its stamps, by what it is; and how often each lasting event is told."""
    rows: dict[str, Any] = {f"view {row['account_id']}": kept(row) for row in world.scan("EntitlementsTable")}
    told: Counter[tuple[str, str, str]] = Counter()
    for sort_key, row in world.control().items():
        if not sort_key.startswith("AUDIT#") or "#OPERATOR#" in sort_key:
            rows[sort_key] = kept(row)
        elif row["event"] in TOLD_ONCE:
            told[row["run_id"], row["event"], row.get("segment", "")] += 1
    return rows | {" ".join(("audit", *event)): count for event, count in told.items()}


def differences(before: Mapping[str, Any], after: Mapping[str, Any], name: str = "") -> list[str]:
    """What is not the same, in words, down to the attribute."""
    found = []
    for key in sorted({*before, *after}):
        was, stands = before.get(key), after.get(key)
        if isinstance(was, Mapping) and isinstance(stands, Mapping):
            found += differences(was, stands, f"{name}{key}: ")
        elif was != stands:
            found.append(f"{name}{key} is {stands} instead of {was}")
    return found


def inconsistencies(world: Stored, *, live_writer: bool) -> list[str]:
    """What contradicts itself among run records, progress, leases, audit and view."""
    rows = world.control()
    audit = [row for sort_key, row in rows.items() if sort_key.startswith("AUDIT#")]
    return [
        *_generations(world, rows, audit),
        *_completions(rows, audit),
        *_records(world, rows, live_writer),
        *_commands(audit),
        *_written(world),
    ]


def _generations(world: Stored, rows: Mapping[str, Any], audit: list[Any]) -> list[str]:
    """Every generation was given once, to one event, and a later event has a higher one."""
    found = []
    given: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in audit:
        operated = "#OPERATOR#" in row["sk"]
        if (row["event"] in BEGINNINGS and not operated) or (row["event"] == "RELEASED" and operated):
            given[row["segment"]].append((row["generation"], row["at"]))
        for fenced in row.get("fenced", []):
            given[fenced["segment"]].append((fenced["generation"], row["at"]))
        if row["event"] == "TAKEOVER" and row["loser_generation"] != row["generation"] - 1:
            found.append(f"{row['sk']} names generation {row['loser_generation']} as the loser of {row['generation']}")
    for segment in keys.segments(world.settings.segment_count):
        ordered = sorted(given[segment])
        generations = [generation for generation, _ in ordered]
        if generations != list(range(1, len(ordered) + 1)):
            found.append(f"segment {segment}: generations {generations}")
        if [at for _, at in ordered] != sorted(at for _, at in ordered):
            found.append(f"segment {segment}: generations do not rise with time: {ordered}")
        if (lease := rows.get(keys.lease(segment))) and lease["generation"] != len(ordered):
            found.append(f"segment {segment}: {len(ordered)} generations told, the lease is at {lease['generation']}")
    return found


def _completions(rows: Mapping[str, Any], audit: list[Any]) -> list[str]:
    """A segment is told complete once in a pass, and the interval is closed by the last of them."""
    told = Counter((row["run_id"], row["segment"]) for row in audit if row["event"] == "COMPLETED")
    closed = Counter(row["run_id"] for row in audit if row["event"] == "COMPLETED" and row["interval_closed"])
    observed = Counter(row["run_id"] for row in audit if row["event"] == "OBSERVED")
    found = [f"{name} is told COMPLETED {count} times" for name, count in told.items() if count != 1]
    found += [f"{run_id} is closed {count} times" for run_id, count in closed.items() if count != 1]
    found += [f"{run_id} is OBSERVED {count} times" for run_id, count in observed.items() if count != 1]
    for row in rows.values():
        if not row["sk"].startswith("INTERVAL#"):
            continue
        segments = {segment for run_id, segment in told if run_id == row["run_id"]}
        if segments != set(row["segments"]):
            found.append(f"{row['run_id']}: {segments} are told COMPLETED, but {set(row['segments'])} are recorded")
        if (row["state"] == COMPLETED) != (row["run_id"] in closed):
            found.append(f"{row['run_id']} is {row['state']}, but told closed {closed[row['run_id']]} times")
    return found


def _records(world: Stored, rows: Mapping[str, Any], live_writer: bool) -> list[str]:
    """Totals add up, progress says the same as the run record, and the newest checksum is that of the view."""
    found = []
    newest = ""
    for sort_key, row in sorted(rows.items()):
        if not sort_key.startswith("INTERVAL#") or row["state"] != COMPLETED:
            continue
        newest = row["checksum"]
        for name in ("accounts", "granted", "changed", "revoked", "rejected", "view_rows", "ranges"):
            whole = sum(totals[name] for totals in row["segments"].values())
            if row[name] != whole:
                found.append(f"{sort_key}: {name} is {row[name]}, of the segments {whole}")
        for segment, totals in row["segments"].items():
            progress = rows[keys.progress(sort_key.removeprefix("INTERVAL#"), row["pass"], segment)]
            apart = {name for name, value in totals.items() if progress.get(name, value) != value}
            if apart or not progress["done"] or progress["attempts"] or "next_attempt_at_ms" in progress:
                found.append(f"{progress['sk']} is not that of a segment which is done: {apart or progress}")
    if newest and newest != world.view_checksum() and not live_writer:
        found.append(f"the checksum is {newest}, of the view {world.view_checksum()}")
    return found


def _commands(audit: list[Any]) -> list[str]:
    told = Counter(row["event_id"] for row in audit if "#OPERATOR#" in row["sk"])
    return [f"{event_id} is told {count} times" for event_id, count in told.items() if count != 1]


def _written(world: Stored) -> list[str]:
    """Within a pass no account is written by a lower generation than one before it."""
    found = []
    highest: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in sorted(world.scan("EntitlementsTable"), key=lambda row: str(row["account_id"])):
        if "run_id" not in row:
            continue
        run = (row["run_id"], row["segment"])
        if row["generation"] < highest[run]:
            found.append(f"{row['account_id']} was written at generation {row['generation']}, after {highest[run]}")
        highest[run] = max(highest[run], row["generation"])
        if row.get("run_version", 0) > row["version"]:
            found.append(f"{row['account_id']} is at version {row['version']}, below the run's {row['run_version']}")
    return found
