"""A provider of accounts on loopback: the REST interface that `Source=http` reads, with a log and faults to switch on.

curl -d '{"next": ["throttle:5", "cut"]}' <address>/control     what happens to the next requests, one each
curl -d '{"always": "slow:1"}' <address>/control                to every other one; "" ends it
curl -d '{"share": 0.5}' <address>/control                      it shows only the first half of its accounts
curl <address>/control                                          every request so far
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent, fill
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

sys.path.append(str(Path(__file__).resolve().parents[1] / "src"))

from reconciler.checksum import canonical
from reconciler.keys import segment_of
from tools.provider_faults import FAULTS, Draft, spoil
from tools.seed import plan

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived; `at` by the provider's own clock, `connection` counted from 1."""

    at: float
    after: str | None
    limit: int | None
    segment: str | None
    run_id: str | None
    attempt: str | None
    agent: str | None
    cache: str | None
    connection: int
    fault: str


@dataclass(slots=True)
class Provider:
    """Answers for as long as a `with` block lasts. `accounts` are JSON texts by id, in any order; change them any time.

    `token` is the only one accepted, None accepts all. `share` of the accounts are shown. `now` stamps the log;
    `arrives` may do something when a request has arrived and been stamped.
    """

    accounts: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    share: float = 1.0
    now: Callable[[], float] = time.monotonic
    arrives: Callable[[], None] = lambda: None
    port: int = 0
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)
    always: str = ""
    connections: list[Any] = field(default_factory=list)
    _server: ThreadingHTTPServer = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        provider = self

        class Handler(_Handler):
            def setup(self) -> None:
                provider.connections.append(self.request)
                self.provider, self.connection_no = provider, len(provider.connections)
                super().setup()

        self._server = ThreadingHTTPServer((LOCALHOST, self.port), Handler)
        if self.tls:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self.hang_up()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://{LOCALHOST}:{self._server.server_port}/v1"

    def put(self, account_id: str, status: str = "active", **entitlements: object) -> None:
        """An account as the protocol says; `accounts[id] = text` puts any other."""
        row = {"account_id": account_id, "status": status, "entitlements": entitlements}
        self.accounts[account_id] = canonical(row)

    def fail(self, *faults: str) -> None:
        """Let these happen to the next requests, one each; "" is none."""
        self.waiting += faults

    def hang_up(self) -> None:
        """Close every connection that is open, as a provider does with idle ones."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(2)

    def page(self, query: dict[str, str]) -> Draft:
        """The answer that is right for a query."""
        after, limit = query.get("after"), int(query["limit"])
        ids = sorted(self.accounts)
        ids = ids[: round(len(ids) * self.share)]
        if "segment" in query:
            ids = [name for name in ids if segment_of(name, int(query["segments"])) == query["segment"]]
        ids = [name for name in ids if after is None or name > after]
        on = ids[limit - 1] if len(ids) > limit else None
        return Draft([self.accounts[name] for name in ids[:limit]], on)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for its headers to be acknowledged
    provider: Provider
    connection_no: int

    def do_GET(self) -> None:
        provider = self.provider
        at = provider.now()
        path, query = urlsplit(self.path).path, self._query()
        if path.endswith("/control"):
            return self._send(Draft([], None, body=json.dumps([asdict(asked) for asked in provider.asked]).encode()))
        fault = provider.waiting.popleft() if provider.waiting else provider.always
        about = self.headers.get
        provider.asked.append(
            Asked(
                at,
                query.get("after"),
                int(limit) if (limit := query.get("limit", "")).isdecimal() else None,
                query.get("segment"),
                about("X-Run-Id"),
                about("X-Attempt"),
                about("User-Agent"),
                about("Cache-Control"),
                self.connection_no,
                fault,
            )
        )
        provider.arrives()
        try:
            draft = provider.page(query)
        except (KeyError, ValueError, ZeroDivisionError):  # a parameter is missing, or no number
            draft = Draft([], None, 400, body=b"{}")
        if provider.token is not None and about("Authorization") != f"Bearer {provider.token}":
            draft = Draft([], None, 401, body=b'{"error": "unauthorized"}')
        if fault:
            spoil(draft, fault)
        return self._send(draft)

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        faults = [*said.get("next", []), said.get("always", "")]
        if unknown := {fault.partition(":")[0] for fault in faults if fault} - set(FAULTS):
            return self._send(Draft([], None, 400, body=json.dumps({"unknown": sorted(unknown)}).encode()))
        self.provider.fail(*said.get("next", []))
        self.provider.always = said.get("always", self.provider.always)
        self.provider.share = float(said.get("share", self.provider.share))
        return self._send(Draft([], None, body=b"{}"))

    def _query(self) -> dict[str, str]:
        """A plus is a plus, as RFC 3986 has it: not all who answer take it for a space."""
        query = parse_qs(urlsplit(self.path).query.replace("+", "%2B"), keep_blank_values=True)
        return {name: values[-1] for name, values in query.items()}

    def _send(self, draft: Draft) -> None:
        time.sleep(draft.wait_s)
        body = draft.rendered()
        self.close_connection = draft.hang_up or draft.cut
        if draft.hang_up:
            return
        with suppress(OSError):  # whoever asked has given up
            self.send_response(draft.status)
            for name, value in {**draft.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if draft.drip_s:
                for index in range(len(body)):
                    time.sleep(draft.drip_s)
                    self.wfile.write(body[index : index + 1])
            self.wfile.write(b"" if draft.drip_s else body[: len(body) // 2] if draft.cut else body)

    def log_message(self, format: str, *args: object) -> None:
        """The provider keeps its own log."""


def main() -> None:
    description, _, control = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tools.provider",
        description=description,
        epilog=f"{dedent(control).strip()}\n\nfaults, some with an argument:\n{fill(', '.join(FAULTS))}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    parser.add_argument("--accounts", default=1_000, **number, help="as make local plans them (%(default)s)")
    parser.add_argument("--seed", default=0, **number, help="other accounts for another seed (%(default)s)")
    parser.add_argument("--port", default=0, **number, help="on 127.0.0.1; 0 takes a free one (%(default)s)")
    parser.add_argument("--token", help="the bearer token to insist on; without it, none is asked for")
    given = parser.parse_args()
    rows = plan(accounts=given.accounts, seed=given.seed).source
    accounts = {row["account_id"]: canonical({n: v for n, v in row.items() if n != "segment"}) for row in rows}
    with Provider(accounts, token=given.token, port=given.port) as provider, suppress(KeyboardInterrupt):
        print(provider.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
