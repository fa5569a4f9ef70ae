"""Answers GET /ping over HTTP/1.1, and nothing else, until the gateway exists.

```
GET /ping      200 pong
other methods  405        other paths  404
no request     400, and the connection closes; as it does after a request that brings a body
```

Invariants: a connection holds less than one head beyond what the socket gave; one that brings no
            whole head in time is closed; answers are written only as far as the peer reads them.
"""

import asyncio
import json
import re
from http import HTTPStatus
from typing import Self, cast

from headrace.base.endpoints import Endpoint

HEAD_BYTES_MAX = 8192
HEAD_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 256

_HEAD_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([!-~]{1,32}) ([!-~]+) HTTP/1\.([01])")


class HttpPing:
    """A listener; it belongs to the loop that `listen` was called on."""

    def __init__(self, head_seconds_max: float = HEAD_SECONDS_MAX) -> None:
        self._head_seconds_max = head_seconds_max
        self._server: asyncio.Server | None = None
        self._open: dict[_Connection, None] = {}

    async def listen(self, endpoint: Endpoint) -> Endpoint:
        """Bind the listener; return the bound address, in which port 0 is replaced by a free one.

        Raises:
            OSError: The address is taken, or none that can be bound.
        """
        assert self._server is None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._open, self._head_seconds_max), endpoint.host, endpoint.port
        )
        return Endpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._open):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Connection(asyncio.Protocol):
    """One client; it may send one request after another."""

    def __init__(self, others: "dict[_Connection, None]", head_seconds_max: float) -> None:
        self._others = others
        self._head_seconds_max = head_seconds_max
        self._received = bytearray()
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, for uvloop's transports are of no class of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._start_timer()
        if len(self._others) >= CONNECTIONS_MAX:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
        self._others[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # whichever side closed it, nothing is left to do
        self._deadline.cancel()
        del self._others[self]

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._serve()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._transport.resume_reading()
        self._serve()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _serve(self) -> None:
        """Answer the whole heads that have arrived."""
        while not self._is_paused and not self._transport.is_closing():
            end = self._received.find(_HEAD_END)
            if max(end, 0) > HEAD_BYTES_MAX or (end < 0 and len(self._received) > HEAD_BYTES_MAX):
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    f"more than {HEAD_BYTES_MAX} bytes before the end of the headers",
                )
            if end < 0 or self._transport.is_closing():
                return
            head = bytes(self._received[:end])
            del self._received[: end + len(_HEAD_END)]
            self._deadline.cancel()
            self._deadline = self._start_timer()
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        request, *lines = head.split(b"\r\n")
        found = _REQUEST_LINE.fullmatch(request)
        headers = _read_headers(lines)
        if found is None or headers is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
            return
        method, target, minor = found.groups()
        # A body is not read, so the bytes after the head are ignored.
        is_last = (
            minor == b"0"
            or b"close" in headers.get(b"connection", b"").lower()
            or b"transfer-encoding" in headers
            or headers.get(b"content-length", b"0") != b"0"
        )
        if target.partition(b"?")[0] != b"/ping":
            self._send_error(HTTPStatus.NOT_FOUND, "only /ping is served here", is_last=is_last)
        elif method != b"GET":
            self._send_error(HTTPStatus.METHOD_NOT_ALLOWED, "use GET", is_last=is_last)
        else:
            self._send(HTTPStatus.OK, "text/plain; charset=utf-8", b"pong", is_last=is_last)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send_error(status, text, is_last=True)

    def _send_error(self, status: HTTPStatus, text: str, *, is_last: bool) -> None:
        body = json.dumps({"error": text}).encode()
        self._send(status, "application/json", body, is_last=is_last)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, *, is_last: bool) -> None:
        allow = "Allow: GET\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"X-Content-Type-Options: nosniff\r\n"
            f"{allow}Connection: {'close' if is_last else 'keep-alive'}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        if is_last:
            self._received.clear()
            self._transport.close()

    def _start_timer(self) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(self._head_seconds_max, self._transport.abort)


def _read_headers(lines: list[bytes]) -> dict[bytes, bytes] | None:
    """Return the headers by lower-case name, or nothing if a line is no header."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not re.fullmatch(rb"[!-9;-~]+", name):
            return None
        headers[name.lower()] = value.strip()
    return headers
