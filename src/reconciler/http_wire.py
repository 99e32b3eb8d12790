"""One request to a provider, and its whole answer before a deadline, over connections that are kept open.

The timeout of a socket bounds each piece of an answer, not the answer: one that drips would outlast every lease. Here
whatever is read, from the status line on, is read within one deadline. Nothing is retried, no redirect followed, and
no proxy of the environment asked. TLS is verified; SSL_CERT_FILE names certificates of one's own.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Mapping
from functools import cache
from http.client import HTTPResponse
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, SSLError

from reconciler.clock import SystemClock
from reconciler.provider_answers import MAX_BODY_BYTES, Answer

CHUNK_BYTES = 65_536


class NotTrusted(Exception):
    """The provider's certificate was not accepted; the message says why."""


def get(url: str, headers: Mapping[str, str], *, connect_s: float, read_s: float) -> Answer | str:
    """What the provider answered within `connect_s` + `read_s`, or, in a word, why there is no complete answer.

    Raises NotTrusted.
    """
    try:
        response = _pools().request(
            "GET",
            url,
            headers=headers,
            timeout=urllib3.Timeout(connect=connect_s, read=read_s),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            body = bytearray()
            while len(body) <= MAX_BODY_BYTES and (chunk := response.read(CHUNK_BYTES)):
                body += chunk
        finally:
            response.close()  # the connection, unless the answer was read to its end and the pool has it back
    except HTTPError as error:
        untrusted = error.args[0] if isinstance(error, SSLError) and error.args else None
        no_answer = type(error).__name__
    else:
        return Answer(response.status, response.headers, bytes(body))
    if isinstance(untrusted, ssl.SSLCertVerificationError):
        raise NotTrusted(untrusted.verify_message)
    return no_answer


@cache
def _pools() -> urllib3.PoolManager:
    """Of this process, so that warm invocations find their connection open."""
    alive = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    pools = urllib3.PoolManager(ssl_context=ssl.create_default_context(), socket_options=alive)
    pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return pools


class _BeforeDeadline(io.RawIOBase):
    """Reads a socket until the time is up that its timeout gave at the beginning."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self._raw, self._sock, self._clock = raw, sock, SystemClock()
        timeout = sock.gettimeout()
        assert timeout is not None
        self._until = self._clock.monotonic() + timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._sock.settimeout(left)
        read: int | None = self._raw.readinto(buffer)
        return read

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_BeforeDeadline(self.fp.detach(), sock))


class _HttpConnection(HTTPConnection):
    response_class = _Response


class _HttpsConnection(HTTPSConnection):
    response_class = _Response


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
