"""How time and memory grow with the accounts: the real handler, with accounts that are made up as they are read.

Only Queries of accounts and effects on them are answered here, as the emulator would be the bottleneck; leases,
checkpoints and all else still go to it. One account in a hundred is out of line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from bench.job import PAGE_SIZE

SIZES = (1_000, 10_000, 100_000, 1_000_000)
OUT_OF_LINE = 100
"""One account in so many."""


class Synthetic:
    """A DynamoDB client whose tables of accounts hold `accounts` rows that nobody stores.

    `making_s` is the CPU time it took to make rows up, which no run has to pay for.
    """

    def __init__(self, client: Any, source: str, view: str, accounts: int) -> None:
        self._client, self._view, self._accounts = client, view, accounts
        self._sides = (source, view)
        self.making_s = 0.0

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    def query(self, **request: Any) -> dict[str, Any]:
        """A consistent Query of a segment, a page at a time."""
        if request["TableName"] not in self._sides:
            answer: dict[str, Any] = self._client.query(**request)
            return answer
        began = time.thread_time()
        upto = request["ExpressionAttributeValues"].get(":upto")
        end = min(self._accounts, int(upto["S"]) + 1 if upto else self._accounts)
        first = int(request["ExclusiveStartKey"]["account_id"]["S"]) + 1 if "ExclusiveStartKey" in request else 0
        last = min(end, first + request.get("Limit", PAGE_SIZE))
        changed = request["TableName"] == self._view
        made: dict[str, Any] = {"Items": json.loads(f"[{','.join(row(n, changed) for n in range(first, last))}]")}
        if last < end:
            made["LastEvaluatedKey"] = {"segment": {"S": "000"}, "account_id": {"S": f"{last - 1:012d}"}}
        self.making_s += time.thread_time() - began
        return made

    def transact_write_items(self, *, TransactItems: list[Mapping[str, Any]], **rest: Any) -> Any:  # noqa: N803 - AWS's
        """The transaction without its effects on accounts."""
        kept = [step for step in TransactItems if next(iter(step.values()))["TableName"] != self._view]
        return self._client.transact_write_items(TransactItems=kept, **rest)


def row(number: int, view: bool) -> str:
    """An account in DynamoDB's JSON, as the seeded ones are; in the view, some have a seat too many."""
    seats = 7 + (view and number % OUT_OF_LINE == 0)
    entitlements = (
        f'{{"M":{{"plan":{{"S":"plus"}},"seats":{{"N":"{seats}"}},"rate":{{"N":"2.25"}},'
        f'"quota":{{"N":"{9007199254740993 + number}"}},"support":{{"BOOL":true}}}}}}'
    )
    side = '"version":{"N":"3"}' if view else '"status":{"S":"active"}'
    return f'{{"segment":{{"S":"000"}},"account_id":{{"S":"{number:012d}"}},{side},"entitlements":{entitlements}}}'
