"""Every message of the workers on its way through the proxy, and what becomes of it."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from tests.faults import Writer, writer_of
from tools.faults import Fault, Forward
from tools.ledger import Entry
from tools.proxy import Proxy
from tools.wire import Answer, Call

LIVE = "live"
"""The caller whose messages nothing happens to: live writers, whose writes are counted all the same."""


def undisturbed(call: Call, forward: Forward) -> Answer | None:
    return forward()


def writer(call: Call) -> Writer | None:
    """Whose transaction a message carries; None for other messages."""
    return writer_of(call.request["TransactItems"]) if call.operation == "TransactWriteItems" else None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A transaction that the table answered: as answer number `at`, after so many answers when it was handed over."""

    call: Call
    entry: Entry
    at: int
    after: int


class Traffic:
    """Lets `disturb` decide about each message, and remembers what was handed to the table, and when."""

    def __init__(self, proxy: Proxy) -> None:
        self.disturb: Fault = undisturbed
        self._proxy = proxy
        self._sent: Counter[str] = Counter()
        self._calls: dict[int, Call] = {}
        self._handed: defaultdict[int, list[int]] = defaultdict(list)
        self._lock = threading.Lock()
        proxy.on(lambda call: call.caller != LIVE, self, times=None)

    def __call__(self, call: Call, forward: Forward) -> Answer | None:
        with self._lock:
            self._sent[call.caller] += 1

        def handed_over() -> Answer | None:
            self._note(call)
            return forward()

        return self.disturb(call, handed_over)

    def again(self, call: Call) -> None:
        """A copy of a message arrives, when the table has forgotten its request token."""
        self._note(call)
        request = {name: value for name, value in call.request.items() if name != "ClientRequestToken"}
        self._proxy.forward(replace(call, request=request, body=json.dumps(request).encode()))

    def sent(self, caller: str) -> int:
        """How many messages this caller has sent so far."""
        with self._lock:
            return self._sent[caller]

    def deliveries(self) -> list[Delivery]:
        """Every transaction that was answered, in the order of the answers."""
        found = []
        with self._lock:
            handed = {number: list(after) for number, after in self._handed.items()}
        for at, entry in enumerate(self._proxy.ledger.entries()):
            if handed.get(entry.number):
                found.append(Delivery(self._calls[entry.number], entry, at, handed[entry.number].pop(0)))
        return found

    def _note(self, call: Call) -> None:
        if call.operation == "TransactWriteItems":
            answered = len(self._proxy.ledger.entries())
            with self._lock:
                self._calls[call.number] = call
                self._handed[call.number].append(answered)
