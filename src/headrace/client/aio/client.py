"""The client for asyncio.

```python
from headrace import aio

async with aio.connect() as client:
    await client.create_stream("shop")
    await client.create_topic("shop/orders", partitions=3)
    async with client.producer("shop/orders") as producer:
        await producer.send("one order", key="ada")
    async for message in client.consumer("shop/orders", name="report"):
        print(message.offset, message.text)
```
"""

import asyncio
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar, Unpack

from headrace.client.aio.consumer import AsyncConsumer
from headrace.client.aio.link import AioLink
from headrace.client.aio.producer import AsyncProducer
from headrace.client.base_client import BaseClient, awaiting
from headrace.client.calls import groups, messages, streams, system, users
from headrace.client.calls.find_topic import find_topic
from headrace.client.calls.messages import Sent
from headrace.client.calls.names import TopicName
from headrace.client.calls.plan_segments import plan_segments
from headrace.client.closing import AsyncClosable
from headrace.client.consume.options import ConsumerOptions, read_consumer_options
from headrace.client.consume.reader import Reader
from headrace.client.errors import HeadraceError
from headrace.client.produce.options import ProducerOptions, read_producer_options
from headrace.client.registry import Registry
from headrace.client.session.call import Ahead, Call, Flow
from headrace.client.session.settings import ConnectOptions, Settings, resolve
from headrace.client.session.steps import Pause, drive_async
from headrace.wire.commands.segments import SegmentPlan
from headrace.wire.commands.topics import TopicDetails
from headrace.wire.fields import FieldValue

R = TypeVar("R")


def connect(address: str | None = None, **options: Unpack[ConnectOptions]) -> "Connecting":
    """Connect to a server and log in: `async with aio.connect(...)`, or `await` it.

    Arguments and environment are the same as for `headrace.connect`.

    Raises:
        TypeError: There is no such option.
        ValueError: An argument is wrong, or credentials are missing.
    """
    return Connecting(resolve(address, options, os.environ))


