"""What the doctor makes of index files: they are judged by their segment, and help to read it.

Nothing in an index is evidence about the log (DK9): its entries are places to look at.
"""

from bisect import bisect_right
from pathlib import Path

from headrace.partitions.index import Place, SegmentIndex, decode_index
from headrace.partitions.log import Segment
from headrace.runtime.whole import read_file
from headrace.server.doctor_report import Verdict
from headrace.wire.errors import CorruptError

_ANEW = "made anew from the segment when it is needed"


def judge_index(data: bytes, segment: Segment, walked: SegmentIndex | None) -> tuple[Verdict, str]:
    """Compare the index file of a segment with the index that the segment itself gives."""
    try:
        _decode_index(data, segment)
    except CorruptError as error:
        return Verdict.REPAIRED, f"{error}; {_ANEW}"
    if walked is None:
        return Verdict.NOTICE, "its segment is damaged, so it cannot be compared"
    if data != walked.encode(segment.file, segment.length):
        return Verdict.REPAIRED, f"it names other places than the segment has; {_ANEW}"
    return Verdict.FINE, "agrees with its segment"


class Known:
    """Places in a segment where a batch begins, from its checkpoint and from its index."""

    def __init__(self, file: Path, segment: Segment) -> None:
        self._segment = segment
        self._index = _read_index(file.with_suffix(".index"), segment)

    def after(self, place: Place) -> Place:
        """Give the nearest place behind one; the end of the segment if nothing is known before."""
        segment = self._segment
        found = [
            Place(each.first_offset, each.position)
            for each in segment.pieces
            if each.position > place.position
        ]
        found.append(Place(segment.end_offset, segment.length))
        if self._index is not None:
            found.append(self._entry_after(self._index, place))
        return min(found, key=lambda each: each.position)

    def _entry_after(self, index: SegmentIndex, place: Place) -> Place:
        end = Place(self._segment.end_offset, self._segment.length)

        def entry(offset: int) -> Place:
            return index.find_offset(offset) or end

        offsets = range(place.offset, end.offset)
        at = bisect_right(offsets, place.position, key=lambda offset: entry(offset).position)
        return entry(offsets[at]) if at < len(offsets) else end


def _read_index(file: Path, segment: Segment) -> SegmentIndex | None:
    try:
        return _decode_index(read_file(file), segment)
    except (OSError, CorruptError):
        return None


def _decode_index(data: bytes, segment: Segment) -> SegmentIndex:
    return decode_index(
        data,
        segment.file,
        length=segment.length,
        end_offset=segment.end_offset,
        newest_stamp=segment.newest_stamp,
    )
