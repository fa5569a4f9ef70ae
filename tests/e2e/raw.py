"""A client of bare frames: it sends what it is told, right or wrong, and reads what comes back."""

import socket
from typing import TypeVar

from headrace.base.endpoints import Endpoint
from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.wire.commands.command import Command
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    LOGOUT,
    ClientVersion,
    PasswordLogin,
    Register,
    TokenLogin,
)
from headrace.wire.commands.tokens import CreatedToken
from headrace.wire.layout import SIZE
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED
from tests.known_secrets import remember

ANSWER_SECONDS_MAX = 20.0  # longer than the node itself lets a request wait

Q = TypeVar("Q")
R = TypeVar("R")


class RawConnection:
    """A socket, and the frames that come out of it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._socket = socket.create_connection(endpoint, timeout=ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def shrink(self, size: int) -> None:
        """Have the system hold little of what was not received yet."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    def send(self, data: bytes) -> None:
        """Send bytes; a peer that has closed meanwhile is found out by `receive`."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> bytes | None:
        """Give the next frame, or nothing when the peer has closed.

        Raises:
            TimeoutError: Neither came in time.
        """
        while (frame := self._cut()) is None:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                assert not self._received, f"closed after {len(self._received)} bytes of a frame"
                return None
            self._received += data
        return frame

    def _cut(self) -> bytes | None:
        """Take a whole frame out of what was received."""
        if len(self._received) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._received[SIZE], "little")
        assert HEADER_BYTES <= size <= FRAME_BYTES_MAX, f"a reply of {size} bytes"
        if len(self._received) < size:
            return None
        frame = bytes(self._received[:size])
        del self._received[:size]
        return frame

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:  # The peer was first.
            return

    def close(self) -> None:
        """End it."""
        self._socket.close()


class RawClient:
    """One session over a raw connection, one request at a time."""

    def __init__(self, endpoint: Endpoint, client: int) -> None:
        self.connection = RawConnection(endpoint)
        self.client = client
        self.session = 0
        self.request = 0

    def login(
        self, *, token: str | None = None, username: str = "iggy", password: bytes = b"iggy"
    ) -> None:
        """Log in by a token or a password; as root with the one that `headrace dev` sets."""
        self.session = self.request = 0
        register = make_register(token, username=username, password=password)
        self.session = self.call(LOGIN_PASSWORD, register).session

    def logout(self) -> None:
        """End the session."""
        self.call(LOGOUT, None)
        self.session = 0

    def make_frame(self, command: Command[Q, R], request: Q) -> bytes:
        """Give the next request of this session as a whole frame."""
        if self.session:
            self.request += 1
        body = command.encode_request(request)
        header = encode_request(
            command.operation,
            body,
            client=self.client,
            session=self.session,
            request=self.request,
            code=command.code,
        )
        return header + body

    def call(self, command: Command[Q, R], request: Q) -> R:
        """Send a request and give its answer.

        Raises:
            RefusedError: The node refuses it.
            EvictedError: The node ends the session.
        """
        self.connection.send(self.make_frame(command, request))
        answer = self.connection.receive()
        assert answer is not None, f"closed instead of an answer to {command.name}"
        reply = command.decode_reply(read_answer(answer))
        if isinstance(reply, CreatedToken):
            remember(reply.token)
        return reply

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


def make_register(
    token: str | None = None, *, username: str = "iggy", password: bytes = b"iggy"
) -> Register:
    """Give a login by a token or a password; as root with the one that `headrace dev` sets."""
    version = ClientVersion(PROTOCOL_PACKED, "raw", "1")
    if token is None:
        return Register(version, PasswordLogin(username, password))
    return Register(version, None, TokenLogin(token.encode()))
