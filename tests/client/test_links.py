"""Both links over real sockets: what they send and receive is whole, whatever the pieces."""

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.base.endpoints import Endpoint
from headrace.client.aio.link import SPARE_BYTES, AioLink
from headrace.client.session.steps import Effect, Open, Receive, Transmit
from headrace.client.sync.link import SyncLink

LARGE = bytes(range(256)) * 20_000  # 5 MB
Carry = Callable[[Effect], int]


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """Give the address of somebody who talks so to the first who comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            link, _ = listening.accept()
            with link:
                talk(link)

        thread = threading.Thread(target=run)
        thread.start()
        yield Endpoint(*listening.getsockname())
        thread.join()


def sync_work(work: Callable[[Carry], None]) -> None:
    link = SyncLink()
    try:
        work(link.carry_out)
    finally:
        link.close()


def async_work(work: Callable[[Carry], None]) -> None:
    """Carry out each effect on a loop that runs on between them."""
    link = AioLink()
    with asyncio.Runner() as runner:

        def carry_out(effect: Effect) -> int:
            return runner.run(link.carry_out(effect))

        async def close() -> None:
            link.close()

        try:
            work(carry_out)
        finally:
            runner.run(close())
    gc.collect()  # A connection left open is told of here, not in whatever test comes next.


def receive_all(carry_out: Carry, size: int, bytes_min: int) -> bytes:
    into = bytearray(size)
    filled = 0
    while filled < size:
        place = memoryview(into)[filled:]
        count = carry_out(Receive(place, min(bytes_min, len(place)), 10.0))
        assert 0 < count <= len(place)
        filled += count
    return bytes(into)


BOTH = pytest.mark.parametrize("using", [sync_work, async_work])


@BOTH
@pytest.mark.parametrize("batch", [b"", b"batch", LARGE])
def test_a_frame_arrives_whole(using: Callable[..., None], batch: bytes) -> None:
    arrived = bytearray()

    def talk(link: socket.socket) -> None:
        while piece := link.recv(1 << 16):
            arrived.extend(piece)
            if len(arrived) == len(b"head" + batch):
                link.sendall(b"!")

    def work(carry_out: Carry) -> None:
        carry_out(Open(endpoint, 10.0))
        carry_out(Transmit(b"head", batch, 10.0))
        assert receive_all(carry_out, 1, 1) == b"!"

    with serving(talk) as endpoint:
        using(work)
    assert arrived == b"head" + batch


@BOTH
@pytest.mark.parametrize("bytes_min", [1, len(LARGE)])
def test_an_answer_arrives_whole(using: Callable[..., None], bytes_min: int) -> None:
    def work(carry_out: Carry) -> None:
        carry_out(Open(endpoint, 10.0))
        assert receive_all(carry_out, len(LARGE), bytes_min) == LARGE
        assert carry_out(Receive(memoryview(bytearray(10)), 1, 10.0)) == 0  # It has closed.

    with serving(lambda link: link.sendall(LARGE)) as endpoint:
        using(work)


def test_what_comes_before_it_is_waited_for_is_kept() -> None:
    """An eviction may come while the client is idle, and more than the spare buffer holds."""
    data = LARGE[: 3 * SPARE_BYTES + 7]

    async def main() -> None:
        link = AioLink()
        await link.carry_out(Open(endpoint, 10.0))
        wire = link._connected()
        while wire._spare_filled < SPARE_BYTES:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        into = bytearray(len(data))
        filled = 0
        while filled < len(data):
            filled += await link.carry_out(Receive(memoryview(into)[filled:], 1, 10.0))
        assert bytes(into) == data
        link.close()

    with serving(lambda link: link.sendall(data)) as endpoint:
        asyncio.run(main())


@BOTH
def test_nobody_answers_in_time(using: Callable[..., None]) -> None:
    is_over = threading.Event()

    def work(carry_out: Carry) -> None:
        carry_out(Open(endpoint, 10.0))
        with pytest.raises(TimeoutError):
            carry_out(Receive(memoryview(bytearray(10)), 1, 0.01))
        is_over.set()

    def talk(_: socket.socket) -> None:
        assert is_over.wait(10)

    with serving(talk) as endpoint:
        using(work)


@BOTH
def test_nobody_takes_in_time(using: Callable[..., None]) -> None:
    is_over = threading.Event()

    def work(carry_out: Carry) -> None:
        carry_out(Open(endpoint, 10.0))
        with pytest.raises(TimeoutError):
            carry_out(Transmit(b"head", LARGE * 4, 0.01))
        is_over.set()

    def talk(_: socket.socket) -> None:
        assert is_over.wait(10)

    with serving(talk) as endpoint:
        using(work)


@BOTH
def test_without_a_connection(using: Callable[..., None]) -> None:
    def work(carry_out: Carry) -> None:
        with pytest.raises(ConnectionError, match="not connected"):
            carry_out(Transmit(b"head", b"", 1.0))

    using(work)
