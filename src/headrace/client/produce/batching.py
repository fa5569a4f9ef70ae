"""What waits in a producer: messages that become batches, within a bound. No I/O.

```
add ──► open batch of a partition ──full, or linger over──► ready ──take──► in flight ──► settle
         └──────────────── all of it counts against the buffer ────────────────┘
```

Invariants: batches of one partition become ready, and are taken, in the order of their messages;
            what is buffered stays within the bound, except for a message larger than all of it.
"""

import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import NamedTuple

from headrace.client.calls.messages import Sent, send_batch
from headrace.client.calls.names import TopicName
from headrace.client.errors import HeadraceError, Unavailable
from headrace.client.messages import build_batch
from headrace.client.produce.options import ProducerSettings
from headrace.client.produce.routing import Router
from headrace.client.session.call import Call
from headrace.kernel import BATCH_HEADER_BYTES, FRAME_HEADER_BYTES

_SPAN_MICROS_MAX = 3600 * 1_000_000  # the creation times in one batch span about 71 minutes


class Place(NamedTuple):
    """Where a message lies."""

    partition: int
    offset: int


class Batch:
    """Messages for one partition, and what became of them."""

    __slots__ = ("_headers", "_times", "_values", "due", "future", "partition", "size")

    def __init__(self, partition: int, due: float) -> None:
        self.partition = partition
        self.due = due  # when it has lingered long enough
        self.size = BATCH_HEADER_BYTES
        self.future: Future[Sent] = Future()
        self.future.set_running_or_notify_cancel()  # Who stops waiting does not stop the batch.
        self._values: list[bytes] = []
        self._headers: list[bytes] = []
        self._times = array("Q")

    def __len__(self) -> int:
        return len(self._values)

    def append(self, value: bytes, headers: bytes, micros: int) -> int:
        """Add a message; give its index."""
        if self._times:  # A clock that jumps must not make a batch that cannot be written.
            first = self._times[0]
            micros = min(max(micros, first), first + _SPAN_MICROS_MAX)
        self._values.append(value)
        self._headers.append(headers)
        self._times.append(micros)
        self.size += size_of(value, headers)
        return len(self._values) - 1

    def extend(self, values: Sequence[bytes], headers: bytes, micros: int) -> int:
        """Add messages that have the same headers; give their size."""
        assert values
        index = self.append(values[0], headers, micros)
        rest = values[1:]
        size = sum(map(len, rest)) + len(rest) * size_of(b"", headers)
        self._values += rest
        self._headers += [headers] * len(rest)
        self._times.extend(self._times[index:] * len(rest))
        self.size += size
        return size + size_of(values[0], headers)

    def make_call(self, topic: TopicName) -> Call[Sent]:
        """Give the call that sends it."""
        batch = build_batch(self._values, self._headers, self._times)
        return send_batch(topic, self.partition, batch, len(self))


class Delivery:
    """What became of one message, or will."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """Whether it is confirmed, or failed."""
        return self._batch.future.done()

    @property
    def future(self) -> Future[Sent]:
        """What becomes of the whole batch."""
        return self._batch.future

    def place_in(self, sent: Sent) -> Place:
        """Give the message's own place in its confirmed batch."""
        return Place(sent.partition, sent.offset + self._index)


def size_of(value: bytes, headers: bytes) -> int:
    """Give how many bytes a message takes in a batch."""
    return FRAME_HEADER_BYTES + len(value) + len(headers)


