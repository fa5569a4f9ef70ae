"""How a folder in memory judges the files of a partition that is opened, as its port says."""

from collections.abc import Mapping

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.beyond import (
    Fate,
    Read,
    find_batch,
    header_of,
    judge_file,
    judge_remains,
)
from headrace.ports.segments import LogEnd, OpenSegments, SegmentExtent, SegmentFault, SegmentFile
from headrace.wire.errors import CorruptError
from headrace.wire.segment import decode_segment_header

Images = Mapping[SegmentFile, bytearray]


def find_faults(extents: tuple[SegmentExtent, ...], images: Images) -> list[SegmentFault]:
    """Return the files that lack something, or are others than their names say."""
    return [fault for fault in (_fault(each, images) for each in extents) if fault is not None]


def _fault(extent: SegmentExtent, images: Images) -> SegmentFault | None:
    name = extent.file
    held = images.get(name)
    if held is None:
        return SegmentFault(name, f"{name} is missing")
    if len(held) < extent.length:
        return SegmentFault(name, f"{name} has {len(held)} bytes of {extent.length}")
    try:
        header = decode_segment_header(bytes(held[:SEGMENT_HEADER_BYTES]))
    except CorruptError as error:
        return SegmentFault(name, f"{name}: {error}")
    return None if header == header_of(name) else SegmentFault(name, f"{name} is {header}")


def judge_beyond(
    effect: OpenSegments, end: LogEnd, images: Images
) -> tuple[list[SegmentFault], dict[SegmentFile, tuple[Fate, int | None]]]:
    """Judge what the log does not have: the faults, or the fate of each file.

    A fate comes with the length that the file keeps, or none if it goes.
    """
    lengths: dict[SegmentFile, int | None] = dict.fromkeys(end.dropped)
    lengths |= {extent.file: None for extent in effect.extents}
    lengths |= {extent.file: extent.length for extent in end.segments}
    fates: dict[SegmentFile, tuple[Fate, int | None]] = {}
    for name, held in images.items():
        length = lengths.get(name)
        if name not in lengths:
            fates[name] = (judge_file(end, name, _reader(held)), None)
        elif length is not None and len(held) > length:
            fates[name] = (judge_remains(end, find_batch(name, _reader(held), length)), length)
    faults = [
        SegmentFault(name, f"{name} has more than the log")
        for name, (fate, _) in fates.items()
        if fate == Fate.FAULT
    ]
    return faults, {} if faults else fates


def _reader(held: bytearray) -> Read:
    return lambda position, length: bytes(held[position : position + length])
