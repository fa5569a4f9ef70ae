"""Reads the partitions of a topic and merges them by the time at which the node received them.

Messages of one partition keep their order. Between partitions the message received first comes
first, and at the same microsecond the one of the lower partition. The order is exact for messages
that existed when reading began. Later messages are merged as they arrive: a message may come after
one that was received a little later.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from headrace.cli.names import TopicName
from headrace.cli.tail.starts import OFFSET_MAX, Newest, Start, Word
from headrace.client.consume.options import ConsumerOptions
from headrace.client.errors import DataLost, OffsetsReset, RefusedByServer, Unreadable
from headrace.client.messages import Message, Messages
from headrace.client.sync.client import Client
from headrace.client.sync.consumer import Consumer
from headrace.wire.errors import Code

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """Consecutive messages of one partition."""

    lane: "Lane"
    messages: Messages
    start: int
    end: int

    def values(self) -> list[bytes]:
        """Return only their values."""
        return self.lane.values()[self.start : self.end]

    def all(self) -> list[Message]:
        """Return the messages."""
        return self.lane.all()[self.start : self.end]


class Lane:
    """One consumer, of one partition or of a group's partitions, and its polled messages."""

    def __init__(self, consumer: Consumer, tell: Tell, *, is_skipping: bool = False) -> None:
        """Start with nothing read; with `is_skipping`, report and skip damaged messages."""
        self.consumer = consumer
        self._is_skipping = is_skipping
        self.shown: Message | None = None  # the last message that was shown
        self._tell = tell
        self._messages: Messages | None = None
        self._times: list[int] = []
        self._values: list[bytes] | None = None
        self._all: list[Message] | None = None
        self._index = 0

    @property
    def is_shown(self) -> bool:
        """Whether all messages that were read were shown."""
        return self._messages is None

    @property
    def head(self) -> tuple[int, int]:
        """The receive time of the next message, and its partition; there must be one."""
        assert self._messages is not None
        return self._times[self._index], self._messages.partition

    def values(self) -> list[bytes]:
        """Return the values of the whole poll, split once."""
        assert self._messages is not None
        if self._values is None:
            self._values = self._messages.values()
        return self._values

    def all(self) -> list[Message]:
        """Return the messages of the whole poll, created once."""
        assert self._messages is not None
        if self._all is None:
            self._all = list(self._messages)
        return self._all

    def fill(self) -> bool:
        """Poll if no message is left; return whether there is a message."""
        while self._messages is None:
            try:
                self._messages = next(self.consumer.batches(), None)
            except (DataLost, OffsetsReset) as lost:
                self._tell(str(lost))
                continue
            except Unreadable as damaged:
                if not self._is_skipping:
                    raise
                self._tell(f"{damaged}; reading goes on at {damaged.end}")
                self.consumer.skip(damaged)
                continue
            if self._messages is None:
                return False
            self._times, self._index = self._messages.timestamps(), 0
            self._values = self._all = None
        return True

    def take(self, before: tuple[int, int] | None, count_max: int) -> Run:
        """Return the next messages, up to the next message of another lane; at least one."""
        messages = self._messages
        assert messages is not None
        start, end = self._index, len(messages)
        if before is not None:
            time, partition = before
            # At equal times the lower partition comes first.
            limit = time + 1 if messages.partition < partition else time
            end = bisect_left(self._times, limit, lo=start)
        end = min(max(end, start + 1), start + count_max)
        return Run(self, messages, start, end)

    def advance(self, run: Run) -> None:
        """Record that a run was shown."""
        self._index = run.end
        self.shown = run.messages[run.end - 1]
        if self._index == len(run.messages):
            self._messages = None


def merge(lanes: list[Lane], count_max: Callable[[], int]) -> Iterator[Run]:
    """Yield the messages of all lanes in order, until all are empty or `count_max` returns 0."""
    ready = [lane for lane in lanes if lane.fill()]
    while ready and (count := count_max()) > 0:
        first, *others = sorted(ready, key=lambda lane: lane.head)
        run = first.take(others[0].head if others else None, count)
        yield run
        first.advance(run)
        if not first.fill():
            ready.remove(first)


def open_consumer(
    client: Client,
    topic: TopicName,
    partition: int,
    start: Start,
    options: ConsumerOptions,
    tell: Tell,
) -> Consumer:
    """Return a consumer of one partition, positioned at the start."""
    place = _find_place(client, topic, partition, start, tell)
    told: ConsumerOptions = {**options, "partition": partition, "start": place}
    return client.consumer(topic, **told)


def _find_place(
    client: Client, topic: TopicName, partition: int, start: Start, tell: Tell
) -> int | datetime | Word:
    """Return an existing start for a consumer, so that it reports no loss before it."""
    if not isinstance(start, Newest | int):
        return start
    end = _find_end(client, topic, partition)
    if isinstance(start, Newest):
        return max(end - start.count, _find_first(client, topic, partition, end))
    if start > end:
        tell(f"partition {partition}: it ends at offset {end - 1}, reading begins behind that")
    return min(start, end)


def _find_end(client: Client, topic: TopicName, partition: int) -> int:
    try:
        newest = client.poll(topic, partition, start="latest", count=1)
    except RefusedByServer as error:
        if error.code != Code.CANNOT_READ_MESSAGE:
            raise
        # The newest message is damaged: poll after the end, where nothing is read.
        return client.poll(topic, partition, start=OFFSET_MAX, count=1).current_offset + 1
    return newest.current_offset + 1 if len(newest) or newest.current_offset else 0


def _find_first(client: Client, topic: TopicName, partition: int, end: int) -> int:
    try:
        oldest = client.poll(topic, partition, start="earliest", count=1)
    except RefusedByServer as error:
        if error.code != Code.CANNOT_READ_MESSAGE:
            raise
        return client.plan_segments(topic, partition).first_offset
    return oldest.first_offset if len(oldest) else end
