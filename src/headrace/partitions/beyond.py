"""Judges what segment files hold beyond the end of their log (FM-11, P7).

The end is known when the journal has been applied again. What the journal has is no loss, however
a crash left it: it is written again, the same bytes at the same place.

| what lies there | what becomes of it |
|---|---|
| what a crash left of a write that is repeated | the write puts it right |
| a file of an earlier history, or before the first offset | it goes: an op of the log dropped it |
| a message that the log does not have | a fault: its offset would be assigned a second time |
| such a message below `lost_until` | quarantine: a power failure took it, its offset is skipped |
| anything else | quarantine |

Flow: recover.
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import FRAME_BYTES_MAX, SEGMENT_HEADER_BYTES
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.ports.segments import LogEnd, SegmentFile
from headrace.wire.batches import BatchHeader, decode_batch_header, verify_batch
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.segment import SegmentHeader, decode_segment_header

Read: TypeAlias = Callable[[int, int], bytes]  # position and length; fewer bytes at the end

_NOT_ZERO = re.compile(rb"[^\0]+")


class Fate(Enum):
    """What becomes of bytes, or of a file, that the log does not name."""

    REMOVE = auto()
    QUARANTINE = auto()
    FAULT = auto()


def header_of(file: SegmentFile) -> SegmentHeader:
    """Return the header that a file must have."""
    return SegmentHeader(
        namespace=file.namespace,
        created_revision=file.created_revision,
        history_epoch=file.history_epoch,
        base_offset=file.base_offset,
    )


def find_batch(file: SegmentFile, read: Read, position: int) -> BatchHeader | None:
    """Return the header of the whole batch of this partition that begins at a position, if any."""
    try:
        header = decode_batch_header(read(position, BATCH_HEADER_BYTES))
        is_possible = (
            header.partition_id == unpack_namespace(GroupId(file.namespace)).partition
            and BATCH_HEADER_BYTES <= header.length <= FRAME_BYTES_MAX
        )
        if not is_possible:
            return None
        batch = read(position, header.length)
        if len(batch) < header.length:
            return None
        verify_batch(batch)
    except (CorruptError, DecodeError):
        return None
    return header


def judge_remains(end: LogEnd, batch: BatchHeader | None) -> Fate:
    """Judge bytes behind the end of a file of the log, by the batch that they begin with."""
    if batch is None or batch.base_offset < end.next_offset:
        return Fate.QUARANTINE
    assert end.first_offset <= end.next_offset, "a log ends behind its beginning"
    is_told = batch.base_offset + batch.messages_count <= end.lost_until
    return Fate.QUARANTINE if is_told else Fate.FAULT


def judge_file(end: LogEnd, file: SegmentFile, read: Read) -> Fate:
    """Judge a segment file that the log does not have."""
    if (file.history_epoch, file.base_offset) < (end.history_epoch, end.first_offset):
        return Fate.REMOVE
    try:
        header = decode_segment_header(read(0, SEGMENT_HEADER_BYTES))
    except CorruptError:
        return Fate.QUARANTINE
    batch = find_batch(file, read, SEGMENT_HEADER_BYTES)
    if header != header_of(file) or batch is None:
        return Fate.QUARANTINE
    if file.history_epoch > end.history_epoch:
        return Fate.FAULT
    assert file.history_epoch == end.history_epoch, "older files go, newer ones are a fault"
    assert file.base_offset >= end.first_offset, "a file before the first offset goes"
    return judge_remains(end, batch)


def is_left_of_write(old: bytes, new: bytes) -> bool:
    """Return whether a crash can leave these bytes of a write: those that arrived, else zeros."""
    if new.startswith(old):
        return True
    return all(
        new[found.start() : found.end()] == found.group() for found in _NOT_ZERO.finditer(old)
    )
