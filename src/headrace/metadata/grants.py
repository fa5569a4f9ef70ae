"""Permissions as bits, so that a check on the way of every message is a few operations.

Bit i of a mask stands for the i-th flag of its struct in `wire.permissions`.
"""

from collections.abc import Iterable

import msgspec

from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)

EVERYWHERE_FLAGS = GlobalPermissions.__struct_fields__
STREAM_FLAGS = StreamPermissions.__struct_fields__[1:-1]
TOPIC_FLAGS = TopicPermissions.__struct_fields__[1:]

assert EVERYWHERE_FLAGS[0] == "manage_servers"
assert STREAM_FLAGS[0] == "manage_stream"
assert STREAM_FLAGS[-1] == "send_messages"
assert TOPIC_FLAGS[0] == "manage_topic"


class StreamGrants(msgspec.Struct, frozen=True):
    """What holds for one stream, and for topics of it by their number."""

    mask: int
    topics: dict[int, int]


class Grants(msgspec.Struct, frozen=True):
    """What one user may do."""

    everywhere: int
    streams: dict[int, StreamGrants]


def make_mask(flags: Iterable[str], all_flags: tuple[str, ...]) -> int:
    """Return the mask of some flags."""
    return sum(1 << all_flags.index(flag) for flag in flags)


def make_grants(permissions: Permissions | None) -> Grants:
    """Return the masks of a user's permissions; none means nothing at all."""
    if permissions is None:
        return Grants(0, {})
    return Grants(
        _mask_of(permissions.everywhere, EVERYWHERE_FLAGS),
        {
            stream.stream_id: StreamGrants(
                _mask_of(stream, STREAM_FLAGS),
                {topic.topic_id: _mask_of(topic, TOPIC_FLAGS) for topic in stream.topics},
            )
            for stream in permissions.streams
        },
    )


def without_stream(permissions: Permissions, stream_id: int) -> Permissions:
    """Return the permissions that are left when a stream is gone.

    Its number will be another stream's, which must not inherit them.
    """
    kept = tuple([stream for stream in permissions.streams if stream.stream_id != stream_id])
    return Permissions(everywhere=permissions.everywhere, streams=kept)


def without_topic(permissions: Permissions, *, stream_id: int, topic_id: int) -> Permissions:
    """Return the permissions that are left when a topic is gone."""
    streams = tuple(
        [
            stream if stream.stream_id != stream_id else _without_topic(stream, topic_id)
            for stream in permissions.streams
        ]
    )
    return Permissions(everywhere=permissions.everywhere, streams=streams)


def _without_topic(stream: StreamPermissions, topic_id: int) -> StreamPermissions:
    kept = tuple([topic for topic in stream.topics if topic.topic_id != topic_id])
    return msgspec.structs.replace(stream, topics=kept)


def _mask_of(
    flags: GlobalPermissions | StreamPermissions | TopicPermissions, all_flags: tuple[str, ...]
) -> int:
    return make_mask([flag for flag in all_flags if getattr(flags, flag)], all_flags)
