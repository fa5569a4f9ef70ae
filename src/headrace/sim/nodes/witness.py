"""Turns what clients asked and were told into calls of registers (H10, H12).

Histories of offsets end where a topic, a group or a partition is deleted: until every node has
heard of that, the old bearer of a name may answer as well as a new one, and both are right.
Nothing ends the histories of names.
"""

from headrace.sim.nodes.actions import STREAM, Action
from headrace.sim.nodes.linearizable import UNKNOWN, Call, Effect, Value
from headrace.sim.nodes.registers import OFFSET, Key, Registers
from headrace.wire.commands.groups import GroupDetails
from headrace.wire.commands.messages import StoredOffset
from headrace.wire.commands.streams import Stream, StreamDetails
from headrace.wire.commands.topics import TopicDetails
from headrace.wire.commands.users import UserDetails
from headrace.wire.errors import Code
from headrace.wire.numbers import ConsumerKind

_GROUP = "group"
_USER = "user"
_ENDINGS = ("delete_topic", "drop_partitions")
_ABSENT = {
    Code.STREAM_ID_NOT_FOUND: "stream",
    Code.STREAM_NAME_NOT_FOUND: "stream",
    Code.TOPIC_ID_NOT_FOUND: "topic",
    Code.TOPIC_NAME_NOT_FOUND: "topic",
    Code.CONSUMER_GROUP_ID_NOT_FOUND: _GROUP,
    Code.CONSUMER_GROUP_NAME_NOT_FOUND: _GROUP,
    Code.RESOURCE_NOT_FOUND: _USER,
    Code.CONSUMER_OFFSET_NOT_FOUND: OFFSET,
}
_PRESENT = {
    Code.STREAM_NAME_ALREADY_EXISTS: "stream",
    Code.TOPIC_NAME_ALREADY_EXISTS: "topic",
    Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS: _GROUP,
    Code.USER_ALREADY_EXISTS: "user",
}


class Witness:
    """Hears every client, and what the logs say of offsets that nobody asked to store."""

    def __init__(self) -> None:
        self.registers = Registers()

    def asked(self, action: Action) -> int:
        """Take note of a request that begins; return its moment."""
        if action.kind in _ENDINGS:
            self.registers.end((OFFSET, action.topic))
        elif action.kind == "delete_group":
            self.registers.end((OFFSET, action.topic, _GROUP))
        return self.registers.moment()

    def lost(self, topic: str) -> None:
        """Take note that the end of a topic's logs may lawfully be gone."""
        self.registers.end((OFFSET, topic))

    def auto_committed(self, name: str, kind: ConsumerKind, number: int, offset: int) -> None:
        """Take note of an offset that a poll stored, as it is first applied."""
        key = _offset_key(name, kind, number)
        self.registers.add(key, Call(self.registers.moment(), None, Effect.RAISE, offset))

    def served(self, action: Action, invoked: int, first: int, *, is_start: bool) -> None:
        """Take note of where a `next` poll of a group began; maybe where the log does."""
        effect = Effect.BELOW if is_start else Effect.NEXT
        call = Call(invoked, self.registers.moment(), effect, first)
        self.registers.add(_key(OFFSET, action), call)

    def accepted(self, action: Action, invoked: int, reply: object) -> None:
        """Take note of a request that was carried out."""
        answered = self.registers.moment()
        for key, effect, value in _done(action, reply):
            self.registers.add(key, Call(invoked, answered, effect, value))
        if action.kind == "purge_topic":
            call = Call(invoked, answered, Effect.CLEAR)
            self.registers.add_all((OFFSET, action.topic), call)

    def refused(self, action: Action, invoked: int, code: Code) -> None:
        """Take note of a request that was refused, if the refusal tells of a register."""
        answered = self.registers.moment()
        present, absent = _PRESENT.get(code), _ABSENT.get(code)
        if absent == _USER and action.kind != "delete_user":
            absent = None  # Where something is written to a partition it tells no level.
        if present is not None:
            self.registers.add(_key(present, action), Call(invoked, answered, Effect.PRESENT))
        elif absent is not None:
            self.registers.add(_key(absent, action), Call(invoked, answered, Effect.GET))

    def unanswered(self, action: Action, invoked: int) -> None:
        """Take note of a request that nobody answered before the run ended."""
        for key, effect, value in _done(action, UNKNOWN):
            if effect != Effect.GET:
                self.registers.add(key, Call(invoked, None, effect, value))
        if action.kind == "purge_topic":
            self.registers.add_all((OFFSET, action.topic), Call(invoked, None, Effect.CLEAR))


def _done(action: Action, reply: object) -> list[tuple[Key, Effect, Value]]:
    """Return what a request that was carried out means for registers."""
    verb, _, what = action.kind.partition("_")
    if what == OFFSET:
        effect = {"store": Effect.SET, "delete": Effect.DROP, "get": Effect.GET}[verb]
        value: Value = action.offset if verb == "store" else _stored(reply)
        return [(_key(OFFSET, action), effect, value)]
    if what not in ("stream", "topic", _GROUP, "user") or verb not in ("create", "delete", "get"):
        return []
    effect = {"create": Effect.MAKE, "delete": Effect.DROP, "get": Effect.GET}[verb]
    found = [(_key(what, action), effect, None if verb == "delete" else _identity(reply))]
    if action.kind == "delete_topic":  # Its group goes with it.
        found.append((_key(_GROUP, action), Effect.CLEAR, None))
    return found


def _stored(reply: object) -> Value:
    return reply.stored_offset if isinstance(reply, StoredOffset) else None


def _identity(reply: object) -> Value:
    """Return what tells a bearer of a name from the next one, as far as a reply does."""
    match reply:
        case StreamDetails(stream=made) | TopicDetails(topic=made) | UserDetails(user=made):
            return made.created_at
        case Stream():
            return reply.created_at
        case GroupDetails():
            return reply.group.id
        case None:
            return None
        case _:
            return UNKNOWN


def _key(what: str, action: Action) -> Key:
    match what:
        case "stream":
            return (what, action.named or STREAM)
        case "user":
            return (what, action.named)
        case "topic" | "group":
            return (what, action.topic)
        case _:
            consumer = action.consumer
            assert consumer is not None
            number = consumer.id if isinstance(consumer.id, int) else 0
            return _offset_key(action.name, consumer.kind, number)


def _offset_key(name: str, kind: ConsumerKind, number: int) -> Key:
    """Return the register of an offset; a topic has one group, so its number says nothing."""
    topic, _, partition = name.partition("/")
    who = _GROUP if kind == ConsumerKind.GROUP else f"consumer {number}"
    return (OFFSET, topic, who, partition)
