"""What went through the proxy: an ordered log, and counts of reads, writes and versions per table and caller.

The order is that of the answers of the upstream, so an entry stands behind everything it was decided on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from tools.wire import Answer, Call, Effect, Key, Schema

OK = "ok"
DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Entry:
    """One message and what became of it upstream.

    `outcome` is `ok`, an error code, `dropped` (never forwarded) or `unreachable`; `reasons` are the codes of a
    cancelled transaction's items; `replayed` marks the repeat of an applied request token, which changes nothing.
    `seconds` is the time the upstream took.
    """

    number: int
    caller: str
    operation: str
    tables: tuple[str, ...]
    outcome: str
    reasons: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    replayed: bool = False
    seconds: float = 0.0


class Ledger:
    """Thread-safe record of what was read and written. Reads and writes count only when they succeeded."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[Entry] = []
        self._reads: Counter[tuple[str, str]] = Counter()
        self._writes: Counter[tuple[str, str]] = Counter()
        self._tokens: set[str] = set()

    def answered(self, call: Call, answer: Answer, schema: Schema, seconds: float) -> Entry:
        """Record one answer of the upstream."""
        effects = call.effects(answer, schema)
        token = call.request.get("ClientRequestToken") if answer.error is None else None
        with self._changed:
            replayed = token in self._tokens
            if token is not None:
                self._tokens.add(token)
            entry = Entry(
                call.number,
                call.caller,
                call.operation,
                call.tables,
                answer.error or OK,
                answer.reasons,
                () if replayed else effects,
                replayed,
                seconds,
            )
            if answer.error is None:
                self._reads.update((table, call.caller) for table in call.reads)
            self._writes.update((effect.table, call.caller) for effect in entry.effects)
            self._add(entry)
        return entry

    def unanswered(self, call: Call, outcome: str) -> None:
        """Record a message that the upstream did not answer."""
        with self._changed:
            self._add(Entry(call.number, call.caller, call.operation, call.tables, outcome))

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._changed.notify_all()

    def entries(self) -> list[Entry]:
        """Return the log so far, oldest first."""
        with self._changed:
            return list(self._entries)

    def reads(self, table: str | None = None, caller: str | None = None) -> int:
        """Return the number of reads, of one table or caller if named."""
        return self._count(self._reads, table, caller)

    def writes(self, table: str | None = None, caller: str | None = None) -> int:
        """Return the number of items written, of one table or caller if named."""
        return self._count(self._writes, table, caller)

    def _count(self, counter: Counter[tuple[str, str]], table: str | None, caller: str | None) -> int:
        with self._changed:
            return sum(n for (t, c), n in counter.items() if table in (None, t) and caller in (None, c))

    def changes(self, table: str, *callers: str) -> Counter[Key]:
        """Return the number of successful writes per row of a table, by the callers named or by all."""
        return Counter(effect.key for effect in self._effects(table, callers))

    def versions(self, table: str, *callers: str) -> dict[Key, list[int]]:
        """Return, per row of a table, every `version` it was given, in order."""
        found: defaultdict[Key, list[int]] = defaultdict(list)
        for effect in self._effects(table, callers):
            if effect.version is not None:
                found[effect.key].append(effect.version)
        return dict(found)

    def _effects(self, table: str, callers: tuple[str, ...]) -> list[Effect]:
        entries = [entry for entry in self.entries() if not callers or entry.caller in callers]
        return [effect for entry in entries for effect in entry.effects if effect.table == table]

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return caller → table → {reads, writes, versions}, for people and for JSON."""
        found: defaultdict[str, defaultdict[str, dict[str, int]]] = defaultdict(
            lambda: defaultdict(lambda: {"reads": 0, "writes": 0, "versions": 0})
        )
        with self._changed:
            for name, counter in (("reads", self._reads), ("writes", self._writes)):
                for (table, caller), number in counter.items():
                    found[caller][table][name] = number
        for entry in self.entries():
            for effect in entry.effects:
                found[entry.caller][effect.table]["versions"] += effect.version is not None
        return {caller: dict(tables) for caller, tables in found.items()}

    def wait_for(self, reached: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Block until `reached()`, asked after each entry, is true; raises TimeoutError naming `what`."""
        deadline = time.monotonic() + timeout_s
        with self._changed:  # reentrant: `reached` may ask this ledger
            while not reached():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not within {timeout_s:g} s: {what}")
                self._changed.wait(min(left, 0.25))
