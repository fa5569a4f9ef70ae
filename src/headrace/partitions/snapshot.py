"""The artifact of a partition: all of its state that is not in segment files, as bytes.

It goes into every checkpoint and heads every transfer; docs/formats/partition.md has the layout.

Flow:       checkpoint.
Invariants: equal states give equal bytes; what is read is consistent: segments and lost ranges
            follow each other without a hole, and the pieces of a segment fill it.
"""

import struct

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.index import SegmentIndex
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.offsets import ConsumerOffsets, StoredMark
from headrace.partitions.options import PartitionOptions
from headrace.partitions.pieces import Piece
from headrace.wire.codec import Data, Reader
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.numbers import ConsumerKind

_MAGIC = b"HRPARTN1"
_VERSION = 2
# Identity (2), epoch, purge generation, first and next offset, newest stamp, state hash, counts.
_HEAD = struct.Struct("<8sI4x8QIII4x")
# Base offset, end offset, length, newest stamp, digest of the index, flags, pieces.
_SEGMENT = struct.Struct("<5QII")
_SEGMENT_1 = struct.Struct("<4QII")  # in version 1: no digest
_PIECE = struct.Struct("<3Q")  # first offset, length, chain
_GAP = struct.Struct("<QQ")
_MARK = struct.Struct("<BB2xIQ")  # kind, flags, id, offset
_SEALED = 1
_AHEAD = 1
_CHECKSUM_BYTES = 8


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an artifact; its log is a new object that is not in use yet."""

    log: PartitionLog
    purge_generation: int
    state_hash: int
    marks: tuple[StoredMark, ...]


def encode_snapshot(
    options: PartitionOptions,
    log: PartitionLog,
    offsets: ConsumerOffsets,
    *,
    purge_generation: int,
    state_hash: int,
) -> bytes:
    """Write the state of a partition."""
    assert log.first_offset <= log.next_offset, "a log ends behind its beginning"
    assert not log.segments or log.segments[-1].end_offset <= log.next_offset, "so do its segments"
    parts = [
        _HEAD.pack(
            _MAGIC,
            _VERSION,
            options.namespace,
            options.created_revision,
            log.history_epoch,
            purge_generation,
            log.first_offset,
            log.next_offset,
            log.newest_stamp,
            state_hash,
            len(log.segments),
            len(log.gaps),
            len(offsets.by_consumer),
        )
    ]
    parts += [_encode_segment(segment) for segment in log.segments]
    parts += [_GAP.pack(first, end) for first, end in log.gaps]
    parts += [
        _MARK.pack(mark.kind, _AHEAD if mark.is_ahead else 0, mark.id, mark.offset)
        for mark in offsets.marks()
    ]
    count = 1 + len(log.segments) + len(log.gaps) + len(offsets.by_consumer)
    assert len(parts) == count, "all is written"
    covered = b"".join(parts)
    return covered + xxh3_64(covered).to_bytes(_CHECKSUM_BYTES, "little")


def _encode_segment(segment: Segment) -> bytes:
    if segment.encoded is not None:
        return segment.encoded
    encoded = _write_segment(segment)
    if segment.is_sealed:
        segment.encoded = encoded
    return encoded


def is_encoded_right(segment: Segment) -> bool:
    """Return whether a segment's bytes, if they are kept, are what they would be now."""
    return segment.encoded is None or segment.encoded == _write_segment(segment)


def _write_segment(segment: Segment) -> bytes:
    assert segment.base_offset < segment.end_offset, "a segment begins with its first batch"
    assert segment.pieces[-1].end_position == segment.length, "pieces fill their segment"
    head = _SEGMENT.pack(
        segment.base_offset,
        segment.end_offset,
        segment.length,
        segment.newest_stamp,
        segment.digest,
        _SEALED if segment.is_sealed else 0,
        len(segment.pieces),
    )
    pieces = [_PIECE.pack(each.first_offset, each.length, each.chain) for each in segment.pieces]
    return b"".join([head, *pieces])


