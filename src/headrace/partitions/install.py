"""What a state that comes from elsewhere must prove before it becomes ours (PT-24, PT-25).

Every piece that the state names is there once: fetched, and then every batch of it is verified, or
ours already, at the very place that the state gives it.

Flow: checkpoint.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.pieces import Piece
from headrace.ports.machine import Artifact, StoredPiece
from headrace.ports.machine import Piece as AnyPiece
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import chain_batch, decode_batch_header, split_batches, verify_batch
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.replica.artifacts import ArtifactKind


class Fetched(msgspec.Struct, frozen=True):
    """A verified piece that must be written at its place."""

    segment: Segment
    piece: Piece
    data: bytes


def state_artifact(pieces: Iterable[AnyPiece]) -> Artifact:
    """Return the one artifact that holds all but the batches.

    Raises:
        CorruptError: There is none, or more than one.
    """
    found = [piece for piece in pieces if piece.kind == ArtifactKind.CONSUMER_OFFSETS]
    if len(found) != 1 or not isinstance(found[0], Artifact):
        raise CorruptError(f"{len(found)} states of a partition, 1 wanted")
    return found[0]


def check_pieces(
    pieces: Sequence[AnyPiece], log: PartitionLog, *, held: PartitionLog
) -> list[Fetched]:
    """Return the fetched pieces of a log; the others are held already.

    Raises:
        CorruptError: A piece is missing, too many, damaged, or not where it should be.
    """
    given: dict[tuple[int, int, int], AnyPiece] = {}
    for piece in pieces:
        if piece.kind == ArtifactKind.SEGMENT_LOG:
            given[_key(piece)] = piece
        elif piece.kind != ArtifactKind.CONSUMER_OFFSETS:
            raise CorruptError(f"a piece of kind {piece.kind}")
    ours = {
        (segment.file, own.position): (own.length, own.chain) for segment, own, _ in _places(held)
    }
    assert len(ours) == sum(len(each.pieces) for each in held.segments), "a place has one piece"
    fetched: list[Fetched] = []
    stamp = 0
    for segment, own, end_offset in _places(log):
        key = (own.first_offset, own.length, own.chain)
        found = given.pop(key) if key in given else None
        if isinstance(found, Artifact):
            stamp = _check_batches(segment, own, found.data, end_offset, stamp)
            fetched.append(Fetched(segment, own, found.data))
        elif found is None or not _is_held(found, segment, own, ours):
            raise CorruptError(f"the piece of offset {own.first_offset} is neither here nor ours")
    if given:
        raise CorruptError(f"{len(given)} pieces that the state does not name")
    assert len(fetched) <= len(pieces), "what is written was given"
    assert sum(len(each.data) for each in fetched) <= log.size_bytes, "no piece is taken twice"
    return fetched


def _key(piece: AnyPiece) -> tuple[int, int, int]:
    if isinstance(piece, StoredPiece):
        return piece.frontier, piece.length, piece.checksum
    chain = 0
    try:
        for batch in split_batches(piece.data):
            chain = chain_batch(chain, decode_batch_header(batch).checksum)
    except DecodeError as error:
        raise CorruptError(f"piece of offset {piece.frontier}: {error}") from None
    return piece.frontier, len(piece.data), chain


def _places(log: PartitionLog) -> Iterable[tuple[Segment, Piece, int]]:
    """Return every piece of a log with its segment and the offset after it."""
    for segment in log.segments:
        ends = [piece.first_offset for piece in segment.pieces[1:]] + [segment.end_offset]
        for piece, end_offset in zip(segment.pieces, ends, strict=True):
            assert piece.first_offset < end_offset, "a piece holds a message"
            assert piece.end_position <= segment.length, "a piece lies in its segment"
            yield segment, piece, end_offset


def _check_batches(segment: Segment, piece: Piece, data: bytes, end_offset: int, stamp: int) -> int:
    """Verify every batch of a fetched piece; return its newest stamp."""
    partition_id = unpack_namespace(GroupId(segment.file.namespace)).partition
    expected = piece.first_offset
    for batch in split_batches(data):
        verify_batch(batch)
        header = decode_batch_header(batch)
        if (
            header.base_offset != expected
            or header.partition_id != partition_id
            or not stamp <= header.base_timestamp <= segment.newest_stamp
        ):
            raise CorruptError(f"batch of offset {header.base_offset}, {expected} wanted")
        expected += header.messages_count
        stamp = header.base_timestamp
    if expected != end_offset:
        raise CorruptError(f"piece that ends at offset {expected}, {end_offset} wanted")
    return stamp


def _is_held(
    found: StoredPiece,
    segment: Segment,
    own: Piece,
    ours: dict[tuple[SegmentFile, int], tuple[int, int]],
) -> bool:
    """Return whether a piece that need not be fetched lies where the new state has it."""
    place = (segment.file, own.position)
    return (found.file, found.position) == place and ours.get(place) == (own.length, own.chain)
