"""Walks the batches of a segment; no batch is believed that is not expected and verified.

Flow: reply.
"""

from headrace.base.limits import FRAME_BYTES_MAX
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.partitions.index import Place, SegmentIndex
from headrace.partitions.log import Segment
from headrace.wire.batches import BatchHeader, decode_batch_header, verify_batch
from headrace.wire.errors import CorruptError


class DamageError(Exception):
    """The bytes of a segment file are not what the log has there."""


def check_header(
    segment: Segment, place: Place, data: memoryview, partition_id: int
) -> BatchHeader:
    """Read the header of a batch, which must be the one that belongs to this place.

    Raises:
        DamageError: It is another, or none.
    """
    header = decode_batch_header(data)
    end = Place(place.offset + header.messages_count, place.position + header.length)
    is_last = end.position == segment.length
    if (
        header.base_offset != place.offset
        or header.partition_id != partition_id
        or not 1 <= header.messages_count <= segment.end_offset - place.offset
        or not BATCH_HEADER_BYTES <= header.length <= segment.length - place.position
        or header.length > FRAME_BYTES_MAX
        or is_last != (end.offset == segment.end_offset)
    ):
        raise DamageError(
            f"no batch of offset {place.offset} at byte {place.position} of {segment.file}"
        )
    return header


def check_batch(segment: Segment, place: Place, batch: memoryview) -> None:
    """Verify a whole batch whose header was checked.

    Raises:
        DamageError: It is damaged.
    """
    try:
        verify_batch(batch)
    except CorruptError as error:
        raise DamageError(
            f"batch of offset {place.offset} at byte {place.position} of {segment.file}: {error}"
        ) from None


def walk_batches(index: SegmentIndex, segment: Segment, data: memoryview, partition_id: int) -> int:
    """Extend an index by the batches in these bytes, which lie where it ends.

    Return 0, or how many bytes are needed when not even one batch is whole.

    Raises:
        DamageError: Something else is there; what came before it has been noted.
    """
    start = index.covered_to
    end = index.late_from if start < index.late_from else segment.length
    position = start
    while position < end:
        place = Place(index.covered_offset, position)
        rest = data[position - start :]
        if len(rest) < BATCH_HEADER_BYTES:
            return BATCH_HEADER_BYTES if position == start else 0
        header = check_header(segment, place, rest, partition_id)
        if len(rest) < header.length:
            return header.length if position == start else 0
        check_batch(segment, place, rest[: header.length])
        if not index.covered_stamp <= header.base_timestamp <= segment.newest_stamp:
            raise DamageError(f"time {header.base_timestamp} at byte {position} of {segment.file}")
        position += header.length
        if position > end:
            raise DamageError(f"a batch at byte {place.position} of {segment.file} is too long")
        index.walk(
            offset=header.base_offset,
            end_offset=header.base_offset + header.messages_count,
            timestamp=header.base_timestamp,
            span=(place.position, position),
        )
    index.join(end_offset=segment.end_offset, timestamp=segment.newest_stamp, length=segment.length)
    return 0
