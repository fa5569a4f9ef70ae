"""What the metadata group has decided: users with their tokens, streams with all below them.

Everything here is changed by applying committed ops only. Some of it is derived, and so not part of
a snapshot: numbers that are free, permissions as bits, settings, who belongs to which groups.

Invariants: `memberships` names exactly the groups whose roster holds the client; `token_owners`
            names exactly the tokens of all users; `revision` rises with every change of what
            partitions must be (MD-3).
"""

from itertools import pairwise
from typing import TypeAlias

import msgspec

from headrace.base.ids import GroupId, Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.groups.roster import EMPTY_ROSTER, Roster
from headrace.metadata.grants import Grants, make_grants
from headrace.metadata.settings import TopicSettings
from headrace.metadata.table import LowestFree, Table
from headrace.wire.numbers import UserStatus
from headrace.wire.options import Options
from headrace.wire.permissions import Permissions

NEVER = 0  # when a token expires that does not

# A consumer group by the numbers of its stream, its topic and itself.
GroupKey: TypeAlias = tuple[int, int, int]

# A topic by the numbers of its stream and itself.
TopicKey: TypeAlias = tuple[int, int]


class Partition(msgspec.Struct, frozen=True):
    """One partition; those that were made together share one value.

    `created_revision` tells it from others that had its number before (MD-4); `purge_generation`
    counts how often it was emptied (MD-5).
    """

    created_at: int
    created_revision: int
    purge_generation: int = 0


class Group(msgspec.Struct, kw_only=True):
    """A consumer group."""

    id: int
    name: str
    roster: Roster = EMPTY_ROSTER


class Topic(msgspec.Struct, kw_only=True):
    """A topic; partition i is the i-th of its list."""

    id: int
    stream_id: int
    name: str
    created_at: int
    explicit: Options
    derived: Options
    settings: TopicSettings
    changed_revision: int  # when its partitions last changed, in this process's view
    partitions: list[Partition] = msgspec.field(default_factory=list)
    groups: Table[Group] = msgspec.field(default_factory=Table)
    next_group_id: int = 0  # counts up: a group's number is never another's (MD-2)

    def namespace(self, partition_id: int) -> GroupId:
        """Return the consensus group of a partition that exists."""
        assert 0 <= partition_id < len(self.partitions), "partitions are numbered from 0"
        return pack_namespace(
            Namespace(StreamId(self.stream_id), TopicId(self.id), PartitionId(partition_id))
        )


class Stream(msgspec.Struct, kw_only=True):
    """A stream with its topics."""

    id: int
    name: str
    created_at: int
    topics: Table[Topic] = msgspec.field(default_factory=Table)
    topic_keys: LowestFree = msgspec.field(default_factory=LowestFree)


class Token(msgspec.Struct, frozen=True):
    """A personal access token, known by its hash only."""

    name: str
    token_hash: str
    expires_at: int  # NEVER, or the first microsecond at which it is no longer good

    def is_expired(self, now: int) -> bool:
        """Return whether it is no longer good; `now` is committed time, not a local clock."""
        return self.expires_at != NEVER and now >= self.expires_at


class User(msgspec.Struct, kw_only=True):
    """A user; `created_op` tells it from others that had its number before."""

    id: int
    name: str
    created_at: int
    created_op: int
    status: UserStatus
    password_hash: str
    permissions: Permissions | None
    grants: Grants
    tokens: dict[str, Token] = msgspec.field(default_factory=dict)

    def permit(self, permissions: Permissions | None) -> None:
        """Replace what the user may do."""
        self.permissions = permissions
        self.grants = make_grants(permissions)


class State:
    """All of it."""

    __slots__ = (
        "_changed_topics",
        "_revision_read",
        "memberships",
        "revision",
        "stream_keys",
        "streams",
        "timestamp",
        "token_owners",
        "user_keys",
        "users",
    )

    def __init__(self, revision: int = 0) -> None:
        self.revision = revision
        self._revision_read = revision  # what changed up to it, this process has not seen
        # The topics that changed since, gone ones too, with the revision of their last change: the
        # longest unchanged first.
        self._changed_topics: dict[TopicKey, int] = {}
        self.timestamp = 0  # the highest stamp of an applied op
        self.streams: Table[Stream] = Table()
        self.stream_keys = LowestFree()
        self.users: Table[User] = Table()
        self.user_keys = LowestFree()
        self.token_owners: dict[str, User] = {}  # by the hash of the token
        self.memberships: dict[int, dict[GroupKey, None]] = {}  # by client

    def find_topic(self, key: TopicKey) -> Topic | None:
        """Return the topic with these numbers, if there is one."""
        stream = self.streams.find(key[0])
        return None if stream is None else stream.topics.find(key[1])

    def raise_revision(self) -> int:
        """Count a change of what partitions must be; return the new revision."""
        self.revision += 1
        return self.revision

    def note_change(self, topic: Topic) -> None:
        """Note that the partitions of a topic must be looked at since this revision."""
        topic.changed_revision = self.revision
        key = (topic.stream_id, topic.id)
        assert self.revision > self._revision_read, "a change begins with its revision"
        self._changed_topics.pop(key, None)
        self._changed_topics[key] = self.revision

    def topics_changed_since(self, revision: int) -> list[TopicKey] | None:
        """Return the topics that changed after a revision, gone ones too; none if unknown.

        The cost is that of the answer, whatever the number of topics.
        """
        if revision < self._revision_read:
            return None
        found: list[TopicKey] = []
        for key, changed in reversed(self._changed_topics.items()):
            if changed <= revision:
                break
            found.append(key)
        found.reverse()
        return found

    def check_changes(self) -> None:
        """Assert that the changes since this process began agree with the topics."""
        changes = self._changed_topics
        assert self._revision_read <= self.revision, "revisions count up"
        for low, high in pairwise(changes.values()):
            assert low <= high, "the longest unchanged stands first"
        for revision in changes.values():
            assert self._revision_read < revision <= self.revision, "a change has its revision"
        for stream in self.streams:
            for topic in stream.topics:
                noted = changes.get((stream.id, topic.id), self._revision_read)
                assert topic.changed_revision == noted, "the last change of a topic is noted"

    def enrol(self, client: int, key: GroupKey) -> None:
        """Note that a client has become a member."""
        groups = self.memberships.setdefault(client, {})
        assert key not in groups, "a client is a member once"
        groups[key] = None

    def strike(self, client: int, key: GroupKey) -> None:
        """Note that a client is a member no longer."""
        groups = self.memberships[client]
        assert key in groups, "only a member leaves"
        del groups[key]
        if not groups:
            del self.memberships[client]

    def forget_group(self, topic: Topic, group: Group) -> None:
        """Strike all members of a group that goes."""
        for member in group.roster.members:
            self.strike(member.client, (topic.stream_id, topic.id, group.id))
