"""What clients of a simulated cluster do: one request each, and which answers it may get."""

import struct
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from headrace import kernel
from headrace.base.limits import MIB
from headrace.base.prng import Prng
from headrace.sim.nodes.history import Incarnation
from headrace.wire.commands import groups, messages, streams, topics, users
from headrace.wire.commands.clock import ACCEPT_TIME
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code
from headrace.wire.fields import Field, FieldKind, make_field
from headrace.wire.identifiers import (
    ByKey,
    Consumer,
    First,
    FromOffset,
    FromTimestamp,
    Last,
    Next,
    Partitioning,
    Strategy,
    ToPartition,
)
from headrace.wire.numbers import ConsumerKind, UserStatus
from headrace.wire.options import make_options
from headrace.wire.topic_options import IGNORE_CONSUMERS, RESPECT_CONSUMERS

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = "s"
GROUP = "g"  # the one consumer group of a topic
CONSUMERS_MAX = 3

_ABSENT = (
    Code.STREAM_ID_NOT_FOUND,
    Code.STREAM_NAME_NOT_FOUND,
    Code.TOPIC_ID_NOT_FOUND,
    Code.TOPIC_NAME_NOT_FOUND,
    Code.PARTITION_NOT_FOUND,
    Code.RESOURCE_NOT_FOUND,  # any of them, where something is written to a partition
)
_NO_GROUP = (
    *_ABSENT,
    Code.CONSUMER_GROUP_ID_NOT_FOUND,
    Code.CONSUMER_GROUP_NAME_NOT_FOUND,
    Code.CONSUMER_GROUP_MEMBER_NOT_FOUND,
)
_OFFSET_CODES = (
    *_NO_GROUP,
    Code.INVALID_OFFSET,
    Code.CONSUMER_OFFSET_NOT_FOUND,
    Code.CONSUMER_GROUP_PARTITION_NOT_OWNED,
)


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One request: the command and its body, and how its answer is judged."""

    kind: str
    command: Command[Any, Any]
    body: bytes
    topic: str = ""
    partition: int | None = None
    codes: tuple[Code, ...] = ()  # refusals that are answers
    consumer: Consumer | None = None
    named: str = ""  # the stream or the user, if it is about one
    offset: int = 0  # that is stored
    strategy: Strategy | None = None  # of a poll
    count: int = 0  # partitions of a topic that is made
    batch: bytes = b""
    # What a poll must find: in which incarnation, from which offset to which.
    audited: tuple[Incarnation, int, int] | None = None

    @property
    def is_next(self) -> bool:
        """Whether it is a poll from the stored offset on."""
        return isinstance(self.strategy, Next)

    @property
    def name(self) -> str:
        """What checkers call the partition."""
        return f"{self.topic}/{self.partition}"


class WorkloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What clients do; times in microseconds, chances in percent."""

    client_count: int = 2
    requests: int = 80  # of all clients together
    think_mean: int = 20_000
    timeout: int = 300_000
    topics: int = 2
    partitions_max: int = 2
    messages_max: int = 4
    payload_bytes_max: int = 300
    is_uniform: bool = False  # batches of one length: a place has an equal in every file
    replicated: int = 0  # of topics that wait for no sync
    replicated_offsets: int = 0
    expiry: int = 0  # microseconds; of topics with retention by time
    is_bounded: bool = False  # topics have a bound of size
    replay: int = 5  # an old send is sent again (CL4)
    churn: int = 3  # topics deleted and made again, purges, groups, users
    leave: int = 2  # logout, or a connection that is dropped
    consume: int = 30  # polls and offsets; the rest are sends
    unnumbered: int = 0  # so many clients send all that goes to partitions under one number
    registers: int = 0  # before all else: few names and offsets, made, changed and read by all


class Board:
    """What clients together believe of the cluster."""

    def __init__(self, options: WorkloadOptions) -> None:
        self.options = options
        self.topics: dict[str, int] = {}  # partitions
        self.has_stream = False
        self.groups: dict[str, None] = {}  # topics that have a consumer group
        self.ends: dict[str, int] = {}  # by name of the partition: an offset that was seen
        self.wall = 0

    def names(self) -> list[str]:
        """Return the names that topics may have."""
        return [f"t{number}" for number in range(self.options.topics)]


def make_batch(payloads: list[bytes], *, first_id: int, origin: int) -> bytes:
    """Return a batch as a producer sends it."""
    count = len(payloads)
    ids = b"".join((first_id + number).to_bytes(16, "little") for number in range(count))
    ends = list(accumulate((len(payload) for payload in payloads), initial=0))
    return kernel.build(
        ids,
        struct.pack(f"<{count}Q", *(origin + number for number in range(count))),
        b"".join(payloads),
        struct.pack(f"<{count + 1}i", *ends),
        None,
        None,
    )


