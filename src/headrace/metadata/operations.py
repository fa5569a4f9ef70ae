"""Which operation does what: its body, who may ask for it, the function that carries it out.

Flow: apply.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headrace.metadata import (
    clock_changes,
    group_changes,
    stream_changes,
    token_changes,
    topic_changes,
    user_changes,
)
from headrace.metadata.access import NOWHERE, Scope, check_access, check_session
from headrace.metadata.state import State
from headrace.ports.network import Buffer
from headrace.wire.codec import NOTHING, Codec, decode
from headrace.wire.commands import clock, groups, internal, streams, tokens, topics, users
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.identifiers import Identifier
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader

Q = TypeVar("Q")


class Change(Protocol):
    """One operation of the metadata group."""

    def reads(self, body: Buffer) -> bool:
        """Return whether the body is one of this operation."""

    def apply(self, state: State, header: PrepareHeader, body: Buffer) -> bytes:
        """Change the state; return the payload of the reply.

        Raises:
            RefusedError: It cannot be granted; nothing has changed.
            CorruptError: The body is none of this operation.
        """


class _Change(Generic[Q]):
    """Reads the body, asks whether the user may, carries it out."""

    def __init__(
        self,
        body: Codec[Q],
        carry_out: Callable[[State, PrepareHeader, Q], bytes],
        *,
        command: int | None,  # whose permission it needs; none for the server's own
        scope: Callable[[Q], Scope] = lambda _request: NOWHERE,
    ) -> None:
        self._body = body
        self._carry_out = carry_out
        self._command = command
        self._scope = scope

    def reads(self, body: Buffer) -> bool:
        try:
            decode(self._body, body)
        except DecodeError:
            return False
        return True

    def apply(self, state: State, header: PrepareHeader, body: Buffer) -> bytes:
        try:
            request = decode(self._body, body)
        except DecodeError as error:
            raise CorruptError(f"operation {header.operation} at {header.op}: {error}") from None
        if self._command is not None and header.client != 0:
            # A session is learnt of only when its op is committed, so whoever asked with one of
            # this user's was ordered by a primary that had committed the user's creation.
            check_session(state, header.user_id, began=header.commit)
            check_access(state, header.user_id, self._command, self._scope(request))
        return self._carry_out(state, header, request)


class _AboutStream(Protocol):
    @property
    def stream(self) -> Identifier: ...


class _AboutTopic(_AboutStream, Protocol):
    @property
    def topic(self) -> Identifier: ...


class _AboutUser(Protocol):
    @property
    def user(self) -> Identifier: ...


def _of_stream(request: _AboutStream) -> Scope:
    return Scope(stream=request.stream)


def _of_topic(request: _AboutTopic) -> Scope:
    return Scope(stream=request.stream, topic=request.topic)


def _of_user(request: _AboutUser) -> Scope:
    return Scope(user=request.user)


CHANGES: dict[int, Change] = {
    Operation.CREATE_STREAM: _Change(
        streams.CREATE_STREAM.request,
        stream_changes.create_stream,
        command=streams.CREATE_STREAM.code,
    ),
    Operation.UPDATE_STREAM: _Change(
        streams.UPDATE_STREAM.request,
        stream_changes.update_stream,
        command=streams.UPDATE_STREAM.code,
        scope=_of_stream,
    ),
    Operation.DELETE_STREAM: _Change(
        streams.DELETE_STREAM.request,
        stream_changes.delete_stream,
        command=streams.DELETE_STREAM.code,
        scope=_of_stream,
    ),
    Operation.PURGE_STREAM: _Change(
        streams.PURGE_STREAM.request,
        stream_changes.purge_stream,
        command=streams.PURGE_STREAM.code,
        scope=_of_stream,
    ),
    Operation.CREATE_TOPIC_WITH_ASSIGNMENTS: _Change(
        internal.CREATE_TOPIC_WITH_ASSIGNMENTS,
        topic_changes.create_topic,
        command=topics.CREATE_TOPIC.code,
        scope=lambda request: _of_stream(request.request),
    ),
    Operation.UPDATE_TOPIC: _Change(
        topics.UPDATE_TOPIC.request,
        topic_changes.update_topic,
        command=topics.UPDATE_TOPIC.code,
        scope=_of_topic,
    ),
    Operation.DELETE_TOPIC: _Change(
        topics.DELETE_TOPIC.request,
        topic_changes.delete_topic,
        command=topics.DELETE_TOPIC.code,
        scope=_of_topic,
    ),
    Operation.PURGE_TOPIC: _Change(
        topics.PURGE_TOPIC.request,
        topic_changes.purge_topic,
        command=topics.PURGE_TOPIC.code,
        scope=_of_topic,
    ),
    Operation.CREATE_PARTITIONS: _Change(
        topics.CREATE_PARTITIONS.request,
        topic_changes.create_partitions,
        command=topics.CREATE_PARTITIONS.code,
        scope=_of_topic,
    ),
    Operation.DELETE_PARTITIONS: _Change(
        topics.DELETE_PARTITIONS.request,
        topic_changes.delete_partitions,
        command=topics.DELETE_PARTITIONS.code,
        scope=_of_topic,
    ),
    Operation.CREATE_CONSUMER_GROUP: _Change(
        groups.CREATE_GROUP.request,
        group_changes.create_group,
        command=groups.CREATE_GROUP.code,
        scope=_of_topic,
    ),
    Operation.DELETE_CONSUMER_GROUP: _Change(
        groups.DELETE_GROUP.request,
        group_changes.delete_group,
        command=groups.DELETE_GROUP.code,
        scope=_of_topic,
    ),
    Operation.JOIN_CONSUMER_GROUP: _Change(
        internal.JOIN_GROUP_AS,
        group_changes.join_group,
        command=groups.JOIN_GROUP.code,
        scope=lambda request: _of_topic(request.request),
    ),
    Operation.LEAVE_CONSUMER_GROUP: _Change(
        internal.LEAVE_GROUP_AS,
        group_changes.leave_group,
        command=groups.LEAVE_GROUP.code,
        scope=lambda request: _of_topic(request.request),
    ),
    Operation.REMOVE_CONSUMER_GROUP_MEMBER: _Change(
        internal.REMOVE_GROUP_MEMBER, group_changes.remove_member, command=None
    ),
    Operation.CREATE_USER: _Change(
        users.CREATE_USER.request, user_changes.create_user, command=users.CREATE_USER.code
    ),
    Operation.UPDATE_USER: _Change(
        users.UPDATE_USER.request,
        user_changes.update_user,
        command=users.UPDATE_USER.code,
        scope=_of_user,
    ),
    Operation.DELETE_USER: _Change(
        users.DELETE_USER.request,
        user_changes.delete_user,
        command=users.DELETE_USER.code,
        scope=_of_user,
    ),
    Operation.CHANGE_PASSWORD: _Change(
        users.CHANGE_PASSWORD.request,
        user_changes.change_password,
        command=users.CHANGE_PASSWORD.code,
        scope=_of_user,
    ),
    Operation.UPDATE_PERMISSIONS: _Change(
        users.UPDATE_PERMISSIONS.request,
        user_changes.update_permissions,
        command=users.UPDATE_PERMISSIONS.code,
        scope=_of_user,
    ),
    Operation.CREATE_PERSONAL_ACCESS_TOKEN: _Change(
        internal.CREATE_TOKEN_HASHED,
        token_changes.create_token,
        command=tokens.CREATE_TOKEN.code,
    ),
    Operation.DELETE_PERSONAL_ACCESS_TOKEN: _Change(
        tokens.DELETE_TOKEN.request,
        token_changes.delete_token,
        command=tokens.DELETE_TOKEN.code,
    ),
    Operation.ACCEPT_TIME: _Change(
        internal.ACCEPT_TIME, clock_changes.accept_time, command=clock.ACCEPT_TIME.code
    ),
    Operation.NOTE_TIME: _Change(NOTHING, clock_changes.note_time, command=None),
}
