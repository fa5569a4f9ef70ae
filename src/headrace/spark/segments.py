"""Opens the file of a sealed segment and reads it in pieces, each verified against the plan.

```
open    the header has the partition, incarnation and history of the plan; the length suffices
piece   read whole > its batches are contiguous > the chain of their checksums is the plan's
```

The file is read, not mapped: memory stays at one piece, and a file that is truncated while it is
read raises an error instead of a signal that ends the worker.

Flow:       read.
Invariants: a piece is returned only if its batches are, in order, those that were committed;
            their own checksums are verified when they become columns.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.client.errors import DataDamaged
from headrace.spark.batches import Batches
from headrace.spark.columns import Clip
from headrace.wire.batches import chain_batch
from headrace.wire.commands.segments import PlannedPiece, PlannedSegment, SegmentPlan
from headrace.wire.errors import CorruptError
from headrace.wire.segment import SegmentHeader, decode_segment_header


class SegmentUnusable(Exception):  # noqa: N818 - says what is so, as the client's errors do
    """The file cannot be read here, or is another one: read from the broker instead."""


@dataclass(frozen=True)
class SegmentSource:
    """All that a task needs to read one sealed segment; it is sent to executors."""

    path: str
    header: SegmentHeader
    segment: PlannedSegment

    @classmethod
    def of(cls, plan: SegmentPlan, segment: PlannedSegment) -> "SegmentSource":
        """Return the source of one segment of a plan that has file locations."""
        header = SegmentHeader(
            namespace=plan.namespace,
            created_revision=plan.created_revision,
            history_epoch=plan.history_epoch,
            base_offset=segment.base_offset,
        )
        return cls(plan.path(segment), header, segment)


class OpenSegment:
    """A segment file that matches the plan; created by `open_segment`."""

    def __init__(self, fd: int, source: SegmentSource) -> None:
        self._fd = fd
        self._source = source
        self._partition = unpack_namespace(GroupId(source.header.namespace)).partition

    @property
    def path(self) -> str:
        """The path of the file, for errors."""
        return self._source.path

    def pieces(self, clip: Clip) -> Iterator[Batches]:
        """Yield the pieces that contain offsets of a range, in order; others are not read.

        Raises:
            DataDamaged: A piece differs from what was committed; the error names bytes and offsets.
        """
        segment = self._source.segment
        if segment.newest_stamp < clip.time_min or segment.oldest_stamp >= clip.time_max:
            return
        starts = [piece.first_offset for piece in segment.pieces]
        ends = [*starts[1:], segment.end_offset]
        for piece, position, end in zip(segment.pieces, segment.positions(), ends, strict=True):
            if piece.first_offset < clip.offset_max and end > clip.offset_min:
                yield self._read(piece, position, end)

    def _read(self, piece: PlannedPiece, position: int, end: int) -> Batches:
        span = f"the offsets {piece.first_offset} to {end - 1}"
        try:
            data = _read_at(self._fd, position, piece.length)
        except OSError as error:
            raise DataDamaged(
                f"{self.path}: {error.strerror} at byte {position}, with {span}"
            ) from error
        if len(data) < piece.length:
            size = position + len(data)
            raise DataDamaged(f"{self.path}: it ends at byte {size}, before {span} do")
        batches = Batches(data, self._partition, self.path, position)
        self._check(batches, piece, end)
        return batches

    def _check(self, batches: Batches, piece: PlannedPiece, end: int) -> None:
        """Compare the headers of the batches with the plan."""
        chain = 0
        position = batches.position
        expected = piece.first_offset
        for at, header in batches.walk():
            if header.base_offset != expected:
                raise DataDamaged(
                    f"{self.path}: batch of offset {header.base_offset} at byte {position + at},"
                    f" {expected} expected, and what follows it up to {end - 1}"
                )
            chain = chain_batch(chain, header.checksum)
            expected += header.messages_count
        if expected != end or chain != piece.chain:
            raise DataDamaged(
                f"{self.path}: bytes {position} to {position + piece.length - 1}, with the offsets"
                f" {piece.first_offset} to {end - 1}, are not the batches that were committed"
            )


@contextmanager
def open_segment(source: SegmentSource) -> Iterator[OpenSegment]:
    """Open the file of a planned segment if it is usable.

    Raises:
        SegmentUnusable: It does not open, is too short, or belongs to another partition,
            incarnation or history; its messages must be read from the broker.
    """
    try:
        # Do not block on something that is not a regular file.
        fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SegmentUnusable(f"{source.path}: {error.strerror}") from error
    try:
        _check_file(fd, source)
        yield OpenSegment(fd, source)
    finally:
        os.close(fd)


def _check_file(fd: int, source: SegmentSource) -> None:
    try:
        size = os.fstat(fd).st_size
        block = _read_at(fd, 0, SEGMENT_HEADER_BYTES)
        header = decode_segment_header(block)
    except OSError as error:
        raise SegmentUnusable(f"{source.path}: {error.strerror}") from error
    except CorruptError as error:
        raise SegmentUnusable(f"{source.path}: {error}") from error
    if header != source.header:
        raise SegmentUnusable(f"{source.path}: it is {header}, and {source.header} is wanted")
    if size < source.segment.length:
        raise SegmentUnusable(
            f"{source.path}: {size} bytes, and {source.segment.length} are planned"
        )


def _read_at(fd: int, position: int, length: int) -> memoryview:
    """Return bytes of a file; fewer only if it ends before."""
    data = memoryview(bytearray(length))
    done = 0
    while done < length:
        count = os.preadv(fd, [data[done:]], position + done)
        if count == 0:
            break
        done += count
    return data[:done]
