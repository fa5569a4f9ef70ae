"""What ops do to consumer groups. Each refuses first and changes then.

Flow: apply.
"""

from headrace.groups.changes import join, leave
from headrace.groups.roster import is_member
from headrace.metadata import resolve
from headrace.metadata.bounds import GROUPS_PER_TOPIC_MAX
from headrace.metadata.describe import detail_group
from headrace.metadata.names import check_name
from headrace.metadata.state import Group, GroupKey, State
from headrace.wire.commands.groups import CREATE_GROUP, CreateGroup, DeleteGroup
from headrace.wire.commands.internal import JoinGroupAs, LeaveGroupAs, RemoveGroupMember
from headrace.wire.errors import Code, RefusedError
from headrace.wire.replica.prepares import PrepareHeader


def create_group(state: State, _header: PrepareHeader, request: CreateGroup) -> bytes:
    """Add a group without members; reply with its details."""
    topic = resolve.route(state, request.stream, request.topic)
    check_name(request.name, Code.INVALID_CONSUMER_GROUP_NAME)
    if topic.groups.find(request.name) is not None:
        raise RefusedError(Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS, name=request.name)
    if len(topic.groups) >= GROUPS_PER_TOPIC_MAX or topic.next_group_id >= 1 << 32:
        raise RefusedError(Code.CANNOT_CREATE_CONSUMER_GROUP_INFO, limit=GROUPS_PER_TOPIC_MAX)
    group = Group(id=topic.next_group_id, name=request.name)
    topic.next_group_id += 1
    topic.groups.add(group)
    state.raise_revision()  # a reader of the live groups must see this one
    return CREATE_GROUP.encode_reply(detail_group(topic, group))


def delete_group(state: State, _header: PrepareHeader, request: DeleteGroup) -> bytes:
    """Remove a group; partitions drop its offsets when they see the revision."""
    topic = resolve.route(state, request.stream, request.topic)
    group = resolve.group(topic, request.group)
    state.forget_group(topic, group)
    topic.groups.remove(group)
    state.raise_revision()
    state.note_change(topic)
    return b""


def join_group(state: State, _header: PrepareHeader, request: JoinGroupAs) -> bytes:
    """Make a client a member; one that is a member already joins without effect.

    Which partitions have uncommitted work does not matter while all are assigned anew (CG-9).
    """
    asked = request.request
    topic = resolve.route(state, asked.stream, asked.topic)
    group = resolve.group(topic, asked.group)
    if not is_member(group.roster, request.client):
        group.roster = join(
            group.roster, client=request.client, partitions_count=len(topic.partitions)
        )
        state.enrol(request.client, (topic.stream_id, topic.id, group.id))
    return b""


def leave_group(state: State, _header: PrepareHeader, request: LeaveGroupAs) -> bytes:
    """End a client's membership."""
    asked = request.request
    topic = resolve.route(state, asked.stream, asked.topic)
    group = resolve.group(topic, asked.group)
    if not is_member(group.roster, request.client):
        raise RefusedError(Code.CONSUMER_GROUP_MEMBER_NOT_FOUND, client=request.client)
    _leave(state, request.client, (topic.stream_id, topic.id, group.id))
    state.raise_revision()
    return b""


def remove_member(state: State, _header: PrepareHeader, request: RemoveGroupMember) -> bytes:
    """Take a client out of all its groups; one that has none changes nothing."""
    leave_all(state, request.client)
    return b""


def leave_all(state: State, client: int) -> None:
    """End all memberships of a client, at one place of the log on every replica (CG-8)."""
    keys = sorted(state.memberships.get(client, ()))
    for key in keys:
        _leave(state, client, key)
    if keys:
        state.raise_revision()
    assert client not in state.memberships


def _leave(state: State, client: int, key: GroupKey) -> None:
    stream_id, topic_id, group_id = key
    topic = resolve.route(state, stream_id, topic_id)
    group = resolve.group(topic, group_id)
    group.roster = leave(group.roster, client=client, partitions_count=len(topic.partitions))
    state.strike(client, key)