def decode_snapshot(data: Data, options: PartitionOptions) -> Snapshot:
    """Read the state of this partition.

    Raises:
        CorruptError: It is damaged, of another partition or version, or is not consistent.
    """
    if len(data) < _HEAD.size + _CHECKSUM_BYTES:
        raise CorruptError(f"partition state of {len(data)} bytes")
    covered = memoryview(data)[:-_CHECKSUM_BYTES]
    (
        magic,
        version,
        namespace,
        revision,
        epoch,
        generation,
        first,
        following,
        stamp,
        state_hash,
    ) = _HEAD.unpack_from(covered)[:10]
    segments_count, gaps_count, marks_count = _HEAD.unpack_from(covered)[10:]
    if magic != _MAGIC or xxh3_64(covered) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little"):
        raise CorruptError(f"partition state of {len(data)} bytes has a wrong checksum")
    if not 1 <= version <= _VERSION:
        raise CorruptError(f"partition state of version {version}, known up to {_VERSION}")
    if (namespace, revision) != (options.namespace, options.created_revision):
        raise CorruptError(f"state of partition {namespace}, created at {revision}")
    log = PartitionLog(options)
    log.history_epoch = epoch
    log.first_offset = first
    log.next_offset = following
    log.newest_stamp = stamp
    reader = Reader(covered[_HEAD.size :])
    try:
        for _ in range(segments_count):
            _read_segment(reader, log, version)
        log.gaps = [_GAP.unpack(reader.take(_GAP.size)) for _ in range(gaps_count)]
        marks = tuple([_read_mark(reader) for _ in range(marks_count)])
    except DecodeError as error:
        raise CorruptError(f"partition state: {error}") from None
    if reader.remaining:
        raise CorruptError(f"partition state with {reader.remaining} bytes left over")
    _check_log(log)
    assert log.messages_count <= log.next_offset - log.first_offset, "each has an offset"
    return Snapshot(log=log, purge_generation=generation, state_hash=state_hash, marks=marks)


def _read_segment(reader: Reader, log: PartitionLog, version: int) -> None:
    if version == 1:
        # No digest proves an index of such a segment: its pieces are walked when they are read.
        *measures, flags, pieces_count = _SEGMENT_1.unpack(reader.take(_SEGMENT_1.size))
        digest = 0
    else:
        *measures, digest, flags, pieces_count = _SEGMENT.unpack(reader.take(_SEGMENT.size))
    base, end, length, stamp = measures
    segment = log.begin_segment(base)
    position = SEGMENT_HEADER_BYTES
    for _ in range(pieces_count):
        first_offset, piece_length, chain = _PIECE.unpack(reader.take(_PIECE.size))
        segment.pieces.append(Piece(first_offset, position, piece_length, chain))
        position += piece_length
    starts = [piece.first_offset for piece in segment.pieces]
    if (
        position != length
        or not starts
        or starts[0] != base
        or any(low >= high for low, high in zip(starts, [*starts[1:], end], strict=True))
    ):
        raise CorruptError(f"pieces that do not fill the segment of offset {base}")
    segment.end_offset = end
    segment.length = length
    segment.newest_stamp = stamp
    segment.digest = digest
    segment.is_sealed = bool(flags & _SEALED)
    if not segment.is_sealed:
        segment.index = SegmentIndex(segment.pieces)
    assert segment.batch_bytes == sum(each.length for each in segment.pieces), "pieces fill it"
    log.messages_count += end - base
    log.size_bytes += segment.batch_bytes


def _read_mark(reader: Reader) -> StoredMark:
    kind, flags, consumer_id, offset = _MARK.unpack(reader.take(_MARK.size))
    if kind not in (ConsumerKind.CONSUMER, ConsumerKind.GROUP):
        raise DecodeError(f"consumer of kind {kind}")
    return StoredMark(ConsumerKind(kind), consumer_id, offset, bool(flags & _AHEAD))


def _check_log(log: PartitionLog) -> None:
    """Refuse a log whose segments and lost ranges do not follow each other."""
    spans = [(segment.base_offset, segment.end_offset) for segment in log.segments]
    expected = log.first_offset
    for first, end in sorted([*spans, *log.gaps]):
        if first != expected or end <= first:
            raise CorruptError(f"offsets {first} to {end} where {expected} should follow")
        expected = end
    stamps = [segment.newest_stamp for segment in log.segments]
    if (
        expected != log.next_offset
        or not all(segment.is_sealed for segment in log.segments[:-1])
        or stamps != sorted(stamps)
        or log.newest_stamp < max(stamps, default=0)
    ):
        raise CorruptError(f"a log that ends at {expected}, said to end at {log.next_offset}")
