"""How replies show things: records of streams, topics, groups and users.

Sizes and counts are no part of the state (MD-6): they are asked for by partition, and are zero
where nobody has an answer.

Flow: reply.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from headrace.base.ids import ROOT_USER
from headrace.metadata.state import Group, Stream, Topic, User
from headrace.wire.commands import groups as wire_groups
from headrace.wire.commands import streams as wire_streams
from headrace.wire.commands import topics as wire_topics
from headrace.wire.commands import users as wire_users
from headrace.wire.permissions import GlobalPermissions, Permissions


class PartitionStats(msgspec.Struct, frozen=True, kw_only=True):
    """One partition in numbers."""

    segments_count: int = 0
    current_offset: int = 0
    size_bytes: int = 0
    messages_count: int = 0


StatsOf: TypeAlias = Callable[[int], PartitionStats | None]

_NOTHING_STORED = PartitionStats()
_ALL_PERMISSIONS = Permissions(
    everywhere=GlobalPermissions(**dict.fromkeys(GlobalPermissions.__struct_fields__, True))
)


def nothing_stored(_namespace: int) -> PartitionStats | None:
    """Return, for every partition, that nothing is known."""
    return None


def describe_stream(stream: Stream, stats_of: StatsOf) -> wire_streams.Stream:
    """Return the record of a stream."""
    parts = [stats for topic in stream.topics for stats in _stats_of_topic(topic, stats_of)]
    return wire_streams.Stream(
        id=stream.id,
        created_at=stream.created_at,
        topics_count=len(stream.topics),
        size_bytes=sum(stats.size_bytes for stats in parts),
        messages_count=sum(stats.messages_count for stats in parts),
        name=stream.name,
    )


def describe_topic(topic: Topic, stats_of: StatsOf) -> wire_topics.Topic:
    """Return the record of a topic."""
    return _topic_record(topic, _stats_of_topic(topic, stats_of))


def detail_topic(topic: Topic, stats_of: StatsOf) -> wire_topics.TopicDetails:
    """Return a topic with its partitions."""
    parts = _stats_of_topic(topic, stats_of)
    partitions = [
        wire_topics.Partition(
            id=partition_id,
            created_at=partition.created_at,
            segments_count=stats.segments_count,
            current_offset=stats.current_offset,
            size_bytes=stats.size_bytes,
            messages_count=stats.messages_count,
        )
        for partition_id, (partition, stats) in enumerate(zip(topic.partitions, parts, strict=True))
    ]
    return wire_topics.TopicDetails(_topic_record(topic, parts), tuple(partitions))


def describe_group(topic: Topic, group: Group) -> wire_groups.Group:
    """Return the record of a consumer group."""
    return wire_groups.Group(
        id=group.id,
        partitions_count=len(topic.partitions),
        members_count=len(group.roster.members),
        name=group.name,
    )


def detail_group(topic: Topic, group: Group) -> wire_groups.GroupDetails:
    """Return a consumer group with its members."""
    members = [wire_groups.Member(member.key, member.partitions) for member in group.roster.members]
    return wire_groups.GroupDetails(describe_group(topic, group), tuple(members))


def describe_user(user: User) -> wire_users.User:
    """Return the record of a user."""
    return wire_users.User(
        id=user.id, created_at=user.created_at, status=user.status, username=user.name
    )


def detail_user(user: User) -> wire_users.UserDetails:
    """Return a user with its permissions; root has all, without their being stored."""
    permissions = _ALL_PERMISSIONS if user.id == ROOT_USER else user.permissions
    return wire_users.UserDetails(describe_user(user), permissions)


def _topic_record(topic: Topic, parts: list[PartitionStats]) -> wire_topics.Topic:
    return wire_topics.Topic(
        id=topic.id,
        created_at=topic.created_at,
        partitions_count=len(topic.partitions),
        message_expiry=topic.settings.message_expiry,
        compression=topic.settings.compression,
        max_topic_size=topic.settings.max_topic_size,
        size_bytes=sum(stats.size_bytes for stats in parts),
        messages_count=sum(stats.messages_count for stats in parts),
        name=topic.name,
        explicit=topic.explicit,
        derived=topic.derived,
    )


def _stats_of_topic(topic: Topic, stats_of: StatsOf) -> list[PartitionStats]:
    return [
        stats_of(topic.namespace(partition_id)) or _NOTHING_STORED
        for partition_id in range(len(topic.partitions))
    ]
