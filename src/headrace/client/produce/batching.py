"""The buffer of a producer: collects messages into batches, within a bound. No I/O.

```
add ──► open batch of a partition ──full, or linger over──► ready ──take──► in flight ──► settle
         └──────────────── all of this counts against the buffer ───────────────┘
```

Invariants: batches of one partition become ready, and are taken, in the order of their messages;
            the buffer stays within its bound, except for a message that is larger by itself.
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
    """Where a message is stored."""

    partition: int
    offset: int


class Batch:
    """Messages for one partition, and their outcome."""

    __slots__ = ("_headers", "_times", "_values", "due", "future", "partition", "size")

    def __init__(self, partition: int, due: float) -> None:
        self.partition = partition
        self.due = due  # when its linger time ends
        self.size = BATCH_HEADER_BYTES
        self.future: Future[Sent] = Future()
        self.future.set_running_or_notify_cancel()  # A waiter cannot cancel the batch.
        self._values: list[bytes] = []
        self._headers: list[bytes] = []
        self._times = array("Q")

    def __len__(self) -> int:
        return len(self._values)

    def append(self, value: bytes, headers: bytes, micros: int) -> int:
        """Add a message; return its index."""
        if self._times:  # A clock jump must not make the batch impossible to encode.
            first = self._times[0]
            micros = min(max(micros, first), first + _SPAN_MICROS_MAX)
        self._values.append(value)
        self._headers.append(headers)
        self._times.append(micros)
        self.size += size_of(value, headers)
        return len(self._values) - 1

    def extend(self, values: Sequence[bytes], headers: bytes, micros: int) -> int:
        """Add messages that share their headers; return their size."""
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
        """Return the call that sends it."""
        batch = build_batch(self._values, self._headers, self._times)
        return send_batch(topic, self.partition, batch, len(self))


class Delivery:
    """The outcome of one message, now or later."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """Whether it is confirmed or has failed."""
        return self._batch.future.done()

    @property
    def future(self) -> Future[Sent]:
        """The outcome of the whole batch."""
        return self._batch.future

    def place_in(self, sent: Sent) -> Place:
        """Return the place of this message in its confirmed batch."""
        return Place(sent.partition, sent.offset + self._index)


def size_of(value: bytes, headers: bytes) -> int:
    """Return the number of bytes that a message takes in a batch."""
    return FRAME_HEADER_BYTES + len(value) + len(headers)


class Batcher:
    """All unconfirmed messages of one producer."""

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
        self._unsettled: dict[Future[Sent], int] = {}  # oldest first, with their sizes in bytes
        self._buffered = 0
        self._held_count = 0  # messages that are not settled
        self._failed_count = 0  # messages, since the last failure was raised
        self._failure: HeadraceError | None = None
        self.confirmed_count = 0  # messages

    @property
    def buffered_bytes(self) -> int:
        """The size of all unconfirmed messages."""
        return self._buffered

    @property
    def unsent_count(self) -> int:
        """The number of unconfirmed messages, without those whose failure was raised."""
        return self._held_count + self._failed_count

    @property
    def failure(self) -> HeadraceError | None:
        """The first failure since the last one was raised."""
        return self._failure

    @property
    def is_empty(self) -> bool:
        """Whether no batch waits to be taken."""
        return not self._open and not self._ready

    @property
    def is_ready(self) -> bool:
        """Whether a batch is full."""
        return bool(self._ready)

    def has_room(self, size: int) -> bool:
        """Whether a message of that size can be added now."""
        return not self._buffered or self._buffered + size <= self.settings.buffer_bytes_max

    def must_ask(self, key: bytes | str | None) -> bool:
        """Whether this message needs the number of partitions, and it is unknown."""
        is_chosen = key is not None or self.settings.partition is None
        return is_chosen and not self.router.is_known

    def add(self, value: bytes, headers: bytes, key: bytes | str | None) -> tuple[Batch, int]:
        """Add a message; return its batch and its index there.

        `must_ask` must have returned False.
        """
        size = size_of(value, headers)
        batch = self._open_batch(self._choose(key), size)
        index = batch.append(value, headers, time.time_ns() // 1000)
        self._note(batch, 1, size)
        return batch, index

    def add_many(
        self, values: Sequence[bytes], first: int, headers: bytes, key: bytes | str | None
    ) -> int:
        """Add as many messages as one batch and the buffer hold; return their number.

        It is at least one. `must_ask` must have returned False. No Python code runs per message.
        """
        batch = self._open_batch(self._choose(key), size_of(values[first], headers))
        wanted = values[first : first + self.settings.messages_max - len(batch)]
        count = self._fitting(batch, wanted, headers)
        self._note(batch, count, batch.extend(wanted[:count], headers, time.time_ns() // 1000))
        return count

    def _open_batch(self, partition: int, size: int) -> Batch:
        """Return the batch that the next message of a partition goes to."""
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
        """Return how many of the messages fit; at least one, as the caller waited for room."""
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
        """Count what was added to a batch; a full batch becomes ready."""
        self._held_count += count
        self._buffered += size
        self._unsettled[batch.future] += size
        is_large = batch.size >= self.settings.batch_bytes_max
        if is_large or len(batch) >= self.settings.messages_max:
            self._seal(batch)

    def _choose(self, key: bytes | str | None) -> int:
        """Return the partition of a message: by its key, the fixed one, or the next in turn.

        Balanced messages fill a batch before the next partition gets one.
        """
        if key is not None:
            return self.router.by_key(key)
        if self.settings.partition is not None:
            return self.settings.partition
        if self.router.in_turn() not in self._open:
            self.router.advance()
        return self.router.in_turn()

    def seal_all(self) -> None:
        """Make all open batches ready, without waiting for their linger time."""
        for batch in list(self._open.values()):
            self._seal(batch)

    def seconds_until_due(self) -> float | None:
        """Return the time until a batch can be taken; None if there is none."""
        if self._ready:
            return 0.0
        if not self._open:
            return None
        return max(min(batch.due for batch in self._open.values()) - self._now(), 0.0)

    def take(self) -> Batch | None:
        """Return the next batch to send, if one is full or its linger time is over."""
        now = self._now()
        for batch in [each for each in self._open.values() if each.due <= now]:
            self._seal(batch)
        return self._ready.popleft() if self._ready else None

    def settle(
        self, batch: Batch, outcome: Sent | HeadraceError, *, is_closing: bool = False
    ) -> None:
        """Record the outcome of a batch that was taken.

        A closing producer does not wait for an unreachable server batch by batch: after the first
        batch that times out, the others fail too.
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
        """Return the futures of unconfirmed batches, oldest first."""
        return list(self._unsettled)

    def fail_all(self, error: HeadraceError) -> None:
        """Fail every batch that is not settled."""
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
        """Raise the first failure since the last call, if there was one."""
        failure, self._failure = self._failure, None
        self._failed_count = 0
        if failure is not None:
            raise failure

    def _seal(self, batch: Batch) -> None:
        del self._open[batch.partition]
        self._ready.append(batch)
