"""Messages as users see them: decoded lazily from the answer to a poll, encoded into a batch.

The kernel scans a poll once and returns columns, or for who takes messages one by one their parts:
each value is then copied once, into the object that the user gets. A `Message` is created when it
is accessed, and its headers when they are accessed; code that works with columns pays for neither.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, count, repeat
from operator import sub
from typing import TypeAlias, cast, overload

import msgspec

from headrace import kernel
from headrace.client.errors import DataDamaged, ProtocolBroken
from headrace.kernel import (
    MESSAGE_ID_BYTES,
    OFFSET_MAX,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    BatchError,
    Columns,
    Split,
)
from headrace.wire.commands.messages import PolledMessages
from headrace.wire.errors import DecodeError
from headrace.wire.fields import (
    UNREADABLE_HEADERS,
    Field,
    FieldValue,
    decode_user_headers,
    encode_user_headers,
    make_field,
)

_MICROS = 1_000_000
_NUMBER_BYTES = 8

# The fields of a `Split`; to create the tuple without names takes fewer calls.
_Parts: TypeAlias = tuple[list[int], list[int], list[int], bytes, list[bytes], list[bytes]]


class Message(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One message.

    Attributes:
        partition: The partition that it is stored in.
        offset: Its offset there.
        value: The bytes that were sent.
        timestamp: When the server received it, in microseconds since 1970.
        origin_timestamp: When it was created, by the sender's clock, in microseconds since 1970.
    """

    partition: int
    offset: int
    value: bytes
    timestamp: int
    origin_timestamp: int
    _ids: bytes  # of the whole poll: rarely used, and splitting them costs a third of a poll
    _ids_start: int  # the offset of the first of them, as if there were no gap up to this message
    _headers: bytes

    @property
    def id(self) -> int:
        """The 128-bit number that its sender gave it."""
        start = (self.offset - self._ids_start) * MESSAGE_ID_BYTES
        return int.from_bytes(self._ids[start : start + MESSAGE_ID_BYTES], "little")

    @property
    def headers(self) -> dict[FieldValue, FieldValue]:
        """Its headers; decoded on each access.

        Headers that cannot be decoded, such as encrypted ones, are one entry: their bytes under the
        name `"!raw"`.
        """
        try:
            pairs = decode_user_headers(self._headers)
            return {key.value: value.value for key, value in pairs}
        except DecodeError:
            return {UNREADABLE_HEADERS: self._headers}

    @property
    def raw_headers(self) -> bytes:
        """The bytes of its headers as they were sent; empty if it has none."""
        return self._headers

    @property
    def text(self) -> str:
        """Its value as text; raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.value.decode()

    @property
    def time(self) -> datetime:
        """When the server received it."""
        return datetime.fromtimestamp(self.timestamp / _MICROS, UTC)

    def __repr__(self) -> str:
        shown = self.value if len(self.value) <= 32 else self.value[:29] + b"..."
        return f"<message {self.partition}:{self.offset} {shown!r}>"


class Messages(Sequence[Message]):
    """The messages of one poll, all of one partition, in the order of their offsets.

    `columns` has them in the memory layout of Arrow; `current_offset` is the last offset that the
    partition had when it answered.
    """

    __slots__ = ("_columns", "_count", "_offsets", "_split", "current_offset", "partition")

    def __init__(self, partition: int, current_offset: int, read: Columns | Split) -> None:
        self.partition = partition
        self.current_offset = current_offset
        self._offsets: Sequence[int]
        self._columns: Columns | None = None
        self._split: Split | None = None
        if isinstance(read, Split):
            self._split = read
            self._offsets = read.offsets
            self._count = len(read.offsets)
        else:
            self._columns = read
            self._offsets = memoryview(read.offsets).cast("q")
            self._count = read.messages_count

    @property
    def columns(self) -> Columns:
        """All of them in the memory layout of Arrow."""
        if self._columns is None:
            assert self._split is not None
            self._columns = _join_columns(self._split)
        return self._columns

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._make(each) for each in range(*index.indices(self._count))]
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(f"message {index} of {self._count}")
        return self._make(index)

    def __iter__(self) -> Iterator[Message]:
        # No Python code runs per message: with 1,000 in a poll it would take most of the time.
        parts = self._split or _split_columns(self.columns)
        offsets, timestamps, origins, ids, values, headers = parts
        return map(
            Message,
            repeat(self.partition),
            offsets,
            values,
            timestamps,
            origins,
            repeat(ids),
            _find_starts(offsets),
            headers,
        )

    def __repr__(self) -> str:
        if not len(self):
            return f"<no messages of partition {self.partition}>"
        span = f"{self.first_offset} to {self.last_offset}"
        return f"<{len(self)} messages of partition {self.partition}, {span}>"

    @property
    def first_offset(self) -> int:
        """The offset of the first message; there must be one."""
        return self._offsets[0]

    @property
    def last_offset(self) -> int:
        """The offset of the last message; there must be one."""
        return self._offsets[-1]

    def values(self) -> list[bytes]:
        """Return only the values; this is cheaper than creating the messages."""
        if self._split is not None:
            return self._split.payloads.copy()
        return kernel.cut(self.columns.payloads, self.columns.payload_offsets)

    def timestamps(self) -> list[int]:
        """Return when the server received each message, in microseconds since 1970."""
        if self._split is not None:
            return self._split.timestamps.copy()
        return _numbers(self.columns.timestamps)

    def first(self, count: int) -> "Messages":
        """Return the first `count` messages."""
        if count >= len(self):
            return self
        first: Columns | Split
        if self._split is None:
            first = _first_rows(self.columns, count)
        else:
            first = _first_parts(self._split, count)
        return Messages(self.partition, self.current_offset, first)

    def run_length(self) -> int:
        """Return how many messages from the first on have consecutive offsets."""
        offsets = self._offsets
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if offsets[middle] - offsets[0] == middle:
                low = middle + 1
            else:
                high = middle
        return low

    def _make(self, index: int) -> Message:
        offset, parts, columns = self._offsets[index], self._split, self._columns
        if parts is not None:
            value, headers, ids = parts.payloads[index], parts.headers[index], parts.ids
            time, origin = parts.timestamps[index], parts.origin_timestamps[index]
        else:
            assert columns is not None
            ends = memoryview(columns.payload_offsets).cast("i")
            header_ends = memoryview(columns.header_offsets).cast("i")
            value = columns.payloads[ends[index] : ends[index + 1]]
            headers = columns.headers[header_ends[index] : header_ends[index + 1]]
            time = memoryview(columns.timestamps).cast("q")[index]
            origin = memoryview(columns.origin_timestamps).cast("q")[index]
            ids = columns.ids
        return Message(self.partition, offset, value, time, origin, ids, offset - index, headers)


def _find_starts(offsets: list[int]) -> Iterable[int]:
    """Return `_ids_start` of each message: the same number for all where there is no gap."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return repeat(offsets[0])
    return map(sub, offsets, count())


