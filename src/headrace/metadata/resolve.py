"""Finds what a request names, level by level: stream, then topic, then group (MD-8).

Flow: route.
"""

from hmac import compare_digest

from headrace.metadata.state import Group, State, Stream, Token, Topic, User
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Identifier


def stream(state: State, identifier: Identifier) -> Stream:
    """Return the stream.

    Raises:
        RefusedError: There is none.
    """
    found = state.streams.find(identifier)
    if found is None:
        raise RefusedError(Code.STREAM_ID_NOT_FOUND, stream=identifier)
    return found


def topic(parent: Stream, identifier: Identifier) -> Topic:
    """Return the topic of a stream.

    Raises:
        RefusedError: There is none.
    """
    found = parent.topics.find(identifier)
    if found is None:
        raise RefusedError(Code.TOPIC_ID_NOT_FOUND, stream=parent.id, topic=identifier)
    return found


def route(state: State, stream_named: Identifier, topic_named: Identifier) -> Topic:
    """Return the topic of a stream, both as a request names them: two look-ups, for every send.

    Raises:
        RefusedError: One of them does not exist.
    """
    parent = state.streams.find(stream_named)
    if parent is not None:
        found = parent.topics.find(topic_named)
        if found is not None:
            return found
    return topic(stream(state, stream_named), topic_named)  # raises: one of them is missing


def group(parent: Topic, identifier: Identifier) -> Group:
    """Return the consumer group of a topic.

    Raises:
        RefusedError: There is none.
    """
    found = parent.groups.find(identifier)
    if found is None:
        raise RefusedError(Code.CONSUMER_GROUP_ID_NOT_FOUND, topic=parent.id, group=identifier)
    return found


def user(state: State, identifier: Identifier) -> User:
    """Return the user.

    Raises:
        RefusedError: There is none.
    """
    found = state.users.find(identifier)
    if found is None:
        raise RefusedError(Code.RESOURCE_NOT_FOUND, user=identifier)
    return found


def token(state: State, token_hash: str) -> tuple[User, Token] | None:
    """Return the token with this hash and whose it is, expired or not; nothing if there is none."""
    owner = state.token_owners.get(token_hash)
    if owner is None:
        return None
    for candidate in owner.tokens.values():
        # In constant time, although it is a hash that was looked up: nothing depends on that then.
        if compare_digest(candidate.token_hash, token_hash):
            return owner, candidate
    raise AssertionError("the owner of a token has it")
