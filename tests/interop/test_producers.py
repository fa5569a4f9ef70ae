"""The SDK's high-level producer, direct and in the background."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from apache_iggy import (
    BackgroundProducerConfig,
    BackpressureMode,
    Consumer,
    DirectProducerConfig,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
    Partitioning,
    PollingStrategy,
    ProducerSendError,
    ProducerSharding,
    SendMessage,
)

from headrace.wire.errors import Code
from tests.interop.answers import WORDS, told
from tests.interop.conftest import Connect

pytestmark = pytest.mark.slow


async def _read(client: IggyClient, stream: str, topic: str, partition: int) -> list[bytes]:
    polled = await client.poll_messages(
        stream,
        topic,
        consumer=Consumer.Single("reader"),
        polling_strategy=PollingStrategy.First(),
        count=1_000_000,
        auto_commit=False,
        partition_id=partition,
    )
    return [message.payload() for message in polled]


async def test_it_creates_what_it_needs(connect: Connect, stream: str) -> None:
    client = await connect()
    producer = await client.producer(
        stream,
        "topic",
        create_stream_if_not_exists=True,
        create_topic_if_not_exists=True,
        topic_partitions_count=3,
        topic_message_expiry=IggyExpiry.ExpireDuration(duration=timedelta(days=1)),
        topic_max_size=MaxTopicSize.Custom(bytes=1 << 40),
    )
    made = await client.get_topic(stream, "topic")
    assert made is not None
    assert made.partitions_count == 3
    assert told(made)["message_expiry"] == ["ExpireDuration", 86_400_000_000]
    assert told(made)["max_topic_size"] == ["Custom", 1 << 40]
    await producer.shutdown()
    await producer.shutdown()
    again_producer = await client.producer(stream, "topic")  # what is there is taken as it is
    await again_producer.shutdown()


async def test_it_creates_nothing_when_told(connect: Connect, stream: str) -> None:
    client = await connect()
    with pytest.raises(RuntimeError, match="was not found"):
        await client.producer(stream, "topic", create_stream_if_not_exists=False)
    await client.create_stream(stream)
    with pytest.raises(RuntimeError, match="was not found"):
        await client.producer(stream, "topic", create_topic_if_not_exists=False)
    assert await client.get_topics(stream) == []


async def test_direct_sends(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "other", 2)
    async with await client.producer(
        stream,
        "topic",
        Partitioning.partition_id(1),
        DirectProducerConfig(batch_length=2, linger_time=timedelta(0)),
        topic_partitions_count=2,
        send_retries=None,
        send_retry_interval=None,
    ) as producer:
        sent = await producer.send_one(SendMessage("0"))
        assert [(each.partition_id, each.base_offset) for each in sent.confirmations] == [(1, 0)]
        # Batches of two: three requests, three confirmations.
        sent = await producer.send([SendMessage(str(number)) for number in range(1, 6)])
        assert [each.base_offset for each in sent.confirmations] == [1, 3, 5]
        elsewhere = await producer.send_with_partitioning(
            [SendMessage("k")], partitioning=Partitioning.partition_id(0)
        )
        assert [each.partition_id for each in elsewhere.confirmations] == [0]
        usual = await producer.send_with_partitioning([SendMessage("6")])
        assert [each.base_offset for each in usual.confirmations] == [6]
        other = await producer.send_to(
            stream, "other", [SendMessage("o")], partitioning=Partitioning.messages_key("key")
        )
        assert [each.topic_id for each in other.confirmations] == [0]
    assert await _read(client, stream, "topic", 1) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    assert await _read(client, stream, "topic", 0) == [b"k"]


async def test_direct_sends_by_default(connect: Connect, stream: str) -> None:
    """Balanced over the partitions, in requests of a thousand messages."""
    client = await connect()
    producer = await client.producer(
        stream, "topic", mode=DirectProducerConfig(), topic_partitions_count=2
    )
    sent = await producer.send([SendMessage(str(number)) for number in range(2500)])
    assert len(sent.confirmations) == 3
    await producer.shutdown()
    both = [await _read(client, stream, "topic", partition) for partition in range(2)]
    assert sorted(map(int, both[0] + both[1])) == list(range(2500))
    assert all(both)


async def test_a_direct_send_that_is_refused(connect: Connect, stream: str) -> None:
    client = await connect()
    producer = await client.producer(
        stream,
        "topic",
        partitioning=Partitioning.partition_id(0),
        mode=DirectProducerConfig(batch_length=1),
        send_retries=1,
        send_retry_interval=timedelta(milliseconds=10),
    )
    with pytest.raises(ProducerSendError) as caught:
        await producer.send_with_partitioning(
            [SendMessage("a"), SendMessage("b")], Partitioning.partition_id(9)
        )
    assert caught.value.cause.startswith(WORDS[Code.RESOURCE_NOT_FOUND])
    assert len(caught.value.failed) == 2
    assert caught.value.committed == []
    await producer.send_one(SendMessage("c"))
    assert await _read(client, stream, "topic", 0) == [b"c"]
    with pytest.raises(RuntimeError):
        await producer.send_to(stream, "nothing", [SendMessage("d")])
    await producer.shutdown()


@pytest.mark.parametrize("sharding", [ProducerSharding.ORDERED, ProducerSharding.BALANCED])
async def test_background_sends(connect: Connect, stream: str, sharding: ProducerSharding) -> None:
    client = await connect()
    async with await client.producer(
        stream,
        "topic",
        Partitioning.partition_id(0),
        BackgroundProducerConfig(
            num_shards=2,
            linger_time=timedelta(milliseconds=5),
            batch_size=4096,
            batch_length=10,
            max_buffer_size=1 << 20,
            failure_mode=BackpressureMode.block(),
            max_in_flight=2,
            sharding=sharding,
        ),
    ) as producer:
        for number in range(0, 500, 5):
            accepted = await producer.send([SendMessage(str(number + each)) for each in range(5)])
            assert accepted.confirmations == []  # taken, not yet sent
        await producer.send_one(SendMessage("500"))
    read = [int(each) for each in await _read(client, stream, "topic", 0)]
    assert sorted(read) == list(range(501))
    if sharding == ProducerSharding.ORDERED:
        assert read == list(range(501))


@pytest.mark.parametrize(
    "failure_mode",
    [
        BackpressureMode.block_with_timeout(timeout=timedelta(seconds=5)),
        BackpressureMode.fail_immediately(),
    ],
)
async def test_background_sends_with_other_modes(
    connect: Connect, unique: Callable[[str], str], failure_mode: BackpressureMode
) -> None:
    stream = unique("modes")
    client = await connect()
    config = BackgroundProducerConfig(failure_mode=failure_mode)
    assert config.failure_mode == failure_mode
    assert (config.failure_mode.timeout is None) == (
        failure_mode == BackpressureMode.fail_immediately()
    )
    assert (config.num_shards, config.batch_length, config.max_in_flight) == (1, 1000, 1)
    assert (config.batch_size, config.max_buffer_size) == (1 << 20, 32 << 20)
    assert config.sharding == ProducerSharding.ORDERED
    assert config.linger_time == timedelta(milliseconds=1)
    producer = await client.producer(stream, "topic", Partitioning.partition_id(0), config)
    for number in range(50):
        await producer.send_one(SendMessage(str(number)))
    await producer.shutdown()
    assert await _read(client, stream, "topic", 0) == [b"%d" % number for number in range(50)]
    with pytest.raises(RuntimeError):
        await producer.send_one(SendMessage("late"))
