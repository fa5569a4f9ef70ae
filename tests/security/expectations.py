"""Who may do what, said a second time: by kinds of permission, from the protocol's description.

Nothing here comes from the server's own table, so that an error in either shows.
"""

from collections.abc import Mapping
from typing import NamedTuple

OPEN = "open"  # needs no login
OWN = "own"  # any user, about itself


class Kind(NamedTuple):
    """The flags of which any one suffices, by where it is given."""

    everywhere: tuple[str, ...] = ()
    stream: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()


def _kind(everywhere: str, stream: str = "", topic: str = "") -> Kind:
    return Kind(tuple(everywhere.split()), tuple(stream.split()), tuple(topic.split()))


KINDS: Mapping[str, Kind] = {
    "look at the server": _kind("manage_servers read_servers"),
    "manage the server": _kind("manage_servers"),
    "look at users": _kind("manage_users read_users"),
    "change users": _kind("manage_users"),
    "look at all streams": _kind("manage_streams read_streams"),
    "make a stream": _kind("manage_streams"),
    "look at a stream": _kind("manage_streams read_streams", "manage_stream read_stream"),
    "change a stream": _kind("manage_streams", "manage_stream"),
    "look at all topics": _kind(
        "manage_streams read_streams manage_topics read_topics",
        "manage_stream read_stream manage_topics read_topics",
    ),
    "make a topic": _kind("manage_streams manage_topics", "manage_stream manage_topics"),
    "look at a topic": _kind(
        "manage_streams read_streams manage_topics read_topics",
        "manage_stream read_stream manage_topics read_topics",
        "manage_topic read_topic",
    ),
    "change a topic": _kind(
        "manage_streams manage_topics", "manage_stream manage_topics", "manage_topic"
    ),
    "poll": _kind(
        "manage_streams read_streams manage_topics read_topics poll_messages",
        "manage_stream read_stream manage_topics read_topics poll_messages",
        "manage_topic read_topic poll_messages",
    ),
    "send": _kind(
        "manage_streams manage_topics send_messages",
        "manage_stream manage_topics send_messages",
        "manage_topic send_messages",
    ),
}

# What each command is, by its name.
WHAT: Mapping[str, str] = {
    "ping": OPEN,
    "login with password": OPEN,
    "login with token": OPEN,
    "logout": OPEN,
    "get me": OWN,
    "get cluster metadata": OWN,
    "describe options": OWN,
    "get personal access tokens": OWN,
    "create personal access token": OWN,
    "delete personal access token": OWN,
    "get stats": "look at the server",
    "get node counters": "look at the server",
    "get node shards": "look at the server",
    "get reconcile status": "look at the server",
    "accept time": "manage the server",
    "get snapshot file": "look at the server",
    "get client": "look at the server",
    "get clients": "look at the server",
    "get user": "look at users",
    "get users": "look at users",
    "create user": "change users",
    "delete user": "change users",
    "update user": "change users",
    "update permissions": "change users",
    "change password": "change users",
    "get streams": "look at all streams",
    "create stream": "make a stream",
    "get stream": "look at a stream",
    "delete stream": "change a stream",
    "update stream": "change a stream",
    "purge stream": "change a stream",
    "get topics": "look at all topics",
    "create topic": "make a topic",
    "get topic": "look at a topic",
    "get retention holders": "look at a topic",
    "delete topic": "change a topic",
    "update topic": "change a topic",
    "purge topic": "change a topic",
    "create partitions": "change a topic",
    "delete partitions": "change a topic",
    "delete segments": "change a topic",
    "get consumer group": "look at a topic",
    "get consumer groups": "look at a topic",
    "create consumer group": "look at a topic",
    "delete consumer group": "look at a topic",
    "join consumer group": "look at a topic",
    "leave consumer group": "look at a topic",
    "sync consumer group": "look at a topic",
    "poll messages": "poll",
    "plan segments": "poll",
    "get consumer offset": "poll",
    "store consumer offset": "poll",
    "delete consumer offset": "poll",
    "send messages": "send",
    "flush unsaved buffer": "send",
}
