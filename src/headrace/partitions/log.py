"""Where every committed batch of a partition lies: a function of its ops alone.

```
history epoch 3:  segment [0 .. 99]   segment [100 .. 199]   lost 200..299   segment [300 ..
                  sealed               sealed                                 active
pieces            [a][b][c]            [d][e]                                 [f][g
```

A segment is sealed by the batch that reaches `segment_bytes`, which stays whole, or by a lost
range; the next batch begins a new file. Pieces are cut by the same rule, and every segment begins
one. Both rules look at one batch at a time, so it does not matter how commits were grouped (PT-12).

Invariants: inside a file offsets have no gap; between files only where one is recorded; stamps
            never fall; only the last segment may be unsealed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.kernel import fold
from headrace.partitions.index import MARK_BYTES, SegmentIndex
from headrace.partitions.options import PartitionOptions
from headrace.partitions.pieces import Mark, Piece, is_marked
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import BatchHeader, chain_batch

_BASE_OFFSET = attrgetter("base_offset")
_NEWEST_STAMP = attrgetter("newest_stamp")


class Segment:
    """One file; `length` counts the header block, `end_offset` is the next one after it."""

    __slots__ = (
        "base_offset",
        "digest",
        "encoded",
        "end_offset",
        "file",
        "index",
        "index_step_bytes",
        "is_dropped",
        "is_sealed",
        "length",
        "newest_stamp",
        "pieces",
    )

    def __init__(self, file: SegmentFile, index_step_bytes: int) -> None:
        self.file = file
        self.index_step_bytes = index_step_bytes
        self.base_offset = self.end_offset = file.base_offset
        self.length = SEGMENT_HEADER_BYTES
        self.newest_stamp = 0
        self.pieces: list[Piece] = []
        self.is_sealed = False
        self.is_dropped = False
        self.index: SegmentIndex | None = None
        self.digest = 0  # of the marks of its index: what an index file is proven by
        self.encoded: bytes | None = None  # of a sealed one, kept for the next checkpoint

    @property
    def batch_bytes(self) -> int:
        """How many bytes of batches it holds."""
        return self.length - SEGMENT_HEADER_BYTES

    def append(self, header: BatchHeader, end_offset: int, piece_bytes: int) -> int:
        """Place one batch; return its position."""
        position = self.length
        if not self.pieces or self.pieces[-1].length >= piece_bytes:
            self.pieces.append(Piece(header.base_offset, position))
        piece = self.pieces[-1]
        assert position == piece.position + piece.length
        assert self.index is not None
        marked = is_marked(piece.length, piece.length + header.length, self.index_step_bytes)
        if marked or self.index.is_late:
            self._mark(header, position, piece, is_marked=marked)
        piece.length += header.length
        piece.chain = chain_batch(piece.chain, header.checksum)
        self.length = position + header.length
        self.end_offset = end_offset
        self.newest_stamp = header.base_timestamp
        return position

    def _mark(self, header: BatchHeader, position: int, piece: Piece, *, is_marked: bool) -> None:
        """Note a batch in the index, and in the digest that will prove the index file."""
        assert self.index is not None
        mark = Mark(header.base_offset, header.base_timestamp, position, piece.chain)
        if is_marked:
            self.digest = fold(self.digest, mark.encode(), MARK_BYTES)
        self.index.note(len(self.pieces) - 1, mark, is_marked=is_marked)


class PartitionLog:
    """The segments of the current history, and the offsets that none of them holds."""

    __slots__ = (
        "_options",
        "first_offset",
        "gaps",
        "history_epoch",
        "messages_count",
        "newest_stamp",
        "next_offset",
        "segments",
        "size_bytes",
    )

    def __init__(self, options: PartitionOptions) -> None:
        self._options = options
        self.history_epoch = 0
        self.newest_stamp = 0
        self._begin()

    def _begin(self) -> None:
        self.first_offset = 0
        self.next_offset = 0
        self.segments: list[Segment] = []
        self.gaps: list[tuple[int, int]] = []  # lost offsets: from the first up to the second
        self.messages_count = 0
        self.size_bytes = 0

    @property
    def active(self) -> Segment | None:
        """The segment that the next batch goes to, if it has begun."""
        if self.segments and not self.segments[-1].is_sealed:
            return self.segments[-1]
        return None

    def sealed(self) -> Iterator[Segment]:
        """Give the sealed segments, oldest first."""
        return (segment for segment in self.segments if segment.is_sealed)

    def append(self, header: BatchHeader) -> tuple[Segment, int]:
        """Place a batch at the end; return its segment and its position there."""
        assert header.base_offset == self.next_offset
        assert header.base_timestamp >= self.newest_stamp
        segment = self.active
        if segment is None:
            segment = self.begin_segment(self.next_offset)
            segment.index = SegmentIndex(segment.pieces)
        end_offset = header.base_offset + header.messages_count
        position = segment.append(header, end_offset, self._options.piece_bytes)
        segment.is_sealed = segment.batch_bytes >= self._options.segment_bytes
        self.next_offset = end_offset
        self.newest_stamp = header.base_timestamp
        self.messages_count += header.messages_count
        self.size_bytes += header.length
        return segment, position

    def begin_segment(self, base_offset: int) -> Segment:
        """Add an empty segment of the current history."""
        options = self._options
        segment = Segment(
            SegmentFile(
                options.namespace, options.created_revision, self.history_epoch, base_offset
            ),
            options.index_step_bytes,
        )
        self.segments.append(segment)
        return segment

    def lose(self, end: int) -> bool:
        """Skip offsets up to an end; return whether there were any to skip (O3.5)."""
        if end <= self.next_offset:
            return False
        active = self.active
        if active is not None:
            active.is_sealed = True
        if self.gaps and self.gaps[-1][1] == self.next_offset:
            self.gaps[-1] = (self.gaps[-1][0], end)
        else:
            self.gaps.append((self.next_offset, end))
        self.next_offset = end
        self._settle()
        return True

    def begin_history(self) -> list[Segment]:
        """Start again at offset 0; return the segments that are gone (O3.4)."""
        gone = self.segments
        self._begin()
        self.history_epoch += 1
        for segment in gone:
            segment.is_dropped = True
        return gone

    def drop(self, count: int) -> list[Segment]:
        """Drop the oldest segments, all sealed; return them."""
        gone = self.segments[:count]
        del self.segments[:count]
        for segment in gone:
            assert segment.is_sealed
            segment.is_dropped = True
            self.messages_count -= segment.end_offset - segment.base_offset
            self.size_bytes -= segment.batch_bytes
            self.first_offset = segment.end_offset
        self._settle()
        return gone

    def _settle(self) -> None:
        """Have the first offset be that of a message; a lost range before it is over."""
        while self.gaps and self.gaps[0][0] <= self.first_offset:
            self.first_offset = max(self.first_offset, self.gaps[0][1])
            del self.gaps[0]

    def skip_gap(self, offset: int) -> int:
        """Give the offset, or the end of the lost range that it lies in."""
        index = bisect_right(self.gaps, (offset, self.next_offset))
        if index and offset < self.gaps[index - 1][1]:
            return self.gaps[index - 1][1]
        return offset

    def find_offset(self, offset: int) -> Segment:
        """Give the segment that holds an offset, which is there."""
        segment = self.segments[bisect_right(self.segments, offset, key=_BASE_OFFSET) - 1]
        assert segment.base_offset <= offset < segment.end_offset
        return segment

    def find_timestamp(self, timestamp: int) -> Segment | None:
        """Give the segment with the first batch that was stamped at or after a time, if any."""
        index = bisect_left(self.segments, timestamp, key=_NEWEST_STAMP)
        return self.segments[index] if index < len(self.segments) else None
