"""The permissions of every command in one table: the kind of its object, and what suffices.

A server decides by it, and a client explains by it what a refused command would have needed. A
command without a row is denied to everybody. The root user has every permission in the table; a
deleted or inactive user may do only what needs no login. The rows follow the protocol's
inheritance: managing includes reading, a permission on a stream holds for its topics, reading a
topic includes polling it, managing a topic includes sending to it.
"""

from enum import Enum

import msgspec

from headrace.wire.commands import (
    clients,
    clock,
    counters,
    groups,
    holders,
    messages,
    reconcile,
    segments,
    session,
    shards,
    streams,
    system,
    tokens,
    topics,
    users,
)


class Resource(Enum):
    """The object of a command, which decides the levels of its permissions."""

    OPEN = "needs no login"
    OWN = "any user, about itself"
    SERVER = "global permissions only"
    USER = "global permissions, or the user itself"
    STREAM = "global permissions, or those for the stream"
    TOPIC = "global permissions, or those for the stream or the topic"


class Rule(msgspec.Struct, frozen=True):
    """Flags of which any one suffices, by level."""

    resource: Resource
    everywhere: tuple[str, ...] = ()
    stream: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()


_OPEN = Rule(Resource.OPEN)
_OWN = Rule(Resource.OWN)
_READ_SERVERS = Rule(Resource.SERVER, ("manage_servers", "read_servers"))
_MANAGE_SERVERS = Rule(Resource.SERVER, ("manage_servers",))
_READ_USERS = Rule(Resource.SERVER, ("manage_users", "read_users"))
_CREATE_USER = Rule(Resource.SERVER, ("manage_users",))
_READ_USER = Rule(Resource.USER, ("manage_users", "read_users"))
_CHANGE_USER = Rule(Resource.SERVER, ("manage_users",))
_CHANGE_PASSWORD = Rule(Resource.USER, ("manage_users",))
_READ_STREAMS = Rule(Resource.SERVER, ("manage_streams", "read_streams"))
_CREATE_STREAM = Rule(Resource.SERVER, ("manage_streams",))
_READ_STREAM = Rule(
    Resource.STREAM, ("manage_streams", "read_streams"), ("manage_stream", "read_stream")
)
_CHANGE_STREAM = Rule(Resource.STREAM, ("manage_streams",), ("manage_stream",))
_READ_TOPICS = Rule(
    Resource.STREAM,
    ("manage_streams", "read_streams", "manage_topics", "read_topics"),
    ("manage_stream", "read_stream", "manage_topics", "read_topics"),
)
_CREATE_TOPIC = Rule(
    Resource.STREAM, ("manage_streams", "manage_topics"), ("manage_stream", "manage_topics")
)
_READ_TOPIC = Rule(
    Resource.TOPIC, _READ_TOPICS.everywhere, _READ_TOPICS.stream, ("manage_topic", "read_topic")
)
_CHANGE_TOPIC = Rule(
    Resource.TOPIC, _CREATE_TOPIC.everywhere, _CREATE_TOPIC.stream, ("manage_topic",)
)
_POLL = Rule(
    Resource.TOPIC,
    (*_READ_TOPIC.everywhere, "poll_messages"),
    (*_READ_TOPIC.stream, "poll_messages"),
    (*_READ_TOPIC.topic, "poll_messages"),
)
_SEND = Rule(
    Resource.TOPIC,
    (*_CHANGE_TOPIC.everywhere, "send_messages"),
    (*_CHANGE_TOPIC.stream, "send_messages"),
    (*_CHANGE_TOPIC.topic, "send_messages"),
)

RULES: dict[int, Rule] = {
    system.PING.code: _OPEN,
    session.LOGIN_PASSWORD.code: _OPEN,
    session.LOGIN_TOKEN.code: _OPEN,
    session.LOGOUT.code: _OPEN,
    system.GET_STATS.code: _READ_SERVERS,
    system.GET_SNAPSHOT.code: _READ_SERVERS,
    counters.GET_COUNTERS.code: _READ_SERVERS,
    shards.GET_SHARDS.code: _READ_SERVERS,
    reconcile.GET_RECONCILE.code: _READ_SERVERS,
    clock.ACCEPT_TIME.code: _MANAGE_SERVERS,
    system.GET_CLUSTER_METADATA.code: _OWN,
    system.DESCRIBE_OPTIONS.code: _OWN,
    clients.GET_ME.code: _OWN,
    clients.GET_CLIENT.code: _READ_SERVERS,
    clients.GET_CLIENTS.code: _READ_SERVERS,
    users.GET_USER.code: _READ_USER,
    users.GET_USERS.code: _READ_USERS,
    users.CREATE_USER.code: _CREATE_USER,
    users.DELETE_USER.code: _CHANGE_USER,
    users.UPDATE_USER.code: _CHANGE_USER,
    users.UPDATE_PERMISSIONS.code: _CHANGE_USER,
    users.CHANGE_PASSWORD.code: _CHANGE_PASSWORD,
    tokens.GET_TOKENS.code: _OWN,
    tokens.CREATE_TOKEN.code: _OWN,
    tokens.DELETE_TOKEN.code: _OWN,
    messages.POLL_MESSAGES.code: _POLL,
    segments.PLAN_SEGMENTS.code: _POLL,
    messages.SEND_MESSAGES.code: _SEND,
    messages.GET_OFFSET.code: _POLL,
    messages.STORE_OFFSET.code: _POLL,
    messages.DELETE_OFFSET.code: _POLL,
    topics.FLUSH_UNSAVED_BUFFER.code: _SEND,
    streams.GET_STREAM.code: _READ_STREAM,
    streams.GET_STREAMS.code: _READ_STREAMS,
    streams.CREATE_STREAM.code: _CREATE_STREAM,
    streams.DELETE_STREAM.code: _CHANGE_STREAM,
    streams.UPDATE_STREAM.code: _CHANGE_STREAM,
    streams.PURGE_STREAM.code: _CHANGE_STREAM,
    topics.GET_TOPIC.code: _READ_TOPIC,
    holders.GET_HOLDERS.code: _READ_TOPIC,
    topics.GET_TOPICS.code: _READ_TOPICS,
    topics.CREATE_TOPIC.code: _CREATE_TOPIC,
    topics.DELETE_TOPIC.code: _CHANGE_TOPIC,
    topics.UPDATE_TOPIC.code: _CHANGE_TOPIC,
    topics.PURGE_TOPIC.code: _CHANGE_TOPIC,
    topics.CREATE_PARTITIONS.code: _CHANGE_TOPIC,
    topics.DELETE_PARTITIONS.code: _CHANGE_TOPIC,
    topics.DELETE_SEGMENTS.code: _CHANGE_TOPIC,
    groups.GET_GROUP.code: _READ_TOPIC,
    groups.GET_GROUPS.code: _READ_TOPIC,
    groups.CREATE_GROUP.code: _READ_TOPIC,
    groups.DELETE_GROUP.code: _READ_TOPIC,
    groups.JOIN_GROUP.code: _READ_TOPIC,
    groups.LEAVE_GROUP.code: _READ_TOPIC,
    groups.SYNC_GROUP.code: _READ_TOPIC,
}


def tell_needed(command: int) -> str:
    """Return the permissions that a command needs, as text, level by level."""
    rule = RULES.get(command)
    if rule is None:
        return "what nobody has"
    levels = {
        "everywhere": rule.everywhere,
        "for the stream": rule.stream,
        "for the topic": rule.topic,
    }
    told = [f"{' or '.join(flags)} {where}" for where, flags in levels.items() if flags]
    return ", or ".join(told) or rule.resource.value
