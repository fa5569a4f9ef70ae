"""Plans a read: what a partition holds, and which files hold its sealed part.

Flow:       plan.
Invariants: a segment is named only when all its bytes are in its file, so what is named never
            changes; the segments of a plan follow each other up to recorded lost ranges.
"""

from bisect import bisect_right
from collections.abc import Container
from operator import attrgetter

from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.options import PartitionOptions
from headrace.ports.segments import SegmentFile
from headrace.wire.commands.segments import (
    PLAN_PIECES_MAX,
    OffsetRange,
    PlannedPiece,
    PlannedSegment,
    SegmentPlan,
)
from headrace.wire.segment import partition_names

_END_OFFSET = attrgetter("end_offset")


def make_plan(
    log: PartitionLog,
    options: PartitionOptions,
    unwritten: Container[SegmentFile],
    *,
    from_offset: int,
    folder: str,
) -> SegmentPlan:
    """Return the plan from the segment on that holds an offset; `folder` is that of all partitions.

    An empty folder leaves out where the files are.
    """
    segments, is_more = _choose(log, unwritten, from_offset)
    assert segments or not is_more, "a reply holds one segment at least"
    assert not segments or segments[-1].end_offset <= log.next_offset, "the log has them"
    end = segments[-1].end_offset if is_more else log.next_offset
    names = partition_names(options.namespace, options.created_revision)
    return SegmentPlan(
        namespace=options.namespace,
        created_revision=options.created_revision,
        history_epoch=log.history_epoch,
        first_offset=log.first_offset,
        next_offset=log.next_offset,
        folder="/".join((folder, *names, str(log.history_epoch))) if folder else "",
        lost=tuple(
            [OffsetRange(*gap) for gap in log.gaps if gap[1] > from_offset and gap[0] < end]
        ),
        segments=segments,
        is_more=is_more,
    )


def _choose(
    log: PartitionLog, unwritten: Container[SegmentFile], from_offset: int
) -> tuple[tuple[PlannedSegment, ...], bool]:
    """Return as many segments as one reply holds, and whether more follow them."""
    chosen: list[PlannedSegment] = []
    pieces_count = 0
    for index in range(bisect_right(log.segments, from_offset, key=_END_OFFSET), len(log.segments)):
        segment = log.segments[index]
        if not segment.is_sealed or segment.file in unwritten:
            break
        assert not segment.is_dropped, "the log forgets a segment that is dropped"
        assert not chosen or chosen[-1].end_offset <= segment.base_offset, "offsets rise"
        pieces_count += len(segment.pieces)
        if chosen and pieces_count > PLAN_PIECES_MAX:
            return tuple(chosen), True
        chosen.append(_planned(segment, log.segments[index - 1].newest_stamp if index else 0))
    return tuple(chosen), False


def _planned(segment: Segment, oldest_stamp: int) -> PlannedSegment:
    assert oldest_stamp <= segment.newest_stamp, "stamps never fall"
    assert segment.pieces[-1].end_position == segment.length, "pieces fill their segment"
    return PlannedSegment(
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        oldest_stamp=oldest_stamp,
        newest_stamp=segment.newest_stamp,
        length=segment.length,
        pieces=tuple(
            [PlannedPiece(each.first_offset, each.length, each.chain) for each in segment.pieces]
        ),
    )
