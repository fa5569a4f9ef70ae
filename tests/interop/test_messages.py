"""Sending and polling through the released SDK."""

import time
from array import array
from collections.abc import Callable

import pytest
from apache_iggy import (
    Consumer,
    HeaderKey,
    HeaderValue,
    IggyClient,
    Partitioning,
    PollingStrategy,
    ReceiveMessage,
    SendMessage,
    UserHeaders,
)

from headrace.base.checksum import xxh32
from headrace.client.aio import client as aio
from headrace.client.messages import build_batch
from headrace.wire.commands.messages import (
    DELETE_OFFSET,
    GET_OFFSET,
    SEND_MESSAGES,
    STORE_OFFSET,
    DeleteOffset,
    GetOffset,
    SendMessages,
    StoreOffset,
)
from headrace.wire.errors import Code
from headrace.wire.identifiers import Balanced, ByKey
from headrace.wire.identifiers import Consumer as WireConsumer
from headrace.wire.numbers import Acknowledgement, ConsumerKind
from tests.interop.answers import refused, told
from tests.interop.conftest import Connect
from tests.node import Node
from tools.recorder_model import make_batch

pytestmark = pytest.mark.slow

EVERY_KIND: dict[HeaderKey, HeaderValue] = {
    HeaderKey.Raw(b"\x01\x02"): HeaderValue.Raw(b"\xfe\xff"),
    HeaderKey.String("text"): HeaderValue.String("grüß"),
    HeaderKey.Bool(value=True): HeaderValue.Bool(value=False),
    HeaderKey.Int8(-8): HeaderValue.Int8(-128),
    HeaderKey.Int16(-16): HeaderValue.Int16(-32768),
    HeaderKey.Int32(-32): HeaderValue.Int32(-(2**31)),
    HeaderKey.Int64(-64): HeaderValue.Int64(-(2**63)),
    HeaderKey.Int128(-128): HeaderValue.Int128(-(2**127)),
    HeaderKey.UnsignedInt8(8): HeaderValue.UnsignedInt8(255),
    HeaderKey.UnsignedInt16(16): HeaderValue.UnsignedInt16(65535),
    HeaderKey.UnsignedInt32(32): HeaderValue.UnsignedInt32(2**32 - 1),
    HeaderKey.UnsignedInt64(64): HeaderValue.UnsignedInt64(2**64 - 1),
    HeaderKey.UnsignedInt128(128): HeaderValue.UnsignedInt128(2**128 - 1),
    HeaderKey.Float32(0.5): HeaderValue.Float32(-1.5),
    HeaderKey.Float64(0.1): HeaderValue.Float64(1e300),
}


async def _prepare(client: IggyClient, stream: str, partitions_count: int = 1) -> None:
    await client.create_stream(stream)
    await client.create_topic(stream, "topic", partitions_count)


async def _poll(
    client: IggyClient,
    stream: str,
    strategy: PollingStrategy,
    count: int = 100,
    *,
    partition: int = 0,
    auto_commit: bool = False,
    consumer: Consumer | None = None,
) -> list[ReceiveMessage]:
    return await client.poll_messages(
        stream,
        "topic",
        consumer=consumer or Consumer.Single("reader"),
        polling_strategy=strategy,
        count=count,
        auto_commit=auto_commit,
        partition_id=partition,
    )


def _payloads(messages: list[ReceiveMessage]) -> list[bytes]:
    return [message.payload() for message in messages]


async def _send(client: IggyClient, stream: str, *payloads: str, partition: int = 0) -> int:
    sent = await client.send_messages(
        stream, "topic", partition, [SendMessage(each) for each in payloads]
    )
    (confirmation,) = sent.confirmations
    return confirmation.base_offset


async def test_everything_of_a_message(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream, 2)
    before = time.time_ns() // 1000
    sent = await client.send_messages(
        stream=stream,
        topic="topic",
        partitioning=Partitioning.partition_id(1),
        messages=[
            SendMessage("text", id=1),
            SendMessage(b"\x00\xff", {"key": "value"}, 2**128 - 1),
            SendMessage(data="three"),
        ],
    )
    made = await client.get_stream(stream)
    assert made is not None
    assert [told(each) for each in sent.confirmations] == [
        {"stream_id": made.id, "topic_id": 0, "partition_id": 1, "base_offset": 0}
    ]
    messages = await _poll(client, stream, PollingStrategy.First(), partition=1)
    assert _payloads(messages) == [b"text", b"\x00\xff", b"three"]
    assert [message.offset() for message in messages] == [0, 1, 2]
    assert [message.partition_id() for message in messages] == [1, 1, 1]
    assert [message.length() for message in messages] == [4, 2, 5]
    assert [message.id() for message in messages[:2]] == [1, 2**128 - 1]
    assert messages[2].id() > 0  # the SDK draws one
    assert len({message.checksum() for message in messages}) == 3
    assert len({message.timestamp() for message in messages}) == 1
    for message in messages:
        assert abs(message.timestamp() - before) < 60_000_000
        assert before <= message.origin_timestamp() < before + 60_000_000
    assert [message.user_headers() for message in messages][::2] == [None, None]


