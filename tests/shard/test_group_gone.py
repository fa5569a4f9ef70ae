"""A group that is deleted while members read: polls ask for a sync, and sync for a new join."""

import pytest

from headrace.wire.commands import groups, messages, streams, topics
from headrace.wire.commands.messages import RESYNC_PARTITION
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, First, Next, Strategy
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replies import read_answer
from tests.shard.whole import Client, Whole

DATA = 1
GROUP = Consumer(ConsumerKind.GROUP, "g")


def join(client: Client) -> None:
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    client.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))


def delete(client: Client) -> None:
    client.ask(groups.DELETE_GROUP, groups.DeleteGroup("s", "t", "g"))


def frame_of_poll(
    client: Client,
    strategy: Strategy = Next(),  # noqa: B008
    *,
    partition: int | None = 0,
    topic: str = "t",
) -> bytes:
    request = messages.PollMessages(
        consumer=GROUP,
        stream="s",
        topic=topic,
        partition_id=partition,
        strategy=strategy,
        count=1,
        auto_commit=True,
    )
    return client.make_frame(messages.POLL_MESSAGES, request)


def read_poll(frame: bytes) -> messages.PolledMessages:
    return messages.POLL_MESSAGES.decode_reply(read_answer(frame))


@pytest.fixture
def node() -> Whole:
    return Whole(tail_bytes_max=4096)


@pytest.fixture
def admin(node: Whole) -> Client:
    made = node.client()
    made.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    made.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    for _ in range(10):
        made.send("s", "t", [bytes(2000)])
        node.tick(10)
    return made


@pytest.fixture
def member(node: Whole, admin: Client) -> Client:
    made = node.client(client=700)
    join(made)
    return made


def test_a_poll_is_told_to_sync_and_sync_to_join(admin: Client, member: Client) -> None:
    assert read_poll(member.send_frame(frame_of_poll(member))).messages_count == 1
    delete(admin)
    polled = read_poll(member.send_frame(frame_of_poll(member)))
    assert (polled.partition_id, polled.messages_count) == (RESYNC_PARTITION, 0)
    sync = groups.SyncGroup("s", "t", "g")
    assert member.ask(groups.SYNC_GROUP, sync) is None
    join(member)
    assert member.ask(groups.SYNC_GROUP, sync).partitions == (0,)
    assert read_poll(member.send_frame(frame_of_poll(member))).messages_count == 1


def test_a_poll_without_a_partition_is_empty_as_ever(admin: Client, member: Client) -> None:
    delete(admin)
    polled = read_poll(member.send_frame(frame_of_poll(member, partition=None)))
    assert (polled.partition_id, polled.messages_count) == (0, 0)


def test_sync_is_empty_where_the_topic_or_stream_is_gone(admin: Client, member: Client) -> None:
    admin.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    sync = groups.SyncGroup("s", "t", "g")
    assert member.ask(groups.SYNC_GROUP, sync) is None
    with pytest.raises(RefusedError) as refused:
        read_answer(member.send_frame(frame_of_poll(member)))
    assert refused.value.code == Code.TOPIC_ID_NOT_FOUND
    admin.ask(streams.DELETE_STREAM, streams.DeleteStream("s"))
    assert member.ask(groups.SYNC_GROUP, sync) is None


def test_a_poll_behind_an_offset_that_is_not_stored_yet(
    node: Whole, admin: Client, member: Client
) -> None:
    node.disks[DATA].is_syncing = False
    assert read_poll(member.send_frame(frame_of_poll(member))).messages_count == 1
    member.post(frame_of_poll(member))
    assert not member.has_answer()
    delete(admin)
    node.disks[DATA].is_syncing = True
    node.tick()
    assert read_poll(member.take()).partition_id == RESYNC_PARTITION


def test_a_poll_that_reads_segments(node: Whole, admin: Client, member: Client) -> None:
    node.is_reading_segments = False
    member.post(frame_of_poll(member, First()))
    assert not member.has_answer()
    delete(admin)
    node.is_reading_segments = True
    node.tick()
    assert read_poll(member.take()).partition_id == RESYNC_PARTITION
