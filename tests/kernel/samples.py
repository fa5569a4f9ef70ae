"""Batches made and read without the kernel, ways to damage them, and how to compare outcomes."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from headrace.kernel import BatchError
from headrace.kernel.layout import (
    BATCH_CHECKSUM_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_RESERVED_AT,
    FRAME_HEADER_BYTES,
    FRAME_RESERVED_AT,
    MESSAGE_COUNT_AT,
    OFFSET_DELTA_AT,
    PAYLOAD_BYTES_MAX,
    PAYLOAD_LENGTH_AT,
    USER_HEADERS_BYTES_MAX,
    USER_HEADERS_LENGTH_AT,
)

NO_UPPER_BOUND = 2**64 - 1
CHECKED, UNCHECKED = True, False
U64_MAX = 2**64 - 1
ORIGIN = 1_700_000_000_000_000


class Message(NamedTuple):
    identity: bytes
    time: int
    payload: bytes
    headers: bytes = b""


class Stamp(NamedTuple):
    partition_id: int = 7
    base_offset: int = 1_000
    base_timestamp: int = 1_800_000_000_000_000


def field(kind: int, value: bytes) -> bytes:
    return struct.pack("<BI", kind, len(value)) + value


def headers_of(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(field(2, key) + field(1, value) for key, value in pairs)


def simple_messages(count: int, payload_bytes: int = 20, headers: bytes = b"") -> list[Message]:
    return [
        Message(
            index.to_bytes(16, "little"),
            ORIGIN + 3 * index,
            bytes([index % 255]) * payload_bytes,
            headers,
        )
        for index in range(count)
    ]


def batch_of(messages: list[Message], stamp: Stamp | None = None) -> bytes:
    """The batch a producer sends, or with a stamp what the server makes of it."""
    origin = min(message.time for message in messages)
    frames = b"".join(_frame(index, message, origin) for index, message in enumerate(messages))
    header = bytearray(BATCH_HEADER_BYTES)
    placed = stamp or Stamp(0, 0, 0)
    length = BATCH_HEADER_BYTES + len(frames)
    struct.pack_into("<QQQQQQI", header, 0, *placed, origin, length, 0, len(messages))
    return reseal(bytes(header) + frames)


def _frame(index: int, message: Message, origin: int) -> bytes:
    body = struct.pack(
        "<16sIIIIQ",
        message.identity,
        index,
        message.time - origin,
        len(message.headers),
        len(message.payload),
        0,
    )
    frame = body + message.payload + message.headers
    return struct.pack("<Q", xxh3_64_intdigest(frame)) + frame


def frame_positions(batch: bytes | bytearray) -> list[int]:
    """Where the frames start, as far as their lengths make sense."""
    positions = []
    at = BATCH_HEADER_BYTES
    while at + FRAME_HEADER_BYTES <= len(batch):
        positions.append(at)
        headers, payload = struct.unpack_from("<II", batch, at + USER_HEADERS_LENGTH_AT)
        at += FRAME_HEADER_BYTES + headers + payload
    return positions


def reseal(batch: bytes | bytearray) -> bytes:
    """Set all checksums, so that damage is found by the checks behind them, if by any."""
    sealed = bytearray(batch)
    positions = frame_positions(sealed)
    for start in positions:
        headers, payload = struct.unpack_from("<II", sealed, start + USER_HEADERS_LENGTH_AT)
        end = start + FRAME_HEADER_BYTES + headers + payload
        struct.pack_into("<Q", sealed, start, xxh3_64_intdigest(bytes(sealed[start + 8 : end])))
    if len(sealed) >= BATCH_HEADER_BYTES:
        covered = sealed[:40] + sealed[48:52] + b"".join(sealed[at : at + 8] for at in positions)
        struct.pack_into("<Q", sealed, BATCH_CHECKSUM_AT, xxh3_64_intdigest(bytes(covered)))
    return bytes(sealed)


class Row(NamedTuple):
    offset: int
    timestamp: int
    message: Message


def rows_of(batch: bytes) -> list[Row]:
    """What a consumer should see of a stamped batch."""
    _, base_offset, base_timestamp, origin = struct.unpack_from("<QQQQ", batch)
    rows = []
    for at in frame_positions(batch):
        identity, delta, time_delta, headers, payload = struct.unpack_from(
            "<16sIIII", batch, at + 8
        )
        start = at + FRAME_HEADER_BYTES
        middle = start + payload
        message = Message(
            identity, origin + time_delta, batch[start:middle], batch[middle : middle + headers]
        )
        rows.append(Row(base_offset + delta, base_timestamp, message))
    return rows


def rows_of_columns(columns: Any) -> list[Row]:
    """The same from the columns of the kernel."""
    count = columns.messages_count
    offsets = struct.unpack(f"<{count}q", columns.offsets)
    timestamps = struct.unpack(f"<{count}q", columns.timestamps)
    times = struct.unpack(f"<{count}q", columns.origin_timestamps)
    ends = struct.unpack(f"<{count + 1}i", columns.payload_offsets)
    header_ends = struct.unpack(f"<{count + 1}i", columns.header_offsets)
    assert (ends[0], ends[-1]) == (0, len(columns.payloads))
    assert (header_ends[0], header_ends[-1]) == (0, len(columns.headers))
    return [
        Row(
            offsets[row],
            timestamps[row],
            Message(
                columns.ids[16 * row : 16 * row + 16],
                times[row],
                columns.payloads[ends[row] : ends[row + 1]],
                columns.headers[header_ends[row] : header_ends[row + 1]],
            ),
        )
        for row in range(count)
    ]


def rows_of_split(taken: Any) -> list[Row]:
    """The same from messages that the kernel took apart."""
    assert len(taken.ids) == 16 * len(taken.offsets)
    ids = [taken.ids[at : at + 16] for at in range(0, len(taken.ids), 16)]
    messages = zip(ids, taken.origin_timestamps, taken.payloads, taken.headers, strict=True)
    rows = zip(taken.offsets, taken.timestamps, messages, strict=True)
    return [Row(offset, time, Message(*message)) for offset, time, message in rows]


class Source(NamedTuple):
    """The arguments of `build`."""

    ids: bytes
    timestamps: bytes
    payloads: bytes
    payload_offsets: bytes
    headers: bytes | None
    header_offsets: bytes | None


def source_of(messages: list[Message], *, before: bytes = b"", after: bytes = b"") -> Source:
    """Columns for `build`; with something before or after, they look like a cut Arrow array."""
    with_headers = any(message.headers for message in messages)
    payloads = [message.payload for message in messages]
    headers = [message.headers for message in messages]
    return Source(
        b"".join(message.identity for message in messages),
        struct.pack(f"<{len(messages)}Q", *(message.time for message in messages)),
        before + b"".join(payloads) + after,
        _offsets(len(before), payloads),
        before + b"".join(headers) + after if with_headers else None,
        _offsets(len(before), headers) if with_headers else None,
    )


def _offsets(first: int, values: list[bytes]) -> bytes:
    ends = [first]
    for value in values:
        ends.append(ends[-1] + len(value))
    return struct.pack(f"<{len(ends)}i", *ends)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returned, or all there is to know about the error it raised."""
    try:
        return function(*arguments)
    except BatchError as error:
        return error.reason, error.frame, error.position, error.found, error.wanted, str(error)
    except (ValueError, OverflowError) as error:
        return type(error), str(error)


