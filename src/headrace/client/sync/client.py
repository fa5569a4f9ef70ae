"""The blocking client.

```python
import headrace

with headrace.connect() as client:
    client.create_stream("shop")
    client.create_topic("shop/orders", partitions=3)
    with client.producer("shop/orders") as producer:
        producer.send("one order", key="ada")
    for message in client.consumer("shop/orders", name="report"):
        print(message.offset, message.text)
```
"""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack

from headrace.client.base_client import BaseClient, blocking
from headrace.client.calls import groups, messages, streams, system, users
from headrace.client.calls.find_topic import find_topic
from headrace.client.calls.messages import Sent
from headrace.client.calls.names import TopicName
from headrace.client.calls.plan_segments import plan_segments
from headrace.client.closing import Closable
from headrace.client.consume.options import ConsumerOptions, read_consumer_options
from headrace.client.consume.reader import Reader
from headrace.client.errors import HeadraceError
from headrace.client.produce.options import ProducerOptions, read_producer_options
from headrace.client.registry import Registry
from headrace.client.session.call import Ahead, Call, Flow
from headrace.client.session.settings import ConnectOptions, Settings, resolve
from headrace.client.session.steps import Pause, drive
from headrace.client.sync.consumer import Consumer
from headrace.client.sync.link import SyncLink
from headrace.client.sync.producer import Producer
from headrace.wire.commands.segments import SegmentPlan
from headrace.wire.commands.topics import TopicDetails
from headrace.wire.fields import FieldValue

R = TypeVar("R")


def connect(address: str | None = None, **options: Unpack[ConnectOptions]) -> "Client":
    """Connect to a server and log in.

    Without arguments: the address in HEADRACE_ADDRESS, else 127.0.0.1:8090; the credentials in
    HEADRACE_TOKEN, or HEADRACE_USERNAME and HEADRACE_PASSWORD, else, on loopback, iggy/iggy.

    Raises:
        TypeError: There is no such option.
        ValueError: An argument is wrong, or credentials are missing.
        Unavailable: No server could be reached.
        Unauthenticated: The credentials are wrong.

    >>> with headrace.connect(address, username="iggy", password="iggy") as client:
    ...     client.ping()
    """
    client = Client(resolve(address, options, os.environ))
    client.open()
    return client


