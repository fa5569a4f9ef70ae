"""The commands of scenarios of the metadata machine."""

from collections.abc import Callable, Iterable

from headrace.metadata import lookups, resolve
from headrace.metadata.describe import nothing_stored
from headrace.metadata.machine import MetadataMachine
from headrace.wire.commands.groups import GetGroup, SyncGroup
from headrace.wire.commands.streams import Stream
from headrace.wire.commands.topics import Topic
from headrace.wire.commands.users import User
from headrace.wire.errors import RefusedError
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from tests.metadata.recorded import replay
from tests.metadata.rights import suffices
from tests.metadata.stage import SECOND, START, Stage


class Commands:
    """Understands the commands of a scenario file; a refusal that changes something is told.

    A PATH is STREAM, STREAM/TOPIC or STREAM/TOPIC/GROUP; names may be numbers.

    create PATH [PARTITIONS]      create a stream, a topic or a consumer group
    rename PATH NAME              give a stream or a topic another name
    purge PATH, delete PATH       empty it, or remove it
    partitions PATH +N|-N         add or remove partitions of a topic
    join PATH CLIENT, leave PATH CLIENT
    disconnect CLIENT             the connection of a client is gone
    sync PATH CLIENT              ask what a client may poll as a member of a group
    user NAME, delete_user NAME   create or remove a user
    status NAME STATUS            make a user active or inactive
    permit NAME [[PLACE:]FLAG]..  replace what a user may do; a PLACE is STREAM or STREAM/TOPIC
    token NAME [SECONDS]          create a token of whoever asks, which expires, or not
    revoke NAME                   remove a token of whoever asks
    as NAME                       who asks from here on
    pass SECONDS                  let time pass
    restart                       go on from a snapshot, with a new machine
    show                          show streams, topics and consumer groups
    show_users                    show users and their tokens
    table                         what suffices for each command
    replay                        answer the recorded requests of the released SDK
    """

    def __init__(self) -> None:
        self.stage = Stage()

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        before = self.do_show() + self.do_show_users()
        try:
            printed: list[str] = getattr(self, f"do_{verb}")(*words) or []
        except RefusedError as refusal:
            is_changed = self.do_show() + self.do_show_users() != before
            return [f"refused, {refusal.code.name}" + (", but changed" if is_changed else "")]
        return printed

    # Streams, topics and consumer groups.

    def do_create(self, path: str, partitions: str = "1") -> list[str]:
        *above, name = path.split("/")
        if not above:
            return [f"stream {self.stage.create_stream(name).id}"]
        if len(above) == 1:
            created = self.stage.create_topic(named(above[0]), name, int(partitions))
            return [f"topic {created.topic.id}"]
        stream, topic = above
        return [f"group {self.stage.create_group(named(stream), named(topic), name).group.id}"]

    def do_rename(self, path: str, name: str) -> None:
        self.call(path, self.stage.update_stream, self.stage.update_topic, name=name)

    def do_purge(self, path: str) -> None:
        self.call(path, self.stage.purge_stream, self.stage.purge_topic)

    def do_delete(self, path: str) -> None:
        stage = self.stage
        self.call(path, stage.delete_stream, stage.delete_topic, stage.delete_group)

    def call(self, path: str, *by_depth: Callable[..., None], **words: str) -> None:
        names = [named(word) for word in path.split("/")]
        by_depth[len(names) - 1](*names, **words)

    def do_partitions(self, path: str, change: str) -> None:
        stream, topic = (named(word) for word in path.split("/"))
        if int(change) > 0:
            self.stage.create_partitions(stream, topic, int(change))
        else:
            self.stage.delete_partitions(stream, topic, -int(change))

    def do_join(self, path: str, client: str) -> None:
        self.stage.join(int(client), *(named(word) for word in path.split("/")))

    def do_leave(self, path: str, client: str) -> None:
        self.stage.leave(int(client), *(named(word) for word in path.split("/")))

    def do_disconnect(self, client: str) -> None:
        self.stage.raw(Operation.DISCONNECT, b"", client=int(client))

    def do_sync(self, path: str, client: str) -> list[str]:
        request = SyncGroup(*(named(word) for word in path.split("/")))
        assigned = lookups.sync_group(self.stage.state, request, int(client))
        if assigned is None:
            return ["no member"]
        return [f"generation {assigned.generation}: {listed(assigned.partitions)}"]

    # Users and tokens.

    def do_user(self, name: str) -> list[str]:
        return [f"user {self.stage.create_user(name).user.id}"]

    def do_delete_user(self, name: str) -> None:
        self.stage.delete_user(named(name))

    def do_status(self, name: str, status: str) -> None:
        self.stage.update_user(named(name), status=UserStatus[status.upper()])

    def do_permit(self, name: str, *words: str) -> None:
        self.stage.update_permissions(named(name), permissions_of(words))

    def do_token(self, name: str, seconds: str = "0") -> None:
        self.stage.create_token(name, expiry=int(seconds) * SECOND)

    def do_revoke(self, name: str) -> None:
        self.stage.delete_token(name)

    def do_as(self, name: str) -> None:
        self.stage.user = resolve.user(self.stage.state, name).id

    # The rest.

    def do_pass(self, seconds: str) -> None:
        self.stage.op += int(seconds) - 1  # its stamps follow the numbers of its ops
        self.stage.raw(Operation.DISCONNECT, b"", client=0)

    def do_restart(self) -> None:
        machine = MetadataMachine()
        machine.install(self.stage.machine.checkpoint())
        self.stage.machine = machine

    def do_show(self) -> list[str]:
        state = self.stage.state
        lines = []
        for stream in lookups.get_streams(state, nothing_stored):
            lines.append(f"stream {stream.id} {stream.name}")
            for topic in lookups.get_topics(state, stream.id, nothing_stored):
                partitions = self.show_partitions(stream, topic)
                lines.append(f"  topic {topic.id} {topic.name}, {partitions}")
                lines += self.show_groups(stream, topic)
        return lines

    def show_partitions(self, stream: Stream, topic: Topic) -> str:
        parts = self.stage.topic(stream.id, topic.id).partitions
        text = f"partitions of revision {listed([each.created_revision for each in parts])}"
        purges = [each.purge_generation for each in parts]
        return text + (f", purged {listed(purges)} times" if any(purges) else "")

    def show_groups(self, stream: Stream, topic: Topic) -> list[str]:
        state = self.stage.state
        lines = []
        for each in self.stage.topic(stream.id, topic.id).groups:
            found = lookups.get_group(state, GetGroup(stream.id, topic.id, each.id))
            assert found is not None
            shares = [f"{one.id} has {listed(one.partitions)}" for one in found.members]
            lines.append(
                f"    group {found.group.id} {found.group.name}"
                f" generation {each.roster.generation}: {'; '.join(shares) or 'no members'}"
            )
        return lines

    def do_show_users(self) -> list[str]:
        state = self.stage.state
        return [line for user in lookups.get_users(state) for line in self.show_user(user)]

    def show_user(self, user: User) -> list[str]:
        details = lookups.get_user(self.stage.state, user.id)
        assert details is not None
        granted = "all" if user.id == 0 else words_of(details.permissions)
        lines = [f"user {user.id} {user.username} {user.status.name.lower()}: {granted}"]
        owner = resolve.user(self.stage.state, user.id)
        for token in lookups.get_tokens(self.stage.state, user.id):
            end = (
                f"until {(token.expires_at - START) // SECOND}" if token.expires_at else "for ever"
            )
            is_expired = owner.tokens[token.name].is_expired(self.stage.machine.timestamp)
            lines.append(f"  token {token.name} {end}" + (", expired" if is_expired else ""))
        return lines

    def do_table(self) -> list[str]:
        return suffices()

    def do_replay(self) -> list[str]:
        return replay()


