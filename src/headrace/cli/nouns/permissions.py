"""The permissions of a user as flags, in full or in the short forms of Iggy's terminal.

```
--global manage_streams,p_msg
--stream shop:read_stream,poll_messages#orders:s_msg
          │    │                         │      └ permissions of that topic
          │    └ of the stream           └ topic, by name or number; any number of them
          └ stream, by name or number
```
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from headrace.cli.names import parse_identifier
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.show.output import Values
    from headrace.client.sync.client import Client

_SHORT_VERBS = {"manage": "m", "read": "r", "poll": "p", "send": "s"}
_SHORT_NOUNS = {
    "servers": "srv",
    "users": "usr",
    "streams": "str",
    "stream": "str",
    "topics": "top",
    "topic": "top",
    "messages": "msg",
}


def read_permissions(
    client: Client, everywhere: str | None, streams: Sequence[str]
) -> Permissions | None:
    """Return the permissions that flags name; None if there are no flags.

    Raises:
        ValueError: A permission is unknown, or a stream or topic is given twice.
        NotFound: The stream or topic does not exist.
    """
    if everywhere is None and not streams:
        return None
    flags = _read_flags(everywhere or "", GlobalPermissions.__struct_fields__, "everywhere")
    made = [_read_stream(client, text) for text in streams]
    ids = [each.stream_id for each in made]
    if len(dict.fromkeys(ids)) != len(ids):
        raise ValueError("permissions of one stream are given twice: put them in one --stream")
    return Permissions(
        everywhere=GlobalPermissions(**flags),
        streams=tuple(sorted(made, key=lambda each: each.stream_id)),
    )


def describe_permissions(permissions: Permissions | None) -> list[Values]:
    """Return permissions as rows for programs; None means all streams or all topics."""
    if permissions is None:
        return []
    rows = [_row(None, None, permissions.everywhere)]
    for stream in permissions.streams:
        rows.append(_row(stream.stream_id, None, stream))
        rows += [_row(stream.stream_id, topic.topic_id, topic) for topic in stream.topics]
    return rows


def _row(
    stream_id: int | None,
    topic_id: int | None,
    level: GlobalPermissions | StreamPermissions | TopicPermissions,
) -> Values:
    granted = [name for name in level.__struct_fields__ if getattr(level, name) is True]
    return {"stream_id": stream_id, "topic_id": topic_id, "granted": granted}


def _read_stream(client: Client, text: str) -> StreamPermissions:
    first, *rest = text.split("#")
    name, _, listed = first.partition(":")
    stream = parse_identifier(name)
    known = StreamPermissions.__struct_fields__[1:-1]
    flags = _read_flags(listed, known, f"in the stream {stream}")
    topics = [_read_topic(client, stream, each) for each in rest]
    ids = [each.topic_id for each in topics]
    if len(dict.fromkeys(ids)) != len(ids):
        raise ValueError(f"permissions of one topic are given twice in {text!r}")
    return StreamPermissions(
        stream_id=client.get_stream(stream).stream.id,
        topics=tuple(sorted(topics, key=lambda each: each.topic_id)),
        **flags,
    )


def _read_topic(client: Client, stream: int | str, text: str) -> TopicPermissions:
    name, _, listed = text.partition(":")
    topic = parse_identifier(name)
    known = TopicPermissions.__struct_fields__[1:]
    flags = _read_flags(listed, known, f"in the topic {stream}/{topic}")
    return TopicPermissions(topic_id=client.get_topic((stream, topic)).topic.id, **flags)


def _read_flags(listed: str, known: Sequence[str], where: str) -> dict[str, bool]:
    """Read names and short names, separated by commas; an error lists all unknown ones."""
    names = {_shorten(name): name for name in known} | {name: name for name in known}
    words = [word.strip() for word in listed.split(",") if word.strip()]
    wrong = [word for word in words if word not in names]
    if wrong:
        near = dict.fromkeys(
            names[close] for word in wrong for close in get_close_matches(word, names, n=1)
        )
        meant = f"; did you mean {', '.join(near)}?" if near else "."
        raise ValueError(
            f"{', '.join(wrong)}: not a permission {where}{meant} There are {', '.join(known)}"
        )
    return {names[word]: True for word in words}


def _shorten(name: str) -> str:
    verb, _, noun = name.partition("_")
    return f"{_SHORT_VERBS[verb]}_{_SHORT_NOUNS[noun]}"
