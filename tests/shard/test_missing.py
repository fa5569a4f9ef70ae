"""What is missing where something is written has one code, 20, as upstream has it.

Clients of other languages look for it. What is read, and the metadata, still name the level.
"""

import pytest

from headrace.wire.commands import messages, streams, topics
from headrace.wire.errors import Code
from headrace.wire.identifiers import Balanced, ByKey, Consumer, Partitioning, ToPartition
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replies import REPLY
from tests.shard.whole import Client, Whole

ALONE = Consumer(ConsumerKind.CONSUMER, 1)


@pytest.fixture
def client() -> Client:
    made = Whole().client()
    made.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    made.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    made.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 0, "empty"))
    return made


def status_of(frame: bytes) -> int:
    return REPLY.decode(frame).status


@pytest.mark.parametrize(
    ("stream", "topic", "to"),
    [
        ("none", "t", ToPartition(0)),
        (9, 0, ToPartition(0)),
        ("s", "none", ToPartition(0)),
        ("s", "t", ToPartition(1)),
        ("s", "empty", Balanced()),
        ("s", "empty", ByKey(b"k")),
    ],
)
def test_sends(client: Client, stream: str | int, topic: str | int, to: Partitioning) -> None:
    frame = client.send_frame_of(stream, topic, [b"x"], to=to)
    assert status_of(client.send_frame(frame)) == Code.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("consumer", "stream", "topic", "partition"),
    [
        (ALONE, "none", "t", 0),
        (ALONE, "s", "none", 0),
        (ALONE, "s", "t", 1),
        (ALONE, "s", "t", None),
        (Consumer(ConsumerKind.GROUP, "none"), "s", "t", 0),
    ],
)
def test_offsets(
    client: Client, consumer: Consumer, stream: str, topic: str, partition: int | None
) -> None:
    client.send("s", "t", [b"x"])
    store = messages.StoreOffset(
        consumer=consumer, stream=stream, topic=topic, partition_id=partition, offset=0
    )
    drop = messages.DeleteOffset(
        consumer=consumer, stream=stream, topic=topic, partition_id=partition
    )
    for frame in (
        client.make_frame(messages.STORE_OFFSET, store),
        client.make_frame(messages.DELETE_OFFSET, drop),
    ):
        assert status_of(client.send_frame(frame)) == Code.RESOURCE_NOT_FOUND


def test_who_cuts_segments_is_told_the_level(client: Client) -> None:
    for place, code in (
        (("none", "t", 0), Code.STREAM_ID_NOT_FOUND),
        (("s", "none", 0), Code.TOPIC_ID_NOT_FOUND),
        (("s", "t", 1), Code.PARTITION_NOT_FOUND),
    ):
        frame = client.make_frame(topics.DELETE_SEGMENTS, topics.DeleteSegments(*place, 1))
        assert status_of(client.send_frame(frame)) == code
