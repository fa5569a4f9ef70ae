"""Sending and polling messages, storing consumer offsets."""

import msgspec

from headrace.wire.codec import (
    FLAG,
    NOTHING,
    REST,
    U8,
    U32,
    U64,
    Counted,
    Enumerated,
    Maybe,
    Reader,
    Record,
)
from headrace.wire.commands.command import Command
from headrace.wire.errors import DecodeError
from headrace.wire.identifiers import (
    CONSUMER,
    IDENTIFIER,
    OPTIONAL_PARTITION,
    PARTITIONING,
    STRATEGY,
    Consumer,
    Identifier,
    Partitioning,
    Strategy,
)
from headrace.wire.numbers import Acknowledgement, Operation

# The partition id of an empty poll after which a group's member must sync its assignment.
RESYNC_PARTITION = 0xFFFF_FFFF


class SendMessages(msgspec.Struct, frozen=True):
    """One batch for one partition; the batch itself is read by the kernel, not here."""

    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages_count: int
    batch: memoryview


class Confirmation(msgspec.Struct, frozen=True):
    """The position of a batch: the offset of its first message."""

    stream_id: int
    topic_id: int
    partition_id: int
    base_offset: int


class PollMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for messages of one partition."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    strategy: Strategy
    count: int
    auto_commit: bool


class PolledMessages(msgspec.Struct, frozen=True):
    """Batches back to back, as stored or sliced, and the last committed offset."""

    partition_id: int
    current_offset: int
    messages_count: int
    batches: memoryview


class GetOffset(msgspec.Struct, frozen=True):
    """Asks for the offset stored for a consumer or group."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None


class StoredOffset(msgspec.Struct, frozen=True):
    """The offset stored, beside the last committed one of the partition."""

    partition_id: int
    current_offset: int
    stored_offset: int


class StoreOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Stores the offset of the last message consumed."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    offset: int
    acknowledgement: Acknowledgement = Acknowledgement.QUORUM


class DeleteOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Deletes the stored offset."""

    consumer: Consumer
    stream: Identifier
    topic: Identifier
    partition_id: int | None
    acknowledgement: Acknowledgement = Acknowledgement.QUORUM


class _Routing(msgspec.Struct, frozen=True):
    stream: Identifier
    topic: Identifier
    partitioning: Partitioning
    messages_count: int


_ROUTING = Record(
    _Routing, stream=IDENTIFIER, topic=IDENTIFIER, partitioning=PARTITIONING, messages_count=U32
)


class _SendMessagesCodec:
    """The length of the routing, the routing, which fills it exactly, and the batch."""

    def read(self, reader: Reader) -> SendMessages:
        routing_bytes = U32.read(reader)
        inner = Reader(reader.take(routing_bytes))
        routing = _ROUTING.read(inner)
        if inner.remaining:
            raise DecodeError(f"routing of {routing_bytes} bytes, {inner.position} used")
        return SendMessages(
            routing.stream,
            routing.topic,
            routing.partitioning,
            routing.messages_count,
            reader.take_rest(),
        )

    def write(self, out: bytearray, value: SendMessages) -> None:
        out += encode_routing(
            value.stream, value.topic, value.partitioning, messages_count=value.messages_count
        )
        out += value.batch


def encode_routing(
    stream: Identifier, topic: Identifier, partitioning: Partitioning, *, messages_count: int
) -> bytes:
    """Return the bytes before the batch in a send, so that the batch need not be copied."""
    out = bytearray(4)
    _ROUTING.write(out, _Routing(stream, topic, partitioning, messages_count))
    out[:4] = (len(out) - 4).to_bytes(4, "little")
    return bytes(out)


_CONFIRMATION = Record(Confirmation, stream_id=U32, topic_id=U32, partition_id=U32, base_offset=U64)
_ACKNOWLEDGEMENT = Enumerated(U8, Acknowledgement)

POLL_MESSAGES = Command(
    100,
    "poll messages",
    Operation.NON_REPLICATED,
    Record(
        PollMessages,
        consumer=CONSUMER,
        stream=IDENTIFIER,
        topic=IDENTIFIER,
        partition_id=OPTIONAL_PARTITION,
        strategy=STRATEGY,
        count=U32,
        auto_commit=FLAG,
    ),
    Record(PolledMessages, partition_id=U32, current_offset=U64, messages_count=U32, batches=REST),
)
SEND_MESSAGES = Command(
    101,
    "send messages",
    Operation.SEND_MESSAGES,
    _SendMessagesCodec(),
    Counted(U32, _CONFIRMATION),
)
GET_OFFSET = Command(
    120,
    "get consumer offset",
    Operation.NON_REPLICATED,
    Record(
        GetOffset,
        consumer=CONSUMER,
        stream=IDENTIFIER,
        topic=IDENTIFIER,
        partition_id=OPTIONAL_PARTITION,
    ),
    Maybe(Record(StoredOffset, partition_id=U32, current_offset=U64, stored_offset=U64)),
)
STORE_OFFSET = Command(
    121,
    "store consumer offset",
    Operation.STORE_CONSUMER_OFFSET,
    Record(
        StoreOffset,
        consumer=CONSUMER,
        stream=IDENTIFIER,
        topic=IDENTIFIER,
        partition_id=OPTIONAL_PARTITION,
        offset=U64,
        acknowledgement=_ACKNOWLEDGEMENT,
    ),
    NOTHING,
)
DELETE_OFFSET = Command(
    122,
    "delete consumer offset",
    Operation.DELETE_CONSUMER_OFFSET,
    Record(
        DeleteOffset,
        consumer=CONSUMER,
        stream=IDENTIFIER,
        topic=IDENTIFIER,
        partition_id=OPTIONAL_PARTITION,
        acknowledgement=_ACKNOWLEDGEMENT,
    ),
    NOTHING,
)

COMMANDS = (POLL_MESSAGES, SEND_MESSAGES, GET_OFFSET, STORE_OFFSET, DELETE_OFFSET)
