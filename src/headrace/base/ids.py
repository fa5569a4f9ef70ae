"""Numbers with a meaning, so that the type checker refuses an op where a view belongs.

Ops and offsets are plain integers: they are counted on for every message, and each result would
have to be wrapped by a call.

Invariants: a namespace packs three ids without overlap (SH-9); the metadata group lies outside it.
"""

from typing import NamedTuple, NewType

from headrace.base.limits import PARTITIONS_PER_TOPIC_MAX, STREAMS_MAX, TOPICS_PER_STREAM_MAX

View = NewType("View", int)  # the term of one primary in a consensus group
GroupId = NewType("GroupId", int)  # a consensus group: a packed namespace, or METADATA_GROUP
StreamId = NewType("StreamId", int)
TopicId = NewType("TopicId", int)
PartitionId = NewType("PartitionId", int)
ShardId = NewType("ShardId", int)  # a process of a node, or another number of `base.placement`
Micros = NewType("Micros", int)  # microseconds: since the Unix epoch, or a duration
Checksum = NewType("Checksum", int)  # XXH3-64; zero is never a valid one

ROOT_USER = 0
# Members of a node are its shards, from 0, and the gateway (O5.3).
GATEWAY = ShardId(65_534)
NOBODY = ShardId(65_535)
METADATA_GROUP = GroupId(1 << 63)

_PARTITION_BITS = 20
_TOPIC_BITS = 12
_STREAM_BITS = 20
_TOPIC_SHIFT = _PARTITION_BITS
_STREAM_SHIFT = _PARTITION_BITS + _TOPIC_BITS
_NAMESPACE_BITS = _STREAM_SHIFT + _STREAM_BITS

assert STREAMS_MAX <= 1 << _STREAM_BITS
assert TOPICS_PER_STREAM_MAX <= 1 << _TOPIC_BITS
assert PARTITIONS_PER_TOPIC_MAX <= 1 << _PARTITION_BITS
assert METADATA_GROUP >= 1 << _NAMESPACE_BITS


class Namespace(NamedTuple):
    """One partition, named by the ids of its stream, its topic and itself."""

    stream: StreamId
    topic: TopicId
    partition: PartitionId


def pack_namespace(namespace: Namespace) -> GroupId:
    """Return the group id of a partition.

    An id out of range is a fault and never masked: masking would alias two partitions onto one
    group, one folder and one permission scope (SH-9).
    """
    assert 0 <= namespace.stream < STREAMS_MAX
    assert 0 <= namespace.topic < TOPICS_PER_STREAM_MAX
    assert 0 <= namespace.partition < PARTITIONS_PER_TOPIC_MAX
    return GroupId(
        namespace.stream << _STREAM_SHIFT | namespace.topic << _TOPIC_SHIFT | namespace.partition
    )


def is_partition_group(group: int) -> bool:
    """Return whether a number from outside is the group id of a partition that can exist."""
    return (
        0 <= group < 1 << _NAMESPACE_BITS
        and (group & (1 << _PARTITION_BITS) - 1) < PARTITIONS_PER_TOPIC_MAX
    )


def is_member(number: int) -> bool:
    """Return whether a number from outside can be that of a shard or of the gateway."""
    return 0 <= number <= GATEWAY


def is_group(group: int) -> bool:
    """Return whether a number from outside is the id of a group that can exist."""
    return group == METADATA_GROUP or is_partition_group(group)


def unpack_namespace(group: GroupId) -> Namespace:
    """Return the partition of a group id; the inverse of `pack_namespace`."""
    assert is_partition_group(group)
    return Namespace(
        stream=StreamId(group >> _STREAM_SHIFT),
        topic=TopicId(group >> _TOPIC_SHIFT & (1 << _TOPIC_BITS) - 1),
        partition=PartitionId(group & (1 << _PARTITION_BITS) - 1),
    )
