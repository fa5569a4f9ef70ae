"""The clients that are compared: each sends and polls call after call, with one call on its way.

Sending makes the messages of a call from their payloads; polling looks at every payload, because
that is what a program does with messages.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import apache_iggy as iggy

import headrace
from bench.frames import STREAM, Account, Shape
from headrace import aio


class Lap(NamedTuple):
    """How often a call could be made, and what one took of the processor in the client."""

    rate: float  # calls per second
    cpu_us: float  # of all threads of the client


class Place(NamedTuple):
    """Which server, who logs in, and which topic."""

    port: int
    account: Account
    topic: str


class Arm(Protocol):
    """A client under measurement."""

    def produce(self, place: Place, shape: Shape, seconds: float) -> Lap:
        """Send batches for so long."""
        ...

    def consume(self, place: Place, shape: Shape, seconds: float, *, end: int) -> Lap:
        """Poll a batch after the other for so long, round and round below an offset."""
        ...


def check(got: int, shape: Shape) -> None:
    """Fail unless a poll gave what was asked for; `got` counts the bytes of its payloads."""
    if got != shape.bytes:
        raise ValueError(f"a poll gave {got} bytes of payload, {shape.bytes} were asked for")


def repeat(call: Callable[[], object], seconds: float) -> Lap:
    """Do something again and again."""
    count, began, busy = 0, time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - began) < seconds or not count:
        call()
        count += 1
    return Lap(count / passed, (time.process_time() - busy) / count * 1e6)


async def repeat_async(call: Callable[[], Awaitable[object]], seconds: float) -> Lap:
    """Await something again and again."""
    count, began, busy = 0, time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - began) < seconds or not count:
        await call()
        count += 1
    return Lap(count / passed, (time.process_time() - busy) / count * 1e6)


class Rounds:
    """Gives the offset of each poll: from the first batch on, and again when all were polled."""

    def __init__(self, shape: Shape, end: int) -> None:
        self._step = shape.messages
        self._end = end - end % shape.messages
        self._next = 0

    def next(self) -> int:
        """Give the next one."""
        offset, self._next = self._next, (self._next + self._step) % self._end
        return offset


class SyncArm:
    """Our blocking client."""

    def __init__(self, *, is_columns: bool = False) -> None:
        """With `is_columns` it takes the payloads alone instead of messages."""
        self._is_columns = is_columns

    def produce(self, place: Place, shape: Shape, seconds: float) -> Lap:
        """Send batches for so long."""
        payload, name = b"m" * shape.payload_bytes, f"{STREAM}/{place.topic}"
        with connect_to(place) as client:
            return repeat(
                lambda: client.send(name, [payload] * shape.messages, partition=0), seconds
            )

    def consume(self, place: Place, shape: Shape, seconds: float, *, end: int) -> Lap:
        """Poll a batch after the other for so long."""
        rounds, name = Rounds(shape, end), f"{STREAM}/{place.topic}"
        with connect_to(place) as client:

            def poll() -> None:
                got = client.poll(name, start=rounds.next(), count=shape.messages)
                if self._is_columns:
                    check(sum(map(len, got.values())), shape)
                else:
                    check(sum(len(message.value) for message in got), shape)

            return repeat(poll, seconds)


def connect_to(place: Place) -> headrace.Client:
    """Connect our blocking client."""
    username, password = place.account
    return headrace.connect(f"127.0.0.1:{place.port}", username=username, password=password)


def send_one_by_one(place: Place, size: int, count: int) -> Lap:
    """Send messages by a producer, each by itself, until all are confirmed."""
    value, name = b"m" * size, f"{STREAM}/{place.topic}"
    with connect_to(place) as client:
        began, busy = time.perf_counter(), time.process_time()
        with client.producer(name) as producer:
            send = producer.send
            for _ in range(count):
                send(value)
        return lap_since(began, busy, count)


def consume_one_by_one(place: Place, size: int, count: int) -> Lap:
    """Look at the value of each message of a consumer, from the first on."""
    name, got = f"{STREAM}/{place.topic}", 0
    with connect_to(place) as client, client.consumer(name, start="earliest", count=1000) as taken:
        began, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            got += len(next(taken).value)
        lap = lap_since(began, busy, count)
    check(got, Shape(count, size))
    return lap


def lap_since(began: float, busy: float, count: int) -> Lap:
    """Return a lap of `count` messages that began at these times."""
    seconds, cpu = time.perf_counter() - began, time.process_time() - busy
    return Lap(count / seconds, cpu / count * 1e6)


class AsyncArm:
    """Our client for asyncio."""

    def produce(self, place: Place, shape: Shape, seconds: float) -> Lap:
        """Send batches for so long."""
        return asyncio.run(self._produce(place, shape, seconds))

    def consume(self, place: Place, shape: Shape, seconds: float, *, end: int) -> Lap:
        """Poll a batch after the other for so long."""
        return asyncio.run(self._consume(place, shape, seconds, end))

    async def _produce(self, place: Place, shape: Shape, seconds: float) -> Lap:
        payload, name = b"m" * shape.payload_bytes, f"{STREAM}/{place.topic}"
        username, password = place.account
        address = f"127.0.0.1:{place.port}"
        async with aio.connect(address, username=username, password=password) as client:
            return await repeat_async(
                lambda: client.send(name, [payload] * shape.messages, partition=0), seconds
            )

    async def _consume(self, place: Place, shape: Shape, seconds: float, end: int) -> Lap:
        rounds, name = Rounds(shape, end), f"{STREAM}/{place.topic}"
        username, password = place.account
        address = f"127.0.0.1:{place.port}"
        async with aio.connect(address, username=username, password=password) as client:

            async def poll() -> None:
                got = await client.poll(name, start=rounds.next(), count=shape.messages)
                check(sum(len(message.value) for message in got), shape)

            return await repeat_async(poll, seconds)


class SdkArm:
    """The released SDK."""

    def produce(self, place: Place, shape: Shape, seconds: float) -> Lap:
        """Send batches for so long."""
        return asyncio.run(self._produce(place, shape, seconds))

    def consume(self, place: Place, shape: Shape, seconds: float, *, end: int) -> Lap:
        """Poll a batch after the other for so long."""
        return asyncio.run(self._consume(place, shape, seconds, end))

    async def _produce(self, place: Place, shape: Shape, seconds: float) -> Lap:
        client, payload = await self._connect(place), b"m" * shape.payload_bytes
        to = iggy.Partitioning.partition_id(0)

        async def send() -> None:
            messages = [iggy.SendMessage(payload) for _ in range(shape.messages)]
            await client.send_messages(STREAM, place.topic, to, messages)

        return await repeat_async(send, seconds)

    async def _consume(self, place: Place, shape: Shape, seconds: float, end: int) -> Lap:
        client, rounds = await self._connect(place), Rounds(shape, end)

        async def poll() -> None:
            got = await client.poll_messages(
                STREAM,
                place.topic,
                consumer=iggy.Consumer.Single(1),
                polling_strategy=iggy.PollingStrategy.Offset(rounds.next()),
                count=shape.messages,
                auto_commit=False,
                partition_id=0,
            )
            check(sum(len(message.payload()) for message in got), shape)

        return await repeat_async(poll, seconds)

    async def _connect(self, place: Place) -> iggy.IggyClient:
        client = iggy.IggyClient(
            iggy.TcpConfig(
                server_address=f"127.0.0.1:{place.port}",
                heartbeat_interval=dt.timedelta(minutes=10),
            )
        )
        await client.connect()
        await client.login_user(*place.account)
        return client
