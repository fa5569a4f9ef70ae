"""May this user ask this of what the request names, whether that exists or not?

Somebody who may neither do a thing nor read the level above it gets one answer for "you may not"
and "there is no such thing". Somebody who may gets past here, and then learns from `resolve` which
level is missing (MD-9).
"""

import msgspec

from headrace.metadata import resolve
from headrace.metadata.authorization import authorize
from headrace.metadata.state import State, Stream, Topic
from headrace.wire.commands.streams import GET_STREAMS
from headrace.wire.commands.topics import GET_TOPICS
from headrace.wire.commands.users import GET_USERS
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Identifier


class Scope(msgspec.Struct, frozen=True):
    """What a request is about, as it names it."""

    stream: Identifier | None = None
    topic: Identifier | None = None
    user: Identifier | None = None


NOWHERE = Scope()


def check_access(state: State, user_id: int, command: int, scope: Scope = NOWHERE) -> None:
    """Refuse what the user may not do; what is not there passes for those who may know it.

    Raises:
        RefusedError: The user may not.
    """
    if not _may(state, user_id, command, scope):
        raise RefusedError(Code.UNAUTHORIZED, command=command, user=user_id)


def check_session(state: State, user_id: int, *, began: int) -> None:
    """Refuse a session that began before its user was created: it is of a namesake by number.

    A user's number is given to the next one when it is free, and what the earlier one had asked for
    may still be on its way (SE-5).

    Raises:
        RefusedError: It did.
    """
    user = state.users.find(user_id)
    if user is not None and began < user.created_op:
        raise RefusedError(Code.UNAUTHORIZED, user=user_id, created_op=user.created_op)


def reach(state: State, user_id: int, command: int, stream: Identifier, topic: Identifier) -> Topic:
    """Return the topic that a user may do this to; what sends and polls ask.

    Raises:
        RefusedError: The user may not, or there is no such topic.
    """
    parent = state.streams.find(stream)
    found = None if parent is None else parent.topics.find(topic)
    if found is not None and authorize(state, user_id, command, found.stream_id, found.id):
        return found
    check_access(state, user_id, command, Scope(stream, topic))
    return resolve.route(state, stream, topic)


_LEVELS = (
    Code.STREAM_ID_NOT_FOUND,
    Code.TOPIC_ID_NOT_FOUND,
    Code.PARTITION_NOT_FOUND,
    Code.CONSUMER_GROUP_ID_NOT_FOUND,
)


def as_missing(refusal: RefusedError) -> RefusedError:
    """Return a refusal of what writes to a partition: there one code says that anything is missing.

    Upstream tells no levels apart there, and clients of other languages look for its code. A level
    that is found and refused otherwise stays as it is.
    """
    if refusal.code in _LEVELS:
        return RefusedError(Code.RESOURCE_NOT_FOUND, **refusal.facts)
    return refusal


def _may(state: State, user_id: int, command: int, scope: Scope) -> bool:
    if scope.stream is not None:
        stream = state.streams.find(scope.stream)
        if stream is None:
            return authorize(state, user_id, command) or authorize(state, user_id, GET_STREAMS.code)
        return _may_in_stream(state, user_id, command, stream, scope.topic)
    if scope.user is not None:
        user = state.users.find(scope.user)
        if user is None:
            return authorize(state, user_id, command) or authorize(state, user_id, GET_USERS.code)
        return authorize(state, user_id, command, target_user=user.id)
    return authorize(state, user_id, command)


def _may_in_stream(
    state: State, user_id: int, command: int, stream: Stream, topic_named: Identifier | None
) -> bool:
    if topic_named is None:
        return authorize(state, user_id, command, stream.id)
    topic = stream.topics.find(topic_named)
    if topic is None:
        return authorize(state, user_id, command, stream.id) or authorize(
            state, user_id, GET_TOPICS.code, stream.id
        )
    return authorize(state, user_id, command, stream.id, topic.id)
