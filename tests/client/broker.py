"""A topic in memory that answers calls: what a reader meets, without a session."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace import kernel
from headrace.client.errors import refused
from headrace.client.messages import build_batch
from headrace.client.session.call import Ahead, Call, Flow
from headrace.client.session.steps import Pause, drive
from headrace.wire.batches import admit_batch, decode_batch_header
from headrace.wire.commands import groups, messages, topics
from headrace.wire.commands.groups import Assignment
from headrace.wire.commands.messages import RESYNC_PARTITION, PolledMessages, StoredOffset
from headrace.wire.errors import Code
from headrace.wire.identifiers import First, FromOffset, FromTimestamp, Last
from headrace.wire.numbers import Compression

R = TypeVar("R")


@dataclass
class Partition:
    batches: list[bytes] = field(default_factory=list)
    next_offset: int = 0

    def append(self, *values: bytes, at: int = 0) -> None:
        times = array("Q", [1]) * len(values)
        batch = bytearray(build_batch(list(values), [b""] * len(values), times))
        admit_batch(
            batch,
            len(values),
            partition_id=0,
            base_offset=self.next_offset,
            base_timestamp=at or self.next_offset + 1,
        )
        self.batches.append(bytes(batch))
        self.next_offset += len(values)

    def skip(self, count: int) -> None:
        """Leave offsets out, as after a power cut (O3.5)."""
        self.next_offset += count

    def trim(self, count: int) -> None:
        """Drop the oldest batches."""
        del self.batches[:count]

    def purge(self) -> None:
        self.batches.clear()
        self.next_offset = 0

    def read(self, request: messages.PollMessages) -> tuple[int, bytes]:
        strategy = request.strategy
        if isinstance(strategy, Last):
            start = max(self.next_offset - request.count, 0)
        elif isinstance(strategy, FromTimestamp):
            headers = [decode_batch_header(batch) for batch in self.batches]
            late = [each for each in headers if each.base_timestamp >= strategy.timestamp]
            start = late[0].base_offset if late else self.next_offset
        else:
            assert isinstance(strategy, FromOffset | First)
            start = strategy.offset if isinstance(strategy, FromOffset) else 0
        taken, out = 0, b""
        for batch in self.batches:
            header = decode_batch_header(batch)
            end = header.base_offset + header.messages_count
            if end <= start or taken >= request.count:
                continue
            head, begin, stop = kernel.slice_batch(batch, start, request.count - taken)
            out += head + batch[begin:stop]
            taken += decode_batch_header(head).messages_count
        return taken, out


@dataclass
class Broker:
    """One topic; `dealt` is what its group gives this client, None if it is no member."""

    partitions: dict[int, Partition]
    stored: dict[int, int] = field(default_factory=dict)
    dealt: tuple[int, ...] | None = None
    generation: int = 1
    deals_on_join: tuple[int, ...] = ()
    has_group: bool = True
    owned: tuple[int, ...] | None = None  # whom a store is allowed for; None is everyone
    now: float = 0.0
    calls: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    ahead: list[Ahead] = field(default_factory=list)
    _early: dict[int, bytes] = field(default_factory=dict)  # answers to those, as they were then
    on_pause: Callable[[], None] = lambda: None
    on_join: Callable[[], None] = lambda: None

    def run(self, flow: Flow[R]) -> R:
        return drive(flow, self.carry_out)

    def carry_out(self, wanted: Call[Any] | Pause | Ahead) -> object:
        if isinstance(wanted, Ahead):
            self.ahead.append(wanted)
            self._early[id(wanted.call)] = self._encode_answer(wanted.call)
            return None
        if isinstance(wanted, Pause):
            self.pauses.append(wanted.seconds)
            self.now += wanted.seconds
            self.on_pause()
            return None
        payload = self._early.pop(id(wanted), None) or self._encode_answer(wanted)
        return wanted.read(memoryview(payload))

    def _encode_answer(self, call: Call[Any]) -> bytes:
        self.calls.append(call.command.name)
        request = call.command.decode_request(memoryview(call.body + call.batch))
        return call.command.encode_reply(self._answer(call, request))

    def count(self, name: str) -> int:
        return self.calls.count(name)

    def _answer(self, call: Call[Any], request: object) -> object:  # noqa: C901, PLR0911 - a table
        match request:
            case messages.PollMessages():
                return self._poll(request)
            case messages.GetOffset(partition_id=int(partition)):
                if partition not in self.stored:
                    return None
                return StoredOffset(partition, 0, self.stored[partition])
            case messages.StoreOffset(partition_id=int(partition), offset=offset):
                if self.owned is not None and partition not in self.owned:
                    raise refused(Code.CONSUMER_GROUP_PARTITION_NOT_OWNED, call.asked)
                self.stored[partition] = offset
                return None
            case topics.GetTopic():
                return self._details()
            case groups.SyncGroup():
                return None if self.dealt is None else Assignment(self.generation, self.dealt)
            case groups.JoinGroup():
                if not self.has_group:
                    raise refused(Code.CONSUMER_GROUP_ID_NOT_FOUND, call.asked)
                self.dealt = self.deals_on_join
                self.on_join()
                return None
            case groups.CreateGroup():
                self.has_group = True
                return groups.GroupDetails(
                    groups.Group(id=0, partitions_count=1, members_count=0, name=request.name), ()
                )
            case groups.LeaveGroup():
                self.dealt = None
                return None
            case _:
                raise AssertionError(f"the broker has no answer to {request}")

    def _poll(self, request: messages.PollMessages) -> PolledMessages:
        assert request.partition_id is not None
        is_group = request.consumer.kind == 2
        if is_group and request.partition_id not in (self.dealt or ()):
            return PolledMessages(RESYNC_PARTITION, 0, 0, memoryview(b""))
        partition = self.partitions[request.partition_id]
        count, data = partition.read(request)
        current = max(partition.next_offset - 1, 0)
        return PolledMessages(request.partition_id, current, count, memoryview(data))

    def _details(self) -> topics.TopicDetails:
        topic = topics.Topic(
            id=0,
            created_at=0,
            partitions_count=len(self.partitions),
            message_expiry=0,
            compression=Compression.NONE,
            max_topic_size=0,
            size_bytes=0,
            messages_count=0,
            name="orders",
        )
        parts = tuple(
            topics.Partition(
                id=number,
                created_at=0,
                segments_count=1,
                current_offset=0,
                size_bytes=0,
                messages_count=0,
            )
            for number in self.partitions
        )
        return topics.TopicDetails(topic, parts)
