"""A recording proxy in front of DynamoDB: it counts what passes, and a test can disturb single messages.

It stands outside the workers, so it sees what they really sent, and says who sent it: a caller is the access key id
that signed the request. Loopback only. `python -m tools.proxy --upstream URL` runs it as a process of its own;
`GET /_proxy/counts` and `GET /_proxy/log` then show what it saw.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from http.client import HTTPException
from typing import Any

from tools.faults import Fault, Hold
from tools.ledger import DROPPED, Ledger
from tools.transport import Listener, Upstream
from tools.wire import Answer, Call, parse


@dataclass(slots=True)
class Rule:
    """A fault for the next `times` calls that match, or for all of them when `times` is None."""

    matches: Callable[[Call], bool]
    fault: Fault
    times: int | None
    matched: list[Call] = field(default_factory=list)

    def takes(self, call: Call) -> bool:
        if self.times == 0 or not self.matches(call):
            return False
        if self.times is not None:
            self.times -= 1
        self.matched.append(call)
        return True


class Proxy:
    """Forwards every request to `upstream`, records the answer in `ledger`, applies the first rule that matches."""

    def __init__(self, upstream: str, port: int = 0) -> None:
        self.ledger = Ledger()
        self._upstream = Upstream(upstream)
        self._rules: list[Rule] = []
        self._schemas: dict[str, tuple[str, ...]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._listener = Listener(self._serve, port)
        self.url = self._listener.url

    def on(self, matches: Callable[[Call], bool], fault: Fault, *, times: int | None = 1) -> Rule:
        """Add a rule; rules are asked in the order in which they were added."""
        rule = Rule(matches, fault, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def forward(self, call: Call) -> Answer | None:
        """Send a call to the upstream and record its answer; also to repeat a call, however much later.

        None when the upstream did not answer.
        """
        began = time.monotonic()
        try:
            answer = self._upstream.send(call.method, call.path, dict(call.headers), call.body)
        except (OSError, HTTPException):
            self.ledger.unanswered(call, "unreachable")
            return None
        self.ledger.answered(call, answer, partial(self._schema, call), time.monotonic() - began)
        return answer

    def close(self) -> None:
        """Drop what is held and end every connection; raises the first defect of a rule, if there was any."""
        for rule in self._rules:
            if isinstance(rule.fault, Hold):
                rule.fault.drop()
        try:
            self._listener.close()
        finally:
            self._upstream.close()

    def _serve(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        if path.startswith("/_proxy/"):
            return self._shown(path.removeprefix("/_proxy/"))
        call = parse(next(self._numbers), method, path, headers, body)
        with self._lock:
            rule = next((rule for rule in self._rules if rule.takes(call)), None)
        if rule is None:
            return self.forward(call)
        forwarded = False

        def forward() -> Answer | None:
            nonlocal forwarded
            forwarded = True
            return self.forward(call)

        answer = rule.fault(call, forward)
        if not forwarded:
            self.ledger.unanswered(call, (answer.error if answer else None) or DROPPED)
        return answer

    def _shown(self, what: str) -> Answer:
        shown: Any = None
        if what == "counts":
            shown = self.ledger.counts()
        elif what == "log":
            shown = [asdict(entry) for entry in self.ledger.entries()]
        headers = {"Content-Type": "application/json"}
        return Answer(404 if shown is None else 200, headers, json.dumps(shown).encode())

    def _schema(self, call: Call, table: str) -> tuple[str, ...]:
        """The key attributes of a table, asked of the upstream once, in the name of the caller."""
        if table not in self._schemas:
            target = {"X-Amz-Target": "DynamoDB_20120810.DescribeTable"}
            kept = {name: value for name, value in call.headers.items() if name.lower() != "x-amz-target"}
            answer = self._upstream.send("POST", "/", kept | target, json.dumps({"TableName": table}).encode())
            schema = json.loads(answer.body)["Table"]["KeySchema"]
            self._schemas[table] = tuple(part["AttributeName"] for part in schema)
        return self._schemas[table]


@contextmanager
def proxy(upstream: str, port: int = 0) -> Iterator[Proxy]:
    """Run a proxy in front of `upstream` for as long as the block lasts."""
    running = Proxy(upstream, port)
    try:
        yield running
    finally:
        running.close()


def main() -> None:
    """Run until SIGTERM or Ctrl-C; the first line printed is {"url": …}."""
    parser = argparse.ArgumentParser(prog="python -m tools.proxy", description="Recording proxy for a local DynamoDB.")
    parser.add_argument("--upstream", required=True, help="URL of the emulator")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with proxy(arguments.upstream, arguments.port) as running:
        print(json.dumps({"url": running.url}), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
