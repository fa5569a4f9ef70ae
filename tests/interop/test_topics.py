"""Topics and partitions through the released SDK."""

from datetime import timedelta

import pytest
from apache_iggy import Durability, IggyExpiry, MaxTopicSize, SendMessage

from headrace.wire.commands.topics import (
    DELETE_SEGMENTS,
    FLUSH_UNSAVED_BUFFER,
    DeleteSegments,
    FlushUnsavedBuffer,
)
from headrace.wire.errors import Code
from tests.interop.answers import refused, told
from tests.interop.conftest import Connect

pytestmark = pytest.mark.slow

FOREVER = 2**64 - 1
DEFAULTS = {
    "compression_algorithm": "none",
    "consumer_offset_durability": "replicated",
    "durability": "replicated",
    "max_topic_size": FOREVER,
    "message_expiry": FOREVER,
    "messages_required_to_save": 1024,
    "preallocate_segments": False,
    "segment_size": 1 << 30,
    "size_of_messages_required_to_save": 1 << 20,
}


async def test_create_with_defaults(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "plain", 2)
    made = await client.get_topic(stream, "plain")
    assert made is not None
    assert made.options.to_scalar_dict() | made.derived_options.to_scalar_dict() == DEFAULTS
    # The SDK sends the two classes whether asked to or not; the rest is the node's to fill in.
    assert set(made.options.to_scalar_dict()) == {"durability", "consumer_offset_durability"}
    assert told(made) == {
        "id": 0,
        "name": "plain",
        "created_at": made.created_at,
        "size": 0,
        "messages_count": 0,
        "partitions_count": 2,
        "message_expiry": ["NeverExpire"],
        "max_topic_size": ["Unlimited"],
        "compression_algorithm": "none",
        "options": told(made)["options"],
        "derived_options": told(made)["derived_options"],
        "partitions": [
            {
                "id": number,
                "created_at": made.created_at,
                "segments_count": 1,
                "current_offset": 0,
                "size": 0,
                "messages_count": 0,
            }
            for number in range(2)
        ],
    }


