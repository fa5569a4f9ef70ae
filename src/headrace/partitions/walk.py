"""Walks the batches of a segment from header to header: no header is believed that is not expected.

Flow: reply.
"""

from headrace.base.limits import FRAME_BYTES_MAX
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.partitions.index import Place, SegmentIndex
from headrace.partitions.log import Segment
from headrace.wire.batches import BatchHeader, decode_batch_header


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
    if (
        header.base_offset != place.offset
        or header.partition_id != partition_id
        or not 1 <= header.messages_count <= segment.end_offset - place.offset
        or not BATCH_HEADER_BYTES <= header.length <= segment.length - place.position
        or header.length > FRAME_BYTES_MAX
    ):
        raise DamageError(
            f"no batch of offset {place.offset} at byte {place.position} of {segment.file}"
        )
    return header


def walk_headers(
    index: SegmentIndex, segment: Segment, data: memoryview, partition_id: int
) -> None:
    """Extend an index by the batches that begin in these bytes, which lie where it ends.

    A batch need not be whole to be noted.

    Raises:
        DamageError: Something else is there; what came before it has been noted.
    """
    start = index.covered_to
    end = index.late_from if start < index.late_from else segment.length
    position = start
    while position < end and len(data) - (position - start) >= BATCH_HEADER_BYTES:
        place = Place(index.covered_offset, position)
        header = check_header(segment, place, data[position - start :], partition_id)
        if not index.covered_stamp <= header.base_timestamp <= segment.newest_stamp:
            raise DamageError(f"time {header.base_timestamp} at byte {position} of {segment.file}")
        position += header.length
        index.walk(
            offset=header.base_offset,
            end_offset=header.base_offset + header.messages_count,
            timestamp=header.base_timestamp,
            span=(place.position, position),
        )
    if position == start:
        raise DamageError(f"{len(data)} bytes at byte {start} of {segment.file}")
    if position == end:
        index.join(
            end_offset=segment.end_offset, timestamp=segment.newest_stamp, length=segment.length
        )
