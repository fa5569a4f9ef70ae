"""The gathering of a producer's batches, in Python: the twin of that section of `_native.c`.

```
add ─────────► the current batch, unless the message must wait, or would fill it
append, extend ─► any batch                 finish ─► the bytes to be sent
└──────────── all of it counts until `release` ────────────┘
```

A call of the native classes is one step to other threads. These are not: hold a lock.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from operator import index as as_int
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.kernel.errors import BatchError, Reason
from headrace.kernel.layout import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    MESSAGE_ID_BYTES,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
)
from headrace.kernel.twin import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

_U64_MAX = 2**64 - 1
_NANOS_IN_MICRO = 1000
_SPAN_MICROS_MAX = 3600 * 1_000_000  # the field of a frame holds 71 minutes


class Frames:
    """The messages of one batch; the numbers stay when it is finished."""

    __slots__ = ("_count", "_headers", "_is_finished", "_times", "_values", "size")

    def __init__(self) -> None:
        self.size = BATCH_HEADER_BYTES
        self._count = 0
        self._is_finished = False
        self._values: list[bytes] = []
        self._headers: list[bytes] = []
        self._times: list[int] = []

    def __len__(self) -> int:
        return self._count

    def finish(self, ids: ReadableBuffer, /) -> bytes:
        """Return the batch, with these ids of its messages; nothing can be added any more.

        Raises:
            ValueError: It is finished, or has no messages.
            BatchError: There are more or fewer ids than messages.
        """
        view = memoryview(ids).cast("B")
        if self._is_finished:
            raise ValueError("the batch is finished")
        if not self._count:
            raise ValueError("the batch has no messages")
        if len(view) != MESSAGE_ID_BYTES * self._count:
            wanted = MESSAGE_ID_BYTES * self._count
            raise BatchError(Reason.COLUMN_LENGTH, -1, 0, len(view), wanted)
        batch = build(
            view,
            array("Q", self._times),
            b"".join(self._values),
            _ends(self._values),
            b"".join(self._headers),
            _ends(self._headers),
        )
        self._is_finished = True
        self._values, self._headers, self._times = [], [], []
        return batch

    def put(self, value: bytes, headers: bytes, micros: int) -> None:
        """Add a message: for `Gatherer` only."""
        size = self.size + size_of(value, headers)
        self.check(size)
        first = self._times[0] if self._times else micros
        # A clock that jumps must not make the batch impossible to encode.
        self._times.append(min(max(micros, first), first + _SPAN_MICROS_MAX))
        self._values.append(value)
        self._headers.append(headers)
        self.size = size
        self._count += 1

    def check(self, size: int) -> None:
        """Refuse more messages when it is finished, or would be too large."""
        if self._is_finished:
            raise ValueError("the batch is finished")
        if size > BATCH_BYTES_MAX:
            raise OverflowError(f"a batch of {size} bytes, limit {BATCH_BYTES_MAX}")

    @property
    def is_open(self) -> bool:
        """Whether it has messages and takes more: for `Gatherer` only."""
        return bool(self._values)


class Receipt:
    """One message of a batch: `batch` and `index`."""

    __slots__ = ("batch", "index")

    batch: Frames
    index: int


R = TypeVar("R", bound=Receipt)


class Gatherer(Generic[R]):
    """The unconfirmed messages of one producer, within their limits."""

    __slots__ = (
        "_batch_bytes_max",
        "_buffer_bytes_max",
        "_clock",
        "_current",
        "_messages_max",
        "_receipt_type",
        "buffered_bytes",
        "messages_count",
    )

    def __init__(
        self,
        messages_max: int,
        batch_bytes_max: int,
        buffer_bytes_max: int,
        clock: Callable[[], int],
        receipt_type: type[R],
        /,
    ) -> None:
        """Start empty; `clock` returns nanoseconds since 1970."""
        if not issubclass(receipt_type, Receipt):
            raise TypeError("receipt_type is not a Receipt")
        self._messages_max = _u64("messages_max", messages_max)
        self._batch_bytes_max = _u64("batch_bytes_max", batch_bytes_max)
        self._buffer_bytes_max = _u64("buffer_bytes_max", buffer_bytes_max)
        self._clock = clock
        self._receipt_type = receipt_type
        self._current: Frames | None = None
        self.buffered_bytes = 0
        self.messages_count = 0

    @property
    def current(self) -> Frames | None:
        """The batch that `add` adds to; it has a message."""
        return self._current

    @current.setter
    def current(self, batch: Frames | None) -> None:
        if batch is not None:
            _check_batch(batch)
        self._current = batch

    def add(self, value: bytes | str, /) -> R | None:
        """Add a message to the current batch; return its receipt.

        Return None for what takes more than that: the message would fill the batch or the buffer,
        there is no current batch, or the value is none that can be sent.
        """
        batch = self._current
        if batch is None:
            return None
        if type(value) is str:
            value = value.encode()
        if type(value) is not bytes:
            return None
        micros = self._read_micros()
        size = FRAME_HEADER_BYTES + len(value)
        if (
            not batch.is_open
            or not 1 <= len(value) <= PAYLOAD_BYTES_MAX
            or len(batch) + 1 >= self._messages_max
            or batch.size + size >= self._batch_bytes_max
            or self.buffered_bytes + size > self._buffer_bytes_max
        ):
            return None
        return self._put(batch, value, b"", micros)

    def append(self, batch: Frames, value: bytes, headers: bytes, /) -> R:
        """Add a message to a batch whatever the limits; return its receipt.

        Raises:
            ValueError: The batch is finished.
            BatchError: The message or its headers are too large, or the message is empty.
            OverflowError: The batch would be larger than a batch can be.
        """
        _check_batch(batch)
        _check_strings(value, headers, len(batch))
        micros = self._read_micros()
        return self._put(batch, value, headers, micros)

    def extend(self, batch: Frames, values: list[bytes], first: int, headers: bytes, /) -> int:
        """Add messages of a list, from an index on, as many as the limits allow, at least one.

        Return their number. After an error nothing was added.

        Raises:
            ValueError, BatchError, OverflowError: As `append`.
            IndexError: There is no message at that index.
        """
        _check_batch(batch)
        if type(values) is not list:
            raise TypeError("the messages are a list")
        first = as_int(first)
        micros = self._read_micros()
        if not 0 <= first < len(values):
            raise IndexError("no message at that index")
        count, size = self._plan(batch, values, first, headers)
        batch.check(batch.size + size)
        for value in values[first : first + count]:
            batch.put(value, headers, micros)
        self.buffered_bytes += size
        self.messages_count += count
        return count

    def release(self, batch: Frames, /) -> None:
        """Stop counting the messages of a batch; it is settled.

        Raises:
            ValueError: There are not that many.
        """
        _check_batch(batch)
        size = batch.size - BATCH_HEADER_BYTES
        if size > self.buffered_bytes or len(batch) > self.messages_count:
            raise ValueError("a batch that is not counted")
        self.buffered_bytes -= size
        self.messages_count -= len(batch)

    def _plan(
        self, batch: Frames, values: list[bytes], first: int, headers: bytes
    ) -> tuple[int, int]:
        """Return how many messages have room, at least one, and their bytes."""
        in_batch = max(self._batch_bytes_max - batch.size, 0)
        room = min(in_batch, max(self._buffer_bytes_max - self.buffered_bytes, 0))
        count = total = 0
        for value in values[first:]:
            if count and len(batch) + count >= self._messages_max:
                break
            _check_strings(value, headers, len(batch) + count)
            size = size_of(value, headers)
            if count and total + size > room:
                break
            total += size
            count += 1
        return count, total

    def _put(self, batch: Frames, value: bytes, headers: bytes, micros: int) -> R:
        batch.put(value, headers, micros)
        self.buffered_bytes += size_of(value, headers)
        self.messages_count += 1
        receipt = self._receipt_type()
        receipt.batch, receipt.index = batch, len(batch) - 1
        return receipt

    def _read_micros(self) -> int:
        return _u64("clock", self._clock()) // _NANOS_IN_MICRO


def size_of(value: bytes, headers: bytes) -> int:
    """Return the number of bytes that a message takes in a batch."""
    return FRAME_HEADER_BYTES + len(value) + len(headers)


def _ends(parts: list[bytes]) -> array[int]:
    return array("i", accumulate(map(len, parts), initial=0))


def _check_batch(batch: object) -> None:
    if not isinstance(batch, Frames):
        raise TypeError(f"a batch is Frames, not {type(batch).__name__}")


def _check_strings(value: object, headers: object, index: int) -> None:
    if not isinstance(value, bytes) or not isinstance(headers, bytes):
        raise TypeError("messages and headers are bytes")
    if not 1 <= len(value) <= PAYLOAD_BYTES_MAX:
        raise BatchError(Reason.PAYLOAD_LENGTH, index, 0, len(value), PAYLOAD_BYTES_MAX)
    if len(headers) > USER_HEADERS_BYTES_MAX:
        limit = USER_HEADERS_BYTES_MAX
        raise BatchError(Reason.USER_HEADERS_LENGTH, index, 0, len(headers), limit)


def _u64(name: str, value: int) -> int:
    number = as_int(value)
    if not 0 <= number <= _U64_MAX:
        raise OverflowError(f"{name} does not fit in 64 bits")
    return number
