"""Who gives up waiting closes the connection before repeating: the rule of O4.2 asks for it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import headrace
from headrace.wire.commands.messages import SEND_MESSAGES, Confirmation
from headrace.wire.commands.session import LOGIN_PASSWORD, Registered
from headrace.wire.frames import FrameCutter
from headrace.wire.numbers import Operation
from headrace.wire.replies import RESULT_OK, encode_reply
from headrace.wire.requests import REQUEST, RequestHeader
from headrace.wire.versions import PROTOCOL_PACKED

WAIT_SECONDS = 10.0


class Silent:
    """Does not answer the first send; whoever comes next waits until that connection has ended."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.sends: list[tuple[int, int]] = []  # connection and number
        self.left_over = b"?"  # what came on the first connection behind the unanswered send

    def run(self) -> None:
        first, _ = self._listening.accept()
        with first:
            self._talk(first, 1)
            second, _ = self._listening.accept()
            first.settimeout(WAIT_SECONDS)
            self.left_over = first.recv(1 << 16)  # ends only when the client closes
        with second:
            self._talk(second, 2)

    def _talk(self, link: socket.socket, number: int) -> None:
        cutter = FrameCutter()
        while piece := link.recv(1 << 16):
            for frame in cutter.feed(piece):
                header = REQUEST.decode(frame)
                if header.operation == Operation.SEND_MESSAGES:
                    self.sends.append((number, header.request))
                    if number == 1:
                        return
                link.sendall(_answer(header))


def _answer(header: RequestHeader) -> bytes:
    if header.operation == Operation.REGISTER:
        registered = Registered(0, 7, PROTOCOL_PACKED, "0.1.0")
        return encode_reply(header, RESULT_OK + LOGIN_PASSWORD.encode_reply(registered))
    if header.operation == Operation.SEND_MESSAGES:
        return encode_reply(header, SEND_MESSAGES.encode_reply((Confirmation(0, 0, 0, 0),)))
    return encode_reply(header, b"")


@contextmanager
def silent_server() -> Iterator[tuple[Silent, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_SECONDS)
        server = Silent(listening)
        thread = threading.Thread(target=server.run)
        thread.start()
        host, port = listening.getsockname()
        yield server, f"{host}:{port}"
        thread.join()


def send(address: str) -> None:
    with headrace.connect(address, answer_timeout="50 ms", timeout="20 s", wait="20 s") as client:
        client.send("s/t", [b"once"], partition=0)


def send_async(address: str) -> None:
    async def run() -> None:
        async with headrace.aio.connect(
            address, answer_timeout="50 ms", timeout="20 s", wait="20 s"
        ) as client:
            await client.send("s/t", [b"once"], partition=0)

    asyncio.run(run())


@pytest.mark.parametrize("work", [send, send_async])
def test_a_client_that_gives_up_waiting_closes_before_it_repeats(
    work: Callable[[str], None],
) -> None:
    with silent_server() as (server, address):
        work(address)
    (first, number), (second, repeated) = server.sends
    assert (first, second) == (1, 2)
    assert number == repeated
    assert server.left_over == b""
