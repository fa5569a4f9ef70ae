"""Retries through a proxy that loses answers: each message once, at the offset confirmed (O4).

Takes about 20 s of the share of interop; more faults by a longer run of the same with other seeds.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from apache_iggy import (
    AutoLogin,
    DirectProducerConfig,
    IggyClient,
    Partitioning,
    ProducerSendError,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
)

import headrace
from headrace.base.endpoints import Endpoint
from headrace.client.produce.batching import Place
from headrace.client.session.connection import Connection
from headrace.client.session.steps import Steps
from headrace.wire.numbers import Operation
from tests.client.proxy import Plan, faulty_proxy
from tests.node import Node

pytestmark = pytest.mark.slow

MESSAGES = int(os.environ.get("HEADRACE_TEST_RETRY_MESSAGES", "4000"))
SDK_SENDS = 150
TOPIC = "shop/orders"


@pytest.fixture(autouse=True)
def topic(client: headrace.Client) -> str:
    client.create_stream("shop")
    client.create_topic(TOPIC, partitions=3)
    return TOPIC


def read_all(client: headrace.Client) -> dict[Place, bytes]:
    with client.consumer(TOPIC, wait=0) as consumer:
        return {Place(each.partition, each.offset): each.value for each in consumer}


def check_once(client: headrace.Client, confirmed: dict[bytes, Place]) -> None:
    """Every message is there once, where its confirmation says, and nothing else is."""
    there = read_all(client)
    assert len(there) == len(confirmed)
    assert {place: value for value, place in confirmed.items()} == there


@pytest.mark.parametrize("seed", [1, 2])
def test_our_producer_sends_each_message_once(
    seed: int, node: Node, client: headrace.Client
) -> None:
    plan = Plan(seed, 0.2, ("before", "after", "half", "swallow"))
    with (
        faulty_proxy(node.tcp, plan) as address,
        headrace.connect(
            str(address), answer_timeout="100 ms", timeout="60 s", wait="60 s"
        ) as ours,
    ):
        with ours.producer(TOPIC, batch=20, linger="1 ms") as producer:
            sent = {b"%d" % n: producer.send(b"%d" % n) for n in range(MESSAGES)}
        confirmed = {value: delivery.wait() for value, delivery in sent.items()}
        assert ours.logins_count > 20
    assert min(plan.faults[kind] for kind in plan.kinds) >= 3
    check_once(client, confirmed)


def test_the_check_sees_what_a_new_client_id_would_repeat(
    node: Node, client: headrace.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that came back under another id would store messages twice, and be found out."""
    connect_again = Connection.connect

    def connect_as_another(self: Connection, deadline: float) -> Steps[None]:
        self._client += 1
        return connect_again(self, deadline)

    monkeypatch.setattr(Connection, "connect", connect_as_another)
    plan = Plan(7, 0.2, ("after",))
    with faulty_proxy(node.tcp, plan) as address, headrace.connect(str(address)) as ours:
        confirmed = {}
        for number in range(40):
            sent = ours.send(TOPIC, [b"%d" % number], partition=0)
            confirmed[b"%d" % number] = Place(sent.partition, sent.offset)
    assert plan.faults.total() > 3
    with pytest.raises(AssertionError):
        check_once(client, confirmed)


def test_our_async_producer_sends_each_message_once(node: Node, client: headrace.Client) -> None:
    plan = Plan(3, 0.2, ("before", "after", "half", "swallow"))

    async def produce(address: Endpoint) -> dict[bytes, Place]:
        async with headrace.aio.connect(
            str(address), answer_timeout="100 ms", timeout="60 s", wait="60 s"
        ) as ours:
            async with ours.producer(TOPIC, batch=20, linger="1 ms") as producer:
                sent = {b"%d" % n: await producer.send(b"%d" % n) for n in range(MESSAGES)}
            return {value: await delivery for value, delivery in sent.items()}

    with faulty_proxy(node.tcp, plan) as address:
        confirmed = asyncio.run(produce(address))
    assert min(plan.faults[kind] for kind in plan.kinds) >= 3
    check_once(client, confirmed)


