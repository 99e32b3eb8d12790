"""What one run asked of DynamoDB, counted at the proxy; and the least that such a run can do with."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.job import PAGE_SIZE
from tools.meter import Meter
from tools.seed import Seeded
from tools.wire import Answer, Call

Kind = tuple[str, str]


@dataclass(slots=True)
class Tally:
    """A fault of the proxy that counts what passes; `die_at` requests that touch accounts, then `kill`, and no answer.

    `sides` are the two tables of accounts; `rows` is what Queries of them returned.
    """

    sides: frozenset[str]
    die_at: int | None = None
    kill: Callable[[], object] = lambda: None
    operations: Counter[str] = field(default_factory=Counter)
    work: int = 0
    reads: int = 0
    rows: int = 0
    meter: Meter = field(default_factory=Meter)

    def __call__(self, call: Call, forward: Callable[[], Answer | None]) -> Answer | None:
        answer = self.meter(call, forward)
        self.operations[call.operation] += 1
        if self.sides.intersection(call.tables):
            self.work += 1
            if call.operation == "Query":
                self.reads += 1
                self.rows += int(json.loads(answer.body)["Count"]) if answer and not answer.error else 0
            if self.work == self.die_at:
                self.kill()
                return None
        return answer

    def units(self, heaviest: Mapping[Kind, int]) -> tuple[float, float]:
        """Read and write units; `heaviest` are the rows as they stand, by (table, kind)."""
        use = self.meter.taken(heaviest, 0)
        return use.read_units, use.write_units


def minimum(seeded: Seeded, *, actions: int, checkpointed: bool, page: int = PAGE_SIZE) -> int:
    """The least number of requests for these accounts: every page of both sides once, and the transactions.

    A page that is full goes on, as DynamoDB has it, even where nothing is left: the last one is never full.
    A transaction takes `actions` effects. Who keeps a checkpoint writes at least once per source page, and what a page
    needs does not wait for the next one.
    """
    pages = sum(len(rows) // page + 1 for rows in (seeded.source, seeded.view))
    needs = out_of_line(seeded)
    if not checkpointed:
        return pages + math.ceil(len(needs) / actions)
    ids = sorted(row["account_id"] for row in seeded.source)
    ends = ids[page - 1 :: page][: max(0, math.ceil(len(ids) / page) - 1)]
    per_page = Counter(sum(account_id > end for end in ends) for account_id in needs)
    return pages + sum(max(1, math.ceil(per_page[number] / actions)) for number in range(len(ends) + 1))


def out_of_line(seeded: Seeded) -> list[str]:
    """The accounts that a run has to change."""
    wanted: dict[str, Any] = {
        row["account_id"]: row["entitlements"] if row["status"] == "active" else {} for row in seeded.source
    }
    present = {row["account_id"]: row["entitlements"] for row in seeded.view}
    return [
        account_id
        for account_id in sorted(wanted.keys() | present.keys())
        if isinstance(wanted.get(account_id, {}), Mapping) and wanted.get(account_id, {}) != present.get(account_id, {})
    ]