async def test_create_with_every_option(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(
        stream,
        "full",
        2,
        compression_algorithm="gzip",
        message_expiry=IggyExpiry.ExpireDuration(timedelta(hours=2)),
        max_topic_size=MaxTopicSize.Custom(4 << 30),
        segment_size=1 << 20,
        durability=Durability.PERSISTED,
        consumer_offset_durability=Durability.PERSISTED,
        messages_required_to_save=5000,
        size_of_messages_required_to_save=2 << 20,
        preallocate_segments=True,
    )
    made = await client.get_topic(stream, "full")
    assert made is not None
    assert made.options.to_scalar_dict() == {
        "compression_algorithm": "gzip",
        "consumer_offset_durability": "persisted",
        "durability": "persisted",
        "max_topic_size": 4 << 30,
        "message_expiry": 7_200_000_000,
        "messages_required_to_save": 5000,
        "preallocate_segments": True,
        "segment_size": 1 << 20,
        "size_of_messages_required_to_save": 2 << 20,
    }
    assert made.derived_options == {}
    assert made.compression_algorithm == "gzip"
    expiry = made.message_expiry
    assert isinstance(expiry, IggyExpiry.ExpireDuration)
    assert expiry.duration == timedelta(hours=2)
    size = made.max_topic_size
    assert isinstance(size, MaxTopicSize.Custom)
    assert size.bytes == 4 << 30
    sent = await client.send_messages(stream, "full", 1, [SendMessage("m")])
    assert [each.partition_id for each in sent.confirmations] == [1]


async def test_ways_to_say_never_and_default(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    made_stream = await client.get_stream(stream)
    assert made_stream is not None
    await client.create_topic(
        made_stream.id,
        "never",
        1,
        message_expiry=IggyExpiry.NeverExpire(),
        max_topic_size=MaxTopicSize.Unlimited(),
        durability=Durability.REPLICATED,
        consumer_offset_durability=Durability.REPLICATED,
        preallocate_segments=False,
    )
    await client.create_topic(
        made_stream.id,
        "usual",
        1,
        message_expiry=IggyExpiry.ServerDefault(),
        max_topic_size=MaxTopicSize.ServerDefault(),
    )
    # Text is taken where the SDK has no argument, and stored as what it means.
    await client.create_topic(
        made_stream.id, "texts", 1, options={"message_expiry": "7 days", "segment_size": "1 MiB"}
    )
    never, usual, texts = await client.get_topics(made_stream.id)
    assert isinstance(never.message_expiry, IggyExpiry.NeverExpire)
    assert isinstance(never.max_topic_size, MaxTopicSize.Unlimited)
    assert never.options.to_scalar_dict()["message_expiry"] == FOREVER
    assert usual.derived_options.to_scalar_dict()["message_expiry"] == FOREVER
    assert texts.options.to_scalar_dict()["message_expiry"] == 7 * 86_400_000_000
    assert texts.options.to_scalar_dict()["segment_size"] == 1 << 20


async def test_list(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    assert await client.get_topics(stream) == []
    for name in ("b", "a", "c"):
        await client.create_topic(stream, name, 1)
    await client.send_messages(stream, "a", 0, [SendMessage("m"), SendMessage("n")])
    listed = await client.get_topics(stream)
    assert [(each.id, each.name) for each in listed] == [(0, "b"), (1, "a"), (2, "c")]
    assert [each.messages_count for each in listed] == [0, 2, 0]
    assert [each.partitions_count for each in listed] == [1, 1, 1]
    assert listed[1].size > 0
    inside = await client.get_stream(stream)
    assert inside is not None
    assert [told(each) for each in inside.topics] == [told(each) for each in listed]
    # A topic's number is free again when it is deleted.
    await client.delete_topic(stream, 0)
    await client.create_topic(stream, "d", 1)
    assert [each.name for each in await client.get_topics(stream)] == ["d", "a", "c"]


async def test_options_of_older_clients(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    older = {"enforce_fsync": "true", "segment_size": "0"}
    await client.create_topic(stream, "older", 1, options=older)
    made = await client.get_topic(stream, "older")
    assert made is not None
    said, filled = made.options.to_scalar_dict(), made.derived_options.to_scalar_dict()
    assert (said["enforce_fsync"], said["durability"]) == (True, "persisted")
    assert filled["segment_size"] == 1 << 30


async def test_update(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "old", 1)
    await client.update_topic(
        stream,
        "old",
        "new",
        compression_algorithm="gzip",
        message_expiry=IggyExpiry.ExpireDuration(timedelta(microseconds=1)),
        max_topic_size=MaxTopicSize.Custom(2 << 30),
    )
    assert await client.get_topic(stream, "old") is None
    made = await client.get_topic(stream, "new")
    assert made is not None
    assert made.compression_algorithm == "gzip"
    assert told(made)["message_expiry"] == ["ExpireDuration", 1]
    assert told(made)["max_topic_size"] == ["Custom", 2 << 30]
    # What is not named stays as it is.
    await client.update_topic(stream, made.id, "new", options={"message_expiry": "7 days"})
    changed = await client.get_topic(stream, 0)
    assert changed is not None
    assert changed.compression_algorithm == "gzip"
    assert told(changed)["message_expiry"] == ["ExpireDuration", 7 * 86_400_000_000]
    zeros = {"message_expiry": "0 s", "max_topic_size": "0"}
    await client.update_topic(stream, "new", "new", options=zeros)
    kept = await client.get_topic(stream, 0)
    assert kept is not None
    assert told(kept)["message_expiry"] == ["ExpireDuration", 7 * 86_400_000_000]
    assert told(kept)["max_topic_size"] == ["Custom", 2 << 30]
    await client.update_topic(
        stream,
        "new",
        "new",
        compression_algorithm="none",
        message_expiry=IggyExpiry.NeverExpire(),
        max_topic_size=MaxTopicSize.Unlimited(),
    )
    reset = await client.get_topic(stream, "new")
    assert reset is not None
    assert told(reset)["max_topic_size"] == ["Unlimited"]


async def test_partitions_come_and_go(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "empty", 0)
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_messages(stream, "empty", 0, [SendMessage("m")])
    await client.create_partitions(stream, "empty", 3)
    sent = await client.send_messages(stream, "empty", 2, [SendMessage("m")])
    assert sent.confirmations[0].base_offset == 0
    await client.delete_partitions(stream, 0, 2)
    left = await client.get_topic(stream, "empty")
    assert left is not None
    assert [each.id for each in left.partitions] == [0]
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_messages(stream, "empty", 2, [SendMessage("m")])
    # The number comes back with nothing of what was there.
    await client.create_partitions(stream, 0, 2)
    sent = await client.send_messages(stream, "empty", 2, [SendMessage("n")])
    assert sent.confirmations[0].base_offset == 0
    filled = await client.get_topic(stream, "empty")
    assert filled is not None
    assert [each.messages_count for each in filled.partitions] == [0, 0, 1]


async def test_a_thousand_partitions(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "wide", 1000)
    sent = await client.send_messages(stream, "wide", 999, [SendMessage("m")])
    assert sent.confirmations[0].partition_id == 999
    made = await client.get_topic(stream, "wide")
    assert made is not None
    assert [each.id for each in made.partitions] == list(range(1000))
    await client.delete_topic(stream, "wide")
    assert await client.get_topic(stream, "wide") is None


async def test_purge(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 2)
    await client.create_topic(stream, "other", 1)
    for topic, partition in (("topic", 0), ("topic", 1), ("other", 0)):
        await client.send_messages(stream, topic, partition, [SendMessage("m"), SendMessage("n")])
    full = await client.get_topic(stream, "topic")
    assert full is not None
    assert [each.current_offset for each in full.partitions] == [1, 1]
    assert all(each.size > 0 for each in full.partitions)
    await client.purge_topic(stream, "topic")
    await client.purge_topic(stream, 0)
    empty = await client.get_topic(stream, "topic")
    assert empty is not None
    assert (empty.messages_count, empty.size) == (0, 0)
    other = await client.get_topic(stream, "other")
    assert other is not None
    assert other.messages_count == 2
    sent = await client.send_messages(stream, "topic", 1, [SendMessage("o")])
    assert sent.confirmations[0].base_offset == 0


async def test_delete_segments(connect: Connect, stream: str) -> None:
    """Sealed segments go, oldest first; the one that is written stays."""
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "cut", 1, segment_size=1 << 20)
    for _ in range(3):
        await client.send_messages(stream, "cut", 0, [SendMessage(b"x" * (1 << 20))])
    await client.send_messages(stream, "cut", 0, [SendMessage("last")])
    before = await client.get_topic(stream, "cut")
    assert before is not None
    assert before.partitions[0].segments_count == 4
    one = DELETE_SEGMENTS.encode_request(DeleteSegments(stream, "cut", 0, 1))
    assert await client.send_binary_request(503, one) == b""
    after = await client.get_topic(stream, "cut")
    assert after is not None
    assert after.partitions[0].segments_count == 3
    assert after.partitions[0].messages_count == 3
    assert after.partitions[0].current_offset == 3
    many = DELETE_SEGMENTS.encode_request(DeleteSegments(stream, "cut", 0, 1000))
    assert await client.send_binary_request(503, many) == b""
    left = await client.get_topic(stream, "cut")
    assert left is not None
    assert (left.partitions[0].segments_count, left.messages_count) == (1, 1)
    sent = await client.send_messages(stream, "cut", 0, [SendMessage("more")])
    assert sent.confirmations[0].base_offset == 4


async def test_flush(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 1)
    await client.send_messages(stream, "topic", 0, [SendMessage("m")])
    for fsync in (False, True):
        flush = FLUSH_UNSAVED_BUFFER.encode_request(
            FlushUnsavedBuffer(stream, "topic", 0, fsync=fsync)
        )
        assert await client.send_binary_request(102, flush) == b""


async def test_refusals_of_topics(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "one", 1)
    await client.create_topic(stream, "two", 1)
    with refused(Code.TOPIC_NAME_ALREADY_EXISTS):
        await client.create_topic(stream, "one", 1)
    with refused(Code.TOPIC_NAME_ALREADY_EXISTS):
        await client.update_topic(stream, "two", "one")
    with refused(Code.INVALID_TOPIC_NAME):
        await client.create_topic(stream, "bell\a", 1)
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.create_topic("nowhere", "one", 1)
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.update_topic("nowhere", "one", "two")
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.delete_topic("nowhere", "one")
    for doing in (client.delete_topic, client.purge_topic):
        with refused(Code.TOPIC_ID_NOT_FOUND):
            await doing(stream, 4095)
    with refused(Code.TOPIC_ID_NOT_FOUND):
        await client.update_topic(stream, "nothing", "two")
    assert await client.get_topic("nowhere", "one") is None
    assert await client.get_topic(stream, "nothing") is None
    assert await client.get_topics("nowhere") == []
    assert [each.name for each in await client.get_topics(stream)] == ["one", "two"]


async def test_refusals_of_options(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    with refused(Code.UNSUPPORTED_OPTION_KEY):
        await client.create_topic(stream, "odd", 1, options={"shade": "dark"})
    for odd in ({"durability": "maybe"}, {"message_expiry": "soon"}, {"segment_size": "1 parsec"}):
        with refused(Code.INVALID_OPTION_VALUE):
            await client.create_topic(stream, "odd", 1, options=odd)
    for size in (1 << 19, (1 << 20) + 1, 2 << 30):
        with refused(Code.INVALID_OPTION_VALUE):
            await client.create_topic(stream, "odd", 1, segment_size=size)
    with refused(Code.INVALID_OPTION_VALUE):
        await client.create_topic(stream, "odd", 1, messages_required_to_save=0)
    with refused(Code.INVALID_TOPIC_SIZE):
        await client.create_topic(stream, "odd", 1, max_topic_size=MaxTopicSize.Custom(1 << 20))
    assert await client.get_topics(stream) == []
    await client.create_topic(stream, "even", 1)
    with refused(Code.UNSUPPORTED_OPTION_KEY):
        await client.update_topic(stream, "even", "even", options={"segment_size": "1 MiB"})
    with refused(Code.INVALID_OPTION_VALUE):
        await client.update_topic(stream, "even", "even", options={"message_expiry": "soon"})


async def test_refusals_of_partitions(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    with refused(Code.TOO_MANY_PARTITIONS):
        await client.create_topic(stream, "topic", 1001)
    await client.create_topic(stream, "topic", 1)
    for count in (0, 1001):
        with refused(Code.TOO_MANY_PARTITIONS):
            await client.create_partitions(stream, "topic", count)
        with refused(Code.TOO_MANY_PARTITIONS):
            await client.delete_partitions(stream, "topic", count)
    with refused(Code.INVALID_PARTITIONS_COUNT):
        await client.delete_partitions(stream, "topic", 2)
    with refused(Code.TOPIC_ID_NOT_FOUND):
        await client.create_partitions(stream, "nothing", 1)
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.delete_partitions("nowhere", "topic", 1)
    for request, code in (
        (DeleteSegments("nowhere", "topic", 0, 1), Code.STREAM_ID_NOT_FOUND),
        (DeleteSegments(stream, "nothing", 0, 1), Code.TOPIC_ID_NOT_FOUND),
        (DeleteSegments(stream, "topic", 7, 1), Code.PARTITION_NOT_FOUND),
    ):
        with refused(code):
            await client.send_binary_request(503, DELETE_SEGMENTS.encode_request(request))
