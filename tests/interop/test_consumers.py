"""The SDK's high-level consumer: iteration, callbacks, every way to commit."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from apache_iggy import (
    AutoCommit,
    AutoCommitAfter,
    AutoCommitWhen,
    IggyClient,
    IggyConsumer,
    PollingStrategy,
    ReceiveMessage,
    SendMessage,
)

from headrace.wire.commands.messages import GET_OFFSET, GetOffset
from headrace.wire.errors import Code
from headrace.wire.identifiers import Consumer as WireConsumer
from headrace.wire.numbers import ConsumerKind
from tests.interop.answers import refused
from tests.interop.conftest import Connect

pytestmark = pytest.mark.slow

COUNT = 10
WAIT_SECONDS_MAX = 20.0
SOON = timedelta(milliseconds=50)
SOMETIME = timedelta(hours=1)


async def _prepare(client: IggyClient, stream: str) -> None:
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 1)
    await client.send_messages(
        stream, "topic", 0, [SendMessage(str(number)) for number in range(COUNT)]
    )


async def _stored(client: IggyClient, stream: str) -> int | None:
    """Give the offset that the node keeps for the group."""
    group = WireConsumer(ConsumerKind.GROUP, "group")
    request = GET_OFFSET.encode_request(GetOffset(group, stream, "topic", 0))
    stored = GET_OFFSET.decode_reply(await client.send_binary_request(120, request))
    return None if stored is None else stored.stored_offset


async def _wait_stored(client: IggyClient, stream: str, offset: int | None) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
    while (stored := await _stored(client, stream)) != offset:
        assert asyncio.get_running_loop().time() < deadline, f"{stored} is stored, not {offset}"
        await asyncio.sleep(0.02)


async def _take(messages: AsyncIterator[ReceiveMessage], count: int) -> list[int]:
    return [(await anext(messages)).offset() for _ in range(count)]


async def _consume(consumer: IggyConsumer, count: int) -> list[int]:
    """Give the offsets that a callback saw, until it has seen enough."""
    done, seen = asyncio.Event(), []

    async def see(message: ReceiveMessage) -> None:
        seen.append(message.offset())
        if len(seen) == count:
            # What it commits after the last one must still be sent.
            asyncio.get_running_loop().call_later(0.3, done.set)

    await consumer.consume_messages(callback=see, shutdown_event=done)
    return seen


async def test_what_it_tells_of_itself(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    consumer = await client.consumer_group(
        name="group",
        stream=stream,
        topic="topic",
        partition_id=0,
        polling_strategy=PollingStrategy.Next(),
        batch_length=100,
        auto_commit=AutoCommit.Disabled(),
        create_consumer_group_if_not_exists=True,
        auto_join_consumer_group=True,
        poll_interval=timedelta(milliseconds=1),
        polling_retry_interval=timedelta(milliseconds=100),
        init_retries=3,
        init_retry_interval=timedelta(milliseconds=100),
        allow_replay=False,
    )
    assert (consumer.name(), consumer.stream(), consumer.topic()) == ("group", stream, "topic")
    assert consumer.partition_id() == 0
    assert consumer.get_last_consumed_offset(0) is None
    assert consumer.get_last_stored_offset(partition_id=0) is None
    group = await client.get_consumer_group(stream, "topic", "group")
    assert group is not None
    assert [each.partitions for each in group.members] == [[0]]
    assert await _take(consumer.iter_messages(), COUNT) == list(range(COUNT))
    assert consumer.get_last_consumed_offset(partition_id=0) == COUNT - 1
    assert await _stored(client, stream) is None
    await consumer.store_offset(3, 0)
    assert await _stored(client, stream) == 3
    assert consumer.get_last_stored_offset(0) == 3
    await consumer.store_offset(offset=5, partition_id=None)
    assert await _stored(client, stream) == 5
    await consumer.delete_offset(partition_id=0)
    assert await _stored(client, stream) is None
    with refused(Code.CONSUMER_OFFSET_NOT_FOUND):
        await consumer.delete_offset(0)
    # Without a partition the SDK stores for its current one, but asks for no partition to delete.
    with refused(Code.RESOURCE_NOT_FOUND):
        await consumer.delete_offset(None)
    with refused(Code.INVALID_OFFSET):
        await consumer.store_offset(COUNT, 0)


async def test_it_creates_nothing_when_told(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    with pytest.raises(RuntimeError, match="Consumer group with name: group"):
        await client.consumer_group(
            "group", stream, "topic", create_consumer_group_if_not_exists=False
        )
    assert await client.get_consumer_groups(stream, "topic") == []
    await client.create_consumer_group(stream, "topic", "group")
    await client.consumer_group("group", stream, "topic", auto_join_consumer_group=False)
    group = await client.get_consumer_group(stream, "topic", "group")
    assert group is not None
    assert group.members == []


@pytest.mark.parametrize(
    ("auto_commit", "expected"),
    [
        (AutoCommit.Disabled(), None),
        (AutoCommit.Interval(SOON), COUNT - 1),
        (AutoCommit.When(AutoCommitWhen.PollingMessages()), COUNT - 1),
        (AutoCommit.When(AutoCommitWhen.ConsumingAllMessages()), COUNT - 1),
        (AutoCommit.When(AutoCommitWhen.ConsumingEachMessage()), COUNT - 1),
        (AutoCommit.When(AutoCommitWhen.ConsumingEveryNthMessage(4)), 8),
        (AutoCommit.IntervalOrWhen(SOON, AutoCommitWhen.ConsumingEveryNthMessage(100)), COUNT - 1),
        (AutoCommit.IntervalOrWhen(SOMETIME, AutoCommitWhen.PollingMessages()), COUNT - 1),
        (AutoCommit.IntervalOrAfter(SOON, AutoCommitAfter.ConsumingEachMessage()), COUNT - 1),
    ],
)
async def test_commits_while_iterating(
    connect: Connect, stream: str, auto_commit: AutoCommit, expected: int | None
) -> None:
    client = await connect()
    await _prepare(client, stream)
    consumer = await client.consumer_group("group", stream, "topic", auto_commit=auto_commit)
    assert await _take(consumer.iter_messages(), COUNT) == list(range(COUNT))
    await _wait_stored(client, stream, expected)


@pytest.mark.parametrize(
    ("auto_commit", "expected"),
    [
        (AutoCommit.After(AutoCommitAfter.ConsumingAllMessages()), COUNT - 1),
        (AutoCommit.After(AutoCommitAfter.ConsumingEachMessage()), COUNT - 1),
        (AutoCommit.After(AutoCommitAfter.ConsumingEveryNthMessage(4)), 8),
        (AutoCommit.IntervalOrAfter(SOMETIME, AutoCommitAfter.ConsumingEachMessage()), COUNT - 1),
        (AutoCommit.Disabled(), None),
    ],
)
async def test_commits_after_callbacks(
    connect: Connect, stream: str, auto_commit: AutoCommit, expected: int | None
) -> None:
    client = await connect()
    await _prepare(client, stream)
    # At intervals: thousands of polls that find nothing would be most of what the lane asks for.
    consumer = await client.consumer_group(
        "group",
        stream,
        "topic",
        auto_commit=auto_commit,
        poll_interval=timedelta(milliseconds=50),
    )
    assert await _consume(consumer, COUNT) == list(range(COUNT))
    await _wait_stored(client, stream, expected)


async def test_the_next_consumer_goes_on(connect: Connect, stream: str) -> None:
    first_client = await connect()
    await _prepare(first_client, stream)
    consumer = await first_client.consumer_group(
        "group",
        stream,
        "topic",
        batch_length=1,
        auto_commit=AutoCommit.When(AutoCommitWhen.ConsumingEachMessage()),
    )
    assert await _take(consumer.iter_messages(), 4) == [0, 1, 2, 3]
    await _wait_stored(first_client, stream, 3)
    await first_client.leave_consumer_group(stream, "topic", "group")
    del consumer
    next_client = await connect()
    next_consumer = await next_client.consumer_group("group", stream, "topic")
    assert await _take(next_consumer.iter_messages(), COUNT - 4) == list(range(4, COUNT))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (PollingStrategy.First(), 0),
        (PollingStrategy.Offset(6), 6),
        (PollingStrategy.Timestamp(0), 0),
        (PollingStrategy.Next(), 0),
    ],
)
async def test_where_it_begins(
    connect: Connect, stream: str, strategy: PollingStrategy, expected: int
) -> None:
    client = await connect()
    await _prepare(client, stream)
    consumer = await client.consumer_group(
        "group", stream, "topic", polling_strategy=strategy, allow_replay=True
    )
    assert (await _take(consumer.iter_messages(), 1))[0] == expected


async def test_it_sees_what_is_sent_later(connect: Connect, stream: str) -> None:
    sending_client, reading_client = await connect(), await connect()
    await _prepare(sending_client, stream)
    consumer = await reading_client.consumer_group(
        "group", stream, "topic", poll_interval=timedelta(milliseconds=5)
    )
    messages = consumer.iter_messages()
    assert await _take(messages, COUNT) == list(range(COUNT))
    for number in range(COUNT, COUNT + 5):
        await sending_client.send_messages(stream, "topic", 0, [SendMessage("late")])
        assert await _take(messages, 1) == [number]


async def test_two_consumers_of_a_group(connect: Connect, stream: str) -> None:
    """Nothing is lost and nothing comes twice while both are there."""
    first_client, second_client = await connect(), await connect()
    await first_client.create_stream(stream)
    await first_client.create_topic(stream, "topic", 4)
    first_consumer = await first_client.consumer_group("group", stream, "topic")
    second_consumer = await second_client.consumer_group("group", stream, "topic")
    for partition in range(4):
        await first_client.send_messages(
            stream, "topic", partition, [SendMessage(f"{partition}-{n}") for n in range(25)]
        )
    seen = await asyncio.gather(
        *(_payloads(each.iter_messages(), 50) for each in (first_consumer, second_consumer))
    )
    assert sorted(seen[0] + seen[1]) == sorted(
        f"{partition}-{n}".encode() for partition in range(4) for n in range(25)
    )


async def _payloads(messages: AsyncIterator[ReceiveMessage], count: int) -> list[bytes]:
    return [(await anext(messages)).payload() for _ in range(count)]


async def test_a_running_consumer_goes_on_after_its_group_was_deleted(
    connect: Connect, stream: str
) -> None:
    """It creates the group again, joins and goes on; what it has seen before it skips itself."""
    client, other = await connect(), await connect()
    await _prepare(client, stream)
    consumer = await client.consumer_group(
        "group",
        stream,
        "topic",
        poll_interval=timedelta(milliseconds=1),
        polling_retry_interval=timedelta(milliseconds=50),
    )
    messages = consumer.iter_messages()
    assert await _take(messages, COUNT) == list(range(COUNT))
    await other.delete_consumer_group(stream, "topic", "group")
    await other.send_messages(stream, "topic", 0, [SendMessage("new")])
    taken = await asyncio.wait_for(_take(messages, 1), WAIT_SECONDS_MAX)
    assert taken == [COUNT]
    group = await other.get_consumer_group(stream, "topic", "group")
    assert group is not None
    assert [each.partitions for each in group.members] == [[0]]
