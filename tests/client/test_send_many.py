"""Many messages given at once: any iterable, in memory that does not grow with their number.

Where no step takes memory for the rest, none copies it, so the work is that of the messages.
"""

import asyncio
import threading
import tracemalloc
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, Unpack, cast

import pytest

from headrace.base.limits import MIB
from headrace.client.aio.producer import AsyncProducer
from headrace.client.calls.messages import Sent
from headrace.client.errors import BufferFull
from headrace.client.produce.options import ProducerOptions, read_producer_options
from headrace.client.session.call import Call
from headrace.client.sync.producer import Producer
from headrace.kernel import PAYLOAD_BYTES_MAX
from headrace.wire.commands.messages import SEND_MESSAGES

R = TypeVar("R")
COUNT = 150_000


class Server:
    """Confirms every batch, once it is open, and remembers how many messages came."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.is_open = threading.Event()
        self.is_open.set()

    def ask(self, call: Call[R], /) -> R:
        self.is_open.wait()
        count = SEND_MESSAGES.decode_request(memoryview(call.body + call.batch)).messages_count
        self.values.append(count)
        return cast("R", Sent(0, 0, count))

    def follow(self, flow: object, /) -> Any:
        raise AssertionError(flow)


class AsyncServer:
    """The same, to be awaited."""

    def __init__(self) -> None:
        self.server = Server()

    def number(self, call: Call[R], /) -> Call[R]:
        return call

    async def ask(self, call: Call[R], /) -> R:
        return self.server.ask(call)

    async def follow(self, flow: object, /) -> Any:
        raise AssertionError(flow)


def make(server: Server, **options: Unpack[ProducerOptions]) -> Producer:
    settings = read_producer_options({"partitioning": 0, **options})
    return Producer(server, "shop/orders", settings, lambda _: None)


def send_sync(values: Iterable[bytes | str], **options: Unpack[ProducerOptions]) -> int:
    with make(Server(), **options) as producer:
        producer.send_many(values)
    return producer.confirmed_count


def send_async(values: Iterable[bytes | str], **options: Unpack[ProducerOptions]) -> int:
    async def main() -> int:
        settings = read_producer_options({"partitioning": 0, **options})
        async with AsyncProducer(
            AsyncServer(), "shop/orders", settings, lambda _: None
        ) as producer:
            await producer.send_many(values)
        return producer.confirmed_count

    return asyncio.run(main())


SENDS = pytest.mark.parametrize("send", [send_sync, send_async], ids=["sync", "asyncio"])


def generate(count: int, size: int = 8) -> Iterator[bytes]:
    for number in range(count):
        yield (b"%d" % number).zfill(size)


@SENDS
@pytest.mark.parametrize(
    "make_values",
    [lambda: [b"message"] * COUNT, lambda: ["message"] * COUNT, lambda: generate(COUNT)],
    ids=["bytes", "text", "a generator"],
)
def test_the_memory_does_not_grow_with_the_messages(send: Any, make_values: Any) -> None:
    values = make_values()
    tracemalloc.start()
    try:
        assert send(values, buffer="64 KiB", batch=500) == COUNT
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < COUNT * 8  # what a list of references to all of them takes


@SENDS
def test_large_messages_are_not_gathered_by_the_thousand(send: Any) -> None:
    tracemalloc.start()
    try:
        assert send(generate(200, MIB), buffer="4 MiB") == 200
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * MIB


@SENDS
@pytest.mark.parametrize("kind", [list, tuple, deque, iter], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("batch", [1, 7, 1000, 2500])
def test_all_kinds_of_values_arrive(send: Any, kind: Any, batch: int) -> None:
    assert send(kind([*generate(5000)]), batch=batch) == 5000
    assert send(kind([]), batch=batch) == 0


def test_a_generator_is_not_asked_for_what_finds_no_room() -> None:
    server = Server()
    server.is_open.clear()
    asked = 0

    def endless() -> Iterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield b"x" * 1000

    producer = make(server, buffer="100 KiB", block="10 ms")
    with pytest.raises(BufferFull):
        producer.send_many(endless())
    assert 100 <= asked <= 2000
    server.is_open.set()
    producer.close()
    assert producer.confirmed_count >= 90


@pytest.mark.parametrize("wrong", ["", b"", b"x" * (PAYLOAD_BYTES_MAX + 1), 7])
def test_a_wrong_message(wrong: Any) -> None:
    """Of a sequence nothing is taken then, of an iterator what came before."""
    values = [*generate(2500), wrong, b"more"]
    server = Server()
    with make(server) as producer:
        with pytest.raises((ValueError, TypeError), match=r"message"):
            producer.send_many(values)
        producer.flush()
        assert producer.confirmed_count == 0
        with pytest.raises((ValueError, TypeError), match=r"message"):
            producer.send_many(iter(values))
    assert producer.confirmed_count == 2500


def test_what_a_generator_raises_is_raised_and_what_came_before_is_taken() -> None:
    def failing() -> Iterator[bytes]:
        yield from generate(1500)
        raise KeyError("mine")

    with make(Server()) as producer, pytest.raises(KeyError):
        producer.send_many(failing())
    assert producer.confirmed_count == 1500


@SENDS
@pytest.mark.parametrize("one", ["text", b"bytes"])
def test_one_message_is_not_many(send: Any, one: Any) -> None:
    with pytest.raises(TypeError, match="one message"):
        send(one)
