"""Where in a segment an offset or a time is to be found, and the chain that a read begins with.

An index holds a mark for about `step_bytes` of batches, piece by piece. The marks of a piece are
known when this process has appended it from its beginning, when a walk has proven it by its chain,
or when the index file was proven by the digest that the log keeps (docs/formats/segment.md).

```
pieces   | marks known | not known yet | begun before a restart: late marks only |
```

Invariants: every mark here is proven or of our own making: an index file counts for nothing before
            its digest is that of the log (FM-9); marks rise in offset and position, and never fall
            in time.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter, le, lt

from headrace.base.checksum import xxh3_64
from headrace.base.limits import KIB
from headrace.kernel import PROOF_ROW_BYTES, fold
from headrace.partitions.pieces import Mark, Piece, Stretch
from headrace.ports.segments import SegmentFile
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError

INDEX_STEP_BYTES = 64 * KIB
MARK_BYTES = PROOF_ROW_BYTES

_MAGIC = b"HRINDEX1"
_VERSION = 2
# Magic, version, number of entries, identity of the segment (4 fields), its length.
_HEAD = struct.Struct("<8sII5Q")
_CHECKSUM_BYTES = 8
_FIELDS = 4  # offset, timestamp, position, chain
_FIRST_OFFSET = attrgetter("first_offset")


class _Marks:
    """The marks of one piece in one flat array: 32 bytes each instead of some hundred."""

    __slots__ = ("_flat",)

    def __init__(self, data: Data = b"") -> None:
        self._flat = array("Q")
        self._flat.frombytes(data)
        if sys.byteorder == "big":
            self._flat.byteswap()

    def __len__(self) -> int:
        return len(self._flat) // _FIELDS

    def add(self, mark: Mark) -> None:
        assert not self._flat or mark.offset > self._flat[-4], "marks rise in offset"
        assert not self._flat or mark.timestamp >= self._flat[-3], "marks never fall in time"
        assert not self._flat or mark.position > self._flat[-2], "marks rise in position"
        self._flat.extend((mark.offset, mark.timestamp, mark.position, mark.chain))

    def at(self, index: int) -> Mark:
        assert 0 <= index < len(self._flat) // _FIELDS, "only marks that are there are read"
        return Mark(*self._flat[_FIELDS * index : _FIELDS * (index + 1)])

    def find(self, value: int, *, column: int, lo: int = 0) -> int:
        """Return the index of the last mark whose column is at most a value, from `lo` on."""
        flat = self._flat
        assert 0 <= lo < len(self), "a search begins at a mark"
        found = bisect_right(
            range(len(self)), value, lo=lo, key=lambda at: flat[_FIELDS * at + column]
        )
        return max(found - 1, lo)

    def before(self, timestamp: int) -> int:
        """Return the index of the last mark before a time, or of the first."""
        flat = self._flat
        found = bisect_left(range(len(self)), timestamp, key=lambda at: flat[_FIELDS * at + 1])
        return max(found - 1, 0)

    def extend(self, other: "_Marks", start: int) -> None:
        flat = other._flat[_FIELDS * start :]  # noqa: SLF001  # of the same class
        assert not flat or not self._flat or self._flat[-4] < flat[0], "marks rise in offset"
        self._flat.extend(flat)

    def encode(self) -> bytes:
        flat = self._flat
        if sys.byteorder == "big":
            flat = array("Q", flat)
            flat.byteswap()
        return flat.tobytes()

    def check(self, first: Mark, end: Mark, newest_stamp: int) -> None:
        """Assert that the marks rise from a place, and end before another."""
        offsets, stamps, positions = [self._flat[column::_FIELDS] for column in range(3)]
        assert all(map(lt, offsets, offsets[1:])), "marks rise in offset"
        assert all(map(le, stamps, stamps[1:])), "marks never fall in time"
        assert all(map(lt, positions, positions[1:])), "marks rise in position"
        assert first.offset <= offsets[0], "a mark is of its piece"
        assert first.position <= positions[0], "a mark is of its piece"
        assert offsets[-1] < end.offset, "a mark is that of a batch of its piece"
        assert positions[-1] < end.position, "a mark is that of a batch of its piece"
        assert stamps[-1] <= newest_stamp, "no batch is newer than its segment"


class SegmentIndex:
    """The index of one segment, as far as it is known; `pieces` are those of the segment, live."""

    __slots__ = ("_is_late_marked", "_late", "_late_number", "_parts", "_pieces", "is_late")

    def __init__(self, pieces: list[Piece]) -> None:
        """Begin without a mark; pieces that come later are known from their beginning."""
        self._pieces = pieces
        self._parts: list[_Marks | None] = [None] * len(pieces)
        self._late_number = len(pieces) - 1  # of the piece that goes on behind what is not known
        self._late = _Marks()
        self._is_late_marked = False  # whether the first late mark is one that a walk makes too
        self.is_late = bool(pieces)  # whether the next batch is to be noted in any case

    @property
    def is_complete(self) -> bool:
        """Whether all marks are known."""
        return all(part is not None for part in self._parts)

    def note(self, number: int, mark: Mark, *, is_marked: bool) -> None:
        """Note a batch that was appended to a piece."""
        is_first, self.is_late = self.is_late, False
        if number == len(self._parts):
            assert is_marked, "the first batch of a piece is marked"
            self._parts.append(_Marks())
        assert number == len(self._parts) - 1, "batches go to the last piece"
        part = self._parts[number]
        if part is None:
            assert number == self._late_number, "only what was begun before us is not known"
            part = self._late
            if is_first:  # Where a walk from the beginning of the piece ends.
                self._is_late_marked = is_marked
        if is_marked or not part:
            part.add(mark)

    def adopt(self, number: int, marks: Iterable[Mark]) -> None:
        """Take the marks of a coarse stretch whose batches a walk has proven."""
        assert 0 <= number < len(self._parts), "every piece has its place in the index"
        if self._parts[number] is not None:
            return  # Another poll has walked here meanwhile.
        part = _Marks()
        for mark in marks:
            part.add(mark)
        assert part.at(0) == self._piece_start(number, part.at(0).timestamp), "a walk begins there"
        if number == self._late_number:
            part.extend(self._late, 0 if self._is_late_marked else 1)
            self._late = _Marks()
        self._parts[number] = part

    def stretch(self, offset: int, until: int, *, end_offset: int, bytes_max: int) -> Stretch:
        """Return the batches from the mark at or before an offset on, up to another offset.

        It ends with the piece, or earlier where it would exceed a number of bytes; one step it
        always has. `end_offset` is that of the segment.
        """
        number = bisect_right(self._pieces, offset, key=_FIRST_OFFSET) - 1
        assert 0 <= number < len(self._parts), "every piece has its place in the index"
        assert self._pieces[number].first_offset <= offset < end_offset, "the segment holds it"
        assert offset < until, "something is wanted"
        part = self._parts[number]
        if part is None and number == self._late_number and self._late:
            if offset < self._late.at(0).offset:
                return Stretch(number, self._piece_start(number), self._late.at(0), 1)
            part = self._late
        end = self._piece_end(number, end_offset)
        if part is None:
            return Stretch(number, self._piece_start(number), end, 1)
        first = part.find(offset, column=0)
        start = part.at(first)
        assert start.offset <= offset < end.offset, "a stretch holds what it was asked for"
        last = part.find(until - 1, column=0, lo=first)
        if end.position - start.position > bytes_max or last + 1 < len(part):
            fitting = part.find(start.position + bytes_max, column=2, lo=first)
            last = max(min(last, fitting - 1), first)
        if last + 1 < len(part):
            end = part.at(last + 1)
        assert start.position < end.position, "a stretch has at least one step"
        return Stretch(number, start, end, last + 1 - first, is_coarse=False)

    def find_time(self, timestamp: int) -> int:
        """Return an offset at or before that of the first batch of a time, as late as is known."""
        for number in range(len(self._parts) - 1, -1, -1):
            part = self._parts[number]
            if part is None and number == self._late_number:
                part = self._late
            if part and part.at(0).timestamp < timestamp:
                return part.at(part.before(timestamp)).offset
        return self._pieces[0].first_offset

    def _piece_start(self, number: int, timestamp: int = 0) -> Mark:
        piece = self._pieces[number]
        return Mark(piece.first_offset, timestamp, piece.position, 0)

    def _piece_end(self, number: int, end_offset: int) -> Mark:
        if number + 1 < len(self._pieces):
            end_offset = self._pieces[number + 1].first_offset
        piece = self._pieces[number]
        return Mark(end_offset, 0, piece.end_position, piece.chain)

    def check(self, end_offset: int, newest_stamp: int) -> None:
        """Assert that what is known of each piece agrees with it; `end_offset` as in `stretch`."""
        assert len(self._parts) == len(self._pieces), "every piece has its place in the index"
        assert self._late_number < len(self._pieces), "the late piece is one of the segment"
        for number, part in enumerate(self._parts):
            start, end = self._piece_start(number), self._piece_end(number, end_offset)
            if part is not None:
                part.check(start, end, newest_stamp)
                first = part.at(0)
                assert first == self._piece_start(number, first.timestamp), "each has its first"
            elif number == self._late_number and self._late:
                self._late.check(start, end, newest_stamp)
                assert start.offset < self._late.at(0).offset, "it began before what is known"
        if self.is_late:
            assert not self._late, "the first batch that comes late is noted first"
            assert len(self._pieces) == self._late_number + 1, "and belongs to the last piece"

    def digest(self) -> int:
        """Return the digest of all marks, which are known."""
        return fold(0, self._entries(), MARK_BYTES)

    def _entries(self) -> bytes:
        assert self.is_complete, "an index is proven as a whole"
        return b"".join([part.encode() for part in self._parts if part is not None])

    def encode(self, file: SegmentFile, length: int) -> bytes:
        """Return the index file of a sealed segment."""
        entries = self._entries()
        head = _HEAD.pack(
            _MAGIC,
            _VERSION,
            len(entries) // MARK_BYTES,
            file.namespace,
            file.created_revision,
            file.history_epoch,
            file.base_offset,
            length,
        )
        covered = head + entries
        return covered + xxh3_64(covered).to_bytes(_CHECKSUM_BYTES, "little")


def decode_index(
    data: Data, file: SegmentFile, pieces: list[Piece], *, length: int, digest: int
) -> SegmentIndex:
    """Read the index file of a sealed segment, whose pieces and digest the caller knows.

    Raises:
        CorruptError: It is damaged, of another file, or not the index that the log vouches for.
    """
    entries = memoryview(_check(data, file, length))
    if fold(0, entries, MARK_BYTES) != digest:
        raise CorruptError("index with other entries than the log vouches for")
    index = SegmentIndex(pieces)
    marks = _Marks(entries)
    starts = [marks.find(piece.position, column=2) for piece in pieces]
    parts = []
    for piece, first, end in zip(pieces, starts, [*starts[1:], len(marks)], strict=True):
        if first >= end or marks.at(first).position != piece.position:
            raise CorruptError("index whose entries do not begin where the pieces do")
        parts.append(_Marks(entries[MARK_BYTES * first : MARK_BYTES * end]))
    index._parts = [*parts]  # noqa: SLF001  # of this module
    return index


def _check(data: Data, file: SegmentFile, length: int) -> memoryview:
    """Return the entries of an index file that is whole and of this segment."""
    if len(data) < _HEAD.size + _CHECKSUM_BYTES:
        raise CorruptError(f"index of {len(data)} bytes")
    view = memoryview(data)
    covered = view[:-_CHECKSUM_BYTES]
    magic, version, count, namespace, revision, epoch, base_offset, log_length = _HEAD.unpack_from(
        view
    )
    if magic != _MAGIC or version != _VERSION:
        raise CorruptError(f"index begins with {magic!r}, version {version}")
    if xxh3_64(covered) != int.from_bytes(view[-_CHECKSUM_BYTES:], "little"):
        raise CorruptError("index with a wrong checksum")
    if SegmentFile(namespace, revision, epoch, base_offset) != file or log_length != length:
        raise CorruptError("index of another segment, or of another length of it")
    if not count or len(covered) - _HEAD.size != count * MARK_BYTES:
        raise CorruptError(f"index of {count} entries in {len(data)} bytes")
    return covered[_HEAD.size :]