class Actions:
    """Draws what one client does next."""

    def __init__(self, board: Board, prng: Prng, owner: int) -> None:
        self._board = board
        self._prng = prng
        self._owner = owner
        self._sent = 0
        self._churns: tuple[Callable[[str], Action], ...] = (
            self._delete_topic,
            self._purge_topic,
            self._purge_topic,
            self._delete_segments,
            self._delete_segments,
            self._delete_group,
            self._leave,
            self._add_partitions,
            self._create_user,
            self._delete_user,
            self._flush,
            self._get_topic,
            self._accept_time,
        )
        self._touches: tuple[Callable[[str], Action], ...] = (
            self._touch_offset,
            self._touch_offset,
            self._touch_offset,
            self._touch_stream,
            self._touch_stream,
            self._touch_stream,
            self._touch_user,
            self._touch_group,
        )

    def draw(self) -> Action:
        """Draw the next action; what everything needs comes first."""
        board, prng, options = self._board, self._prng, self._board.options
        if not board.has_stream:
            return self._create_stream(STREAM)
        missing = [name for name in board.names() if name not in board.topics]
        if missing and (len(missing) == options.topics or prng.chance(1, 4)):
            return self._create_topic(missing[0])
        return self._draw_for(prng.choice(list(board.topics)))

    def _draw_for(self, topic: str) -> Action:
        board, prng, options = self._board, self._prng, self._board.options
        if topic not in board.groups and prng.chance(1, 16):
            return self._create_group(topic)
        if options.registers and prng.below(100) < options.registers:
            return prng.choice(self._touches)(topic)
        draw = prng.below(100)
        if draw < options.churn:
            return prng.choice(self._churns)(topic)
        if draw < options.churn + options.consume:
            return self._consume(topic)
        return self.send(topic)

    # Registers: few, so that clients meet at them.

    def _touch_offset(self, topic: str) -> Action:
        is_group = topic in self._board.groups and self._prng.chance(1, 3)
        consumer = (
            Consumer(ConsumerKind.GROUP, GROUP) if is_group else Consumer(ConsumerKind.CONSUMER, 1)
        )
        draw = self._prng.below(8)
        if draw < 3:
            return self._store(topic, 0, consumer)
        if is_group and draw < 5:
            return self._poll_next(topic, consumer)
        return self._get_offset(topic, 0, consumer) if draw < 7 else self._drop(topic, 0, consumer)

    def _touch_stream(self, _: str) -> Action:
        name = "x"
        draw = self._prng.below(4)
        if draw < 1:
            return self._create_stream(name)
        if draw < 2:
            gone = streams.DeleteStream(name)
            return _act("delete_stream", streams.DELETE_STREAM, gone, named=name, codes=_ABSENT)
        wanted = streams.GetStream(name)
        return _act("get_stream", streams.GET_STREAM, wanted, named=name)

    def _create_stream(self, name: str) -> Action:
        made = streams.CreateStream(name)
        codes = (Code.STREAM_NAME_ALREADY_EXISTS,)
        return _act("create_stream", streams.CREATE_STREAM, made, named=name, codes=codes)

    def _touch_user(self, topic: str) -> Action:
        draw = self._prng.below(5)
        if draw < 2:
            return self._create_user(topic) if draw else self._delete_user(topic)
        name = f"user{self._prng.below(3)}"
        return _act("get_user", users.GET_USER, users.GetUser(name), named=name)

    def _touch_group(self, topic: str) -> Action:
        draw = self._prng.below(8)
        if draw < 4:
            wanted = groups.GetGroup(STREAM, topic, GROUP)
            return _act("get_group", groups.GET_GROUP, wanted, topic=topic, codes=_ABSENT)
        if topic not in self._board.groups:
            return self._create_group(topic)
        return self._join(topic) if draw < 7 else self._leave(topic)

    # Topics.

    def _create_topic(self, name: str) -> Action:
        prng, options = self._prng, self._board.options
        count = prng.between(1, options.partitions_max)

        def durability(chance: int) -> str:
            return "replicated" if prng.below(100) < chance else "persisted"

        wanted: dict[str, Any] = {
            "segment_size": _u64(MIB),
            "durability": durability(options.replicated),
            "consumer_offset_durability": durability(options.replicated_offsets),
        }
        if options.expiry and prng.chance(2, 3):
            wanted["message_expiry"] = _u64(options.expiry)
        if options.is_bounded and prng.chance(2, 3):
            wanted["max_topic_size"] = _u64(MIB)
        if prng.chance(1, 4):
            wanted["retention_consumers"] = prng.choice((RESPECT_CONSUMERS, IGNORE_CONSUMERS))
        made = topics.CreateTopic(STREAM, count, name, make_options(wanted))
        return _act(
            "create_topic",
            topics.CREATE_TOPIC,
            made,
            topic=name,
            count=count,
            codes=(Code.TOPIC_NAME_ALREADY_EXISTS, *_ABSENT),
        )

    def _delete_topic(self, topic: str) -> Action:
        body = topics.DeleteTopic(STREAM, topic)
        return _act("delete_topic", topics.DELETE_TOPIC, body, topic=topic, codes=_ABSENT)

    def _accept_time(self, _: str) -> Action:
        return _act("accept_time", ACCEPT_TIME, None)

    def _purge_topic(self, topic: str) -> Action:
        body = topics.PurgeTopic(STREAM, topic)
        return _act("purge_topic", topics.PURGE_TOPIC, body, topic=topic, codes=_ABSENT)

    def _delete_segments(self, topic: str) -> Action:
        partition = self._partition(topic)
        body = topics.DeleteSegments(STREAM, topic, partition, self._prng.between(1, 2))
        return _act(
            "delete_segments", topics.DELETE_SEGMENTS, body, topic=topic, codes=_ABSENT,
            partition=partition,
        )  # fmt: skip

    def _add_partitions(self, topic: str) -> Action:
        if self._board.topics[topic] < 3:
            more = topics.CreatePartitions(STREAM, topic, 1)
            return _act(
                "add_partitions", topics.CREATE_PARTITIONS, more, topic=topic, codes=_ABSENT
            )
        fewer = topics.DeletePartitions(STREAM, topic, 1)
        return _act("drop_partitions", topics.DELETE_PARTITIONS, fewer, topic=topic, codes=_ABSENT)

    def _flush(self, topic: str) -> Action:
        partition = self._partition(topic)
        body = topics.FlushUnsavedBuffer(STREAM, topic, partition, fsync=self._prng.chance(1, 2))
        codes = (*_ABSENT, Code.CANNOT_SYNC_FILE)
        return _act("flush", topics.FLUSH_UNSAVED_BUFFER, body, topic=topic, codes=codes)

    def _get_topic(self, topic: str) -> Action:
        return _act("get_topic", topics.GET_TOPIC, topics.GetTopic(STREAM, topic), topic=topic)

    # Users.

    def _create_user(self, _: str) -> Action:
        name = f"user{self._prng.below(3)}"
        made = users.CreateUser(username=name, password=b"secret!", status=UserStatus.ACTIVE)
        codes = (Code.USER_ALREADY_EXISTS,)
        return _act("create_user", users.CREATE_USER, made, named=name, codes=codes)

    def _delete_user(self, _: str) -> Action:
        name = f"user{self._prng.below(3)}"
        codes = (Code.RESOURCE_NOT_FOUND,)
        body = users.DeleteUser(name)
        return _act("delete_user", users.DELETE_USER, body, named=name, codes=codes)

    # Groups.

    def _create_group(self, topic: str) -> Action:
        body = groups.CreateGroup(STREAM, topic, GROUP)
        codes = (*_ABSENT, Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS)
        return _act("create_group", groups.CREATE_GROUP, body, topic=topic, codes=codes)

    def _delete_group(self, topic: str) -> Action:
        body = groups.DeleteGroup(STREAM, topic, GROUP)
        return _act("delete_group", groups.DELETE_GROUP, body, topic=topic, codes=_NO_GROUP)

    def _join(self, topic: str) -> Action:
        body = groups.JoinGroup(STREAM, topic, GROUP)
        return _act("join", groups.JOIN_GROUP, body, topic=topic, codes=_NO_GROUP)

    def _leave(self, topic: str) -> Action:
        body = groups.LeaveGroup(STREAM, topic, GROUP)
        return _act("leave", groups.LEAVE_GROUP, body, topic=topic, codes=_NO_GROUP)

    # Messages.

    def _partition(self, topic: str) -> int:
        return self._prng.below(self._board.topics.get(topic, 1))

    def send(self, topic: str) -> Action:
        """Return a send of messages that nobody else sends."""
        prng, options = self._prng, self._board.options
        partition = self._partition(topic)
        to: Partitioning = ToPartition(partition)
        if prng.chance(1, 8):
            to = ByKey(b"key-%d" % prng.below(8))
        payloads = []
        is_uniform, size = options.is_uniform, options.payload_bytes_max
        count = options.messages_max
        for _ in range(count if is_uniform else prng.between(1, count)):
            self._sent += 1
            mark = b"%s|%d.%04d|" % (topic.encode(), self._owner, self._sent)
            payloads.append(mark + bytes(size if is_uniform else prng.below(size)))
        first_id = self._owner << 64 | self._sent
        batch = make_batch(payloads, first_id=first_id, origin=self._board.wall)
        routing = messages.encode_routing(STREAM, topic, to, messages_count=len(payloads))
        return Action(
            kind="send",
            command=messages.SEND_MESSAGES,
            body=routing + batch,
            topic=topic,
            partition=partition if isinstance(to, ToPartition) else None,
            codes=_ABSENT,
            batch=batch,
        )

    def _consume(self, topic: str) -> Action:
        prng = self._prng
        partition = self._partition(topic)
        is_group = topic in self._board.groups and prng.chance(1, 3)
        if is_group and prng.chance(1, 4):
            return self._join(topic)
        consumer = (
            Consumer(ConsumerKind.GROUP, GROUP)
            if is_group
            else Consumer(ConsumerKind.CONSUMER, 1 + prng.below(CONSUMERS_MAX))
        )
        draw = prng.below(10)
        if draw < 6:
            return self._poll(topic, partition, consumer)
        if draw < 8:
            return self._store(topic, partition, consumer)
        if draw < 9:
            return self._get_offset(topic, partition, consumer)
        return self._drop(topic, partition, consumer)

    def _get_offset(self, topic: str, partition: int, consumer: Consumer) -> Action:
        body = messages.GetOffset(consumer, STREAM, topic, partition)
        return _act(
            "get_offset", messages.GET_OFFSET, body, topic=topic, partition=partition,
            consumer=consumer, codes=_OFFSET_CODES,
        )  # fmt: skip

    def _drop(self, topic: str, partition: int, consumer: Consumer) -> Action:
        gone = messages.DeleteOffset(
            consumer=consumer, stream=STREAM, topic=topic, partition_id=partition
        )
        return _act(
            "delete_offset", messages.DELETE_OFFSET, gone, topic=topic, partition=partition,
            consumer=consumer, codes=_OFFSET_CODES,
        )  # fmt: skip

    def _poll_next(self, topic: str, consumer: Consumer) -> Action:
        body = messages.PollMessages(
            consumer=consumer,
            stream=STREAM,
            topic=topic,
            partition_id=self._partition(topic),
            strategy=Next(),
            count=self._prng.choice((1, 3)),
            auto_commit=True,
        )
        return poll_action(body, codes=_OFFSET_CODES)

    def _poll(self, topic: str, partition: int, consumer: Consumer) -> Action:
        prng = self._prng
        end = self._board.ends.get(f"{topic}/{partition}", 0)
        strategies: tuple[Strategy, ...] = (
            FromOffset(prng.below(end + 2)),
            FromTimestamp(max(0, self._board.wall - prng.below(4_000_000))),
            First(),
            Last(),
            Next(),
            Next(),
        )
        body = messages.PollMessages(
            consumer=consumer,
            stream=STREAM,
            topic=topic,
            partition_id=partition,
            strategy=prng.choice(strategies),
            count=prng.choice((1, 3, 10, 100)),
            auto_commit=prng.chance(1, 2),
        )
        return poll_action(body, codes=_OFFSET_CODES)

    def _store(self, topic: str, partition: int, consumer: Consumer) -> Action:
        end = self._board.ends.get(f"{topic}/{partition}", 0)
        offset = self._prng.below(end + 3)
        body = messages.StoreOffset(
            consumer=consumer, stream=STREAM, topic=topic, partition_id=partition, offset=offset
        )
        return _act(
            "store_offset", messages.STORE_OFFSET, body, topic=topic, partition=partition,
            consumer=consumer, offset=offset, codes=_OFFSET_CODES,
        )  # fmt: skip


def poll_action(
    body: messages.PollMessages,
    *,
    codes: tuple[Code, ...],
    audited: tuple[Incarnation, int, int] | None = None,
) -> Action:
    """Return a poll."""
    assert isinstance(body.topic, str)
    return _act(
        "poll",
        messages.POLL_MESSAGES,
        body,
        topic=body.topic,
        partition=body.partition_id,
        codes=codes,
        consumer=body.consumer,
        strategy=body.strategy,
        audited=audited,
    )


def _u64(value: int) -> Field:
    return make_field(value, FieldKind.UINT64)


def _act(
    kind: str,
    command: Command[Any, Any],
    request: object,
    **facts: Any,  # noqa: ANN401  # the other fields of an action
) -> Action:
    return Action(kind=kind, command=command, body=command.encode_request(request), **facts)