class Client(BaseClient, Closable):
    """A session with a server; created by `headrace.connect`.

    Any number of threads may use it; their calls are sent one after the other. The call that
    notices a lost connection opens a new one. Closing the client closes its producers and
    consumers.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._link = SyncLink()
        self._lock = threading.Lock()
        self._registry: Registry[Producer | Consumer] = Registry()
        self._is_ending = threading.Event()
        self._heartbeat = threading.Thread(
            target=self._beat, name="headrace heartbeat", daemon=True
        )

    # Calls.

    def ask(self, call: Call[R], /) -> R:
        """Send a call, wait for its answer and return it."""
        self._check_process()
        with self._lock:
            return drive(self._session.ask(call), self._link.carry_out)

    def follow(self, flow: Flow[R], /) -> R:
        """Carry out all steps of a flow and return its result."""
        return drive(flow, self._carry_out)

    def _carry_out(self, wanted: Call[Any] | Pause | Ahead) -> object:
        if isinstance(wanted, Call):
            return self.ask(wanted)
        if isinstance(wanted, Pause):
            time.sleep(wanted.seconds)
            return None
        self._check_process()
        with self._lock:
            return drive(self._session.begin(wanted), self._link.carry_out)

    # Streams, topics, partitions.

    create_stream = blocking(streams.create_stream)
    get_stream = blocking(streams.get_stream)
    get_streams = blocking(streams.get_streams)
    rename_stream = blocking(streams.rename_stream)
    delete_stream = blocking(streams.delete_stream)
    purge_stream = blocking(streams.purge_stream)
    create_topic = blocking(streams.create_topic)
    get_topics = blocking(streams.get_topics)
    get_holders = blocking(streams.get_holders)
    update_topic = blocking(streams.update_topic)
    delete_topic = blocking(streams.delete_topic)
    purge_topic = blocking(streams.purge_topic)
    create_partitions = blocking(streams.create_partitions)
    delete_partitions = blocking(streams.delete_partitions)
    delete_segments = blocking(streams.delete_segments)
    flush_partition = blocking(streams.flush_partition)

    # Groups and offsets.

    create_group = blocking(groups.create_group)
    get_group = blocking(groups.get_group)
    get_groups = blocking(groups.get_groups)
    delete_group = blocking(groups.delete_group)
    join_group = blocking(groups.join_group)
    leave_group = blocking(groups.leave_group)
    sync_group = blocking(groups.sync_group)
    get_offset = blocking(groups.get_offset)
    store_offset = blocking(groups.store_offset)
    delete_offset = blocking(groups.delete_offset)

    # Users and tokens.

    create_user = blocking(users.create_user)
    get_user = blocking(users.get_user)
    get_users = blocking(users.get_users)
    update_user = blocking(users.update_user)
    delete_user = blocking(users.delete_user)
    update_permissions = blocking(users.update_permissions)
    change_password = blocking(users.change_password)
    create_token = blocking(users.create_token)
    get_tokens = blocking(users.get_tokens)
    delete_token = blocking(users.delete_token)

    # The server.

    ping = blocking(system.ping)
    get_stats = blocking(system.get_stats)
    get_counters = blocking(system.get_counters)
    get_shards = blocking(system.get_shards)
    get_reconcile = blocking(system.get_reconcile)
    accept_time = blocking(system.accept_time)
    get_snapshot = blocking(system.get_snapshot)
    get_cluster = blocking(system.get_cluster)
    describe_options = blocking(system.describe_options)
    get_me = blocking(system.get_me)
    get_client = blocking(system.get_client)
    get_clients = blocking(system.get_clients)
    poll = blocking(messages.poll)

    # Messages.

    def send(
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

        >>> _ = client.create_stream("shop")
        >>> _ = client.create_topic("shop/orders")
        >>> client.send("shop/orders", ["one", "two"])
        Sent(partition=0, offset=0, count=2)
        """
        sending = self._sender.send(topic, values, key=key, partition=partition, headers=headers)
        if isinstance(sending, Call):
            return self.ask(sending)
        return self.follow(sending)

    def get_topic(self, topic: TopicName) -> TopicDetails:
        """Return a topic and its partitions; `NotFound` says whether topic or stream is missing.

        >>> _ = client.create_stream("shop")
        >>> _ = client.create_topic("shop/orders", partitions=2)
        >>> [partition.id for partition in client.get_topic("shop/orders").partitions]
        [0, 1]
        """
        return self.follow(find_topic(topic))

    def plan_segments(self, topic: TopicName, partition: int = 0, *, start: int = 0) -> SegmentPlan:
        """Return the state of a partition, and the files of its sealed segments from an offset on.

        Spark reads by this plan. A process that can open the files reads them as described in
        `docs/formats/segment.md`; messages after the last file are read with `poll`.

        Raises:
            RefusedByServer: With `FEATURE_UNAVAILABLE`: the server does not support plans.

        >>> _ = client.create_stream("shop")
        >>> _ = client.create_topic("shop/orders")
        >>> _ = client.send("shop/orders", ["one", "two"])
        >>> plan = client.plan_segments("shop/orders")
        >>> plan.first_offset, plan.next_offset, plan.segments
        (0, 2, ())
        """
        return self.follow(plan_segments(topic, partition, start=start))

    def producer(self, topic: TopicName, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer for a topic; `ProducerOptions` lists its options.

        Raises:
            TypeError: There is no such option.
            ValueError: An option is wrong.
        """
        settings = read_producer_options(options)
        producer = Producer(self, topic, settings, self._registry.remove)
        self._registry.add(producer)
        return producer

    def consumer(self, topic: TopicName, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Return a consumer of a topic; `ConsumerOptions` lists its options.

        Raises:
            TypeError: There is no such option.
            ValueError: An option is wrong, or this client is already a member of that group.
        """
        settings = read_consumer_options(options)
        consumer = Consumer(self, Reader(topic, settings), self._registry.remove)
        self._registry.add(consumer, topic, settings.group)
        return consumer

    # Beginning and end.

    def open(self) -> None:
        """Connect and log in; `headrace.connect` calls it."""
        try:
            with self._lock:
                drive(self._session.open(), self._link.carry_out)
        except BaseException:
            self._link.close()
            raise
        self._heartbeat.start()

    def close(self, *, is_clean: bool = False) -> None:
        """Close producers and consumers, log out, and close the connection.

        Unless `is_clean` is set, as at the end of a `with` block without an error, the message that
        a consumer handed out last does not count as processed.

        Raises:
            HeadraceError: A message could not be confirmed.
        """
        failure: HeadraceError | None = None
        for child in self._registry.all():
            try:
                if isinstance(child, Consumer):
                    child.close(is_clean=is_clean)
                else:
                    child.close()
            except HeadraceError as error:
                failure = failure or error
        self._is_ending.set()
        if self._heartbeat.is_alive():
            self._heartbeat.join()
        with self._lock:
            drive(self._session.close(), self._link.carry_out)
            self._link.close()
        if failure is not None:
            raise failure

    def _end(self, *, is_clean: bool) -> None:
        self.close(is_clean=is_clean)

    def _beat(self) -> None:
        """Send heartbeats while the user makes no calls."""
        while not self._is_ending.wait(self._session.settings.heartbeat_seconds / 2):
            with self._lock:
                if not self._session.is_closed:
                    drive(self._session.beat(), self._link.carry_out)
