"""Consumer groups through the released SDK: membership, assignment, rebalancing, offsets."""

import asyncio
from collections.abc import Callable

import pytest
from apache_iggy import Consumer, IggyClient, PollingStrategy, ReceiveMessage, SendMessage

from headrace.wire.commands.clients import GET_ME, Membership
from headrace.wire.commands.groups import SYNC_GROUP, SyncGroup
from headrace.wire.errors import Code
from tests.interop.answers import refused, told
from tests.interop.conftest import Connect

pytestmark = pytest.mark.slow

WAIT_SECONDS_MAX = 20.0


async def _prepare(client: IggyClient, stream: str, partitions_count: int = 4) -> None:
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", partitions_count)
    await client.create_consumer_group(stream, "topic", "group")


async def _poll(
    client: IggyClient, stream: str, *, count: int = 10, auto_commit: bool = True
) -> list[ReceiveMessage]:
    return await client.poll_messages(
        stream,
        "topic",
        consumer=Consumer.Group("group"),
        polling_strategy=PollingStrategy.Next(),
        count=count,
        auto_commit=auto_commit,
    )


async def _assigned(client: IggyClient, stream: str) -> list[list[int]]:
    """Give the partitions of each member, as the node tells them to anyone."""
    group = await client.get_consumer_group(stream, "topic", "group")
    assert group is not None
    assert group.members_count == len(group.members)
    assert all(each.partitions_count == len(each.partitions) for each in group.members)
    return sorted(sorted(each.partitions) for each in group.members)


async def _wait_for(is_so: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
    while not await is_so():  # type: ignore[misc]  # given as a coroutine function
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.05)


async def test_create_list_and_delete(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 3)
    assert await client.get_consumer_groups(stream, "topic") == []
    await client.create_consumer_group(stream, "topic", "first")
    await client.create_consumer_group(stream, 0, "second")
    listed = await client.get_consumer_groups(stream, 0)
    assert [told(each) for each in listed] == [
        {"id": 0, "name": "first", "partitions_count": 3, "members_count": 0},
        {"id": 1, "name": "second", "partitions_count": 3, "members_count": 0},
    ]
    found = await client.get_consumer_group(stream, "topic", 1)
    assert found is not None
    assert told(found) == told(listed[1]) | {"members": []}
    await client.delete_consumer_group(stream, "topic", "first")
    await client.delete_consumer_group(stream, 0, 1)
    assert await client.get_consumer_groups(stream, "topic") == []
    await client.create_consumer_group(stream, "topic", "first")
    again = await client.get_consumer_group(stream, "topic", "first")
    assert again is not None
    assert again.id == 2  # never one that a stored offset may still be of


