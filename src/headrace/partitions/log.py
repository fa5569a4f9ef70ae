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
from itertools import pairwise
from operator import attrgetter

from headrace.base.checksum import xxh3_64
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.kernel import fold
from headrace.partitions.index import MARK_BYTES, SegmentIndex
from headrace.partitions.options import PartitionOptions
from headrace.partitions.pieces import Mark, Piece
from headrace.partitions.pieces import is_marked as is_marked_at
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import CHAIN, BatchHeader

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
        assert self.length >= SEGMENT_HEADER_BYTES, "a length counts the header"
        return self.length - SEGMENT_HEADER_BYTES

    def append(self, header: BatchHeader, end_offset: int, piece_bytes: int) -> int:
        """Place one batch; return its position."""
        position = self.length
        if not self.pieces or self.pieces[-1].length >= piece_bytes:
            self.pieces.append(Piece(header.base_offset, position))
        piece = self.pieces[-1]
        assert position == piece.position + piece.length, "a batch goes to the end of its piece"
        assert header.base_offset == self.end_offset, "offsets of a file have no gap"
        assert header.base_timestamp >= self.newest_stamp, "stamps of a file never fall"
        assert not self.is_sealed, "a sealed segment does not grow"
        assert self.index is not None
        start, step_bytes = piece.length, self.index_step_bytes
        end = start + header.length
        # As `is_marked`, which is not called for every batch.
        marked = start == 0 or start // step_bytes != end // step_bytes
        if marked or self.index.is_late:
            self._mark(header, position, piece, is_marked=marked)
        piece.length = end
        piece.chain = xxh3_64(CHAIN.pack(piece.chain, header.checksum))  # as `chain_batch`
        self.length = position + header.length
        self.end_offset = end_offset
        self.newest_stamp = header.base_timestamp
        assert piece.position < self.length == piece.position + piece.length, "the piece grew too"
        return position

    def _mark(self, header: BatchHeader, position: int, piece: Piece, *, is_marked: bool) -> None:
        """Note a batch in the index, and in the digest that will prove the index file."""
        assert self.index is not None
        end = piece.length + header.length
        assert is_marked == is_marked_at(piece.length, end, self.index_step_bytes), "one rule"
        assert piece.first_offset <= header.base_offset, "a mark lies in its piece"
        mark = Mark(header.base_offset, header.base_timestamp, position, piece.chain)
        if is_marked:
            self.digest = fold(self.digest, mark.encode(), MARK_BYTES)
        self.index.note(len(self.pieces) - 1, mark, is_marked=is_marked)

    def check(self) -> None:
        """Assert that pieces fill the segment, and that its index agrees with them."""
        assert self.file.base_offset == self.base_offset, "a file is named by its first offset"
        assert self.base_offset < self.end_offset, "a segment begins with its first batch"
        assert not self.is_dropped, "the log forgets a segment that is dropped"
        self._check_pieces()
        if self.index is not None:
            self.index.check(self.end_offset, self.newest_stamp)
            if self.digest and self.index.is_complete:
                assert self.index.digest() == self.digest, "the digest proves the index"
        assert self.is_sealed or self.index is not None, "an index that grows is in memory"
        assert self.is_sealed or self.encoded is None, "what still grows is not kept encoded"

    def _check_pieces(self) -> None:
        pieces = self.pieces
        assert pieces[0].first_offset == self.base_offset, "every segment begins a piece"
        assert pieces[0].position == SEGMENT_HEADER_BYTES, "pieces begin behind the header"
        assert pieces[-1].first_offset < self.end_offset, "the last piece holds a message"
        assert pieces[-1].end_position == self.length, "the last piece ends with the segment"
        for left, right in pairwise(pieces):
            assert left.first_offset < right.first_offset, "offsets rise from piece to piece"
            assert left.position < right.position, "a piece holds a batch"
            assert left.end_position == right.position, "pieces lie back to back"


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
        """Return the sealed segments, oldest first."""
        return (segment for segment in self.segments if segment.is_sealed)

    def append(self, header: BatchHeader) -> tuple[Segment, int]:
        """Place a batch at the end; return its segment and its position there."""
        assert header.base_offset == self.next_offset, "a batch follows the log"
        assert header.base_timestamp >= self.newest_stamp, "stamps never fall"
        segment = self.segments[-1] if self.segments else None
        if segment is None or segment.is_sealed:
            assert segment is None or segment.end_offset <= self.next_offset, (
                "a segment lies behind those before it"
            )
            segment = self.begin_segment(self.next_offset)
            segment.index = SegmentIndex(segment.pieces)
        end_offset = header.base_offset + header.messages_count
        position = segment.append(header, end_offset, self._options.piece_bytes)
        segment.is_sealed = segment.length - SEGMENT_HEADER_BYTES >= self._options.segment_bytes
        assert end_offset > self.next_offset, "a batch has a message"
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
        assert self.active is None, "the next batch begins a file behind the loss"
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
        assert 0 < count <= len(self.segments), "only segments of the log are dropped"
        gone = self.segments[:count]
        del self.segments[:count]
        for segment in gone:
            assert segment.is_sealed, "the active segment stays"
            assert segment.base_offset >= self.first_offset, "the oldest go first"
            segment.is_dropped = True
            self.messages_count -= segment.end_offset - segment.base_offset
            self.size_bytes -= segment.batch_bytes
            self.first_offset = segment.end_offset
        self._settle()
        assert self.messages_count >= 0, "only messages that were counted go"
        assert self.size_bytes >= 0, "only bytes that were counted go"
        return gone

    def _settle(self) -> None:
        """Have the first offset be that of a message; a lost range before it is over."""
        while self.gaps and self.gaps[0][0] <= self.first_offset:
            self.first_offset = max(self.first_offset, self.gaps[0][1])
            del self.gaps[0]
        assert self.first_offset <= self.next_offset, "a log ends behind its beginning"

    def skip_gap(self, offset: int) -> int:
        """Return the offset, or the end of the lost range that it lies in."""
        index = bisect_right(self.gaps, (offset, self.next_offset))
        if index and offset < self.gaps[index - 1][1]:
            return self.gaps[index - 1][1]
        return offset

    def find_offset(self, offset: int) -> Segment:
        """Return the segment that holds an offset, which is there."""
        segment = self.segments[bisect_right(self.segments, offset, key=_BASE_OFFSET) - 1]
        assert segment.base_offset <= offset < segment.end_offset, "offsets have one segment"
        return segment

    def find_timestamp(self, timestamp: int) -> Segment | None:
        """Return the segment with the first batch that was stamped at or after a time, if any."""
        index = bisect_left(self.segments, timestamp, key=_NEWEST_STAMP)
        assert index == 0 or self.segments[index - 1].newest_stamp < timestamp, "stamps rise"
        return self.segments[index] if index < len(self.segments) else None

    def check(self) -> None:
        """Assert that segments and lost ranges fill the log, and that sums are those of parts."""
        assert 0 <= self.first_offset <= self.next_offset, "a log ends behind its beginning"
        lost = sum(end - first for first, end in self.gaps)
        held = sum(each.end_offset - each.base_offset for each in self.segments)
        assert self.messages_count == held, "messages are counted by segment"
        assert self.messages_count + lost == self.next_offset - self.first_offset, (
            "every offset is that of a message, or recorded as lost"
        )
        size = sum(each.batch_bytes for each in self.segments)
        assert self.size_bytes == size, "bytes are counted by segment"
        self._check_order()
        for segment in self.segments:
            segment.check()
            assert segment.file.history_epoch == self.history_epoch, "a log is of one history"

    def _check_order(self) -> None:
        for left, right in pairwise(self.segments):
            assert self.skip_gap(left.end_offset) == right.base_offset, "segments follow each other"
            assert left.newest_stamp <= right.newest_stamp, "stamps never fall"
            assert left.is_sealed, "only the last segment may be unsealed"
        for (_, end), (first, _) in pairwise(self.gaps):
            assert end < first, "lost ranges that meet are one"
        for first, end in self.gaps:
            assert self.first_offset < first < end <= self.next_offset, "a loss lies in the log"
        if self.segments:
            last = self.segments[-1]
            assert self.segments[0].base_offset == self.first_offset, "the oldest message is first"
            assert self.skip_gap(last.end_offset) == self.next_offset, "the log ends with its last"
            assert last.newest_stamp <= self.newest_stamp, "no batch is newer than the log"
            assert last.is_sealed or last.end_offset == self.next_offset, "a loss seals a segment"
