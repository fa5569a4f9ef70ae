"""A node that goes and comes back, as the released SDK's clients see it."""

import asyncio
from datetime import timedelta

import pytest
from apache_iggy import (
    AutoLogin,
    Consumer,
    Durability,
    IggyClient,
    Partitioning,
    PollingStrategy,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
)

from tests.interop.conftest import connect_to
from tests.known_secrets import make_password
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

AGAIN_SECONDS_MAX = 30.0
SECRET = make_password("ann").decode()


def _lasting(node: Node) -> IggyClient:
    """Give a client that connects again for as long as it takes."""
    reconnection = TcpReconnectionConfig(
        enabled=True,
        max_retries=None,
        interval=timedelta(milliseconds=100),
        reestablish_after=timedelta(0),
    )
    assert reconnection.max_retries is None
    assert reconnection.interval == timedelta(milliseconds=100)
    assert reconnection.reestablish_after == timedelta(0)
    config = TcpConfig(
        server_address=str(node.tcp),
        auto_login=AutoLogin.username_password("iggy", "iggy"),
        reconnection=reconnection,
        heartbeat_interval=timedelta(milliseconds=200),
    )
    assert config.heartbeat_interval == timedelta(milliseconds=200)
    return IggyClient(config)


async def _read(client: IggyClient, topic: str, consumer: str = "reader") -> list[bytes]:
    polled = await client.poll_messages(
        "stream",
        topic,
        consumer=Consumer.Single(consumer),
        polling_strategy=PollingStrategy.First(),
        count=1_000_000,
        auto_commit=False,
        partition_id=0,
    )
    assert [message.offset() for message in polled] == list(range(len(polled)))
    return [message.payload() for message in polled]


async def _end(node: Node, way: str) -> None:
    await asyncio.to_thread(node.kill if way == "killed" else node.stop)


@pytest.mark.parametrize("way", ["killed", "stopped"])
async def test_everything_acknowledged_is_there_after_a_restart(way: str) -> None:
    with running_node() as node:
        client = await connect_to(node)
        await client.create_stream("stream")
        durabilities = {"kept": Durability.PERSISTED, "safe": Durability.REPLICATED}
        for topic, durability in durabilities.items():
            await client.create_topic("stream", topic, 1, durability=durability)
        await client.create_user("ann", SECRET)
        await client.create_consumer_group("stream", "kept", "group")
        for number in range(50):
            for topic in durabilities:
                await client.send_messages("stream", topic, 0, [SendMessage(str(number))])
        consumer = await client.consumer_group("group", "stream", "kept")
        await consumer.store_offset(30, 0)
        before = [await client.get_stream("stream"), await client.get_user("ann")]
        await _end(node, way)
        node.start()
        client = await connect_to(node)
        after = [await client.get_stream("stream"), await client.get_user("ann")]
        assert [each and each.created_at for each in after] == [
            each and each.created_at for each in before
        ]
        expected = [str(number).encode() for number in range(50)]
        # A process that dies takes nothing along that it has written, synced or not.
        assert await _read(client, "kept") == expected
        assert await _read(client, "safe") == expected
        assert await connect_to(node, "ann", SECRET) is not None
        consumer = await client.consumer_group("group", "stream", "kept")
        next_message = await anext(consumer.iter_messages())
        assert next_message.offset() == 31
        group = await client.get_consumer_group("stream", "kept", "group")
        assert group is not None
        assert group.members_count == 1  # those of before have lost their connection
        sent = await client.send_messages("stream", "kept", 0, [SendMessage("new")])
        assert sent.confirmations[0].base_offset == 50


@pytest.mark.parametrize("way", ["killed", "stopped"])
async def test_a_client_goes_on_by_itself(way: str) -> None:
    """What was acknowledged is there once, and the same client object sends on."""
    with running_node() as node:
        client = _lasting(node)
        await client.connect()
        await client.create_stream("stream")
        await client.create_topic("stream", "topic", 1, durability=Durability.PERSISTED)
        acknowledged: list[int] = []
        is_over = asyncio.Event()

        async def send_on() -> None:
            number = 0
            while not is_over.is_set():
                try:
                    await client.send_messages("stream", "topic", 0, [SendMessage(str(number))])
                except RuntimeError:  # It may or may not have been taken: not acknowledged.
                    await asyncio.sleep(0.05)
                else:
                    acknowledged.append(number)
                number += 1

        sending = asyncio.create_task(send_on())
        await _wait_for(acknowledged, 20)
        await _end(node, way)
        before = len(acknowledged)
        await asyncio.to_thread(node.start)
        await _wait_for(acknowledged, before + 20)
        is_over.set()
        await sending
        read = [int(each) for each in await _read(client, "topic")]
        assert len(set(read)) == len(read)
        assert set(acknowledged) <= set(read)
        assert read == sorted(read)


async def _wait_for(grown: list[int], count: int) -> None:
    deadline = asyncio.get_running_loop().time() + AGAIN_SECONDS_MAX
    while len(grown) < count:
        assert asyncio.get_running_loop().time() < deadline, f"{len(grown)} of {count}"
        await asyncio.sleep(0.01)


async def test_a_consumer_and_a_producer_go_on() -> None:
    with running_node() as node:
        sending_client, reading_client = _lasting(node), _lasting(node)
        await sending_client.connect()
        await reading_client.connect()
        producer = await sending_client.producer(
            "stream",
            "topic",
            Partitioning.partition_id(0),
            send_retries=100,
            send_retry_interval=timedelta(milliseconds=100),
        )
        consumer = await reading_client.consumer_group(
            "group", "stream", "topic", poll_interval=timedelta(milliseconds=5)
        )
        messages = consumer.iter_messages()
        await producer.send([SendMessage("before")])
        assert (await anext(messages)).payload() == b"before"
        await asyncio.to_thread(node.kill)
        sending = asyncio.ensure_future(producer.send_one(SendMessage("after")))
        await asyncio.to_thread(node.start)
        await sending
        got = b""
        while got != b"after":
            got = (await anext(messages)).payload()
        await producer.shutdown()


async def test_a_client_that_may_not_wait_fails() -> None:
    with running_node() as node:
        config = TcpConfig(
            server_address=str(node.tcp),
            auto_login=AutoLogin.username_password(username="iggy", password="iggy"),
            reconnection=TcpReconnectionConfig(
                max_retries=1, interval=timedelta(milliseconds=10), reestablish_after=timedelta(0)
            ),
        )
        client = IggyClient(config)
        await client.connect()
        node.kill()
        with pytest.raises(RuntimeError):
            await client.get_streams()
