"""The kernel in Python: used without a compiler, and the reference for tests of the C file.

Same functions, same results, same errors as `_native.c`: checks are made in the same order.
Arguments are positional, as there.
"""

from __future__ import annotations

from itertools import pairwise
from operator import index as as_int
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

from headrace.kernel.errors import BatchError, Reason
from headrace.kernel.layout import (
    BASE_OFFSET_AT,
    BATCH_BYTES_MAX,
    BATCH_CHECKSUM_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_RESERVED_AT,
    COLUMN_BYTES_MAX,
    FOLD_RECORD_BYTES_MAX,
    FRAME_HEADER_BYTES,
    FRAME_ID_AT,
    FRAME_RESERVED_AT,
    MESSAGE_COUNT_AT,
    MESSAGE_ID_BYTES,
    OFFSET_DELTA_AT,
    OFFSET_MAX,
    PARTITION_ID_AT,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_LENGTH_AT,
    USER_HEADERS_BYTES_MAX,
    USER_HEADERS_LENGTH_AT,
    Columns,
    Split,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer, WriteableBuffer

_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1
_I64_MAX = 2**63 - 1

# partition_id, base_offset, base_timestamp, origin_timestamp, batch_length, checksum, count
_HEADER = Struct("<QQQQQQI")
_STAMP = Struct("<QQQ")
# checksum, offset_delta, timestamp_delta, user_headers_length, payload_length, reserved
_FRAME = Struct("<Q16xIIIIQ")
# id, offset_delta, timestamp_delta, user_headers_length, payload_length, reserved
_FRAME_BODY = Struct("<16sIIIIQ")
_U32 = Struct("<I")
_U64 = Struct("<Q")
_ROW = Struct("<4Q")
_RESERVED = bytes(BATCH_HEADER_BYTES - BATCH_RESERVED_AT)


class _Batch(NamedTuple):
    """The checked header of one batch."""

    position: int
    length: int
    messages_count: int
    spare: int  # Bytes that payloads and user headers share.
    base_offset: int
    base_timestamp: int
    origin_timestamp: int
    delta_first: int


# Checksum, position, timestamp_delta, where payload and user headers start, and the end. A plain
# tuple: one with names takes three times as long to make, and one is made for each message.
_Frame = tuple[int, int, int, int, int, int]


def admit(
    batch: WriteableBuffer,
    messages_count: int,
    partition_id: int,
    base_offset: int,
    base_timestamp: int,
    /,
) -> int:
    """Check one producer batch and stamp it in place; return its new checksum.

    The batch fills the buffer. On any error nothing is written.

    Raises:
        BatchError: The batch is not what a producer may send.
        OverflowError: A number, or the last offset, does not fit in 64 bits.
    """
    view = _view(batch)
    if view.readonly:
        raise BufferError("batch is not writable")
    messages_count = _u64("messages_count", messages_count)
    partition_id = _u64("partition_id", partition_id)
    base_offset = _u64("base_offset", base_offset)
    base_timestamp = _u64("base_timestamp", base_timestamp)
    if base_offset + messages_count > _U64_MAX:
        raise OverflowError("base_offset + messages_count does not fit in 64 bits")
    opened = _open(view, 0, exact=True)
    if opened.messages_count != messages_count:
        raise _batch_fault(
            Reason.MESSAGE_COUNT, MESSAGE_COUNT_AT, opened.messages_count, messages_count
        )
    checksums = _checksums(_check(view, opened))
    _STAMP.pack_into(view, 0, partition_id, base_offset, base_timestamp)
    checksum = _batch_checksum(view, checksums)
    _U64.pack_into(view, BATCH_CHECKSUM_AT, checksum)
    return checksum


def verify(batch: ReadableBuffer, /) -> int:
    """Check one stamped or sliced batch that fills the buffer; return its checksum.

    Raises:
        BatchError: The batch is damaged.
    """
    view = _view(batch)
    opened = _open_stamped(view, 0, exact=True)
    _check(view, opened)
    (checksum,) = _U64.unpack_from(view, BATCH_CHECKSUM_AT)
    return int(checksum)


def prove(
    batches: ReadableBuffer, partition_id: int, offset: int, chain: int, /
) -> tuple[int, int, int, bytes]:
    """Verify whole stamped batches that follow each other, each the next one of its partition.

    Return how many bytes are good, offset and chain behind them, and a row for each batch: its
    base_offset, base_timestamp, position, and the chain before it. The first batch that is cut,
    damaged or another one than expected ends the run; `verify` says why.

    Raises:
        OverflowError: A number does not fit in 64 bits.
    """
    partition_id = _u64("partition_id", partition_id)
    offset = _u64("offset", offset)
    chain = _u64("chain", chain)
    view = _view(batches)
    position = 0
    rows = []
    while True:
        try:
            batch = _open_stamped(view, position, exact=False)
            (found,) = _U64.unpack_from(view, position + PARTITION_ID_AT)
            if batch.base_offset != offset or batch.delta_first or found != partition_id:
                break
            _check(view, batch)
        except BatchError:
            break
        rows.append(_ROW.pack(offset, batch.base_timestamp, position, chain))
        checksum_at = position + BATCH_CHECKSUM_AT
        chain = fold(chain, view[checksum_at : checksum_at + _U64.size], _U64.size)
        offset += batch.messages_count
        position += batch.length
    return position, offset, chain, b"".join(rows)


def fold(chain: int, records: ReadableBuffer, record_bytes: int, /) -> int:
    """Return the chain that is longer by some records of one size: each link is a hash.

    Raises:
        ValueError: The records are not of that size, or it is out of bounds.
        OverflowError: A number does not fit in 64 bits.
    """
    chain = _u64("chain", chain)
    size = _u64("record_bytes", record_bytes)
    view = _view(records)
    if not 1 <= size <= FOLD_RECORD_BYTES_MAX or len(view) % size:
        raise ValueError("records of one size, 1 to 56 bytes, are wanted")
    for at in range(0, len(view), size):
        chain = xxh3_64_intdigest(_U64.pack(chain) + view[at : at + size])
    return chain


def find_offset(batch: ReadableBuffer, offset: int, /) -> tuple[int, int]:
    """Return index and byte position of the first frame at or after an offset.

    Without such a frame: the number of messages and the length of the batch. Checksums are not
    looked at, nor frames after the one found.

    Raises:
        BatchError: The batch is malformed.
        OverflowError: The offset does not fit in 64 bits.
    """
    view = _view(batch)
    offset = _u64("offset", offset)
    opened = _open_stamped(view, 0, exact=True)
    first, stop = _select(opened, offset, OFFSET_MAX)
    if first == stop:
        return opened.messages_count, opened.length
    *_, (_, position, *_) = _walk(view, opened, first + 1, check=False)
    return first, position


def find_timestamp(batch: ReadableBuffer, timestamp: int, /) -> tuple[int, int]:
    """Return index and byte position of the first frame created at or after a time.

    The time is in microseconds and held against origin_timestamp + timestamp_delta. Otherwise as
    `find_offset`.

    Raises:
        BatchError: The batch is malformed.
        OverflowError: The time does not fit in 64 bits.
    """
    view = _view(batch)
    timestamp = _u64("timestamp", timestamp)
    opened = _open_stamped(view, 0, exact=True)
    behind = timestamp - opened.origin_timestamp
    frames = _walk(view, opened, opened.messages_count, check=False)
    for index, (_, position, timestamp_delta, *_) in enumerate(frames):
        if timestamp_delta >= behind:
            return index, position
    return opened.messages_count, opened.length


def slice_batch(batch: ReadableBuffer, offset: int, count: int, /) -> tuple[bytes, int, int]:
    """Return the header of a cut batch and where its frames start and end.

    The cut batch is that header and then `batch[start:end]`: the messages from `offset` on, at
    most `count` of them. Frame checksums are taken as stored and frames after the cut are not
    looked at.

    Raises:
        BatchError: The batch is malformed.
        ValueError: No message is in range, or `count` is below one.
        OverflowError: A number does not fit in 64 bits.
    """
    view = _view(batch)
    offset = _u64("offset", offset)
    if as_int(count) < 1:
        raise ValueError("a slice holds at least one message")
    count = _u64("count", count)
    opened = _open_stamped(view, 0, exact=True)
    first, stop = _select(opened, offset, OFFSET_MAX)
    if first == stop:
        raise ValueError(f"no message at or after offset {offset}")
    stop = min(stop, first + count)
    frames = list(_walk(view, opened, stop, check=False))[first:]
    _, start, *_ = frames[0]
    *_, end = frames[-1]
    header = bytearray(view[:BATCH_HEADER_BYTES])
    _U64.pack_into(header, BATCH_LENGTH_AT, BATCH_HEADER_BYTES + end - start)
    _U32.pack_into(header, MESSAGE_COUNT_AT, len(frames))
    checksum = _batch_checksum(header, _checksums(frames))
    _U64.pack_into(header, BATCH_CHECKSUM_AT, checksum)
    return bytes(header), start, end


def build(
    ids: ReadableBuffer,
    timestamps: ReadableBuffer,
    payloads: ReadableBuffer,
    payload_offsets: ReadableBuffer,
    headers: ReadableBuffer | None,
    header_offsets: ReadableBuffer | None,
    /,
) -> bytes:
    """Return a producer batch made from columns; `admit` takes it as it is.

    Args:
        ids: 16 bytes each, u128 little-endian.
        timestamps: 8 bytes each, creation time in microseconds.
        payloads: The payloads, one after the other.
        payload_offsets: Signed 32-bit numbers, one more than messages: where in `payloads` each
            message starts and ends. The first need not be zero.
        headers: The user headers, one after the other, or None.
        header_offsets: The same for `headers`; None if that is None.

    Raises:
        BatchError: The columns do not fit together, or break a limit of the batch layout.
    """
    if (headers is None) != (header_offsets is None):
        raise TypeError("headers and header_offsets are given both or neither")
    views = [_view(column) for column in (ids, timestamps, payloads, payload_offsets)]
    views += [_view(column) for column in (headers, header_offsets) if column is not None]
    count = _count_rows(views[0], views[1])
    payload_ends = _ends(views[2], views[3], count)
    header_values = views[4] if len(views) > 4 else memoryview(b"")
    header_ends = _ends(views[4], views[5], count) if len(views) > 4 else (0,) * (count + 1)
    size = BATCH_HEADER_BYTES + count * FRAME_HEADER_BYTES
    size += payload_ends[-1] - payload_ends[0] + header_ends[-1] - header_ends[0]
    if size > BATCH_BYTES_MAX:
        raise _batch_fault(Reason.BATCH_SIZE, 0, size, BATCH_BYTES_MAX)
    times = Struct(f"<{count}Q").unpack(views[1])
    origin = min(times)
    parts = []
    for index in range(count):
        _check_row(index, payload_ends, header_ends, times[index] - origin)
        payload = views[2][payload_ends[index] : payload_ends[index + 1]]
        start, end = header_ends[index], header_ends[index + 1]
        body = _FRAME_BODY.pack(
            bytes(views[0][index * MESSAGE_ID_BYTES : (index + 1) * MESSAGE_ID_BYTES]),
            index,
            times[index] - origin,
            end - start,
            len(payload),
            0,
        )
        frame = b"".join((body, payload, header_values[start:end]))
        parts.append((_U64.pack(xxh3_64_intdigest(frame)), frame))
    header = bytearray(BATCH_HEADER_BYTES)
    _HEADER.pack_into(header, 0, 0, 0, 0, origin, size, 0, count)
    checksum = _batch_checksum(header, b"".join([part[0] for part in parts]))
    _U64.pack_into(header, BATCH_CHECKSUM_AT, checksum)
    return b"".join((header, *[piece for part in parts for piece in part]))


def columns(
    batches: ReadableBuffer,
    offset_min: int,
    offset_max: int,
    check: bool,  # noqa: FBT001  # positional, as every argument of the kernel's functions
    /,
) -> Columns:
    """Return the messages with offset_min <= offset < offset_max as columns.

    `batches` is any number of whole stamped batches, one after the other. Those that lie outside
    the range are passed over by their header. With `check` each of the others is verified whole;
    without it only what is needed is looked at, and no checksum.

    Pass `OFFSET_MAX` (2**64 - 1) as `offset_max` for no upper bound: no message has that offset.

    Raises:
        BatchError: A batch is damaged.
        ValueError: The batches touched hold more than 2**31 - 1 bytes of messages.
        OverflowError: A number does not fit in 64 bits.
    """
    view = _view(batches)
    rows = _read_rows(view, offset_min, offset_max, check=check)
    numbers = Struct(f"<{len(rows.frames)}Q")
    payloads = [view[start:end] for _, _, _, start, end, _ in rows.frames]
    headers = [view[start:end] for _, _, _, _, start, end in rows.frames]
    return Columns(
        messages_count=len(rows.frames),
        offsets=numbers.pack(*rows.offsets),
        timestamps=numbers.pack(*rows.timestamps),
        origin_timestamps=numbers.pack(*rows.origins),
        ids=_ids(view, rows.frames),
        payload_offsets=_value_offsets(payloads),
        payloads=b"".join(payloads),
        header_offsets=_value_offsets(headers),
        headers=b"".join(headers),
    )


def split(batches: ReadableBuffer, offset_min: int, offset_max: int, /) -> Split:
    """Return the messages with offset_min <= offset < offset_max, each value as its own object.

    As `columns` with `check`, for who wants messages one by one: a payload is copied once, from its
    batch into the object that is handed out.

    Raises:
        BatchError: A batch is damaged.
        ValueError: The batches touched hold more than 2**31 - 1 bytes of messages.
        OverflowError: A number does not fit in 64 bits.
    """
    view = _view(batches)
    rows = _read_rows(view, offset_min, offset_max, check=True)
    return Split(
        offsets=_signed(rows.offsets),
        timestamps=_signed(rows.timestamps),
        origin_timestamps=_signed(rows.origins),
        ids=_ids(view, rows.frames),
        payloads=[bytes(view[start:end]) for _, _, _, start, end, _ in rows.frames],
        headers=[bytes(view[start:end]) for _, _, _, _, start, end in rows.frames],
    )


def cut(values: ReadableBuffer, offsets: ReadableBuffer, /) -> list[bytes]:
    """Return the values of a column of byte strings, each as an object of its own.

    Args:
        values: The strings, one after the other.
        offsets: Signed 32-bit numbers, one more than strings: where in `values` each starts and
            ends. The first need not be zero.

    Raises:
        BatchError: The offsets are no whole numbers, fall, or lie outside the values.
    """
    view, offsets_view = _view(values), _view(offsets)
    count = max(len(offsets_view) // 4, 1) - 1
    ends = _ends(view, offsets_view, count)
    for index in range(count):
        _check_end(index, ends)
    data = bytes(view)
    return [data[start:end] for start, end in pairwise(ends)]


def xxh3_64(data: ReadableBuffer, /) -> int:
    """Return the XXH3 64-bit hash of the data, seed 0."""
    return xxh3_64_intdigest(_view(data))


def _view(data: ReadableBuffer) -> memoryview:
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("buffer is not C-contiguous")
    return view.cast("B")


def _u64(name: str, value: int) -> int:
    value = as_int(value)
    if not 0 <= value <= _U64_MAX:
        raise OverflowError(f"{name} does not fit in 64 bits")
    return value


def _batch_fault(reason: Reason, position: int, found: int, wanted: int) -> BatchError:
    return BatchError(reason, -1, position, found, wanted)


def _open(view: memoryview, position: int, *, exact: bool) -> _Batch:
    """Check the header of the batch at `position`; with `exact` it must fill the buffer."""
    left = len(view) - position
    if left < BATCH_HEADER_BYTES:
        raise _batch_fault(Reason.HEADER_TRUNCATED, position, left, BATCH_HEADER_BYTES)
    _, base_offset, base_timestamp, origin, length, _, count = _HEADER.unpack_from(view, position)
    if length < BATCH_HEADER_BYTES or length > left or (exact and length != left):
        raise _batch_fault(Reason.BATCH_LENGTH, position + BATCH_LENGTH_AT, length, left)
    reserved = view[position + BATCH_RESERVED_AT : position + BATCH_HEADER_BYTES]
    if reserved != _RESERVED:
        at = next(at for at, byte in enumerate(reserved) if byte)
        place = position + BATCH_RESERVED_AT + at
        raise _batch_fault(Reason.BATCH_RESERVED, place, reserved[at], 0)
    count_max = (length - BATCH_HEADER_BYTES) // FRAME_HEADER_BYTES
    if not 1 <= count <= count_max:
        place = position + MESSAGE_COUNT_AT
        raise _batch_fault(Reason.MESSAGE_COUNT_RANGE, place, count, count_max)
    spare = length - BATCH_HEADER_BYTES - count * FRAME_HEADER_BYTES
    return _Batch(position, length, count, spare, base_offset, base_timestamp, origin, 0)


def _open_stamped(view: memoryview, position: int, *, exact: bool) -> _Batch:
    """The same for a stamped batch: it may be a slice, so its first delta may be above zero."""
    batch = _open(view, position, exact=exact)
    (delta_first,) = _U32.unpack_from(view, position + BATCH_HEADER_BYTES + OFFSET_DELTA_AT)
    base_offset_max = _U64_MAX - delta_first - batch.messages_count
    if batch.base_offset > base_offset_max:
        place = position + BASE_OFFSET_AT
        raise _batch_fault(Reason.BASE_OFFSET, place, batch.base_offset, base_offset_max)
    return batch._replace(delta_first=delta_first)


def _walk(view: memoryview, batch: _Batch, stop: int, *, check: bool) -> Iterator[_Frame]:
    """Yield the frames before index `stop`; `check` adds their checksums.

    `spare` falls by each payload and its user headers; as it never falls below zero, every frame
    header to come lies inside the batch.
    """
    position = batch.position + BATCH_HEADER_BYTES
    spare = batch.spare
    for index in range(stop):
        checksum, delta, timestamp_delta, headers, payload, reserved = _FRAME.unpack_from(
            view, position
        )
        body = payload + headers
        if (
            not 1 <= payload <= PAYLOAD_BYTES_MAX
            or headers > USER_HEADERS_BYTES_MAX
            or body > spare
        ):
            raise _length_fault(index, position, payload, headers, spare)
        headers_at = position + FRAME_HEADER_BYTES + payload
        end = headers_at + headers
        if (
            check
            and (computed := xxh3_64_intdigest(view[position + FRAME_ID_AT : end])) != checksum
        ):
            raise BatchError(Reason.FRAME_CHECKSUM, index, position, checksum, computed)
        if reserved:
            place = position + FRAME_RESERVED_AT
            raise BatchError(Reason.FRAME_RESERVED, index, place, reserved, 0)
        if delta != batch.delta_first + index:
            place = position + OFFSET_DELTA_AT
            wanted = batch.delta_first + index
            raise BatchError(Reason.OFFSET_DELTA, index, place, delta, wanted)
        yield checksum, position, timestamp_delta, headers_at - payload, headers_at, end
        position = end
        spare -= body
    if stop == batch.messages_count and spare:
        raise _batch_fault(Reason.TRAILING_BYTES, position, spare, 0)


def _length_fault(index: int, position: int, payload: int, headers: int, spare: int) -> BatchError:
    if not 1 <= payload <= PAYLOAD_BYTES_MAX:
        place = position + PAYLOAD_LENGTH_AT
        return BatchError(Reason.PAYLOAD_LENGTH, index, place, payload, PAYLOAD_BYTES_MAX)
    if headers > USER_HEADERS_BYTES_MAX:
        place = position + USER_HEADERS_LENGTH_AT
        return BatchError(Reason.USER_HEADERS_LENGTH, index, place, headers, USER_HEADERS_BYTES_MAX)
    return BatchError(Reason.FRAME_LENGTH, index, position, payload + headers, spare)


def _check(view: memoryview, batch: _Batch) -> list[_Frame]:
    """Make every check of an opened batch; return its frames."""
    frames = list(_walk(view, batch, batch.messages_count, check=True))
    place = batch.position + BATCH_CHECKSUM_AT
    (stored,) = _U64.unpack_from(view, place)
    computed = _batch_checksum(view[batch.position :], _checksums(frames))
    if stored != computed:
        raise _batch_fault(Reason.BATCH_CHECKSUM, place, stored, computed)
    return frames


def _checksums(frames: list[_Frame]) -> bytes:
    return Struct(f"<{len(frames)}Q").pack(*[frame[0] for frame in frames])


def _batch_checksum(header: memoryview | bytearray, checksums: bytes) -> int:
    """Hash the header without its checksum and reserved bytes, then the frame checksums."""
    head = header[:BATCH_CHECKSUM_AT]
    count = header[MESSAGE_COUNT_AT:BATCH_RESERVED_AT]
    return xxh3_64_intdigest(b"".join((head, count, checksums)))


def _select(batch: _Batch, offset_min: int, offset_max: int) -> tuple[int, int]:
    """Return first and stop: the indexes of the frames in the range; equal when there are none."""
    start = batch.base_offset + batch.delta_first
    stop = min(max(offset_max - start, 0), batch.messages_count)
    return min(max(offset_min - start, 0), stop), stop


def _touched(
    view: memoryview, offset_min: int, offset_max: int
) -> Iterator[tuple[_Batch, int, int]]:
    """Yield each batch with messages in the range, and which of its frames they are."""
    position = 0
    while position < len(view):
        batch = _open_stamped(view, position, exact=False)
        first, stop = _select(batch, offset_min, offset_max)
        if first < stop:
            yield batch, first, stop
        position += batch.length


class _Rows(NamedTuple):
    """The frames in a range of offsets, and the numbers of each."""

    offsets: list[int]
    timestamps: list[int]
    origins: list[int]
    frames: list[_Frame]


def _read_rows(view: memoryview, offset_min: int, offset_max: int, *, check: bool) -> _Rows:
    offset_min = _u64("offset_min", offset_min)
    offset_max = _u64("offset_max", offset_max)
    touched = list(_touched(view, offset_min, offset_max))
    size = sum(batch.spare for batch, _, _ in touched)
    if size > COLUMN_BYTES_MAX:
        raise ValueError(f"batches with {size} bytes of messages, limit {COLUMN_BYTES_MAX}")
    rows = _Rows([], [], [], [])
    for batch, first, stop in touched:
        walked = _check(view, batch) if check else list(_walk(view, batch, stop, check=False))
        selected = walked[first:stop]
        start = batch.base_offset + batch.delta_first
        rows.offsets.extend(range(start + first, start + stop))
        rows.timestamps.extend([batch.base_timestamp] * len(selected))
        rows.origins.extend(
            (batch.origin_timestamp + timestamp_delta) & _U64_MAX
            for _, _, timestamp_delta, _, _, _ in selected
        )
        rows.frames.extend(selected)
    return rows


def _ids(view: memoryview, frames: list[_Frame]) -> bytes:
    return b"".join([view[at + FRAME_ID_AT : at + OFFSET_DELTA_AT] for _, at, _, _, _, _ in frames])


def _signed(numbers: list[int]) -> list[int]:
    """Return the numbers as signed ones of 64 bits, as columns have them."""
    if not numbers or max(numbers) <= _I64_MAX:
        return numbers
    return [number - 2**64 if number > _I64_MAX else number for number in numbers]


def _value_offsets(values: list[memoryview]) -> bytes:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return Struct(f"<{len(ends)}i").pack(*ends)


def _count_rows(ids: memoryview, timestamps: memoryview) -> int:
    count, rest = divmod(len(ids), MESSAGE_ID_BYTES)
    if rest:
        raise _batch_fault(Reason.COLUMN_LENGTH, 0, len(ids), count * MESSAGE_ID_BYTES)
    count_max = (BATCH_BYTES_MAX - BATCH_HEADER_BYTES) // FRAME_HEADER_BYTES
    if not 1 <= count <= count_max:
        raise _batch_fault(Reason.MESSAGE_COUNT_RANGE, 0, count, count_max)
    if len(timestamps) != 8 * count:
        raise _batch_fault(Reason.COLUMN_LENGTH, 0, len(timestamps), 8 * count)
    return count


def _ends(values: memoryview, offsets: memoryview, count: int) -> tuple[int, ...]:
    """Return the value offsets of a column; only the first and the last are checked here."""
    if len(offsets) != 4 * (count + 1):
        raise _batch_fault(Reason.COLUMN_LENGTH, 0, len(offsets), 4 * (count + 1))
    # Read as unsigned: a negative offset is then above every limit.
    ends = Struct(f"<{count + 1}I").unpack(offsets)
    limit = min(len(values), COLUMN_BYTES_MAX)
    if ends[-1] > limit:
        raise _batch_fault(Reason.COLUMN_OFFSETS, 4 * count, ends[-1], limit)
    if ends[0] > ends[-1]:
        raise _batch_fault(Reason.COLUMN_OFFSETS, 0, ends[0], ends[-1])
    return ends


def _check_end(index: int, ends: tuple[int, ...]) -> None:
    """Check that a value ends behind its start and no later than the last one."""
    start, end = ends[index], ends[index + 1]
    if end > ends[-1] or end < start:
        wanted = start if end < start else ends[-1]
        raise BatchError(Reason.COLUMN_OFFSETS, index, 4 * (index + 1), end, wanted)


def _check_row(
    index: int, payload_ends: tuple[int, ...], header_ends: tuple[int, ...], delta: int
) -> None:
    """Check the lengths and the creation time of one message to be."""
    _check_end(index, payload_ends)
    _check_end(index, header_ends)
    payload = payload_ends[index + 1] - payload_ends[index]
    if not 1 <= payload <= PAYLOAD_BYTES_MAX:
        raise BatchError(Reason.PAYLOAD_LENGTH, index, 4 * index, payload, PAYLOAD_BYTES_MAX)
    headers = header_ends[index + 1] - header_ends[index]
    if headers > USER_HEADERS_BYTES_MAX:
        limit = USER_HEADERS_BYTES_MAX
        raise BatchError(Reason.USER_HEADERS_LENGTH, index, 4 * index, headers, limit)
    if delta > _U32_MAX:
        raise BatchError(Reason.TIMESTAMP_SPAN, index, 8 * index, delta, _U32_MAX)
