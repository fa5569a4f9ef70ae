"""Streams through the released SDK."""

import time
from collections.abc import Callable

import pytest
from apache_iggy import SendMessage

from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.errors import Code
from headrace.wire.options import make_options
from tests.interop.answers import refused, told
from tests.interop.conftest import Connect

pytestmark = pytest.mark.slow


async def test_create_and_get(connect: Connect, stream: str) -> None:
    client = await connect()
    before = time.time_ns() // 1000
    await client.create_stream(stream)
    made = await client.get_stream(stream)
    assert made is not None
    assert told(made) == {
        "id": made.id,
        "name": stream,
        "created_at": made.created_at,
        "size": 0,
        "messages_count": 0,
        "topics_count": 0,
        "topics": [],
    }
    assert abs(made.created_at - before) < 60_000_000
    by_number = await client.get_stream(made.id)
    assert by_number is not None
    assert told(by_number) == told(made)
    by_decimal_name = await client.get_stream(str(made.id))
    assert by_decimal_name is not None
    assert by_decimal_name.name == stream


@pytest.mark.parametrize("name", ["caffè ☕", "n" * 255, "x"])
async def test_names(connect: Connect, name: str) -> None:
    client = await connect()
    await client.create_stream(name)
    made = await client.get_stream(name)
    assert made is not None
    assert made.name == name
    await client.delete_stream(name)
    assert await client.get_stream(name) is None


async def test_list(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    names = [unique("listed") for _ in range(3)]
    for name in names:
        await client.create_stream(name)
    await client.create_topic(names[1], "topic", 2)
    await client.send_messages(names[1], "topic", 1, [SendMessage("m")])
    listed = {each.name: each for each in await client.get_streams()}
    assert [listed[name].topics_count for name in names] == [0, 1, 0]
    assert [listed[name].messages_count for name in names] == [0, 1, 0]
    assert listed[names[1]].size > 0
    assert len({listed[name].id for name in names}) == 3
    assert set(told(listed[names[0]])) == {
        "id", "name", "created_at", "size", "messages_count", "topics_count",
    }  # fmt: skip


async def test_rename(connect: Connect, unique: Callable[[str], str]) -> None:
    client = await connect()
    first, second = unique("first"), unique("second")
    await client.create_stream(first)
    made = await client.get_stream(first)
    assert made is not None
    await client.update_stream(first, second)
    await client.update_stream(second, second)  # its own name is no clash
    assert await client.get_stream(first) is None
    await client.update_stream(made.id, first)
    renamed = await client.get_stream(first)
    assert renamed is not None
    assert (renamed.id, renamed.created_at) == (made.id, made.created_at)


async def test_purge(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    for topic in ("one", "two"):
        await client.create_topic(stream, topic, 2)
        for partition in range(2):
            await client.send_messages(stream, topic, partition, [SendMessage("m")])
    full = await client.get_stream(stream)
    assert full is not None
    assert (full.messages_count, len(full.topics)) == (4, 2)
    await client.purge_stream(full.id)
    await client.purge_stream(stream)  # again, on an empty one
    empty = await client.get_stream(stream)
    assert empty is not None
    assert (empty.messages_count, empty.size, len(empty.topics)) == (0, 0, 2)
    sent = await client.send_messages(stream, "one", 0, [SendMessage("again")])
    assert [each.base_offset for each in sent.confirmations] == [0]


async def test_delete(connect: Connect, stream: str) -> None:
    client = await connect()
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", 1)
    made = await client.get_stream(stream)
    assert made is not None
    await client.delete_stream(made.id)
    assert await client.get_stream(stream) is None
    assert await client.get_topics(stream) == []
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_messages(stream, "topic", 0, [SendMessage("late")])


async def test_refusals(connect: Connect, stream: str, unique: Callable[[str], str]) -> None:
    client = await connect()
    other, nobody = unique("other"), unique("nobody")
    await client.create_stream(stream)
    await client.create_stream(other)
    with refused(Code.STREAM_NAME_ALREADY_EXISTS):
        await client.create_stream(stream)
    with refused(Code.STREAM_NAME_ALREADY_EXISTS):
        await client.update_stream(other, stream)
    with refused(Code.INVALID_STREAM_NAME):
        await client.create_stream("two\nlines")
    with refused(Code.UNSUPPORTED_OPTION_KEY):
        await client.update_stream(stream, stream, options={"colour": "red"})
    colourful = CREATE_STREAM.encode_request(CreateStream(nobody, make_options({"colour": "red"})))
    with refused(Code.UNSUPPORTED_OPTION_KEY):
        await client.send_binary_request(202, colourful)
    assert await client.get_stream(nobody) is None
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.update_stream(nobody, other)
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.delete_stream(nobody)
    with refused(Code.STREAM_ID_NOT_FOUND):
        await client.purge_stream(4_000_000_000)
    still = await client.get_stream(stream)
    assert still is not None
    assert still.name == stream
