"""Which segments retention drops: too old or too many, and needed by no consumer (O3.4, PT-28).

Flow: apply.
"""

from collections.abc import Iterable

from headrace.partitions.log import Segment
from headrace.wire.commands.internal import Retain


def surplus(sealed: Iterable[Segment], limits: Retain) -> list[Segment]:
    """Return the oldest sealed segments that are beyond the limits of age and size.

    `limits.keep_from` is ignored.
    """
    segments = list(sealed)
    size = sum(segment.batch_bytes for segment in segments)
    found: list[Segment] = []
    for segment in segments:
        is_expired = segment.newest_stamp <= limits.stamp_max
        is_over = limits.bytes_max and size > limits.bytes_max
        if not is_expired and not is_over:
            break
        size -= segment.batch_bytes
        assert size >= 0, "the sum is that of all segments"
        assert not found or found[-1].end_offset <= segment.base_offset, "the oldest go first"
        found.append(segment)
    return found


def droppable_count(segments: Iterable[Segment], limits: Retain) -> int:
    """Return how many of the segments hold nothing that a consumer needs."""
    if limits.keep_from is None:
        return len(list(segments))
    is_free = [segment.end_offset <= limits.keep_from for segment in segments]
    assert is_free == sorted(is_free, reverse=True), "the oldest segments go first"
    return sum(is_free)


def held_bytes(segments: Iterable[Segment], offset: int) -> int:
    """Return how many bytes of the segments a consumer at a stored offset still needs."""
    return sum(each.batch_bytes for each in segments if each.end_offset > offset + 1)
