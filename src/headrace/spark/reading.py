"""Reads one slice in a task: sealed segments from their files if possible, the rest by polls.

```
position ─► a sealed segment begins here ─► its file opens and is the one planned ─► columns
                │ no                             │ no: moved, trimmed, not readable
                └──────────► poll from the broker ◄┘ ─► gaps never existed or are losses ─► columns
```

Flow:       read.
Invariants: every byte is verified by its checksum; every offset of the slice is returned, never
            existed (O3.5), or is a loss that is reported as the user wants it (D12).
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.calls.messages import COUNT_MAX, poll_raw
from headrace.client.calls.names import ANONYMOUS, split_topic
from headrace.client.session.settings import Settings
from headrace.spark.batches import Batches
from headrace.spark.broker import find_log
from headrace.spark.columns import Clip, ColumnReader, Place
from headrace.spark.connections import client_of
from headrace.spark.losses import Loss, OnLoss, meet
from headrace.spark.options import ReadFrom
from headrace.spark.plan import PlanError, find_gone, position_of
from headrace.spark.rows import RowMaker
from headrace.spark.schema import Shape
from headrace.spark.segments import OpenSegment, SegmentSource, SegmentUnusable, open_segment
from headrace.spark.slices import Slice
from headrace.wire.commands.segments import PlannedSegment
from headrace.wire.identifiers import FromOffset


@dataclass(frozen=True)
class Reading:
    """How to read slices; it is sent to the tasks."""

    connection: Settings = field(repr=False)
    shape: Shape
    on_loss: OnLoss
    read: ReadFrom


def read_slice(reading: Reading, wanted: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice.

    Raises:
        DataLossError: Messages are missing, and the user wants an error.
        DataDamaged: Bytes differ from what was stored.
        SegmentUnusable: A file cannot be read, and the user wants files only.
        PlanError: The partition was purged or created again meanwhile.
        NotFound: The partition was deleted meanwhile.
    """
    yield from _SliceReader(reading, wanted).read()


class _SliceReader:
    """Reads one slice, once."""

    def __init__(self, reading: Reading, wanted: Slice) -> None:
        self._reading = reading
        self._slice = wanted
        self._rows = RowMaker(reading.shape)
        stream, topic = split_topic(wanted.key.topic)
        self._place = Place(str(stream), str(topic), wanted.key.partition)
        self._has_polled = False

    def read(self) -> Iterator[pa.RecordBatch]:
        if self._reading.on_loss == "report" and self._slice.losses:
            yield self._rows.report(self._place, self._slice.losses)
        unread = self._slice.first
        for segment in self._slice.log.segments:
            start = max(segment.base_offset, self._slice.first)
            end = min(segment.end_offset, self._slice.end)
            with ExitStack() as stack:
                file = self._open(segment, stack)
                if file is None:
                    continue  # The next polls begin before it and end after it.
                yield from self._poll(unread, start)
                yield from self._read_file(file, start, end)
                unread = end
        yield from self._poll(unread, self._slice.end)
        if self._has_polled:
            self._check_same_log()

    # Files.

    def _open(self, segment: PlannedSegment, stack: ExitStack) -> OpenSegment | None:
        """Return the open file of a segment if the user wants files and it is usable."""
        if self._reading.read == "broker":
            return None
        if not self._slice.log.folder:
            self._refuse_broker("the server does not tell where its files are")
            return None
        try:
            return stack.enter_context(open_segment(SegmentSource.of(self._slice.log, segment)))
        except SegmentUnusable as unusable:
            self._refuse_broker(str(unusable))
            return None

    def _read_file(self, file: OpenSegment, first: int, end: int) -> Iterator[pa.RecordBatch]:
        bounds = self._slice.bounds
        clip = Clip(first, end, bounds.time_min, bounds.time_max)
        reader = ColumnReader(self._place, clip, self._rows.columns)
        for piece in file.pieces(clip):
            for batch in reader.read(piece):
                yield self._rows.make(batch)

    def _refuse_broker(self, why: str) -> None:
        if self._reading.read == "direct":
            raise SegmentUnusable(
                f"{why}; the option read is direct, and with auto the broker would be asked"
            )

    # The broker.

    def _poll(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read a range by polls; each answer may hold less than requested."""
        first = self._skip_lost(first)
        while first < end:
            self._has_polled = True
            count = min(end - first, COUNT_MAX)
            call = poll_raw(
                self._slice.key.topic,
                self._slice.key.partition,
                FromOffset(first),
                who=ANONYMOUS,
                count=count,
            )
            polled = client_of(self._reading.connection, is_later=True).ask(call)
            reader = ColumnReader(self._place, Clip(first, end), self._rows.columns)
            position = first
            source = f"a poll of {self._slice.key}"
            for batch in reader.read(Batches(polled.batches, self._slice.key.partition, source, 0)):
                yield from self._lose_gaps(position, batch)
                position = batch.column("offset")[-1].as_py() + 1
                yield self._rows.make(self._in_time(batch))
            if position == first:
                self._check_end(polled.current_offset, end)
                yield from self._lose(first, end)
                return
            first = self._skip_lost(position)

    def _in_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remove rows that are too old or too new; gaps were checked before."""
        bounds = self._slice.bounds
        if not bounds.has_times:
            return batch
        stamps = batch.column("timestamp").cast(pa.int64())
        return batch.filter(
            pc.and_(
                pc.greater_equal(stamps, pa.scalar(bounds.time_min, pa.int64())),
                pc.less(stamps, pa.scalar(min(bounds.time_max, (1 << 63) - 1), pa.int64())),
            )
        )

    def _skip_lost(self, position: int) -> int:
        for gap in self._slice.log.lost:
            if gap.first <= position < gap.end:
                position = gap.end
        return position

    def _lose_gaps(self, position: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Report the offsets that are missing before a batch and within it."""
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        yield from self._lose(position, first)
        if last - first + 1 > len(offsets):
            numbers = offsets.to_numpy()
            for index in (numbers[1:] - numbers[:-1] > 1).nonzero()[0]:
                yield from self._lose(int(numbers[index]) + 1, int(numbers[index + 1]))

    def _lose(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        losses: list[Loss] = find_gone(self._slice.key, first, end, self._slice.log.lost)
        meet(losses, self._reading.on_loss)
        if losses and self._reading.on_loss == "report":
            yield self._rows.report(self._place, losses)

    def _check_end(self, last: int, end: int) -> None:
        if last + 1 < end:
            raise PlanError(
                f"{self._slice.key}: it ends at offset {last} now, and the range up to {end} was"
                " planned: it was purged, or the server that answered lags behind; try again"
            )

    def _check_same_log(self) -> None:
        """Raise if the polled log is not the planned one."""
        key = self._slice.key
        log = find_log(client_of(self._reading.connection, is_later=True), key)
        if not position_of(log, 0).is_same_log(position_of(self._slice.log, 0)):
            raise PlanError(f"{key}: it was purged or made anew while it was read; try again")