def admit_outcome(kernel: Any, batch: bytes, count: int, stamp: Stamp) -> Any:
    """The outcome of `admit` together with what it left in the buffer."""
    buffer = bytearray(batch)
    return outcome(kernel.admit, buffer, count, *stamp), bytes(buffer)


def outcomes(kernel: Any, batch: bytes, count: int, offset: int, limit: int) -> list[Any]:
    """What every function that takes a batch makes of these bytes."""
    return [
        outcome(kernel.verify, batch),
        admit_outcome(kernel, batch, count, Stamp()),
        outcome(kernel.find_offset, batch, offset),
        outcome(kernel.find_timestamp, batch, offset),
        outcome(kernel.slice_batch, batch, offset, limit),
        outcome(kernel.columns, batch, offset, U64_MAX, CHECKED),
        outcome(kernel.columns, batch, 0, offset + limit, UNCHECKED),
        outcome(kernel.columns, batch + batch, 0, offset, UNCHECKED),
        outcome(kernel.split, batch, offset, U64_MAX),
        outcome(kernel.split, batch + batch, 0, offset + limit),
    ]


_pairs = st.lists(
    st.tuples(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12)), max_size=3
)
_payloads = st.one_of(
    st.binary(min_size=1, max_size=40),
    # Sizes on both sides of each way to hash and to copy.
    st.builds(
        lambda size, byte: bytes([byte]) * size,
        st.sampled_from(
            [1, 2, 15, 16, 17, 80, 88, 89, 127, 128, 200, 201, 255, 256, 257, 984, 1100]
        ),
        st.integers(0, 255),
    ),
)

