"""What AWS would charge for the job's own requests: a real worker, behind a proxy that weighs every message.

Units are DynamoDB's of on-demand tables (Developer Guide, "Read and write operations"): a consistent read takes one for
each 4 KB of all it returns, a write one for each KB of the row, twice that in a transaction, condition checks included.
What an update leaves behind is not in its request: rows are weighed as they stand after the run, by the heaviest of
their kind.
"""

from __future__ import annotations

import json
import math
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any

from tools.proxy import Proxy
from tools.scene import local_client, scheduled_event
from tools.seed import Seeded, plan, seed
from tools.tables import create_tables, environment
from tools.wire import Answer, Call
from tools.worker import Worker

JOB = "nightly-entitlements"
"""As long as the stack's name, which is part of every view row's `run_id`."""

ROW_OVERHEAD = 100
"""Bytes that DynamoDB adds to each stored row."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one invocation took."""

    requests: int
    read_units: float
    write_units: float
    log_bytes: int


@dataclass(frozen=True, slots=True)
class Night:
    """What a night of so many accounts took, an idle tick after it, and a look of the watchdog; sizes in bytes.

    `kept_bytes` and `written_bytes` are the mean view row that the night left alone, and that it granted or changed.
    """

    accounts: int
    ranges: int
    night: Use
    tick: Use
    look: Use
    account_bytes: float
    kept_bytes: float
    written_bytes: float
    control_bytes: int


@dataclass(slots=True)
class Meter:
    """A fault of the proxy that spoils nothing, and weighs what passes."""

    requests: int = 0
    read_units: float = 0.0
    writes: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def __call__(self, call: Call, forward: Callable[[], Answer | None]) -> Answer | None:
        answer = forward()
        self.requests += 1
        if answer is not None and answer.error is None:
            body = json.loads(answer.body)
            if call.operation in ("GetItem", "Query"):
                rows = body.get("Items", [body["Item"]] if "Item" in body else [])
                units = max(1, math.ceil(sum(map(weight, rows)) / 4096))
                self.read_units += units if call.request.get("ConsistentRead") else units / 2
            elif call.operation == "TransactWriteItems":
                for action in call.request["TransactItems"]:
                    (each,) = action.values()
                    self.writes[each["TableName"], kind(each.get("Key") or each["Item"]), 2] += 1
            elif call.operation in ("PutItem", "UpdateItem", "DeleteItem"):
                key = call.request.get("Key") or call.request["Item"]
                self.writes[call.request["TableName"], kind(key), 1] += 1
        return answer

    def taken(self, heaviest: Mapping[tuple[str, str], int], log_bytes: int) -> Use:
        """What passed so far, and from now on nothing."""
        written = sum(
            count * times * math.ceil(heaviest.get((table, what), 1) / 1024)
            for (table, what, times), count in self.writes.items()
        )
        use = Use(self.requests, self.read_units, written, log_bytes)
        self.requests, self.read_units, self.writes = 0, 0.0, Counter()
        return use


def kind(row: Mapping[str, Any]) -> str:
    """What sort of row a key is of: the first part of a control row's sort key, or nothing."""
    return str(row["sk"]["S"]).partition("#")[0] if "sk" in row else ""


def weight(row: Mapping[str, Any]) -> int:
    """A row's size by DynamoDB's published rules, in bytes."""
    return sum(len(name.encode()) + _weight(value) for name, value in row.items())


def _weight(value: Mapping[str, Any]) -> int:
    ((tag, content),) = value.items()
    match tag:
        case "S":
            return len(str(content).encode())
        case "N":
            digits = str(content).strip("-").replace(".", "").strip("0")
            return math.ceil(len(digits) / 2) + 1 + int(str(content).startswith("-"))
        case "M":
            return 3 + sum(len(name.encode()) + 1 + _weight(each) for name, each in content.items())
        case "L":
            return 3 + sum(1 + _weight(each) for each in content)
    return 1


def measure(between: Proxy, upstream: str, *, accounts: int, changed: float) -> Night:
    """Run one night of `accounts`, a share `changed` of them out of line, an idle tick and a look of the watchdog."""
    meter = Meter()
    client = local_client(upstream, "scale")
    tables = create_tables(client, suffix=uuid.uuid4().hex[:8])
    control, source, view = (tables[name] for name in ("ControlTable", "AccountsTable", "EntitlementsTable"))
    due = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)
    seeded = stamped(plan(accounts=accounts, changed=changed), due - timedelta(days=1))
    seed(client, seeded, accounts_table=source, entitlements_table=view)
    variables = environment(tables, job=JOB, overrides={"SCHEDULE_HOUR": due.hour, "SCHEDULE_MINUTE": due.minute})
    name = f"costs-{accounts}"
    between.on(lambda call: call.caller == name, meter, times=None)

    def rows(table: str) -> list[dict[str, Any]]:
        pages = client.get_paginator("scan").paginate(TableName=table)
        return [row for page in pages for row in page["Items"]]

    def use(worker: Worker, trigger: str, minutes: int, handler: str) -> tuple[Use, Any]:
        logged = worker.log.stat().st_size
        event = scheduled_event(trigger, due + timedelta(minutes=minutes))
        reply = worker.call(event, handler=handler, timeout_s=300)
        if reply.error:
            raise RuntimeError(f"{trigger}: {reply.error}: {reply.message}")
        heaviest: Counter[tuple[str, str]] = Counter()
        for table in tables.values():
            for row in rows(table):
                heaviest[table, kind(row)] = max(heaviest[table, kind(row)], weight(row))
        return meter.taken(heaviest, worker.log.stat().st_size - logged), reply.result

    with (
        tempfile.TemporaryDirectory() as directory,
        Worker(name, variables, endpoint=between.url, directory=Path(directory)) as worker,
    ):
        worker.ready()
        night, answer = use(worker, "nightly", 0, "reconcile")
        tick, _ = use(worker, "tick", 1, "reconcile")
        look, _ = use(worker, "watchdog", 1, "watchdog")
    stored = sum(weight(row) + ROW_OVERHEAD for table in (source, view) for row in rows(table))
    control_bytes = sum(weight(row) + ROW_OVERHEAD for row in rows(control))
    ranges = sum(attempt["ranges"] for attempt in answer["attempts"])
    left: dict[bool, list[int]] = {True: [], False: []}
    for row in rows(view):
        if row["entitlements"]["M"]:
            left[row["interval_id"]["S"] == due.date().isoformat()].append(weight(row))
    kept, written = mean(left[False]), mean(left[True])
    return Night(accounts, ranges, night, tick, look, stored / accounts, kept, written, control_bytes)


def stamped(rows: Seeded, night: datetime) -> Seeded:
    """The view as the job left it on an earlier night: every row says which run wrote it."""
    day = night.date().isoformat()
    stamp = {
        "interval_id": day,
        "run_id": f"{JOB}/{day}/1",
        "generation": 1,
        "updated_at": f"{night:%Y-%m-%dT%H:%M:%S}.000Z",
    }
    return replace(rows, view=tuple({**row, "run_version": row["version"], **stamp} for row in rows.view))
