"""The permissions of a user: globally, per stream, per topic.

Invariants: ids are unique; a value holds them in ascending order, whatever order they came in.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Generic, TypeVar

import msgspec

from headrace.wire.codec import FLAG, U32, Codec, Optional, Reader, Record, Sized
from headrace.wire.errors import DecodeError

_T = TypeVar("_T")


class GlobalPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions on every stream and on the servers."""

    manage_servers: bool = False
    read_servers: bool = False
    manage_users: bool = False
    read_users: bool = False
    manage_streams: bool = False
    read_streams: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False


class TopicPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions on one topic."""

    topic_id: int
    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


class StreamPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions on one stream and, more narrowly, on topics of it."""

    stream_id: int
    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False
    topics: tuple[TopicPermissions, ...] = ()


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """All permissions of one user."""

    everywhere: GlobalPermissions = GlobalPermissions()
    streams: tuple[StreamPermissions, ...] = ()


class _Chain(Generic[_T]):
    """Values that each end with a byte saying whether another follows."""

    def __init__(self, item: Codec[_T], key: Callable[[_T], int]) -> None:
        self._item = item
        self._key = key

    def read(self, reader: Reader) -> tuple[_T, ...]:
        items: dict[int, _T] = {}
        more = FLAG.read(reader)
        while more:
            item = self._item.read(reader)
            if self._key(item) in items:
                raise DecodeError(f"permissions of id {self._key(item)} stand twice")
            items[self._key(item)] = item
            more = FLAG.read(reader)
        return tuple(items[key] for key in sorted(items))

    def write(self, out: bytearray, value: tuple[_T, ...]) -> None:
        keys = [self._key(item) for item in value]
        if any(left >= right for left, right in pairwise(keys)):
            raise ValueError(f"permissions must be in ascending order of ids, not {keys}")
        for item in value:
            FLAG.write(out, value=True)
            self._item.write(out, item)
        FLAG.write(out, value=False)


_GLOBAL = Record(GlobalPermissions, **dict.fromkeys(GlobalPermissions.__struct_fields__, FLAG))
_TOPIC = Record(
    TopicPermissions,
    topic_id=U32,
    **dict.fromkeys(TopicPermissions.__struct_fields__[1:], FLAG),
)
_STREAM = Record(
    StreamPermissions,
    stream_id=U32,
    **dict.fromkeys(StreamPermissions.__struct_fields__[1:-1], FLAG),
    topics=_Chain(_TOPIC, lambda topic: topic.topic_id),
)
PERMISSIONS = Record(
    Permissions,
    everywhere=_GLOBAL,
    streams=_Chain(_STREAM, lambda stream: stream.stream_id),
)

# In requests: a flag, then length and value.
OPTIONAL_PERMISSIONS = Optional(Sized(PERMISSIONS))


class _AnsweredPermissions:
    """As in requests when present; when absent, four zero bytes."""

    def read(self, reader: Reader) -> Permissions | None:
        if FLAG.read(reader):
            return _SIZED.read(reader)
        reader.take(3)
        return None

    def write(self, out: bytearray, value: Permissions | None) -> None:
        if value is None:
            out += bytes(4)
            return
        FLAG.write(out, value=True)
        _SIZED.write(out, value)


_SIZED = Sized(PERMISSIONS)
ANSWERED_PERMISSIONS = _AnsweredPermissions()  # in replies
