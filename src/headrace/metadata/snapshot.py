"""The metadata as bytes: what a checkpoint holds and a transfer sends.

    magic "HMD1" | version u16 | image | XXH3-64 of all before

Equal states give equal bytes: everything stands in ascending order of numbers or names, and what
can be derived is left out. Partitions of a topic are written as runs of equal values, because those
that were made together are equal.

Invariants: what `read_snapshot` gives keeps the invariants of the state, or it raises.
"""

from collections.abc import Iterable
from itertools import groupby, pairwise

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.ids import ROOT_USER
from headrace.base.limits import PARTITIONS_PER_TOPIC_MAX, STREAMS_MAX, TOPICS_PER_STREAM_MAX
from headrace.groups.roster import Member, make_roster
from headrace.metadata.bounds import USERS_MAX
from headrace.metadata.grants import make_grants
from headrace.metadata.settings import read_settings
from headrace.metadata.state import Group, Partition, State, Stream, Token, Topic, User
from headrace.metadata.table import LowestFree
from headrace.ports.network import Buffer
from headrace.wire.codec import (
    NAME,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    U128,
    Counted,
    Enumerated,
    Reader,
    Record,
    decode_exactly,
)
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.numbers import UserStatus
from headrace.wire.options import SIZED_OPTIONS, Options
from headrace.wire.permissions import OPTIONAL_PERMISSIONS, Permissions

VERSION = 1

_MAGIC = b"HMD1"
_VERSION_BYTES = 2
_CHECKSUM_BYTES = 8


class Progress(msgspec.Struct, frozen=True):
    """How far the machine has come: its last op, and the hash of all ops up to it."""

    op: int
    chain: int


class _Run(msgspec.Struct, frozen=True):
    count: int
    partition: Partition


