"""Converts wire batches of one partition to Arrow record batches, without a loop per message.

```
batches  [b][b][b][b] [b][b][b] ...     as a segment file or a poll holds them
walk     headers only: select batches, about RUN_BYTES of them at a time
kernel   one run > columns in Arrow's memory layout, every checksum verified
yield    a record batch of the requested columns; only ids and headers are copied
```

Flow:       read.
Invariants: every byte returned was verified by its checksum; offsets rise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace import kernel
from headrace.kernel import MESSAGE_ID_BYTES, BatchError, Columns
from headrace.spark.batches import Batches
from headrace.spark.headers import HEADERS_TYPE, decode_headers
from headrace.spark.slices import UNBOUNDED

# About this many bytes become one record batch: Spark is fastest with 1 to 4 MiB of payload.
RUN_BYTES = 4 << 20
# A single batch of a producer may be larger; its record batch is split into parts of this size.
PAYLOAD_BYTES_MAX = 8 << 20

_TIMESTAMP = pa.timestamp("us", tz="UTC")
TYPES: dict[str, pa.DataType] = {
    "stream": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "origin_timestamp": _TIMESTAMP,
    "id": pa.binary(),
    "payload": pa.binary(),
    "headers": HEADERS_TYPE,
}

_Maker: TypeAlias = Callable[[Columns], pa.Array]


@dataclass(frozen=True)
class Place:
    """The stream, topic and partition of messages, as the columns show them."""

    stream: str
    topic: str
    partition: int


@dataclass(frozen=True)
class Clip:
    """The wanted range: offsets and stamps from the first up to, not including, the second."""

    offset_min: int = 0
    offset_max: int = UNBOUNDED
    time_min: int = 0
    time_max: int = UNBOUNDED


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, as Spark compares it: all nullable."""
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


class ColumnReader:
    """Makes record batches of some columns of one partition, for one range."""

    def __init__(self, place: Place, clip: Clip, columns: Sequence[str]) -> None:
        assert all(name in TYPES for name in columns)
        self._place = place
        self._clip = clip
        self._schema = schema_of(columns)
        self._constants: dict[str, pa.Array] = {}
        makers: dict[str, _Maker] = {
            "stream": lambda made: self._constant("stream", place.stream, made),
            "topic": lambda made: self._constant("topic", place.topic, made),
            "partition": lambda made: self._constant("partition", place.partition, made),
            "offset": lambda made: _numbers(pa.int64(), made.offsets, made),
            "timestamp": lambda made: _numbers(_TIMESTAMP, made.timestamps, made),
            "origin_timestamp": lambda made: _numbers(_TIMESTAMP, made.origin_timestamps, made),
            "id": _ids,
            "payload": _payloads,
            "headers": decode_headers,
        }
        self._makers = [makers[name] for name in columns]

    def read(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield record batches of the wanted messages.

        Raises:
            DataDamaged: A batch differs from what was stored; the error names bytes and offsets.
        """
        for start, end in self._runs(batches):
            run = batches.data[start:end]
            try:
                made = kernel.columns(run, self._clip.offset_min, self._clip.offset_max, True)  # noqa: FBT003 - check
            except BatchError as error:
                raise batches.damage(error, start) from None
            if made.messages_count:
                yield from self._cut(made)

    def _runs(self, batches: Batches) -> Iterator[tuple[int, int]]:
        """Yield the bytes of batches in the time range, about `RUN_BYTES` of them at a time.

        The kernel skips those outside the offset range: the header alone does not show the offsets
        of a batch that a poll has cut.
        """
        start = end = 0
        for at, header in batches.walk():
            end = at + header.length
            if header.base_offset >= UNBOUNDED:
                _verify(batches, at, end)  # No range contains it: nothing else would verify it.
            if not self._clip.time_min <= header.base_timestamp < self._clip.time_max:
                _verify(batches, at, end)
                if start < at:
                    yield start, at
                start = end
            elif end - start >= RUN_BYTES:
                yield start, end
                start = end
        if start < end:
            yield start, end

    def _cut(self, made: Columns) -> Iterator[pa.RecordBatch]:
        """Yield one record batch, or several if a producer's batch was very large."""
        whole = pa.RecordBatch.from_arrays(
            [make(made) for make in self._makers], schema=self._schema
        )
        if len(made.payloads) <= PAYLOAD_BYTES_MAX:
            yield whole
            return
        ends = np.frombuffer(made.payload_offsets, dtype=np.int32)
        first = 0
        while first < made.messages_count:
            limit = int(ends[first]) + PAYLOAD_BYTES_MAX // 2
            end = max(int(np.searchsorted(ends, limit, side="right")) - 1, first + 1)
            yield whole.slice(first, end - first)
            first = end

    def _constant(self, name: str, value: str | int, made: Columns) -> pa.Array:
        """Return a column of one value; the longest so far is reused for shorter ones."""
        longest = self._constants.get(name)
        if longest is None or len(longest) < made.messages_count:
            longest = pa.repeat(pa.scalar(value, TYPES[name]), made.messages_count)
            self._constants[name] = longest
        return longest.slice(0, made.messages_count)


def _verify(batches: Batches, start: int, end: int) -> None:
    """Verify a batch that its stamp excludes: a damaged stamp must not hide messages."""
    try:
        kernel.verify(batches.data[start:end])
    except BatchError as error:
        raise batches.damage(error, start) from None


def _numbers(kind: pa.DataType, data: bytes, made: Columns) -> pa.Array:
    return pa.Array.from_buffers(kind, made.messages_count, [None, pa.py_buffer(data)])


def _payloads(made: Columns) -> pa.Array:
    buffers = [None, pa.py_buffer(made.payload_offsets), pa.py_buffer(made.payloads)]
    return pa.Array.from_buffers(pa.binary(), made.messages_count, buffers)


def _ids(made: Columns) -> pa.Array:
    """Return the ids as 16 bytes, big-endian: `hex(id)` then matches the printed id."""
    # Swapping words instead of bytes takes half the time.
    words = np.frombuffer(made.ids, dtype=np.uint64).reshape(-1, MESSAGE_ID_BYTES // 8)
    reversed_ids = np.ascontiguousarray(words[:, ::-1]).byteswap(inplace=True)
    ends = np.arange(made.messages_count + 1, dtype=np.int32) * MESSAGE_ID_BYTES
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(reversed_ids)]
    return pa.Array.from_buffers(pa.binary(), made.messages_count, buffers)