def _numbers(column: bytes) -> list[int]:
    """Return the numbers of a column; those of a constant one, such as times, are one object."""
    numbers = memoryview(column).cast("q")
    if column and column == column[:_NUMBER_BYTES] * len(numbers):
        return [numbers[0]] * len(numbers)
    return numbers.tolist()


def _split_columns(columns: Columns) -> _Parts:
    """Return what `kernel.split` does, from columns: each value is copied a second time."""
    cut, headers = kernel.cut, columns.headers
    return (
        memoryview(columns.offsets).cast("q").tolist(),
        _numbers(columns.timestamps),
        _numbers(columns.origin_timestamps),
        columns.ids,
        cut(columns.payloads, columns.payload_offsets),
        cut(headers, columns.header_offsets) if headers else [b""] * columns.messages_count,
    )


def _join_columns(parts: Split) -> Columns:
    """Return what `kernel.columns` does, from parts."""
    return Columns(
        len(parts.offsets),
        array("q", parts.offsets).tobytes(),
        array("q", parts.timestamps).tobytes(),
        array("q", parts.origin_timestamps).tobytes(),
        parts.ids,
        _ends(parts.payloads).tobytes(),
        b"".join(parts.payloads),
        _ends(parts.headers).tobytes(),
        b"".join(parts.headers),
    )


def _first_rows(columns: Columns, count: int) -> Columns:
    ends = memoryview(columns.payload_offsets).cast("i")
    header_ends = memoryview(columns.header_offsets).cast("i")
    return Columns(
        count,
        columns.offsets[: _NUMBER_BYTES * count],
        columns.timestamps[: _NUMBER_BYTES * count],
        columns.origin_timestamps[: _NUMBER_BYTES * count],
        columns.ids[: MESSAGE_ID_BYTES * count],
        columns.payload_offsets[: 4 * (count + 1)],
        columns.payloads[: ends[count]],
        columns.header_offsets[: 4 * (count + 1)],
        columns.headers[: header_ends[count]],
    )


