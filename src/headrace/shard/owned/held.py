"""Reports who keeps how much beyond the limits of retention: once, and again when it has doubled.

One that kept nothing for an hour is named anew. One that is idle is named once, when retention
stops waiting for it.
"""

from typing import NamedTuple

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.state import State, Topic
from headrace.ports.recovered import Finding
from headrace.shard.owned.holders import Key
from headrace.wire.numbers import ConsumerKind

_FORGET_TICKS = 3600 * 100


class Who(NamedTuple):
    """A consumer or group of a topic."""

    stream: int
    topic: int
    key: Key


class _Amount(NamedTuple):
    """What one keeps back, in how many partitions."""

    size_bytes: int = 0
    partitions: int = 0

    def plus(self, size_bytes: int) -> "_Amount":
        return _Amount(self.size_bytes + size_bytes, self.partitions + 1)


class Held:
    """What was found in one look at all partitions, and what was said about it before."""

    def __init__(self, idle_ticks: int) -> None:
        self._idle_seconds = idle_ticks // 100
        self._held: dict[Who, _Amount] = {}
        self._released: dict[Who, _Amount] = {}
        self._idle: dict[Who, None] = {}
        self._held_told: dict[Who, tuple[int, int]] = {}  # bytes when it was said; last seen
        self._released_told: dict[Who, None] = {}

    def add_idle(self, namespace: int, key: Key) -> None:
        """Note a consumer that retention does not wait for in a partition."""
        stream, topic, _ = unpack_namespace(GroupId(namespace))
        self._idle[Who(stream, topic, key)] = None

    def add(self, namespace: int, key: Key, size_bytes: int, *, is_idle: bool) -> None:
        """Note what one offset keeps back, or would if its consumer were not idle."""
        assert size_bytes > 0, "whoever is named keeps something"
        stream, topic, _ = unpack_namespace(GroupId(namespace))
        found = self._released if is_idle else self._held
        who = Who(stream, topic, key)
        assert not is_idle or who in self._idle, "who is released was found idle"
        found[who] = found.get(who, _Amount()).plus(size_bytes)

    def end_look(self, state: State, now: int) -> list[Finding]:
        """Return what must be said of this look, and begin the next."""
        findings = []
        for who, amount in self._held.items():
            told = self._held_told.get(who, (0, now))[0]
            if amount.size_bytes >= 2 * told:
                told = amount.size_bytes
                findings.append(_describe_held(state, who, amount))
            self._held_told[who] = (told, now)
        for who, amount in self._released.items():
            if who not in self._released_told:
                self._released_told[who] = None
                findings.append(self._describe_released(state, who, amount))
        self._forget(now)
        return findings

    def _forget(self, now: int) -> None:
        oldest = now - _FORGET_TICKS
        self._held_told = {who: told for who, told in self._held_told.items() if told[1] > oldest}
        self._released_told = {who: None for who in self._released_told if who in self._idle}
        assert self._held.keys() <= self._held_told.keys(), "who keeps something was named"
        assert self._released.keys() <= self._released_told.keys(), "who was released was named"
        self._held, self._released, self._idle = {}, {}, {}

    def _describe_released(self, state: State, who: Who, amount: _Amount) -> Finding:
        text = (
            f"{describe_key(find_topic(state, who), who.key)} has not stored, polled or joined for"
            f" {self._idle_seconds} s: retention no longer waits for it and drops what it has not"
            f" read, {_describe_amount(amount)}"
        )
        return Finding("released", _name_topic(state, who), 0, text)

    def check(self, now: int) -> None:
        """Assert that what was said was seen before now, and of whoever kept something."""
        for told, seen in self._held_told.values():
            assert told > 0, "whoever was named kept something"
            assert seen <= now, "nothing was seen in the future"
        assert self._released.keys() <= self._idle.keys(), "retention waits for all but idle ones"
        for amount in (*self._held.values(), *self._released.values()):
            assert 0 < amount.partitions <= amount.size_bytes, (
                "each partition holds a byte at least"
            )


def _describe_held(state: State, who: Who, amount: _Amount) -> Finding:
    text = (
        f"{describe_key(find_topic(state, who), who.key)} keeps {_describe_amount(amount)} beyond"
        " the limits of the topic: it has not read them"
    )
    return Finding("held", _name_topic(state, who), 0, text)


def _describe_amount(amount: _Amount) -> str:
    assert 0 < amount.partitions <= amount.size_bytes, "each partition holds a byte at least"
    plural = "" if amount.partitions == 1 else "s"
    return f"{amount.size_bytes} bytes in {amount.partitions} partition{plural},"


def find_topic(state: State, who: Who) -> Topic | None:
    """Return the topic, if there is one."""
    stream = state.streams.find(who.stream)
    return None if stream is None else stream.topics.find(who.topic)


def _name_topic(state: State, who: Who) -> str:
    stream = state.streams.find(who.stream)
    topic = find_topic(state, who)
    if stream is None or topic is None:
        return f"{who.stream}/{who.topic}"
    return f"{stream.name}/{topic.name}"


def describe_key(topic: Topic | None, key: Key) -> str:
    """Return what people call a consumer: the name of a group, the number of a single one."""
    kind, number = key
    if kind == ConsumerKind.CONSUMER:
        return f"consumer {number}"
    return f"group {group_name(topic, key) or number}"


def group_name(topic: Topic | None, key: Key) -> str:
    """Return the name of a group; nothing for a single consumer, and for a group that is gone."""
    if topic is None or key[0] != ConsumerKind.GROUP:
        return ""
    group = topic.groups.find(key[1])
    return "" if group is None else group.name
