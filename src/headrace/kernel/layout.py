"""The byte layout of a batch: its only definition in Python.

```
batch = [batch header 256][frame]*
frame = [frame header 48][payload][user headers]
user headers = ([kind u8][length u32][bytes])*      a key field, then its value field
```

All integers are little-endian. `_native.c` has the same numbers; `library.py` compares them.
"""

from typing import NamedTuple

# Batch header: field offsets. The reserved rest is zero.
BATCH_HEADER_BYTES = 256
PARTITION_ID_AT = 0
BASE_OFFSET_AT = 8
BASE_TIMESTAMP_AT = 16
ORIGIN_TIMESTAMP_AT = 24
BATCH_LENGTH_AT = 32
BATCH_CHECKSUM_AT = 40
MESSAGE_COUNT_AT = 48
BATCH_RESERVED_AT = 52

# The batch checksum covers the header without itself and without the reserved bytes, then the
# stored checksum of each frame.
CHECKSUM_HEAD_BYTES = 44

# Frame header: field offsets. The frame checksum covers the frame from the id on.
FRAME_HEADER_BYTES = 48
FRAME_CHECKSUM_AT = 0
FRAME_ID_AT = 8
OFFSET_DELTA_AT = 24
TIMESTAMP_DELTA_AT = 28
USER_HEADERS_LENGTH_AT = 32
PAYLOAD_LENGTH_AT = 36
FRAME_RESERVED_AT = 40

MESSAGE_ID_BYTES = 16

PAYLOAD_BYTES_MAX = 64_000_000
USER_HEADERS_BYTES_MAX = 100_000

# Value offsets of Arrow's binary columns are signed 32-bit numbers.
COLUMN_BYTES_MAX = 2**31 - 1
BATCH_BYTES_MAX = 2**31 - 1
OFFSET_MAX = 2**64 - 1

# A row that `prove` returns: base_offset, base_timestamp, position, and the chain before it.
PROOF_ROW_BYTES = 32
FOLD_RECORD_BYTES_MAX = 56

assert BATCH_RESERVED_AT < BATCH_HEADER_BYTES
assert FRAME_RESERVED_AT + 8 == FRAME_HEADER_BYTES
assert PAYLOAD_BYTES_MAX + USER_HEADERS_BYTES_MAX < BATCH_BYTES_MAX


class Columns(NamedTuple):
    """Messages as columns, in the memory layout of Arrow.

    Each column is its own `bytes`, so the data of the integer columns is aligned to at least
    8 bytes and `pyarrow.py_buffer` takes each as it is. Offsets and times are unsigned in a batch
    and signed here, so one of 2**63 or more comes out negative; no honest batch has one.
    """

    messages_count: int
    offsets: bytes
    """int64: base_offset + offset_delta."""
    timestamps: bytes
    """int64: base_timestamp, the append time of the batch, in microseconds."""
    origin_timestamps: bytes
    """int64: origin_timestamp + timestamp_delta, the creation time, in microseconds."""
    ids: bytes
    """16 bytes each, as stored: u128 little-endian."""
    payload_offsets: bytes
    """int32, messages_count + 1 of them, from 0."""
    payloads: bytes
    header_offsets: bytes
    """int32, messages_count + 1 of them, from 0."""
    headers: bytes
    """User headers as stored; empty for a message without."""


class Split(NamedTuple):
    """Messages taken apart: each payload is an object of its own, copied once from its batch.

    The lists have one entry for each message. Offsets and times are signed, as in `Columns`; equal
    times that follow one another may be one object.
    """

    offsets: list[int]
    timestamps: list[int]
    """The append time of the batch, in microseconds."""
    origin_timestamps: list[int]
    """The creation time, in microseconds."""
    ids: bytes
    """16 bytes each, as stored: u128 little-endian."""
    payloads: list[bytes]
    headers: list[bytes]
    """User headers as stored; empty for a message without."""
