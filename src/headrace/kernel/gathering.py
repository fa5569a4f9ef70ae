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
from bisect import bisect_right
from itertools import accumulate, takewhile
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
        has_headers = any(self._headers)
        batch = build(
            view,
            array("Q", self._times),
            b"".join(self._values),
            _ends(self._values),
            b"".join(self._headers) if has_headers else None,
            _ends(self._headers) if has_headers else None,
        )
        self._is_finished = True
        self._values, self._headers, self._times = [], [], []
        return batch

    def put(self, values: list[bytes], headers: bytes, micros: int, size: int) -> None:
        """Add messages of `size` bytes together: for `Gatherer` only."""
        if self._is_finished:
            raise ValueError("the batch is finished")
        if self.size + size > BATCH_BYTES_MAX:
            raise OverflowError(f"a batch of {self.size + size} bytes, limit {BATCH_BYTES_MAX}")
        first = self._times[0] if self._times else micros
        # A clock that jumps must not make the batch impossible to encode.
        self._times += [min(max(micros, first), first + _SPAN_MICROS_MAX)] * len(values)
        self._values += values
        self._headers += [headers] * len(values)
        self.size += size
        self._count += len(values)

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
        batch.put(values[first : first + count], headers, micros, size)
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
        wanted = values[first : first + max(self._messages_max - len(batch), 1)]
        lengths = _lengths(wanted, headers, len(batch))
        each = size_of(b"", headers)
        ends = list(accumulate(length + each for length in lengths))
        count = max(bisect_right(ends, room), 1)
        # The first message without room is looked at, those after it are not.
        for index in range(len(lengths), min(count + 1, len(wanted))):
            _check_strings(wanted[index], headers, len(batch) + index)
        return count, ends[count - 1]

    def _put(self, batch: Frames, value: bytes, headers: bytes, micros: int) -> R:
        size = size_of(value, headers)
        batch.put([value], headers, micros, size)
        self.buffered_bytes += size
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


def _lengths(values: list[bytes], headers: bytes, index: int) -> list[int]:
    """Return the lengths of the messages before the first bad one; the first must be good."""
    _check_strings(values[0], headers, index)
    if list(dict.fromkeys(map(type, values))) == [bytes]:
        lengths = list(map(len, values))
        if min(lengths) > 0 and max(lengths) <= PAYLOAD_BYTES_MAX:
            return lengths
    good = takewhile(_is_good, values)
    return [len(value) for value in good]


def _is_good(value: object) -> bool:
    return isinstance(value, bytes) and 1 <= len(value) <= PAYLOAD_BYTES_MAX


def _check_batch(batch: object) -> None:
    if not isinstance(batch, Frames):
        raise TypeError(f"a batch is Frames, not {type(batch).__name__}")


def _check_strings(value: object, headers: object, index: int) -> None:
    if not isinstance(value, bytes) or not isinstance(headers, bytes):
        raise TypeError("messages and headers are bytes")
    if not _is_good(value):
        raise BatchError(Reason.PAYLOAD_LENGTH, index, 0, len(value), PAYLOAD_BYTES_MAX)
    if len(headers) > USER_HEADERS_BYTES_MAX:
        limit = USER_HEADERS_BYTES_MAX
        raise BatchError(Reason.USER_HEADERS_LENGTH, index, 0, len(headers), limit)


def _u64(name: str, value: int) -> int:
    number = as_int(value)
    if not 0 <= number <= _U64_MAX:
        raise OverflowError(f"{name} does not fit in 64 bits")
    return number
