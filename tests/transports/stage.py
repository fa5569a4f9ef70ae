"""A listener on loopback with real clients, on each event loop that there is."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import (
    ConnectionClosed,
    ConnectionOpened,
    RepliesWritten,
    SendToConnection,
)
from headrace.transports.limits import TcpLimits
from headrace.transports.tcp import TcpListener

WAIT_SECONDS = 10
LOOPS = ("asyncio", "uvloop")


def make_loop(name: str) -> asyncio.AbstractEventLoop:
    if name == "asyncio":
        return asyncio.new_event_loop()
    uvloop = pytest.importorskip("uvloop")
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(name: str, main: Coroutine[Any, Any, None]) -> None:
    """Run a test on one of the event loops; what the loop reports as an error fails it."""
    reported: list[dict[str, Any]] = []
    try:
        with asyncio.Runner(loop_factory=lambda: make_loop(name)) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: reported.append(context))
            runner.run(main)
    finally:
        main.close()
    assert reported == []


def frame_of(size: int, mark: int = 0) -> bytes:
    """Give a frame of that size: a header with the size and a mark, then bytes that tell places."""
    assert size >= HEADER_BYTES
    header = bytearray(HEADER_BYTES)
    struct.pack_into("<I", header, 48, size)
    struct.pack_into("<Q", header, 128, mark)
    pattern = bytes(range(251))  # No power of two: a shifted piece shows.
    body = pattern * ((size - HEADER_BYTES) // len(pattern) + 1)
    return bytes(header) + body[: size - HEADER_BYTES]


def mark_of(frame: bytes | bytearray) -> int:
    (mark,) = struct.unpack_from("<Q", frame, 128)
    assert isinstance(mark, int)
    return mark


def declare(size: int) -> bytes:
    """Give a header that declares any size."""
    header = bytearray(HEADER_BYTES)
    struct.pack_into("<I", header, 48, size)
    return bytes(header)


class Stage:
    """An inbox that remembers, and closes turns; its listener; and clients."""

    def __init__(self, limits: TcpLimits | None = None) -> None:
        self.listener = TcpListener(limits or TcpLimits(), self)
        self.frames: list[tuple[int, bytearray]] = []
        self.opened: list[ConnectionOpened] = []
        self.closed: list[int] = []
        self.written: list[RepliesWritten] = []
        self.turns: list[int] = []  # how many frames each brought
        self.log: list[str] = []  # all of it, in order
        self.answer: Callable[[int, bytearray], None] = lambda _number, _frame: None
        self.port = 0
        self._turn: list[tuple[int, bytearray]] = []
        self._is_scheduled = False
        self._changed = asyncio.Event()
        self._clients: list[socket.socket] = []

    async def __aenter__(self) -> "Stage":
        _, self.port = await self.listener.listen("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        await self.listener.close(grace_seconds=WAIT_SECONDS)
        listener = self.listener
        assert len(listener) == 0
        assert listener.memory.held_bytes == 0
        assert listener.sending.waiting_bytes == 0
        deadlines = (
            listener.unheard,
            listener.unknown,
            listener.unfinished,
            listener.lagging,
            listener.closing,
        )
        assert [len(each) for each in deadlines] == [0] * 5
        assert len(listener.waiting) == len(listener.waiting_large) == 0

    # The inbox.

    def put(self, connection: int, frame: bytearray) -> None:
        self._turn.append((connection, frame))
        self.log.append(f"frame {connection}")
        self._schedule()

    def tell(self, event: ConnectionOpened | ConnectionClosed | RepliesWritten) -> None:
        if isinstance(event, RepliesWritten):
            self.written.append(event)
        elif isinstance(event, ConnectionOpened):
            self.opened.append(event)
            self.log.append(f"opened {event.connection}")
        else:
            self.closed.append(event.connection)
            self.log.append(f"closed {event.connection}")
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._close_turn)

    def _close_turn(self) -> None:
        self._is_scheduled = False
        turn, self._turn = self._turn, []
        self.turns.append(len(turn))
        self.frames += turn
        for connection, frame in turn:
            self.answer(connection, frame)
        self.listener.flush()
        self._changed.set()

    def echo_marks(self) -> None:
        """Answer each frame with a header that has its mark."""
        self.answer = lambda number, frame: self.listener.send(
            SendToConnection(number, (frame_of(HEADER_BYTES, mark_of(frame)),))
        )

    # Clients.

    async def attempt(self) -> socket.socket:
        """Connect without waiting to be taken up."""
        client = socket.socket()
        client.setblocking(False)
        self._clients.append(client)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.port))
        return client

    async def connect(self, *, log_in: bool = True) -> socket.socket:
        known = len(self.opened)
        client = await self.attempt()
        await self.until(lambda: len(self.opened) > known)
        if log_in:
            self.listener.set_logged_in(self.opened[-1].connection)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something; not all of it is told, so look now and then too.

        It is looked at between turns: what a turn has read is not yet judged by its end.
        """
        async with asyncio.timeout(WAIT_SECONDS):
            while self._is_scheduled or not condition():
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.002)
                except TimeoutError:
                    continue


async def send(client: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(client, data)


async def settle() -> None:
    """Let what is on its way arrive: loopback delivers at once, the loop needs a few turns."""
    for _ in range(5):
        await asyncio.sleep(0)


async def receive(client: socket.socket, count: int) -> bytes:
    """Receive so many bytes, or what comes before the end."""
    data = bytearray()
    async with asyncio.timeout(WAIT_SECONDS):
        while len(data) < count:
            piece = await asyncio.get_running_loop().sock_recv(client, count - len(data))
            if not piece:
                break
            data += piece
    return bytes(data)


async def is_cut_off(client: socket.socket) -> bool:
    """Whether the other side has closed, once it has."""
    try:
        return await receive(client, 1) == b""
    except ConnectionResetError:
        return True


def reason_of(stage: Stage, number: int) -> str:
    """Why a connection is being closed; empty if it is not."""
    connection = stage.listener.connection(number)
    return "" if connection is None else connection.reason


def blocked_of(stage: Stage, number: int) -> int:
    """Why a connection is not read."""
    connection = stage.listener.connection(number)
    assert connection is not None
    return connection.blocked


def unsent_of(stage: Stage, number: int) -> int:
    """How many bytes wait for a peer to take them."""
    connection = stage.listener.connection(number)
    assert connection is not None
    return connection._transport.get_write_buffer_size()