def _first_parts(parts: Split, count: int) -> Split:
    return Split(
        parts.offsets[:count],
        parts.timestamps[:count],
        parts.origin_timestamps[:count],
        parts.ids[: MESSAGE_ID_BYTES * count],
        parts.payloads[:count],
        parts.headers[:count],
    )


def read_messages(
    polled: PolledMessages, *, offset_min: int = 0, is_split: bool = False
) -> Messages:
    """Return the messages of a poll from an offset on, after checking every checksum.

    `is_split` is for who takes them one by one: their values are copied once. Columns are otherwise
    what both columns and messages can be made of.

    Raises:
        DataDamaged: A checksum is wrong.
        ProtocolBroken: They cannot be decoded, or all are older.
    """
    batches = polled.batches
    read: Columns | Split
    try:
        if is_split:
            read = kernel.split(batches, offset_min, OFFSET_MAX)
        else:
            read = kernel.columns(batches, offset_min, OFFSET_MAX, True)  # noqa: FBT003 - check
    except BatchError as error:
        raise DataDamaged(f"partition {polled.partition_id}: {error}") from None
    except ValueError as error:
        raise ProtocolBroken(f"partition {polled.partition_id}: {error}") from None
    if polled.messages_count and not read.offsets:
        raise ProtocolBroken(
            f"partition {polled.partition_id}: a poll from offset {offset_min} gave older messages"
        )
    return Messages(polled.partition_id, polled.current_offset, read)


def encode_value(value: bytes | str) -> bytes:
    """Return the bytes of a message's value; text is encoded as UTF-8.

    Raises:
        ValueError: It is empty or too large.
        TypeError: It is neither bytes nor text.
    """
    if isinstance(value, str):
        value = value.encode()
    elif not isinstance(value, bytes):
        raise TypeError(f"a message is bytes or text, not {type(value).__name__}")
    if not 1 <= len(value) <= PAYLOAD_BYTES_MAX:
        raise ValueError(f"message of {len(value)} bytes, allowed 1 to {PAYLOAD_BYTES_MAX}")
    return value


def encode_values(values: Sequence[bytes | str]) -> Sequence[bytes]:
    """Return the bytes of many values; see `encode_value`.

    Raises:
        ValueError: A value is empty or too large.
        TypeError: A value is neither bytes nor text.
    """
    if are_encoded(values):
        return cast("Sequence[bytes]", values)
    return [encode_value(value) for value in values]


def are_encoded(values: Sequence[bytes | str]) -> bool:
    """Whether all are bytes of a valid size: the usual case, without Python code per value."""
    if set(map(type, values)) != {bytes}:
        return False
    lengths = list(map(len, values))
    return min(lengths) > 0 and max(lengths) <= PAYLOAD_BYTES_MAX


def encode_headers(headers: Mapping[str, FieldValue] | None) -> bytes:
    """Return the bytes of a message's headers, sorted by key.

    Raises:
        ValueError: A header is empty or too large, or all together are too large.
        TypeError: A key or a value has a type that headers do not support.
    """
    if not headers:
        return b""
    pairs = [
        (_make_part(key, "name", key), _make_part(key, "value", headers[key]))
        for key in sorted(headers)
    ]
    data = encode_user_headers(pairs)
    if len(data) > USER_HEADERS_BYTES_MAX:
        raise ValueError(f"headers of {len(data)} bytes, limit {USER_HEADERS_BYTES_MAX}")
    return data


def _make_part(header: object, what: str, value: object) -> Field:
    """Return one half of a header; errors name the header and the rule."""
    if not isinstance(value, bytes | str | int | float):
        raise TypeError(
            f"header {header!r}: its {what} is a {type(value).__name__},"
            " allowed are text, bytes, numbers and bool"
        )
    try:
        return make_field(value)
    except ValueError as error:
        raise ValueError(f"header {header!r}: {what}: {error}") from None


def build_batch(values: Sequence[bytes], headers: Sequence[bytes], times: "array[int]") -> bytes:
    """Return the batch of messages encoded by `encode_value` and `encode_headers`.

    Each gets a random id; `times` are microseconds since 1970, one for each message.
    """
    assert len(values) == len(headers) == len(times) > 0
    has_headers = any(headers)
    return kernel.build(
        os.urandom(MESSAGE_ID_BYTES * len(values)),
        times,
        b"".join(values),
        _ends(values),
        b"".join(headers) if has_headers else None,
        _ends(headers) if has_headers else None,
    )


def _ends(parts: Sequence[bytes]) -> "array[int]":
    return array("i", accumulate(map(len, parts), initial=0))
