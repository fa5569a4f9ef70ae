"""What holds for the metadata between any two ops: relations between the values of its state.

Too expensive for every op of a server: tests and the simulator call `MetadataMachine.check`. An
assertion that fails here is a fault of ours, never of a client, a peer or a disk.
"""

from itertools import pairwise

from headrace.base.ids import ROOT_USER
from headrace.base.limits import PARTITIONS_PER_TOPIC_MAX
from headrace.groups.roster import Roster
from headrace.metadata.bounds import GROUPS_PER_TOPIC_MAX, TOKENS_PER_USER_MAX
from headrace.metadata.grants import make_grants
from headrace.metadata.settings import read_settings
from headrace.metadata.state import GroupKey, State, Stream, Topic, User
from headrace.wire.numbers import UserStatus


def check_state(state: State, op: int) -> None:
    """Assert every relation that holds after an op."""
    state.streams.check()
    state.stream_keys.check([stream.id for stream in state.streams])
    for stream in state.streams:
        _check_stream(state, stream)
    state.users.check()
    state.user_keys.check([user.id for user in state.users])
    for user in state.users:
        _check_user(state, user, op)
    _check_root(state)
    _check_tokens(state)
    _check_memberships(state)
    state.check_changes()


def _check_stream(state: State, stream: Stream) -> None:
    assert stream.created_at <= state.timestamp, "committed time is the highest stamp"
    stream.topics.check()
    stream.topic_keys.check([topic.id for topic in stream.topics])
    for topic in stream.topics:
        assert topic.stream_id == stream.id, "a topic knows the stream that holds it"
        assert topic.created_at <= state.timestamp, "committed time is the highest stamp"
        assert topic.settings == read_settings(topic.explicit, topic.derived), (
            "settings are those of the options"
        )
        _check_partitions(state, topic)
        _check_groups(topic)


def _check_partitions(state: State, topic: Topic) -> None:
    assert len(topic.partitions) <= PARTITIONS_PER_TOPIC_MAX, "more were refused"
    for partition in topic.partitions:
        assert 1 <= partition.created_revision <= state.revision, "a revision made it"
        assert partition.created_revision <= topic.changed_revision, "its topic changed with it"
        assert partition.created_at <= state.timestamp, "committed time is the highest stamp"
        assert partition.purge_generation >= 0, "generations count up"
    for low, high in pairwise(topic.partitions):
        assert low.created_revision <= high.created_revision, "new ones are added above"


def _check_groups(topic: Topic) -> None:
    topic.groups.check()
    assert len(topic.groups) <= GROUPS_PER_TOPIC_MAX, "more were refused"
    for group in topic.groups:
        assert group.id < topic.next_group_id, "the number of a group is never another's"
        _check_roster(group.roster, len(topic.partitions))


def _check_roster(roster: Roster, partitions_count: int) -> None:
    members = roster.members
    for left, right in pairwise(members):
        assert left.key < right.key, "members stand in order of their keys"
    assert roster.clients == {member.client: member for member in members}, "a client is found"
    owned = {partition: member for member in members for partition in member.partitions}
    assert roster.owners == owned, "an owner is found by its partitions"
    if members:
        assert sorted(owned) == list(range(partitions_count)), "every partition has an owner"
        shares = [len(member.partitions) for member in members]
        assert sum(shares) == partitions_count, "a partition has one owner"
        assert max(shares) - min(shares) <= 1, "shares differ by one at most"
    assert len(members) <= roster.generation, "every change begins a generation"


def _check_user(state: State, user: User, op: int) -> None:
    assert user.created_op <= op, "a user was made by an applied op"
    assert user.created_at <= state.timestamp, "committed time is the highest stamp"
    assert user.grants == make_grants(user.permissions), "the masks are those of the permissions"
    assert len(user.tokens) <= TOKENS_PER_USER_MAX, "more were refused"
    for name, token in user.tokens.items():
        assert token.name == name, "a token is found by its name"


def _check_root(state: State) -> None:
    root = state.users.find(ROOT_USER)
    assert (root is None) == (len(state.users) == 0), "the root user is the first, and stays"
    assert root is None or root.status == UserStatus.ACTIVE, "the root user stays active"


def _check_tokens(state: State) -> None:
    owners = {token.token_hash: user.id for user in state.users for token in user.tokens.values()}
    assert len(owners) == sum(len(user.tokens) for user in state.users), "a token has one owner"
    found = {token_hash: user.id for token_hash, user in state.token_owners.items()}
    assert found == owners, "the owner of every token is found by its hash, and no other"


def _check_memberships(state: State) -> None:
    members: dict[int, dict[GroupKey, None]] = {}
    for stream in state.streams:
        for topic in stream.topics:
            for group in topic.groups:
                for member in group.roster.members:
                    key = (stream.id, topic.id, group.id)
                    members.setdefault(member.client, {})[key] = None
    assert state.memberships == members, "a client is enrolled where a roster has it"
