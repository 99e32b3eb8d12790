"""HTTP on loopback, both sides of a proxy: a threaded keep-alive listener, and pooled connections to an upstream."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tools.wire import Answer

LOCALHOST = "127.0.0.1"
HOP_BY_HOP = ("host", "connection", "content-length", "transfer-encoding")
IDLE_S = 20.0  # the upstream closes idle connections; one that it closes under a request would be an unknown outcome

Handle = Callable[[str, str, dict[str, str], bytes], Answer | None]
"""(method, path, headers, body) → the answer, or None to break the connection."""


class Upstream:
    """Sends requests to one server, each once, over connections that are used again. Thread-safe."""

    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        self._address = urlsplit(url)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: list[tuple[HTTPConnection, float]] = []

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Raises OSError or HTTPException when there is no answer; the request may have been applied all the same."""
        connection = self._connection()
        try:
            kept = {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
            connection.request(method, path, body, kept)
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append((connection, time.monotonic()))
        return answer

    def _connection(self) -> HTTPConnection:
        with self._lock:
            while self._idle:
                connection, used = self._idle.pop()
                if time.monotonic() - used < IDLE_S:
                    return connection
                connection.close()
        return HTTPConnection(self._address.hostname or LOCALHOST, self._address.port, timeout=self._timeout_s)

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop()[0].close()


class Listener:
    """Serves `handle` on a loopback port, one thread per connection, until `close`."""

    def __init__(self, handle: Handle, port: int = 0) -> None:
        self._server = _Server((LOCALHOST, port), partial(_Connection, handle))
        self.url = f"http://{LOCALHOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        """End every connection and thread; raises the first defect of `handle`, if there was any."""
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        if self._server.defects:
            raise self._server.defects[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.defects: list[BaseException] = []
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._ending = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke, its caller gone, is no defect; everything else is kept for `close`."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.defects.append(error)

    def began(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
            if self._ending:
                _shut(connection)

    def ended(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def end_connections(self) -> None:
        with self._lock:
            self._ending = True
            for connection in self._connections:
                _shut(connection)
        self.server_close()


class _Connection(BaseHTTPRequestHandler):
    """One caller's connection, kept alive."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def __init__(self, handle: Handle, *args: Any) -> None:
        self._handle = handle
        super().__init__(*args)

    def setup(self) -> None:
        super().setup()
        self.server.began(self.connection)

    def finish(self) -> None:
        self.server.ended(self.connection)
        with suppress(OSError):
            super().finish()

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # its caller died while it wrote: such a request never arrives
            self.close_connection = True
            return
        try:
            answer = self._handle(self.command, self.path, dict(self.headers.items()), body)
        except Exception as defect:
            self.server.defects.append(defect)
            answer = None
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if not answer.byte_s:
            self.wfile.write(answer.body)
            return
        for byte in answer.body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(answer.byte_s)

    do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815 - the names http.server looks for

    def log_message(self, *args: Any) -> None:
        """The ledger is the log."""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