class Connecting:
    """A pending connection: `async with` opens and closes a client, `await` only opens it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, Any, "AsyncClient"]:
        return self._open().__await__()

    async def __aenter__(self) -> "AsyncClient":
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(kind, error, trace)

    async def _open(self) -> "AsyncClient":
        client = AsyncClient(self._settings)
        await client.open()
        return client


class AsyncClient(BaseClient, AsyncClosable):
    """A session with a server; created by `headrace.aio.connect`.

    Any number of tasks of one loop may use it; their calls are sent one after the other. The call
    that notices a lost connection opens a new one. Closing the client closes its producers and
    consumers.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._link = AioLink()
        self._lock = asyncio.Lock()
        self._registry: Registry[AsyncProducer | AsyncConsumer] = Registry()
        self._heartbeat: asyncio.Task[None] | None = None

    # Calls.

    async def ask(self, call: Call[R], /) -> R:
        """Send a call and return its answer."""
        self._check_process()
        async with self._lock:
            return await drive_async(self._session.ask(call), self._link.carry_out)

    def number(self, call: Call[R], /) -> Call[R]:
        """Return the call with a request number, to repeat it after a cancellation."""
        return self._session.number(call)

    async def follow(self, flow: Flow[R], /) -> R:
        """Carry out all steps of a flow and return its result."""
        return await drive_async(flow, self._carry_out)

    async def _carry_out(self, wanted: Call[Any] | Pause | Ahead) -> object:
        if isinstance(wanted, Call):
            return await self.ask(wanted)
        if isinstance(wanted, Pause):
            await asyncio.sleep(wanted.seconds)
            return None
        self._check_process()
        async with self._lock:
            await drive_async(self._session.begin(wanted), self._link.carry_out)
        # A loop may write at its next turn only, and the task that reads may not wait for long.
        await asyncio.sleep(0)
        return None

    # Streams, topics, partitions.

    create_stream = awaiting(streams.create_stream)
    get_stream = awaiting(streams.get_stream)
    get_streams = awaiting(streams.get_streams)
    rename_stream = awaiting(streams.rename_stream)
    delete_stream = awaiting(streams.delete_stream)
    purge_stream = awaiting(streams.purge_stream)
    create_topic = awaiting(streams.create_topic)
    get_topics = awaiting(streams.get_topics)
    get_holders = awaiting(streams.get_holders)
    update_topic = awaiting(streams.update_topic)
    delete_topic = awaiting(streams.delete_topic)
    purge_topic = awaiting(streams.purge_topic)
    create_partitions = awaiting(streams.create_partitions)
    delete_partitions = awaiting(streams.delete_partitions)
    delete_segments = awaiting(streams.delete_segments)
    flush_partition = awaiting(streams.flush_partition)

    # Groups and offsets.

    create_group = awaiting(groups.create_group)
    get_group = awaiting(groups.get_group)
    get_groups = awaiting(groups.get_groups)
    delete_group = awaiting(groups.delete_group)
    join_group = awaiting(groups.join_group)
    leave_group = awaiting(groups.leave_group)
    sync_group = awaiting(groups.sync_group)
    get_offset = awaiting(groups.get_offset)
    store_offset = awaiting(groups.store_offset)
    delete_offset = awaiting(groups.delete_offset)

    # Users and tokens.

    create_user = awaiting(users.create_user)
    get_user = awaiting(users.get_user)
    get_users = awaiting(users.get_users)
    update_user = awaiting(users.update_user)
    delete_user = awaiting(users.delete_user)
    update_permissions = awaiting(users.update_permissions)
    change_password = awaiting(users.change_password)
    create_token = awaiting(users.create_token)
    get_tokens = awaiting(users.get_tokens)
    delete_token = awaiting(users.delete_token)

    # The server.

    ping = awaiting(system.ping)
    get_stats = awaiting(system.get_stats)
    get_counters = awaiting(system.get_counters)
    get_shards = awaiting(system.get_shards)
    get_reconcile = awaiting(system.get_reconcile)
    accept_time = awaiting(system.accept_time)
    get_snapshot = awaiting(system.get_snapshot)
    get_cluster = awaiting(system.get_cluster)
    describe_options = awaiting(system.describe_options)
    get_me = awaiting(system.get_me)
    get_client = awaiting(system.get_client)
    get_clients = awaiting(system.get_clients)
    poll = awaiting(messages.poll)

    # Messages.

    async def send(
        self,
        topic: TopicName,
        values: Sequence[bytes | str],
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> Sent:
        """Send messages as one batch, wait for the confirmation, and return where they are stored.

        For many messages use `producer`, which collects them into batches.
        """
        sending = self._sender.send(topic, values, key=key, partition=partition, headers=headers)
        if isinstance(sending, Call):
            return await self.ask(sending)
        return await self.follow(sending)

    async def get_topic(self, topic: TopicName) -> TopicDetails:
        """Return a topic and its partitions; `NotFound` says whether topic or stream is missing."""
        return await self.follow(find_topic(topic))

    async def plan_segments(
        self, topic: TopicName, partition: int = 0, *, start: int = 0
    ) -> SegmentPlan:
        """Return the state of a partition, and the files of its sealed segments from an offset on.

        Raises:
            RefusedByServer: With `FEATURE_UNAVAILABLE`: the server does not support plans.
        """
        return await self.follow(plan_segments(topic, partition, start=start))

    def producer(self, topic: TopicName, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Return a producer for a topic; `ProducerOptions` lists its options.

        Raises:
            TypeError: There is no such option.
            ValueError: An option is wrong.
        """
        settings = read_producer_options(options)
        producer = AsyncProducer(self, topic, settings, self._registry.remove)
        self._registry.add(producer)
        return producer

    def consumer(self, topic: TopicName, **options: Unpack[ConsumerOptions]) -> AsyncConsumer:
        """Return a consumer of a topic; `ConsumerOptions` lists its options.

        Raises:
            TypeError: There is no such option.
            ValueError: An option is wrong, or this client is already a member of that group.
        """
        settings = read_consumer_options(options)
        consumer = AsyncConsumer(self, Reader(topic, settings), self._registry.remove)
        self._registry.add(consumer, topic, settings.group)
        return consumer

    # Beginning and end.

    async def open(self) -> None:
        """Connect and log in; `headrace.aio.connect` calls it."""
        try:
            async with self._lock:
                await drive_async(self._session.open(), self._link.carry_out)
        except BaseException:
            self._link.close()
            raise
        self._heartbeat = asyncio.create_task(self._beat())

    async def close(self, *, is_clean: bool = False) -> None:
        """Close producers and consumers, log out, and close the connection.

        Unless `is_clean` is set, as at the end of an `async with` block without an error, the
        message that a consumer handed out last does not count as processed.

        Raises:
            HeadraceError: A message could not be confirmed.
        """
        failure: HeadraceError | None = None
        for child in self._registry.all():
            try:
                if isinstance(child, AsyncConsumer):
                    await child.close(is_clean=is_clean)
                else:
                    await child.close()
            except HeadraceError as error:
                failure = failure or error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            with suppress(asyncio.CancelledError):
                await self._heartbeat
        async with self._lock:
            await drive_async(self._session.close(), self._link.carry_out)
            self._link.close()
        if failure is not None:
            raise failure

    async def _end(self, *, is_clean: bool) -> None:
        await self.close(is_clean=is_clean)

    async def _beat(self) -> None:
        """Send heartbeats while the user makes no calls."""
        while True:
            await asyncio.sleep(self._session.settings.heartbeat_seconds / 2)
            async with self._lock:
                await drive_async(self._session.beat(), self._link.carry_out)
