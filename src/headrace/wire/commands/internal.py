"""Bodies that only servers write: the form in which a request is replicated.

The body of a client is extended by what every replica must decide alike: ids, group ids, the
member's client, hashes instead of secrets.
"""

import msgspec

from headrace.wire.codec import (
    NAME,
    U8,
    U32,
    U64,
    U128,
    Counted,
    Enumerated,
    Maybe,
    Reader,
    Record,
    Sized,
    read_text,
)
from headrace.wire.commands.groups import (
    JOIN_GROUP_BODY,
    LEAVE_GROUP_BODY,
    JoinGroup,
    LeaveGroup,
)
from headrace.wire.commands.topics import (
    CREATE_TOPIC_BODY,
    CreateTopic,
)
from headrace.wire.errors import DecodeError
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import ConsumerKind
from headrace.wire.options import SIZED_OPTIONS, Options

TOKEN_HASH_CHARACTERS = 64


class PartitionAssignment(msgspec.Struct, frozen=True):
    """A new partition and its consensus group."""

    partition_id: int
    group_id: int


class CreateTopicWithAssignments(msgspec.Struct, frozen=True):
    """CreateTopic with what the primary resolved."""

    request: CreateTopic
    derived: Options
    assignments: tuple[PartitionAssignment, ...]


class RemoveGroupMember(msgspec.Struct, frozen=True):
    """Takes a client out of all its groups."""

    client: int


class CompleteRevocation(msgspec.Struct, frozen=True):
    """Assigns a partition under revocation to its target."""

    stream: Identifier
    topic: Identifier
    group_id: int
    source_client: int
    partition_id: int


class JoinGroupAs(msgspec.Struct, frozen=True):
    """JoinGroup with the member's client and the partitions that have uncommitted work."""

    request: JoinGroup
    client: int
    in_flight: tuple[int, ...]


class LeaveGroupAs(msgspec.Struct, frozen=True):
    """LeaveGroup with the member's client."""

    request: LeaveGroup
    client: int


class CreateTokenHashed(msgspec.Struct, frozen=True):
    """CreateToken with the token's hash; the token itself is never replicated."""

    user_id: int
    name: str
    expiry: int
    token_hash: str


class OffsetMark(msgspec.Struct, frozen=True):
    """The stored offset of a consumer: names are resolved, a group is its number."""

    kind: ConsumerKind
    id: int
    offset: int


class OffsetKey(msgspec.Struct, frozen=True):
    """The consumer whose stored offset is deleted."""

    kind: ConsumerKind
    id: int


class TrimUpTo(msgspec.Struct, frozen=True):
    """Drops sealed segments that end at or below an offset: DeleteSegments, its count resolved."""

    up_to_offset: int


class PurgePartition(msgspec.Struct, frozen=True):
    """Begins a new history; a generation that was applied before changes nothing."""

    generation: int


class Retain(msgspec.Struct, frozen=True):
    """Drops sealed segments whose newest stamp is at or before a time, or beyond so many bytes.

    The time is the primary's, less the topic's expiry; 0 means that there is no such limit.
    Segments that hold messages from `keep_from` on stay: a consumer needs them. Without it no
    consumer does, as in all ops of versions that did not have it.
    """

    stamp_max: int
    bytes_max: int
    keep_from: int | None = None


class LostRange(msgspec.Struct, frozen=True):
    """Offsets from `first` up to, not including, `end` may have been assigned and are lost."""

    first: int
    end: int


class AcceptTime(msgspec.Struct, frozen=True):
    """The time that the primary believed, and the time of its clock, which holds from now on."""

    before: int
    clock: int


class ForgetGroupOffsets(msgspec.Struct, frozen=True):
    """Removes the offsets of deleted consumer groups."""

    group_ids: tuple[int, ...]


class _TokenHash:
    """64 hexadecimal characters, without a length."""

    def read(self, reader: Reader) -> str:
        text = read_text(reader.take(TOKEN_HASH_CHARACTERS))
        if not _is_hash(text):
            raise DecodeError(f"token hash {text!r}")
        return text

    def write(self, out: bytearray, value: str) -> None:
        if not _is_hash(value):
            raise ValueError(f"token hash {value!r}")
        out += value.encode()


def _is_hash(text: str) -> bool:
    return len(text) == TOKEN_HASH_CHARACTERS and all(c in "0123456789abcdef" for c in text)


_CONSUMER_KIND = Enumerated(U8, ConsumerKind)
_ASSIGNMENTS = Counted(U32, Record(PartitionAssignment, partition_id=U32, group_id=U64))

CREATE_TOPIC_WITH_ASSIGNMENTS = Record(
    CreateTopicWithAssignments,
    request=Sized(CREATE_TOPIC_BODY),
    derived=SIZED_OPTIONS,
    assignments=_ASSIGNMENTS,
)
REMOVE_GROUP_MEMBER = Record(RemoveGroupMember, client=U128)
COMPLETE_REVOCATION = Record(
    CompleteRevocation,
    stream=IDENTIFIER,
    topic=IDENTIFIER,
    group_id=U64,
    source_client=U128,
    partition_id=U32,
)
JOIN_GROUP_AS = Record(
    JoinGroupAs, request=JOIN_GROUP_BODY, client=U128, in_flight=Counted(U32, U32)
)
LEAVE_GROUP_AS = Record(LeaveGroupAs, request=LEAVE_GROUP_BODY, client=U128)
OFFSET_MARK = Record(OffsetMark, kind=_CONSUMER_KIND, id=U32, offset=U64)
OFFSET_KEY = Record(OffsetKey, kind=_CONSUMER_KIND, id=U32)
TRIM_UP_TO = Record(TrimUpTo, up_to_offset=U64)
PURGE_PARTITION = Record(PurgePartition, generation=U64)
RETAIN = Record(Retain, stamp_max=U64, bytes_max=U64, keep_from=Maybe(U64))
LOST_RANGE = Record(LostRange, first=U64, end=U64)
FORGET_GROUP_OFFSETS = Record(ForgetGroupOffsets, group_ids=Counted(U32, U32))
ACCEPT_TIME = Record(AcceptTime, before=U64, clock=U64)
CREATE_TOKEN_HASHED = Record(
    CreateTokenHashed, user_id=U32, name=NAME, expiry=U64, token_hash=_TokenHash()
)
