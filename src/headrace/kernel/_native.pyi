from _typeshed import ReadableBuffer, WriteableBuffer

# The same classes as those of the twin, as far as types go.
from headrace.kernel.gathering import Frames as Frames
from headrace.kernel.gathering import Gatherer as Gatherer
from headrace.kernel.gathering import Receipt as Receipt
from headrace.kernel.layout import Columns

# Layout and reasons, as the C code has them; library.py compares them when it is imported.
def __getattr__(name: str) -> int: ...

# Described in twin.py.
def admit(
    batch: WriteableBuffer,
    messages_count: int,
    partition_id: int,
    base_offset: int,
    base_timestamp: int,
    /,
) -> int: ...
def verify(batch: ReadableBuffer, /) -> int: ...
def prove(
    batches: ReadableBuffer, partition_id: int, offset: int, chain: int, /
) -> tuple[int, int, int, bytes]: ...
def fold(chain: int, records: ReadableBuffer, record_bytes: int, /) -> int: ...
def find_offset(batch: ReadableBuffer, offset: int, /) -> tuple[int, int]: ...
def find_timestamp(batch: ReadableBuffer, timestamp: int, /) -> tuple[int, int]: ...
def slice_batch(batch: ReadableBuffer, offset: int, count: int, /) -> tuple[bytes, int, int]: ...
def build(
    ids: ReadableBuffer,
    timestamps: ReadableBuffer,
    payloads: ReadableBuffer,
    payload_offsets: ReadableBuffer,
    headers: ReadableBuffer | None,
    header_offsets: ReadableBuffer | None,
    /,
) -> bytes: ...
def columns(
    batches: ReadableBuffer,
    offset_min: int,
    offset_max: int,
    check: bool,
    /,
) -> Columns: ...
def cut(values: ReadableBuffer, offsets: ReadableBuffer, /) -> list[bytes]: ...
def xxh3_64(data: ReadableBuffer, /) -> int: ...

# Native only: the paths without AVX2, for tests, and the yardstick of bench/kernel.py.
def xxh3_64_scalar(data: ReadableBuffer, /) -> int: ...
def columns_scalar(
    batches: ReadableBuffer, offset_min: int, offset_max: int, check: bool, /
) -> Columns: ...
def hash_frames(batch: ReadableBuffer, /) -> int: ...
