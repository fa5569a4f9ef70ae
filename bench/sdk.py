"""The released SDK as a client: what a program in Python sees of the node.

The SDK keeps one request in flight and makes an object of each message, so these figures show the
client as much as the server: they are no limits of the node.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from apache_iggy import (
    Consumer,
    IggyClient,
    Partitioning,
    PollingStrategy,
    SendMessage,
    TcpConfig,
)

from bench.frames import STREAM, Account, Shape


class SdkLap(NamedTuple):
    """What one lap of calls saw."""

    calls: int
    seconds: float
    p50_us: float
    p99_us: float

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds


class SdkLaps(NamedTuple):
    """Sending to a topic, and polling what was sent."""

    produced: SdkLap
    consumed: SdkLap


def measure_sdk(port: int, account: Account, topic: str, shape: Shape, seconds: float) -> SdkLaps:
    """Send batches to a topic of its own, then poll them from the first on, call after call."""
    return asyncio.run(_measure(port, account, topic, shape, seconds))


async def _measure(
    port: int, account: Account, topic: str, shape: Shape, seconds: float
) -> SdkLaps:
    config = TcpConfig(
        server_address=f"127.0.0.1:{port}", heartbeat_interval=dt.timedelta(minutes=10)
    )
    client = IggyClient(config)
    await client.connect()
    await client.login_user(account.username, account.password)
    payload = b"m" * shape.payload_bytes

    async def send() -> None:
        messages = [SendMessage(payload) for _ in range(shape.messages)]
        await client.send_messages(STREAM, topic, Partitioning.partition_id(0), messages)

    produced = await _repeat(send, seconds)
    sent = produced.calls * shape.messages
    position = 0

    async def poll() -> None:
        nonlocal position
        got = await client.poll_messages(
            STREAM,
            topic,
            consumer=Consumer.Single(1),
            polling_strategy=PollingStrategy.Offset(position),
            count=shape.messages,
            auto_commit=False,
            partition_id=0,
        )
        if len(got) != shape.messages or got[0].offset() != position:
            raise ValueError(f"poll from {position} gave {len(got)} messages of {shape.messages}")
        position = (position + shape.messages) % sent

    return SdkLaps(produced, await _repeat(poll, seconds))


async def _repeat(call: Callable[[], Awaitable[None]], seconds: float) -> SdkLap:
    delays: list[float] = []
    began = time.perf_counter()
    while (started := time.perf_counter()) - began < seconds or not delays:
        await call()
        delays.append(time.perf_counter() - started)
    total = time.perf_counter() - began
    delays.sort()
    middle, late = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
    return SdkLap(len(delays), total, middle * 1e6, late * 1e6)