class Batcher:
    """All that one producer holds."""

    def __init__(
        self,
        settings: ProducerSettings,
        router: Router,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.router = router
        self._now = now
        self._open: dict[int, Batch] = {}  # by partition, oldest first
        self._ready: deque[Batch] = deque()
        self._unsettled: dict[Future[Sent], int] = {}  # oldest first, with their sizes
        self._buffered = 0
        self._held_count = 0  # messages that are not settled
        self._failed_count = 0  # messages, since the last failure was raised
        self._failure: HeadraceError | None = None
        self.confirmed_count = 0  # messages

    @property
    def buffered_bytes(self) -> int:
        """How much waits or is under way."""
        return self._buffered

    @property
    def unsent_count(self) -> int:
        """How many messages are not confirmed, without those whose failure was raised."""
        return self._held_count + self._failed_count

    @property
    def failure(self) -> HeadraceError | None:
        """The first failure since one was raised."""
        return self._failure

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return not self._open and not self._ready

    @property
    def is_ready(self) -> bool:
        """Whether a batch is full."""
        return bool(self._ready)

    def has_room(self, size: int) -> bool:
        """Whether a message of that size may be added now."""
        return not self._buffered or self._buffered + size <= self.settings.buffer_bytes_max

    def must_ask(self, key: bytes | str | None) -> bool:
        """Whether the number of partitions must be known for this message and is not."""
        is_chosen = key is not None or self.settings.partition is None
        return is_chosen and not self.router.is_known

    def add(self, value: bytes, headers: bytes, key: bytes | str | None) -> tuple[Batch, int]:
        """Take a message; give its batch and its index there.

        `must_ask` must have said no.
        """
        size = size_of(value, headers)
        batch = self._open_batch(self._choose(key), size)
        index = batch.append(value, headers, time.time_ns() // 1000)
        self._note(batch, 1, size)
        return batch, index

    def add_many(
        self, values: Sequence[bytes], first: int, headers: bytes, key: bytes | str | None
    ) -> int:
        """Take as many messages from the first on as one batch and the buffer hold; give how many.

        It is at least one. `must_ask` must have said no. The work for each message is not done in
        Python.
        """
        batch = self._open_batch(self._choose(key), size_of(values[first], headers))
        wanted = values[first : first + self.settings.messages_max - len(batch)]
        count = self._fitting(batch, wanted, headers)
        self._note(batch, count, batch.extend(wanted[:count], headers, time.time_ns() // 1000))
        return count

    def _open_batch(self, partition: int, size: int) -> Batch:
        """Give the batch that the next message of a partition goes to."""
        batch = self._open.get(partition)
        if batch is not None and batch.size + size > self.settings.batch_bytes_max:
            self._seal(batch)
            batch = None
        if batch is None:
            batch = Batch(partition, self._now() + self.settings.linger_seconds)
            self._open[partition] = batch
            self._unsettled[batch.future] = 0
        return batch

    def _fitting(self, batch: Batch, values: Sequence[bytes], headers: bytes) -> int:
        """Give how many of the messages find room; one does, or there would be no waiting."""
        settings, each = self.settings, size_of(b"", headers)
        room = min(
            settings.batch_bytes_max - batch.size, settings.buffer_bytes_max - self._buffered
        )
        ends = list(accumulate(map(len, values)))
        if ends[-1] + each * len(ends) <= room:
            return len(ends)
        fitting = bisect_right(
            range(len(ends)), room, key=lambda index: ends[index] + each * (index + 1)
        )
        return max(fitting, 1)

    def _note(self, batch: Batch, count: int, size: int) -> None:
        """Count what was put into a batch; a full one is ready."""
        self._held_count += count
        self._buffered += size
        self._unsettled[batch.future] += size
        is_large = batch.size >= self.settings.batch_bytes_max
        if is_large or len(batch) >= self.settings.messages_max:
            self._seal(batch)

    def _choose(self, key: bytes | str | None) -> int:
        """Give the partition of a message: its key's, the fixed one, or the one in turn.

        What is balanced fills a batch before the next partition has its turn.
        """
        if key is not None:
            return self.router.by_key(key)
        if self.settings.partition is not None:
            return self.settings.partition
        if self.router.in_turn() not in self._open:
            self.router.advance()
        return self.router.in_turn()

    def seal_all(self) -> None:
        """Have nothing wait for company any longer."""
        for batch in list(self._open.values()):
            self._seal(batch)

    def seconds_until_due(self) -> float | None:
        """Give how long until a batch can be taken; None if there is none."""
        if self._ready:
            return 0.0
        if not self._open:
            return None
        return max(min(batch.due for batch in self._open.values()) - self._now(), 0.0)

    def take(self) -> Batch | None:
        """Give the next batch to send, if one is full or has lingered long enough."""
        now = self._now()
        for batch in [each for each in self._open.values() if each.due <= now]:
            self._seal(batch)
        return self._ready.popleft() if self._ready else None

    def settle(
        self, batch: Batch, outcome: Sent | HeadraceError, *, is_closing: bool = False
    ) -> None:
        """Say what became of a batch that was taken.

        A producer that is closing does not wait for an absent server batch by batch: when one
        has waited in vain, the others are given up.
        """
        self._buffered -= self._unsettled.pop(batch.future)
        self._held_count -= len(batch)
        assert self._buffered >= 0
        assert self._held_count >= 0
        if isinstance(outcome, Sent):
            self.confirmed_count += outcome.count
            batch.future.set_result(outcome)
            return
        self._failed_count += len(batch)
        self._failure = self._failure or outcome
        batch.future.set_exception(outcome)
        if is_closing and isinstance(outcome, Unavailable):
            self.fail_all(outcome)

    def unsettled(self) -> list[Future[Sent]]:
        """Give what is not confirmed yet, oldest first."""
        return list(self._unsettled)

    def fail_all(self, error: HeadraceError) -> None:
        """Give up everything that was not taken or not settled."""
        self._open.clear()
        self._ready.clear()
        for future in self.unsettled():
            del self._unsettled[future]
            future.set_exception(error)
            self._failure = self._failure or error
        self._buffered = 0
        self._failed_count += self._held_count
        self._held_count = 0

    def raise_failure(self) -> None:
        """Raise the first failure since this was last asked, if there was one."""
        failure, self._failure = self._failure, None
        self._failed_count = 0
        if failure is not None:
            raise failure

    def _seal(self, batch: Batch) -> None:
        del self._open[batch.partition]
        self._ready.append(batch)
