"""Send one batch, poll once: the calls that producers and consumers use."""

from datetime import datetime
from functools import lru_cache
from struct import Struct
from typing import Literal, TypeAlias

import msgspec

from headrace.client.calls.names import (
    ANONYMOUS,
    TopicName,
    join_topic,
    make_consumer,
    split_topic,
)
from headrace.client.errors import ProtocolBroken
from headrace.client.messages import Messages, read_messages
from headrace.client.session.call import Call, make_call
from headrace.wire.commands.messages import (
    POLL_MESSAGES,
    SEND_MESSAGES,
    PolledMessages,
    PollMessages,
    encode_routing,
)
from headrace.wire.identifiers import (
    Consumer,
    First,
    FromOffset,
    FromTimestamp,
    Identifier,
    Last,
    Next,
    Strategy,
    ToPartition,
)

# Where to start reading: an offset, a time, or a keyword.
Start: TypeAlias = int | datetime | Literal["earliest", "latest", "next"]

COUNT_MAX = 1_000_000
ROUTES_MAX = 256  # that are kept encoded
_MICROS = 1_000_000


class Sent(msgspec.Struct, frozen=True):
    """The place of a batch: its first message has `offset`, the others follow."""

    partition: int
    offset: int
    count: int


def send_batch(topic: TopicName, partition: int, batch: bytes, count: int) -> Call[Sent]:
    """Send a batch to one partition.

    The partition is always named: a retry must reach the partition that got the first attempt.
    """
    routing, asked = _route(topic, partition, count)

    def read(payload: memoryview) -> Sent:
        return Sent(partition, read_base_offset(payload, asked), count)

    return Call(SEND_MESSAGES, routing, read, asked, batch)


@lru_cache(ROUTES_MAX)
def _route(topic: TopicName, partition: int, count: int) -> tuple[bytes, str]:
    """Return the bytes before the batch, and how errors name the request."""
    stream, name = split_topic(topic)
    routing = encode_routing(stream, name, ToPartition(partition), messages_count=count)
    return routing, f"send to {join_topic(topic)!r}"


# How many confirmations, the ids of stream, topic and partition, and the offset.
_CONFIRMED = Struct("<IIIIQ")


def read_base_offset(payload: memoryview, asked: str) -> int:
    """Return the offset that the answer to a send confirms.

    The same as `SEND_MESSAGES` reads, in one call: there is one for every batch.
    """
    if len(payload) == _CONFIRMED.size:
        count, _, _, _, offset = _CONFIRMED.unpack(payload)
        if count == 1:
            return int(offset)
    confirmations = SEND_MESSAGES.decode_reply(payload)
    if len(confirmations) != 1:
        raise ProtocolBroken(f"{asked}: {len(confirmations)} confirmations of one batch")
    return confirmations[0].base_offset


def poll_raw(
    topic: TopicName, partition: int, strategy: Strategy, *, who: Consumer, count: int
) -> Call[PolledMessages]:
    """Poll one partition and return its batches undecoded.

    The answer may be the request to sync with the group, which has no partition.
    """
    stream, name = split_topic(topic)
    request = PollMessages(
        consumer=who,
        stream=stream,
        topic=name,
        partition_id=partition,
        strategy=strategy,
        count=count,
        auto_commit=False,
    )
    call = make_call(POLL_MESSAGES, request, join_topic(topic))
    return Call(call.command, call.body, call.read, call.asked, is_view=True)


def poll_from(
    topic: TopicName,
    partition: int,
    strategy: Strategy,
    *,
    who: Consumer,
    count: int,
    offset_min: int = 0,
) -> Call[Messages]:
    """Poll one partition without messages below an offset; may also return a request to sync."""
    raw = poll_raw(topic, partition, strategy, who=who, count=count)
    return Call(
        raw.command,
        raw.body,
        lambda payload: read_messages(raw.read(payload), offset_min=offset_min),
        raw.asked,
    )


def poll_apart(
    topic: TopicName, partition: int, strategy: Strategy, *, who: Consumer, count: int
) -> Call[Messages]:
    """Do the same as `poll_from`, for messages that are taken one by one: each is copied once.

    There is none below the offset that the strategy names.
    """
    raw = poll_raw(topic, partition, strategy, who=who, count=count)
    offset_min = strategy.offset if isinstance(strategy, FromOffset) else 0
    return Call(
        raw.command,
        raw.body,
        lambda payload: read_messages(raw.read(payload), offset_min=offset_min, is_split=True),
        raw.asked,
    )


def poll(
    topic: TopicName,
    partition: int = 0,
    *,
    start: Start = "earliest",
    count: int = 100,
    consumer: Identifier | None = None,
    group: Identifier | None = None,
) -> Call[Messages]:
    """Return up to `count` messages of one partition, possibly none; no offset is stored.

    `start` is an offset, a time, `"earliest"`, `"latest"` for the newest `count`, or `"next"` for
    the messages after the stored offset of the consumer or group. If the offset no longer exists,
    the poll silently starts at the oldest message; a consumer from `client.consumer` reports such a
    gap.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> _ = client.send("shop/orders", ["one", "two"])
    >>> [message.text for message in client.poll("shop/orders", start=1)]
    ['two']
    """
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"count {count}, allowed 1 to {COUNT_MAX}")
    is_anonymous = consumer is None and group is None
    who = ANONYMOUS if is_anonymous else make_consumer(consumer, group)
    return poll_from(topic, partition, make_strategy(start), who=who, count=count)


def make_strategy(start: Start) -> Strategy:
    """Return the polling strategy of the protocol for a start.

    Raises:
        ValueError: It is not a valid start.
    """
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError("start: a time needs its time zone, such as datetime.now(UTC)")
        return FromTimestamp(max(int(start.timestamp() * _MICROS), 0))
    if isinstance(start, int):
        if not 0 <= start < 1 << 64:
            raise ValueError(f"start: {start} is no offset")
        return FromOffset(start)
    words: dict[str, Strategy] = {"earliest": First(), "latest": Last(), "next": Next()}
    if start not in words:
        raise ValueError(f"start: {start!r} is no offset, no time and none of {', '.join(words)}")
    return words[start]