messages_strategy = st.lists(
    st.builds(
        Message,
        st.binary(min_size=16, max_size=16),
        st.integers(ORIGIN, ORIGIN + 2**32 - 1),
        _payloads,
        st.one_of(st.builds(headers_of, _pairs), st.binary(max_size=40)),
    ),
    min_size=1,
    max_size=8,
)
stamp_strategy = st.builds(
    Stamp, st.integers(0, U64_MAX), st.integers(0, 2**62), st.integers(0, 2**62)
)


def damage(random: Random, batch: bytes) -> bytes:
    """One to three random mutations, half of the time with all checksums set anew."""
    damaged = bytearray(batch)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        damaged = random.choice(_MUTATIONS)(random, damaged)
    return reseal(damaged) if random.random() < 0.5 else bytes(damaged)


def _flip(random: Random, batch: bytearray) -> bytearray:
    if batch:
        batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
    return batch


def _truncate(random: Random, batch: bytearray) -> bytearray:
    cut = batch[: random.randrange(len(batch) + 1)]
    return _set_length(random, cut)


def _extend(random: Random, batch: bytearray) -> bytearray:
    return _set_length(random, batch + random.randbytes(random.randrange(1, 100)))


def _splice(random: Random, batch: bytearray) -> bytearray:
    if len(batch) < 2:
        return batch
    size = random.randrange(1, min(64, len(batch)))
    source = random.randrange(len(batch) - size + 1)
    target = random.randrange(len(batch) - size + 1)
    batch[target : target + size] = batch[source : source + size]
    return batch


def _set_length(random: Random, batch: bytearray) -> bytearray:
    """Let the header agree with a changed length, mostly: or else nothing more is looked at."""
    if len(batch) >= BATCH_HEADER_BYTES and random.random() < 0.8:
        struct.pack_into("<Q", batch, BATCH_LENGTH_AT, len(batch))
    return batch


_LIMITS = (
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
    BATCH_HEADER_BYTES,
    FRAME_HEADER_BYTES,
)
EDGES = (
    0,
    1,
    2,
    2**31 - 1,
    2**31,
    2**32 - 1,
    *(limit + step for limit in _LIMITS for step in (-1, 0, 1)),
)


def _set_field(random: Random, batch: bytearray) -> bytearray:
    """Put an edge value into a length field, a count, a delta or a reserved field."""
    frames = frame_positions(batch)
    if not frames:
        return batch
    frame = random.choice(frames)
    (payload,) = struct.unpack_from("<I", batch, frame + PAYLOAD_LENGTH_AT)
    places = (
        BATCH_LENGTH_AT,
        MESSAGE_COUNT_AT,
        BATCH_RESERVED_AT,
        frame + USER_HEADERS_LENGTH_AT,
        frame + PAYLOAD_LENGTH_AT,
        frame + FRAME_RESERVED_AT,
        frame + OFFSET_DELTA_AT,
        frame + FRAME_HEADER_BYTES + payload,
        frame + FRAME_HEADER_BYTES + payload + 1,
    )
    place = random.choice(places)
    value = random.choice(
        (*EDGES, len(batch) - 1, len(batch) + 1, payload + 1, max(payload, 1) - 1)
    )
    if place + 4 <= len(batch):
        struct.pack_into(
            "<I", batch, place, value & 0xFFFF_FFFF
        )  # An earlier edge may be the last.
    return batch


_MUTATIONS = (_flip, _flip, _truncate, _extend, _splice, _set_field, _set_field, _set_field)


def damage_source(random: Random, source: Source) -> list[bytes | None]:
    """Change one column: a byte, its length, or one of the 32-bit numbers in it."""
    columns: list[bytes | None] = list(source)
    place = random.randrange(6)
    column = bytearray(columns[place] or b"")
    kind = random.randrange(3)
    if kind == 0 and column:
        column[random.randrange(len(column))] ^= 1 << random.randrange(8)
    elif kind == 1:
        column = column[: random.randrange(len(column) + 1)]
    elif len(column) >= 4:
        at = random.randrange(len(column) // 4) * 4
        column[at : at + 4] = random.choice((*EDGES, len(column))).to_bytes(4, "little")
    if columns[place] is not None:
        columns[place] = bytes(column)
    return columns