def named(word: str) -> str | int:
    return int(word) if word.isdecimal() else word


def listed(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers)) or "nothing"


def permissions_of(words: tuple[str, ...]) -> Permissions | None:
    """Read flags, each with the place where it holds."""
    flags: dict[str, dict[str, bool]] = {}
    for word in words:
        place, _, flag = word.rpartition(":")
        flags.setdefault(place, {})[flag] = True
    streams = []
    for stream in sorted({place.partition("/")[0] for place in flags if place}):
        topics = tuple(
            TopicPermissions(topic_id=int(place.partition("/")[2]), **flags[place])
            for place in sorted(flags)
            if place.startswith(f"{stream}/")
        )
        own = flags.get(stream, {})
        streams.append(StreamPermissions(stream_id=int(stream), topics=topics, **own))
    everywhere = GlobalPermissions(**flags.get("", {}))
    return Permissions(everywhere=everywhere, streams=tuple(streams)) if words else None


def words_of(permissions: Permissions | None) -> str:
    """Return flags as `permissions_of` reads them."""
    if permissions is None:
        return "nothing"
    words = flags_of(permissions.everywhere)
    for stream in permissions.streams:
        words += [f"{stream.stream_id}:{flag}" for flag in flags_of(stream)]
        for topic in stream.topics:
            words += [f"{stream.stream_id}/{topic.topic_id}:{flag}" for flag in flags_of(topic)]
    return " ".join(words) or "nothing"


def flags_of(
    permissions: GlobalPermissions | StreamPermissions | TopicPermissions,
) -> list[str]:
    fields = permissions.__struct_fields__
    return [name for name in fields if getattr(permissions, name) is True]
