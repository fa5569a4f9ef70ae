"""The buffer of a producer: collects messages into batches, within a bound. No I/O.

```
add ──► open batch of a partition ──full, or linger over──► ready ──take──► in flight ──► settle
         └──────────────── all of this counts against the buffer ───────────────┘
```

Invariants: batches of one partition become ready, and are taken, in the order of their messages;
            the buffer stays within its bound, except for a message that is larger by itself.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar, cast

from headrace.client.calls.messages import Sent, send_batch
from headrace.client.calls.names import TopicName
from headrace.client.errors import HeadraceError, Unavailable
from headrace.client.produce.options import ProducerSettings
from headrace.client.produce.routing import Router
from headrace.client.session.call import Call
from headrace.kernel import FRAME_HEADER_BYTES, MESSAGE_ID_BYTES, Frames, Gatherer, Receipt


class Place(NamedTuple):
    """Where a message is stored."""

    partition: int
    offset: int


class Batch(Frames):
    """Messages for one partition, and their outcome."""

    __slots__ = ("due", "future", "partition")

    def __init__(self, partition: int, due: float) -> None:
        super().__init__()
        self.partition = partition
        self.due = due  # when its linger time ends
        self.future: Future[Sent] = Future()
        self.future.set_running_or_notify_cancel()  # A waiter cannot cancel the batch.

    def make_call(self, topic: TopicName) -> Call[Sent]:
        """Return the call that sends it; only once, and nothing can be added after it."""
        count = len(self)
        batch = self.finish(os.urandom(MESSAGE_ID_BYTES * count))
        return send_batch(topic, self.partition, batch, count)


class Delivery(Receipt):
    """The outcome of one message, now or later."""

    __slots__ = ()

    @property
    def is_done(self) -> bool:
        """Whether it is confirmed or has failed."""
        return self.future.done()

    @property
    def future(self) -> Future[Sent]:
        """The outcome of the whole batch."""
        return cast("Batch", self.batch).future

    def place_in(self, sent: Sent) -> Place:
        """Return the place of this message in its confirmed batch."""
        return Place(sent.partition, sent.offset + self.index)


D = TypeVar("D", bound=Delivery)


def size_of(value: bytes, headers: bytes) -> int:
    """Return the number of bytes that a message takes in a batch."""
    return FRAME_HEADER_BYTES + len(value) + len(headers)


class Batcher(Generic[D]):
    """All unconfirmed messages of one producer.

    Most messages have neither key nor headers, and join a batch that others have opened. For them
    the kernel's gatherer is enough, through `add_plain`; `add` does the rest.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        router: Router,
        delivery: type[D],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.router = router
        self._now = now
        self._gatherer: Gatherer[D] = Gatherer(
            settings.messages_max,
            settings.batch_bytes_max,
            settings.buffer_bytes_max,
            time.time_ns,
            delivery,
        )
        # Add a message to the open batch, if there is one with room beyond that message, and the
        # buffer has room: no batch becomes ready, and nobody need be woken. With the native kernel
        # it needs no lock.
        self.add_plain: Callable[[bytes | str], D | None] = self._gatherer.add
        self._open: dict[int, Batch] = {}  # by partition, oldest first
        self.ready: deque[Batch] = deque()  # full, or their linger time is over
        self._unsettled: dict[Future[Sent], Batch] = {}  # oldest first
        self._failed_count = 0  # messages, since the last failure was raised
        self._failure: HeadraceError | None = None
        self.confirmed_count = 0  # messages

    @property
    def buffered_bytes(self) -> int:
        """The size of all unconfirmed messages."""
        return self._gatherer.buffered_bytes

    @property
    def unsent_count(self) -> int:
        """The number of unconfirmed messages, without those whose failure was raised."""
        return self._gatherer.messages_count + self._failed_count

    @property
    def failure(self) -> HeadraceError | None:
        """The first failure since the last one was raised."""
        return self._failure

    @property
    def is_empty(self) -> bool:
        """Whether no batch waits to be taken."""
        return not self._open and not self.ready

    def has_room(self, size: int) -> bool:
        """Whether a message of that size can be added now."""
        buffered = self._gatherer.buffered_bytes
        return not buffered or buffered + size <= self.settings.buffer_bytes_max

    def must_ask(self, key: bytes | str | None) -> bool:
        """Whether this message needs the number of partitions, and it is unknown."""
        is_chosen = key is not None or self.settings.partition is None
        return is_chosen and not self.router.is_known

    def add(self, value: bytes, headers: bytes, key: bytes | str | None) -> D:
        """Add a message; return its delivery.

        `must_ask` must have returned False.
        """
        batch = self._open_batch(self._choose(key), size_of(value, headers))
        delivery = self._gatherer.append(batch, value, headers)
        self._note(batch, key)
        return delivery

    def add_many(
        self, values: list[bytes], first: int, headers: bytes, key: bytes | str | None
    ) -> int:
        """Add as many messages as one batch and the buffer hold; return their number.

        It is at least one. `must_ask` must have returned False. No Python code runs per message.
        """
        batch = self._open_batch(self._choose(key), size_of(values[first], headers))
        count = self._gatherer.extend(batch, values, first, headers)
        self._note(batch, key)
        return count

    def _open_batch(self, partition: int, size: int) -> Batch:
        """Return the batch that the next message of a partition goes to."""
        batch = self._open.get(partition)
        if batch is not None and batch.size + size > self.settings.batch_bytes_max:
            self._seal(batch)
            batch = None
        if batch is None:
            batch = Batch(partition, self._now() + self.settings.linger_seconds)
        return batch

    def _note(self, batch: Batch, key: bytes | str | None) -> None:
        """Record that messages were added: a batch is open from its first one on until it is full.

        Later messages without a key join the batch that this one went to.
        """
        if batch.partition not in self._open:
            self._open[batch.partition] = batch
            self._unsettled[batch.future] = batch
        is_large = batch.size >= self.settings.batch_bytes_max
        if is_large or len(batch) >= self.settings.messages_max:
            self._seal(batch)
        elif key is None:
            self._gatherer.current = batch

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
        if self.ready:
            return 0.0
        if not self._open:
            return None
        return max(min(batch.due for batch in self._open.values()) - self._now(), 0.0)

    def take(self) -> Batch | None:
        """Return the next batch to send, if one is full or its linger time is over."""
        now = self._now()
        for batch in [each for each in self._open.values() if each.due <= now]:
            self._seal(batch)
        return self.ready.popleft() if self.ready else None

    def settle(
        self, batch: Batch, outcome: Sent | HeadraceError, *, is_closing: bool = False
    ) -> None:
        """Record the outcome of a batch that was taken.

        A closing producer does not wait for an unreachable server batch by batch: after the first
        batch that times out, the others fail too.
        """
        del self._unsettled[batch.future]
        self._gatherer.release(batch)
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
        self._gatherer.current = None
        self._open.clear()
        self.ready.clear()
        for future, batch in list(self._unsettled.items()):
            del self._unsettled[future]
            self._gatherer.release(batch)
            self._failed_count += len(batch)
            future.set_exception(error)
            self._failure = self._failure or error

    def raise_failure(self) -> None:
        """Raise the first failure since the last call, if there was one."""
        failure, self._failure = self._failure, None
        self._failed_count = 0
        if failure is not None:
            raise failure

    def _seal(self, batch: Batch) -> None:
        if self._gatherer.current is batch:
            self._gatherer.current = None
        del self._open[batch.partition]
        self.ready.append(batch)