async def test_every_kind_of_header(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    assert len(EVERY_KIND) == 15
    await client.send_messages(
        stream,
        "topic",
        0,
        [
            SendMessage("typed", user_headers=EVERY_KIND),
            SendMessage("bare"),
            SendMessage(
                "plain", UserHeaders({"a": 1, "b": -1, "c": "text", "d": b"raw", "e": 0.5})
            ),
            SendMessage("wrapped", UserHeaders({HeaderKey.String("k"): True})),
        ],
    )
    typed, bare, plain, wrapped = await _poll(client, stream, PollingStrategy.First())
    headers = typed.user_headers()
    assert headers == EVERY_KIND
    assert bare.user_headers() is None
    headers = plain.user_headers()
    assert headers is not None
    assert headers.to_scalar_dict() == {"a": 1, "b": -1, "c": "text", "d": b"raw", "e": 0.5}
    headers = wrapped.user_headers()
    assert headers is not None
    assert headers.to_scalar_dict() == {"k": True}


async def test_partitioning(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream, 3)

    async def send(partitioning: Partitioning | int) -> int:
        sent = await client.send_messages(stream, "topic", partitioning, [SendMessage("m")])
        return sent.confirmations[0].partition_id

    assert [await send(number) for number in (2, 0, 1)] == [2, 0, 1]
    assert await send(Partitioning.partition_id(partition_id=2)) == 2
    assert [await send(Partitioning.balanced()) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    for key in ("customer-7", "customer-8", "grüß"):
        chosen = await send(Partitioning.messages_key(key))
        assert chosen == xxh32(key.encode()) % 3
        assert await send(Partitioning.messages_key(key=key.encode())) == chosen


async def test_partitioning_on_the_wire(connect: Connect, stream: str) -> None:
    """What this SDK resolves itself, others leave to the node."""
    client = await connect()
    await _prepare(client, stream, 3)

    async def send(partitioning: Balanced | ByKey) -> int:
        request = SendMessages(stream, "topic", partitioning, 2, make_batch(b"one", b"two"))
        reply = await client.send_binary_request(101, SEND_MESSAGES.encode_request(request))
        (confirmation,) = SEND_MESSAGES.decode_reply(reply)
        return confirmation.partition_id

    assert sorted([await send(Balanced()) for _ in range(6)]) == [0, 0, 1, 1, 2, 2]
    for key in (b"customer-7", b"\x00\x01\x02"):
        assert await send(ByKey(key)) == xxh32(key) % 3


async def test_headers_that_a_client_encrypted(connect: Connect, stream: str, node: Node) -> None:
    """The node takes any bytes as headers; who cannot read them shows them with a mark."""
    client = await connect()
    await _prepare(client, stream)
    sealed = b"\xff\0sealed"
    batch = build_batch([b"secret"], [sealed], array("Q", [1]))
    request = SendMessages(stream, "topic", Balanced(), 1, memoryview(batch))
    await client.send_binary_request(101, SEND_MESSAGES.encode_request(request))
    open_ = SendMessage("open", user_headers={HeaderKey.String("k"): HeaderValue.String("v")})
    await client.send_messages(stream, "topic", 0, [open_])
    messages = await _poll(client, stream, PollingStrategy.First())
    assert _payloads(messages) == [b"secret", b"open"]
    async with aio.connect(str(node.tcp), username="iggy", password="iggy") as ours:
        found = [each async for each in ours.consumer(f"{stream}/topic", wait=0)]
    assert [each.headers for each in found] == [{"!raw": sealed}, {"k": "v"}]


@pytest.mark.parametrize("size", [1, 300_000, 20_000_000])
async def test_sizes(connect: Connect, stream: str, size: int) -> None:
    client = await connect()
    await _prepare(client, stream)
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await client.send_messages(stream, "topic", 0, [SendMessage(payload), SendMessage("after")])
    messages = await _poll(client, stream, PollingStrategy.First())
    if len(messages) == 1:  # The rest of what did not fit into one reply.
        messages += await _poll(client, stream, PollingStrategy.Offset(1))
    assert _payloads(messages) == [payload, b"after"]
    await client.delete_stream(stream)


async def test_a_poll_gives_what_was_asked_for(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    payload = bytes(20_000)
    for _ in range(10):
        await client.send_messages(stream, "topic", 0, [SendMessage(payload)] * 100)
    assert len(await _poll(client, stream, PollingStrategy.First(), 1000)) == 1000


async def test_a_batch_of_many(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    payloads = [str(number) for number in range(10_000)]
    assert await _send(client, stream, *payloads) == 0
    polled: list[bytes] = []
    while messages := await _poll(client, stream, PollingStrategy.Offset(len(polled)), 4_321):
        assert [message.offset() for message in messages] == list(
            range(len(polled), len(polled) + len(messages))
        )
        polled += _payloads(messages)
    assert polled == [each.encode() for each in payloads]


async def test_strategies(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    assert await _poll(client, stream, PollingStrategy.First()) == []
    assert await _poll(client, stream, PollingStrategy.Last()) == []
    await _send(client, stream, "0", "1", "2")
    assert await _send(client, stream, "3", "4") == 3
    assert await _send(client, stream, "5") == 5

    async def poll(strategy: PollingStrategy, count: int) -> list[int]:
        return [int(each) for each in _payloads(await _poll(client, stream, strategy, count))]

    assert await poll(PollingStrategy.First(), 4) == [0, 1, 2, 3]
    assert await poll(PollingStrategy.Last(), 2) == [4, 5]
    assert await poll(PollingStrategy.Last(), 100) == [0, 1, 2, 3, 4, 5]
    assert await poll(PollingStrategy.Offset(1), 3) == [1, 2, 3]
    assert await poll(PollingStrategy.Offset(5), 9) == [5]
    assert await poll(PollingStrategy.Offset(value=6), 9) == []
    assert await poll(PollingStrategy.Offset(2**64 - 1), 9) == []
    messages = await _poll(client, stream, PollingStrategy.First())
    stamps = [message.timestamp() for message in messages]
    assert stamps == sorted(stamps)
    assert await poll(PollingStrategy.Timestamp(0), 9) == [0, 1, 2, 3, 4, 5]
    assert await poll(PollingStrategy.Timestamp(stamps[3]), 9) == [3, 4, 5]
    assert await poll(PollingStrategy.Timestamp(value=stamps[3] + 1), 9) == [5]
    assert await poll(PollingStrategy.Timestamp(stamps[5] + 1), 9) == []
    # Nothing was stored: the next one is the first.
    assert await poll(PollingStrategy.Next(), 2) == [0, 1]
    assert await poll(PollingStrategy.Next(), 2) == [0, 1]


async def test_automatic_commit(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream, 2)
    await _send(client, stream, *map(str, range(10)))
    await _send(client, stream, "other", partition=1)

    async def poll(name: str | int, strategy: PollingStrategy) -> list[int]:
        messages = await _poll(
            client, stream, strategy, 4, auto_commit=True, consumer=Consumer.Single(name)
        )
        return [message.offset() for message in messages]

    upcoming = PollingStrategy.Next()
    assert await poll("a", upcoming) == [0, 1, 2, 3]
    assert await poll("a", upcoming) == [4, 5, 6, 7]
    assert await poll("b", upcoming) == [0, 1, 2, 3]  # an offset of its own
    assert await poll(7, upcoming) == [0, 1, 2, 3]
    assert await poll("7", upcoming) == [4, 5, 6, 7]  # the SDK sends the number 7
    assert await poll("a", PollingStrategy.First()) == [0, 1, 2, 3]  # never moves back
    assert await poll("a", upcoming) == [8, 9]
    assert await poll("a", upcoming) == []
    # Without a partition, a consumer of its own reads the first.
    polled = await client.poll_messages(
        stream,
        "topic",
        consumer=Consumer.Single("b"),
        polling_strategy=upcoming,
        count=4,
        auto_commit=True,
    )
    assert [message.offset() for message in polled] == [4, 5, 6, 7]


async def test_offsets_of_a_consumer(connect: Connect, stream: str) -> None:
    """The commands that the SDK has no method of its own for."""
    client = await connect()
    await _prepare(client, stream)
    await _send(client, stream, *map(str, range(5)))
    reader = WireConsumer(ConsumerKind.CONSUMER, "reader")
    get = GET_OFFSET.encode_request(GetOffset(reader, stream, "topic", 0))
    assert await client.send_binary_request(120, get) == b""

    async def store(offset: int, acknowledgement: Acknowledgement) -> None:
        request = StoreOffset(
            consumer=reader,
            stream=stream,
            topic="topic",
            partition_id=0,
            offset=offset,
            acknowledgement=acknowledgement,
        )
        assert await client.send_binary_request(121, STORE_OFFSET.encode_request(request)) == b""

    for offset, acknowledgement in ((3, Acknowledgement.QUORUM), (1, Acknowledgement.LEADER)):
        await store(offset, acknowledgement)
        stored = GET_OFFSET.decode_reply(await client.send_binary_request(120, get))
        assert stored is not None
        assert (stored.current_offset, stored.stored_offset) == (4, offset)
    messages = await _poll(client, stream, PollingStrategy.Next())
    assert [message.offset() for message in messages] == [2, 3, 4]
    with refused(Code.INVALID_OFFSET):
        await store(5, Acknowledgement.QUORUM)
    request = DeleteOffset(consumer=reader, stream=stream, topic="topic", partition_id=0)
    delete = DELETE_OFFSET.encode_request(request)
    assert await client.send_binary_request(122, delete) == b""
    assert await client.send_binary_request(120, get) == b""
    with refused(Code.CONSUMER_OFFSET_NOT_FOUND):
        await client.send_binary_request(122, delete)


async def test_an_offset_that_a_poll_stored_is_seen_at_once(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)
    await _send(client, stream, *[str(number) for number in range(50)])
    consumer = WireConsumer(ConsumerKind.CONSUMER, "reader")
    request = GET_OFFSET.encode_request(GetOffset(consumer, stream, "topic", 0))
    for number in range(50):
        start = PollingStrategy.Offset(number)
        reader = Consumer.Single("reader")
        assert await _poll(client, stream, start, 1, auto_commit=True, consumer=reader)
        stored = GET_OFFSET.decode_reply(await client.send_binary_request(120, request))
        assert stored is not None
        assert stored.stored_offset == number


async def test_two_clients_see_the_same(connect: Connect, stream: str) -> None:
    sending_client, reading_client = await connect(), await connect()
    await _prepare(sending_client, stream)
    for number in range(20):
        assert await _send(sending_client, stream, str(number)) == number
        messages = await _poll(reading_client, stream, PollingStrategy.Last(), 1)
        assert _payloads(messages) == [str(number).encode()]


async def test_refusals_of_sends(
    connect: Connect, stream: str, unique: Callable[[str], str]
) -> None:
    client = await connect()
    await _prepare(client, stream)
    messages = [SendMessage("m")]
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_messages(unique("nowhere"), "topic", 0, messages)
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_messages(stream, "nothing", 0, messages)
    with refused(Code.RESOURCE_NOT_FOUND):
        await client.send_messages(stream, "topic", 1, messages)

    async def send_raw(batch: bytes | memoryview, count: int = 1) -> None:
        request = SendMessages(stream, "topic", Balanced(), count, memoryview(batch))
        await client.send_binary_request(101, SEND_MESSAGES.encode_request(request))

    good = bytes(make_batch(b"payload"))
    with refused(Code.INVALID_MESSAGE_CHECKSUM):
        await send_raw(good[:-1] + b"!")
    with refused(Code.INVALID_BATCH_CHECKSUM):
        await send_raw(good[:40] + bytes(8) + good[48:])
    for odd in (good[:-1], good + b"!", good[:100], b""):
        with refused(Code.INVALID_COMMAND):
            await send_raw(odd)
    with refused(Code.INVALID_COMMAND):
        await send_raw(good, 2)
    await send_raw(good)
    assert _payloads(await _poll(client, stream, PollingStrategy.First())) == [b"payload"]


async def test_refusals_of_polls(connect: Connect, stream: str) -> None:
    client = await connect()
    await _prepare(client, stream)

    async def poll(in_stream: str | int, topic: str | int, partition: int) -> None:
        await client.poll_messages(
            in_stream,
            topic,
            consumer=Consumer.Single("reader"),
            polling_strategy=PollingStrategy.First(),
            count=1,
            auto_commit=True,
            partition_id=partition,
        )

    with refused(Code.STREAM_ID_NOT_FOUND):
        await poll(4_000_000_000, "topic", 0)
    with refused(Code.TOPIC_ID_NOT_FOUND):
        await poll(stream, 4095, 0)
    with refused(Code.PARTITION_NOT_FOUND):
        await poll(stream, "topic", 1)
    with pytest.raises(RuntimeError, match="Invalid messages count"):
        await _poll(client, stream, PollingStrategy.First(), 0)