class _Members(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    generation: int
    members: tuple[Member, ...]


class _TopicImage(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    created_at: int
    explicit: Options
    derived: Options
    partitions: tuple[_Run, ...]
    next_group_id: int
    groups: tuple[_Members, ...]


class _StreamImage(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    created_at: int
    topics: tuple[_TopicImage, ...]


class _UserImage(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    created_at: int
    created_op: int
    status: UserStatus
    password_hash: str
    permissions: Permissions | None
    tokens: tuple[Token, ...]


class _Image(msgspec.Struct, frozen=True, kw_only=True):
    progress: Progress
    timestamp: int
    revision: int
    users: tuple[_UserImage, ...]
    streams: tuple[_StreamImage, ...]


_USER = Record(
    _UserImage,
    id=U32,
    name=NAME,
    created_at=U64,
    created_op=U64,
    status=Enumerated(U8, UserStatus),
    password_hash=TEXT,
    permissions=OPTIONAL_PERMISSIONS,
    tokens=Counted(U32, Record(Token, name=NAME, token_hash=TEXT, expires_at=U64)),
)
_GROUP = Record(
    _Members,
    id=U32,
    name=NAME,
    generation=U64,
    members=Counted(U32, Record(Member, key=U32, client=U128, partitions=Counted(U32, U32))),
)
_PARTITION = Record(Partition, created_at=U64, created_revision=U64, purge_generation=U64)
_TOPIC = Record(
    _TopicImage,
    id=U32,
    name=NAME,
    created_at=U64,
    explicit=SIZED_OPTIONS,
    derived=SIZED_OPTIONS,
    partitions=Counted(U32, Record(_Run, count=U32, partition=_PARTITION)),
    next_group_id=U64,
    groups=Counted(U32, _GROUP),
)
_STREAM = Record(_StreamImage, id=U32, name=NAME, created_at=U64, topics=Counted(U32, _TOPIC))
_IMAGE = Record(
    _Image,
    progress=Record(Progress, op=U64, chain=U64),
    timestamp=U64,
    revision=U64,
    users=Counted(U32, _USER),
    streams=Counted(U32, _STREAM),
)


def write_snapshot(state: State, progress: Progress) -> bytes:
    """Write the state."""
    out = bytearray(_MAGIC)
    U16.write(out, VERSION)
    _IMAGE.write(
        out,
        _Image(
            progress=progress,
            timestamp=state.timestamp,
            revision=state.revision,
            users=tuple([_image_of_user(user) for user in state.users]),
            streams=tuple([_image_of_stream(stream) for stream in state.streams]),
        ),
    )
    return bytes(out) + xxh3_64(out).to_bytes(_CHECKSUM_BYTES, "little")


def read_snapshot(data: Buffer) -> tuple[State, Progress]:
    """Read a state.

    Raises:
        CorruptError: It is damaged, of another version, or none that was written.
    """
    image = _read_image(memoryview(data))
    state = State(image.revision)
    state.timestamp = image.timestamp
    _check_rising("users", [user.id for user in image.users], USERS_MAX)
    _check_rising("streams", [stream.id for stream in image.streams], STREAMS_MAX)
    state.user_keys = LowestFree([user.id for user in image.users])
    state.stream_keys = LowestFree([stream.id for stream in image.streams])
    _check_names("users", [user.name for user in image.users])
    _check_names("streams", [stream.name for stream in image.streams])
    for user in image.users:
        _restore_user(state, user)
    root = state.users.find(ROOT_USER)
    if len(state.users) and (root is None or root.status != UserStatus.ACTIVE):
        raise CorruptError("metadata snapshot without an active root user")
    for stream in image.streams:
        _restore_stream(state, stream)
    return state, image.progress


def _image_of_user(user: User) -> _UserImage:
    return _UserImage(
        id=user.id,
        name=user.name,
        created_at=user.created_at,
        created_op=user.created_op,
        status=user.status,
        password_hash=user.password_hash,
        permissions=user.permissions,
        tokens=tuple([user.tokens[name] for name in sorted(user.tokens)]),
    )


def _image_of_stream(stream: Stream) -> _StreamImage:
    return _StreamImage(
        id=stream.id,
        name=stream.name,
        created_at=stream.created_at,
        topics=tuple([_image_of_topic(topic) for topic in stream.topics]),
    )


def _image_of_topic(topic: Topic) -> _TopicImage:
    return _TopicImage(
        id=topic.id,
        name=topic.name,
        created_at=topic.created_at,
        explicit=topic.explicit,
        derived=topic.derived,
        partitions=tuple(_runs(topic.partitions)),
        next_group_id=topic.next_group_id,
        groups=tuple([_image_of_group(group) for group in topic.groups]),
    )


def _image_of_group(group: Group) -> _Members:
    return _Members(
        id=group.id,
        name=group.name,
        generation=group.roster.generation,
        members=group.roster.members,
    )


def _runs(partitions: list[Partition]) -> Iterable[_Run]:
    for partition, run in groupby(partitions):
        yield _Run(sum(1 for _ in run), partition)


def _read_image(view: memoryview) -> _Image:
    covered = view[:-_CHECKSUM_BYTES]
    head = len(_MAGIC) + _VERSION_BYTES
    if len(covered) < head or covered[: len(_MAGIC)] != _MAGIC:
        raise CorruptError(f"{len(view)} bytes are no metadata snapshot")
    version = U16.read(Reader(covered[len(_MAGIC) :]))
    if version != VERSION:
        raise CorruptError(f"metadata snapshot of version {version}, this server reads {VERSION}")
    if xxh3_64(covered) != int.from_bytes(view[-_CHECKSUM_BYTES:], "little"):
        raise CorruptError(f"metadata snapshot of {len(view)} bytes has a wrong checksum")
    try:
        return decode_exactly(_IMAGE, covered[head:])
    except DecodeError as error:
        raise CorruptError(f"metadata snapshot: {error}") from None


def _restore_user(state: State, image: _UserImage) -> None:
    user = User(
        id=image.id,
        name=image.name,
        created_at=image.created_at,
        created_op=image.created_op,
        status=image.status,
        password_hash=image.password_hash,
        permissions=image.permissions,
        grants=make_grants(image.permissions),
        tokens={token.name: token for token in image.tokens},
    )
    _check_names("tokens", [token.name for token in image.tokens])
    for token in image.tokens:
        if token.token_hash in state.token_owners:
            raise CorruptError(f"metadata snapshot: token {token.name!r} has another's hash")
        state.token_owners[token.token_hash] = user
    state.users.add(user)


def _restore_stream(state: State, image: _StreamImage) -> None:
    stream = Stream(id=image.id, name=image.name, created_at=image.created_at)
    numbers = [topic.id for topic in image.topics]
    _check_rising("topics", numbers, TOPICS_PER_STREAM_MAX)
    _check_names("topics", [topic.name for topic in image.topics])
    stream.topic_keys = LowestFree(numbers)
    for topic in image.topics:
        stream.topics.add(_restore_topic(state, stream, topic))
    state.streams.add(stream)


def _restore_topic(state: State, stream: Stream, image: _TopicImage) -> Topic:
    topic = Topic(
        id=image.id,
        stream_id=stream.id,
        name=image.name,
        created_at=image.created_at,
        explicit=image.explicit,
        derived=image.derived,
        settings=read_settings(image.explicit, image.derived),
        changed_revision=state.revision,
        next_group_id=image.next_group_id,
    )
    if sum(run.count for run in image.partitions) > PARTITIONS_PER_TOPIC_MAX:
        raise CorruptError(f"metadata snapshot: too many partitions in topic {image.name!r}")
    for run in image.partitions:
        if not 1 <= run.partition.created_revision <= state.revision:
            raise CorruptError(f"metadata snapshot: partition of revision {run.partition}")
        topic.partitions += [run.partition] * run.count
    _check_rising("groups", [group.id for group in image.groups], image.next_group_id)
    _check_names("groups", [group.name for group in image.groups])
    for group in image.groups:
        _restore_group(state, topic, group)
    return topic


def _restore_group(state: State, topic: Topic, image: _Members) -> None:
    _check_rising("members", [member.key for member in image.members], 1 << 32)
    dealt = [partition for member in image.members for partition in member.partitions]
    clients = {member.client: None for member in image.members}
    if len(clients) != len(image.members):
        raise CorruptError(f"metadata snapshot: a client is twice in group {image.name!r}")
    if sorted(dealt) != list(range(len(topic.partitions) if image.members else 0)):
        raise CorruptError(f"metadata snapshot: group {image.name!r} deals other partitions")
    roster = make_roster(image.generation, image.members)
    topic.groups.add(Group(id=image.id, name=image.name, roster=roster))
    for client in clients:
        state.enrol(client, (topic.stream_id, topic.id, image.id))


def _check_rising(what: str, numbers: list[int], limit: int) -> None:
    if any(left >= right for left, right in pairwise(numbers)) or max(numbers, default=-1) >= limit:
        raise CorruptError(f"metadata snapshot: {what} are numbered out of order or above {limit}")


def _check_names(what: str, names: list[str]) -> None:
    if len(dict.fromkeys(names)) != len(names):
        raise CorruptError(f"metadata snapshot: {what} with one name")
