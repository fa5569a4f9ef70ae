"""Judges index files: nothing in one is evidence about the log (FM-9).

An index counts if the checkpoint vouches for its entries; then they help to
bound the damage in its segment.
"""

from pathlib import Path

from headrace.partitions.index import SegmentIndex, decode_index
from headrace.partitions.log import Segment
from headrace.runtime.files.whole import read_file
from headrace.server.doctor.report import Verdict
from headrace.wire.errors import CorruptError

_ANEW = "made anew from the segment when it is needed"


def judge_index(data: bytes, segment: Segment) -> tuple[Verdict, str]:
    """Compare the index file of a segment with the checkpoint."""
    try:
        _decode(data, segment)
    except CorruptError as error:
        return Verdict.REPAIRED, f"{error}; {_ANEW}"
    return Verdict.FINE, "agrees with the checkpoint"


def known_index(file: Path, segment: Segment) -> SegmentIndex:
    """Return the index of a segment, or one with the pieces alone."""
    try:
        return _decode(read_file(file), segment)
    except (OSError, CorruptError):
        return SegmentIndex(segment.pieces)


def _decode(data: bytes, segment: Segment) -> SegmentIndex:
    return decode_index(
        data, segment.file, segment.pieces, length=segment.length, digest=segment.digest
    )
