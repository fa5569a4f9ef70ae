"""Consumer groups: the data and the commands.

The member that joins, leaves or syncs is the client of the session, not a field of the body.
"""

import msgspec

from headrace.wire.codec import NAME, NOTHING, U32, U64, Counted, Headed, Maybe, Record, Repeated
from headrace.wire.commands.command import Command
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import Operation


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group as lists show it; `partitions_count` is its topic's."""

    id: int
    partitions_count: int
    members_count: int
    name: str


class Member(msgspec.Struct, frozen=True):
    """A member and the partitions it owns, those under revocation included."""

    id: int
    partitions: tuple[int, ...]


class GroupDetails(msgspec.Struct, frozen=True):
    """A group with its members."""

    group: Group
    members: tuple[Member, ...]


class Assignment(msgspec.Struct, frozen=True):
    """The partitions that the asking member may poll, and the generation they belong to."""

    generation: int
    partitions: tuple[int, ...]


class GetGroup(msgspec.Struct, frozen=True):
    """Asks for one group."""

    stream: Identifier
    topic: Identifier
    group: Identifier


class GetGroups(msgspec.Struct, frozen=True):
    """Asks for the groups of a topic."""

    stream: Identifier
    topic: Identifier


class CreateGroup(msgspec.Struct, frozen=True):
    """Adds a group to a topic."""

    stream: Identifier
    topic: Identifier
    name: str


class DeleteGroup(msgspec.Struct, frozen=True):
    """Removes a group with its stored offsets."""

    stream: Identifier
    topic: Identifier
    group: Identifier


class JoinGroup(msgspec.Struct, frozen=True):
    """Makes the client a member; joining twice has no effect."""

    stream: Identifier
    topic: Identifier
    group: Identifier


class LeaveGroup(msgspec.Struct, frozen=True):
    """Ends the client's membership."""

    stream: Identifier
    topic: Identifier
    group: Identifier


class SyncGroup(msgspec.Struct, frozen=True):
    """Asks which partitions the client may poll."""

    stream: Identifier
    topic: Identifier
    group: Identifier


_GROUP = Record(Group, id=U32, partitions_count=U32, members_count=U32, name=NAME)
_MEMBER = Record(Member, id=U32, partitions=Counted(U32, U32))
_GROUP_DETAILS = Headed(GroupDetails, _GROUP, lambda group: group.members_count, _MEMBER)
_ASSIGNMENT = Record(Assignment, generation=U64, partitions=Counted(U32, U32))

JOIN_GROUP_BODY = Record(JoinGroup, stream=IDENTIFIER, topic=IDENTIFIER, group=IDENTIFIER)
LEAVE_GROUP_BODY = Record(LeaveGroup, stream=IDENTIFIER, topic=IDENTIFIER, group=IDENTIFIER)

GET_GROUP = Command(
    600,
    "get consumer group",
    Operation.NON_REPLICATED,
    Record(GetGroup, stream=IDENTIFIER, topic=IDENTIFIER, group=IDENTIFIER),
    Maybe(_GROUP_DETAILS),
)
GET_GROUPS = Command(
    601,
    "get consumer groups",
    Operation.NON_REPLICATED,
    Record(GetGroups, stream=IDENTIFIER, topic=IDENTIFIER),
    Repeated(_GROUP),
)
CREATE_GROUP = Command(
    602,
    "create consumer group",
    Operation.CREATE_CONSUMER_GROUP,
    Record(CreateGroup, stream=IDENTIFIER, topic=IDENTIFIER, name=NAME),
    _GROUP_DETAILS,
)
DELETE_GROUP = Command(
    603,
    "delete consumer group",
    Operation.DELETE_CONSUMER_GROUP,
    Record(DeleteGroup, stream=IDENTIFIER, topic=IDENTIFIER, group=IDENTIFIER),
    NOTHING,
)
JOIN_GROUP = Command(
    604, "join consumer group", Operation.JOIN_CONSUMER_GROUP, JOIN_GROUP_BODY, NOTHING
)
LEAVE_GROUP = Command(
    605, "leave consumer group", Operation.LEAVE_CONSUMER_GROUP, LEAVE_GROUP_BODY, NOTHING
)
SYNC_GROUP = Command(
    606,
    "sync consumer group",
    Operation.NON_REPLICATED,
    Record(SyncGroup, stream=IDENTIFIER, topic=IDENTIFIER, group=IDENTIFIER),
    Maybe(_ASSIGNMENT),
)

COMMANDS = (
    GET_GROUP,
    GET_GROUPS,
    CREATE_GROUP,
    DELETE_GROUP,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