async def test_join_and_leave(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    await client.join_consumer_group(stream, "topic", "group")
    await client.join_consumer_group(stream, 0, 0)  # again is no change
    assert await _assigned(client, stream) == [[0, 1, 2, 3]]
    group = await client.get_consumer_group(stream, "topic", "group")
    assert group is not None
    assert [told(each) for each in group.members] == [
        {"id": 0, "partitions_count": 4, "partitions": [0, 1, 2, 3]}
    ]
    made = await client.get_stream(stream)
    assert made is not None
    me = GET_ME.decode_reply(await client.send_binary_request(20, b""))
    assert me.groups == (Membership(made.id, 0, 0),)
    sync = SYNC_GROUP.encode_request(SyncGroup(stream, "topic", "group"))
    assignment = SYNC_GROUP.decode_reply(await client.send_binary_request(606, sync))
    assert assignment is not None
    assert assignment.partitions == (0, 1, 2, 3)
    await client.leave_consumer_group(stream, 0, 0)
    assert await _assigned(client, stream) == []
    assert await client.send_binary_request(606, sync) == b""
    with refused(Code.CONSUMER_GROUP_MEMBER_NOT_FOUND):
        await client.leave_consumer_group(stream, "topic", "group")


async def test_one_member_reads_every_partition(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    for partition in range(4):
        await client.send_messages(stream, "topic", partition, [SendMessage(str(partition))])
    await client.join_consumer_group(stream, "topic", "group")
    polled = [message for _ in range(4) for message in await _poll(client, stream)]
    assert sorted(message.payload() for message in polled) == [b"0", b"1", b"2", b"3"]
    assert [await _poll(client, stream) for _ in range(4)] == [[], [], [], []]
    # What the group has stored is there for whoever comes next.
    await client.leave_consumer_group(stream, "topic", "group")
    next_client = await connect()
    await next_client.join_consumer_group(stream, "topic", "group")
    assert [await _poll(next_client, stream) for _ in range(4)] == [[], [], [], []]


async def test_two_members_share_and_one_leaves(connect: Connect, stream: str) -> None:
    first_client, second_client = await connect(), await connect()
    await _prepare(first_client, stream)
    await first_client.join_consumer_group(stream, "topic", "group")
    await second_client.join_consumer_group(stream, "topic", "group")
    shared = await _assigned(first_client, stream)
    assert [len(each) for each in shared] == [2, 2]
    assert sorted(shared[0] + shared[1]) == [0, 1, 2, 3]
    for partition in range(4):
        await first_client.send_messages(stream, "topic", partition, [SendMessage(str(partition))])
    mine = [message for _ in range(4) for message in await _poll(first_client, stream)]
    yours = [message for _ in range(4) for message in await _poll(second_client, stream)]
    # Each got its own, nobody got any twice.
    assert sorted(message.payload() for message in mine + yours) == [b"0", b"1", b"2", b"3"]
    assert (
        sorted(sorted(message.partition_id() for message in messages) for messages in (mine, yours))
        == shared
    )
    await second_client.leave_consumer_group(stream, "topic", "group")
    assert await _assigned(first_client, stream) == [[0, 1, 2, 3]]


async def test_a_member_that_dies_gives_its_partitions_back(connect: Connect, stream: str) -> None:
    watching_client, staying_client = await connect(), await connect()
    await _prepare(watching_client, stream)
    await staying_client.join_consumer_group(stream, "topic", "group")
    dying_client = await connect()
    await dying_client.join_consumer_group(stream, "topic", "group")
    assert [len(each) for each in await _assigned(watching_client, stream)] == [2, 2]
    del dying_client  # its connection is gone with it, and nothing was said

    async def is_alone() -> bool:
        return await _assigned(watching_client, stream) == [[0, 1, 2, 3]]

    await _wait_for(is_alone, "the partitions of the dead member are dealt again")
    for partition in range(4):
        await watching_client.send_messages(stream, "topic", partition, [SendMessage("m")])
    got: list[int] = []

    async def has_all() -> bool:
        got.extend(message.partition_id() for message in await _poll(staying_client, stream))
        return len(got) >= 4

    await _wait_for(has_all, "the staying member reads all partitions")
    assert sorted(got) == [0, 1, 2, 3]


async def test_what_is_read_and_not_stored_comes_again(connect: Connect, stream: str) -> None:
    """Dealt to another member, a partition goes on from what the group has stored."""
    first_client, second_client = await connect(), await connect()
    await _prepare(first_client, stream, 2)
    for partition in range(2):
        messages = [SendMessage("stored"), SendMessage("read")]
        await first_client.send_messages(stream, "topic", partition, messages)
    await first_client.join_consumer_group(stream, "topic", "group")
    seen = [await _poll(first_client, stream, auto_commit=False) for _ in range(2)]
    assert [len(each) for each in seen] == [2, 2]
    consumer = await first_client.consumer_group("group", stream, "topic")
    for partition in range(2):
        await consumer.store_offset(0, partition)
    await second_client.join_consumer_group(stream, "topic", "group")
    again = [await _poll(client, stream) for client in (first_client, second_client)]
    assert [[message.payload() for message in each] for each in again] == [[b"read"], [b"read"]]
    assert sorted(each[0].partition_id() for each in again) == [0, 1]


async def test_partitions_of_a_group_grow_with_the_topic(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream, 1)
    await client.join_consumer_group(stream, "topic", "group")
    await client.create_partitions(stream, "topic", 2)
    assert await _assigned(client, stream) == [[0, 1, 2]]
    await client.delete_partitions(stream, "topic", 2)
    assert await _assigned(client, stream) == [[0]]


async def test_a_partition_can_be_named(connect: Connect, stream: str) -> None:
    first_client, second_client = await connect(), await connect()
    await _prepare(first_client, stream, 2)
    await first_client.join_consumer_group(stream, "topic", "group")
    await second_client.join_consumer_group(stream, "topic", "group")
    ours: dict[int, IggyClient] = {}
    for client in (first_client, second_client):
        for partition in range(2):
            await client.send_messages(stream, "topic", partition, [SendMessage("m")])
            polled = await client.poll_messages(
                stream,
                "topic",
                consumer=Consumer.Group(id="group"),
                polling_strategy=PollingStrategy.Next(),
                count=1,
                auto_commit=True,
                partition_id=partition,
            )
            if polled:
                assert ours.setdefault(partition, client) is client
    assert sorted(ours) == [0, 1]


async def test_refusals(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    with refused(Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS):
        await client.create_consumer_group(stream, "topic", "group")
    with refused(Code.INVALID_CONSUMER_GROUP_NAME):
        await client.create_consumer_group(stream, "topic", "tab\t")
    for doing in (client.create_consumer_group, client.delete_consumer_group):
        with refused(Code.STREAM_ID_NOT_FOUND):
            await doing("nowhere", "topic", "group")
        with refused(Code.TOPIC_ID_NOT_FOUND):
            await doing(stream, "nothing", "group")
    for doing in (
        client.delete_consumer_group,
        client.join_consumer_group,
        client.leave_consumer_group,
    ):
        with refused(Code.CONSUMER_GROUP_ID_NOT_FOUND):
            await doing(stream, "topic", "nobody")
    assert await client.get_consumer_group(stream, "topic", "nobody") is None
    with refused(Code.TOPIC_ID_NOT_FOUND):
        await client.get_consumer_groups(stream, "nothing")
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.get_consumer_group("nowhere", "topic", "group")
