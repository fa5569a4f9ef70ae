"""Consumers that keep messages of a topic beyond its limits: a command of our own (O8, O3.4)."""

import msgspec

from headrace.wire.codec import TEXT, U8, U16, U32, U64, Counted, Enumerated, Record
from headrace.wire.commands.command import Command
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import ConsumerKind, Operation

HOLDERS_MAX = 1000  # in one reply: those that keep most


class GetHolders(msgspec.Struct, frozen=True):
    """Asks which consumers keep messages of a topic from retention."""

    stream: Identifier
    topic: Identifier


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A stored offset that keeps messages of one partition beyond the limits of its topic.

    `name` is that of a group; a single consumer is known by its number alone.
    """

    partition_id: int
    kind: ConsumerKind
    id: int
    name: str
    stored_offset: int
    held_bytes: int


class TopicHolders(msgspec.Struct, frozen=True):
    """Those that keep most, and how many there are in all.

    `missing` are the shards that did not answer in time: of their partitions nothing is known.
    """

    count: int
    holders: tuple[Holder, ...]
    missing: tuple[int, ...] = ()


TOPIC_HOLDERS = Record(
    TopicHolders,
    count=U32,
    holders=Counted(
        U32,
        Record(
            Holder,
            partition_id=U32,
            kind=Enumerated(U8, ConsumerKind),
            id=U32,
            name=TEXT,
            stored_offset=U64,
            held_bytes=U64,
        ),
    ),
    missing=Counted(U16, U16),
)

GET_HOLDERS = Command(
    90_008,
    "get retention holders",
    Operation.NON_REPLICATED,
    Record(GetHolders, stream=IDENTIFIER, topic=IDENTIFIER),
    TOPIC_HOLDERS,
)

COMMANDS = (GET_HOLDERS,)
