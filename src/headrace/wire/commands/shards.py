"""The shards of a node: a command of our own (O8, O5.9)."""

import msgspec

from headrace.wire.codec import F32, NOTHING, TEXT, U16, U32, U64, Counted, Record
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation


class Lane(msgspec.Struct, frozen=True):
    """What waits for one other member of the bus, and the places of replies that are taken."""

    member: int
    main: int  # frames that wait on the main lane
    reply: int  # and on the lane of replies
    places: int  # requests to it whose reply is expected


class FrameDrops(msgspec.Struct, frozen=True):
    """How many frames of a kind a shard has dropped for a reason (SH-18)."""

    variant: str
    reason: str
    count: int


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One shard: its process, what it holds, and how it stands with the others."""

    shard: int
    process_id: int
    cpus: tuple[int, ...]  # that it is pinned to; none if it is not
    cpu_usage: float  # percent of one core
    memory_bytes: int
    threads_count: int
    read_bytes: int
    written_bytes: int
    partitions_count: int
    segments_count: int
    messages_count: int
    messages_bytes: int
    connections_count: int  # of clients whose home it is
    commit: int  # of the metadata, as the shard knows it
    image_age_micros: int  # since shard 0 has confirmed that; 0 on shard 0
    journal_used_bytes: int
    journal_bytes: int
    lanes: tuple[Lane, ...]
    drops: tuple[FrameDrops, ...]


class NodeShards(msgspec.Struct, frozen=True):
    """All shards that answered, in order, and the numbers of those that did not (O5.9).

    `commit` is that of shard 0: how far it is ahead of the commit of a shard is the lag of that
    shard's image.
    """

    shard_count: int
    commit: int
    shards: tuple[ShardStatus, ...]
    missing: tuple[int, ...] = ()


SHARD_STATUS = Record(
    ShardStatus,
    shard=U16,
    process_id=U32,
    cpus=Counted(U16, U16),
    cpu_usage=F32,
    memory_bytes=U64,
    threads_count=U32,
    read_bytes=U64,
    written_bytes=U64,
    partitions_count=U32,
    segments_count=U64,
    messages_count=U64,
    messages_bytes=U64,
    connections_count=U32,
    commit=U64,
    image_age_micros=U64,
    journal_used_bytes=U64,
    journal_bytes=U64,
    lanes=Counted(U16, Record(Lane, member=U16, main=U32, reply=U32, places=U32)),
    drops=Counted(U16, Record(FrameDrops, variant=TEXT, reason=TEXT, count=U64)),
)

GET_SHARDS = Command(
    90_003,
    "get node shards",
    Operation.NON_REPLICATED,
    NOTHING,
    Record(
        NodeShards,
        shard_count=U16,
        commit=U64,
        shards=Counted(U16, SHARD_STATUS),
        missing=Counted(U16, U16),
    ),
)

COMMANDS = (GET_SHARDS,)
