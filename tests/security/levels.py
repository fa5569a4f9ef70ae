"""Who asks: one user for every flag at every level, and those who have all or nothing.

The levels are written out here and not taken from the server, like `expectations.py`.
"""

from typing import NamedTuple

from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)

STREAM_ID = TOPIC_ID = 0
OTHER_ID = 1  # a stream, and a topic of the first stream, that nobody asks for

EVERYWHERE = (
    "manage_servers",
    "read_servers",
    "manage_users",
    "read_users",
    "manage_streams",
    "read_streams",
    "manage_topics",
    "read_topics",
    "poll_messages",
    "send_messages",
)
ON_STREAM = (
    "manage_stream",
    "read_stream",
    "manage_topics",
    "read_topics",
    "poll_messages",
    "send_messages",
)
ON_TOPIC = ("manage_topic", "read_topic", "poll_messages", "send_messages")


class Level(NamedTuple):
    """Somebody who asks; `flag` is the only one given, at the place that is named."""

    place: str
    flag: str = ""
    permissions: Permissions | None = None

    @property
    def username(self) -> str:
        """The name of the user who is at this level."""
        return "-".join(filter(None, (self.place, self.flag))).replace("_", "-").replace(" ", "-")


NO_LOGIN = Level("no login")
NO_PERMISSION = Level("no permission")
ROOT = Level("root")


def give_everywhere(*flags: str) -> Permissions:
    """Give permissions for the whole node."""
    return Permissions(everywhere=GlobalPermissions(**dict.fromkeys(flags, True)))


def give_stream(*flags: str, stream_id: int = STREAM_ID) -> Permissions:
    """Give permissions for one stream."""
    given: dict[str, bool] = dict.fromkeys(flags, True)
    made = StreamPermissions(stream_id=stream_id, **given)  # type: ignore[arg-type]  # flags are bool
    return Permissions(streams=(made,))


def give_topic(*flags: str, topic_id: int = TOPIC_ID) -> Permissions:
    """Give permissions for one topic of the first stream."""
    made = TopicPermissions(topic_id=topic_id, **dict.fromkeys(flags, True))
    return Permissions(streams=(StreamPermissions(stream_id=STREAM_ID, topics=(made,)),))


LEVELS: tuple[Level, ...] = (
    NO_LOGIN,
    NO_PERMISSION,
    *(Level("stream", flag, give_stream(flag)) for flag in ON_STREAM),
    *(Level("topic", flag, give_topic(flag)) for flag in ON_TOPIC),
    *(Level("global", flag, give_everywhere(flag)) for flag in EVERYWHERE),
    Level("other stream", "", give_stream(*ON_STREAM, stream_id=OTHER_ID)),
    Level("other topic", "", give_topic(*ON_TOPIC, topic_id=OTHER_ID)),
    ROOT,
)