def test_the_order_of_a_partition_is_kept(node: Node, client: headrace.Client) -> None:
    plan = Plan(4, 0.3, ("before", "after", "half"))
    with (
        faulty_proxy(node.tcp, plan) as address,
        headrace.connect(str(address)) as ours,
        ours.producer(TOPIC, batch=10, linger=0, partitioning=1) as producer,
    ):
        for number in range(1000):
            producer.send(b"%d" % number)
    assert plan.faults.total() > 10
    assert list(read_all(client).values()) == [b"%d" % number for number in range(1000)]


def test_administration_is_applied_once(node: Node, client: headrace.Client) -> None:
    """A request whose answer was lost is not refused as a repetition, but answered again."""
    metadata = range(Operation.CREATE_STREAM, Operation.LEAVE_CONSUMER_GROUP + 1)
    plan = Plan(5, 0.4, ("before", "after", "half"), metadata)
    with faulty_proxy(node.tcp, plan) as address, headrace.connect(str(address)) as ours:
        for number in range(40):
            assert ours.create_stream(f"stream {number}").name == f"stream {number}"
        for number in range(40):
            ours.delete_stream(f"stream {number}")
    assert plan.faults.total() > 10
    assert [stream.name for stream in client.get_streams()] == ["shop"]


def test_a_group_reads_everything_over_lost_connections(
    node: Node, client: headrace.Client
) -> None:
    """Each message comes; one may come again whose offset could not be stored for long enough."""
    for partition in range(3):
        values = [f"{partition}:{number}" for number in range(100)]
        client.send(TOPIC, values, partition=partition)
    reads = (Operation.NON_REPLICATED, Operation.STORE_CONSUMER_OFFSET)
    plan = Plan(8, 0.1, ("before", "after", "half"), reads)
    with (
        faulty_proxy(node.tcp, plan) as address,
        headrace.connect(str(address)) as ours,
        ours.consumer(TOPIC, group="g", commit="each", count=10, wait="500 ms") as consumer,
    ):
        read = [message.text for message in consumer]
        plan.is_on = False
    assert plan.faults.total() > 10
    assert set(read) == {f"{p}:{n}" for p in range(3) for n in range(100)}
    assert len(read) <= 300 + 3
    stored = [client.get_offset(TOPIC, partition, group="g") for partition in range(3)]
    assert [each.stored_offset for each in stored if each] == [99, 99, 99]


def test_what_the_released_sdk_repeats_is_measured(
    node: Node, client: headrace.Client, record_property: Callable[[str, object], None]
) -> None:
    """The released SDK comes back as another client: what it repeats cannot be recognised.

    No message may be lost that it was told of as sent; how many come twice is measured, and shown
    with `-rP`.
    """
    plan = Plan(6, 0.2, ("before", "after", "half"))

    async def produce(address: Endpoint) -> list[bytes]:
        sdk = IggyClient(
            TcpConfig(
                server_address=str(address),
                auto_login=AutoLogin.username_password("iggy", "iggy"),
                reconnection=TcpReconnectionConfig(
                    interval=timedelta(milliseconds=20),
                    reestablish_after=timedelta(milliseconds=20),
                ),
            )
        )
        await sdk.connect()
        producer = await sdk.producer(
            "shop",
            "orders",
            Partitioning.partition_id(0),
            DirectProducerConfig(),
            send_retries=10,
            send_retry_interval=timedelta(milliseconds=20),
        )
        confirmed = []
        for number in range(SDK_SENDS):
            try:
                await producer.send_one(SendMessage(str(number)))
            except (ProducerSendError, RuntimeError):
                continue
            confirmed.append(b"%d" % number)
        plan.is_on = False
        await producer.shutdown()
        return confirmed

    with faulty_proxy(node.tcp, plan) as address:
        confirmed = asyncio.run(produce(address))
    times = Counter(read_all(client).values())
    twice = sum(count - 1 for count in times.values())
    record_property("stored_again", twice)
    sys.stdout.write(
        f"released SDK: {plan.faults.total()} faults in {plan.requests} sends,"
        f" {len(confirmed)} of {SDK_SENDS} messages confirmed,"
        f" {twice} stored again ({twice / SDK_SENDS:.1%})\n"
    )
    assert plan.faults.total() > 5
    assert all(times[value] >= 1 for value in confirmed)
