"""Users with one permission or another, and what they may do."""

from headrace.metadata.authorization import RULES, Resource, authorize
from headrace.metadata.grants import EVERYWHERE_FLAGS, STREAM_FLAGS, TOPIC_FLAGS
from headrace.wire.commands.table import COMMANDS
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from tests.metadata.stage import Stage

STREAM, TOPIC = 0, 0
OTHER = 1  # a stream and a topic for which nothing was granted
USER = 1


def everywhere(*flags: str) -> Permissions:
    return Permissions(everywhere=GlobalPermissions(**dict.fromkeys(flags, True)))


def on_stream(*flags: str) -> Permissions:
    granted = StreamPermissions(stream_id=STREAM, **dict.fromkeys(flags, True))  # type: ignore[arg-type]  # flags are bool
    return Permissions(streams=(granted,))


def on_topic(*flags: str) -> Permissions:
    granted = TopicPermissions(topic_id=TOPIC, **dict.fromkeys(flags, True))
    return Permissions(streams=(StreamPermissions(stream_id=STREAM, topics=(granted,)),))


def staged(permissions: Permissions | None = None) -> Stage:
    """Two streams with two topics each, a group, and a user with these permissions."""
    stage = Stage()
    for stream in ("shop", "bank"):
        stage.create_stream(stream)
        for topic in ("orders", "parcels"):
            stage.create_topic(stream, topic, 2)
            stage.create_group(stream, topic, "billing")
    stage.create_user("alice", permissions)
    return stage


def allowed(stage: Stage, user: int, command: int, *, stream: int = STREAM) -> bool:
    """Ask as dispatch does: with as much of the target as the command has."""
    resource = RULES[command].resource
    if resource is Resource.TOPIC:
        return authorize(stage.state, user, command, stream, TOPIC)
    if resource is Resource.STREAM:
        return authorize(stage.state, user, command, stream)
    return authorize(stage.state, user, command, target_user=0)


def suffices() -> list[str]:
    """Return what suffices for each command, found out flag by flag."""
    stages = {
        level: {flag: staged(grant(flag)) for flag in flags}
        for level, flags, grant in (
            ("global", EVERYWHERE_FLAGS, everywhere),
            ("stream", STREAM_FLAGS, on_stream),
            ("topic", TOPIC_FLAGS, on_topic),
        )
    }
    nobody = staged()
    lines = []
    for code, known in sorted(COMMANDS.items()):
        if allowed(nobody, USER, code):
            who = "anybody" if RULES[code].resource is Resource.OPEN else "any user"
            lines.append(f"{known.name}: {who}")
            continue
        parts = [
            f"{level} " + " ".join(found)
            for level, by_flag in stages.items()
            if (found := [flag for flag, stage in by_flag.items() if allowed(stage, USER, code)])
        ]
        if RULES[code].resource is Resource.USER:
            parts.append("the user itself")
        lines.append(f"{known.name}: " + "; ".join(parts))
    return lines
