"""Where in a segment an offset or a time is to be found: sparse, in memory, and derived.

An index holds one entry for about `step_bytes` of batches. That of a segment which this
process has written from its beginning is whole; that of an older one is filled by walking the
batches of the file, as far as somebody asked, or read from its file (docs/formats/segment.md).

```
file     |header| walked ........ | not walked yet ..... | noted when appended .... |
         0      4096              covered_to             late_from                  length
```

Invariants: entries rise in offset and position, and never fall in time; nothing here is evidence
            about the log (DK9): whoever reads at an entry checks what lies there.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import KIB, SEGMENT_HEADER_BYTES
from headrace.ports.segments import SegmentFile
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError

INDEX_STEP_BYTES = 64 * KIB

_MAGIC = b"HRINDEX1"
_VERSION = 1
# Magic, version, number of entries, identity of the segment (4 fields), its length.
_HEAD = struct.Struct("<8sII5Q")
_CHECKSUM_BYTES = 8
_ENTRY_BYTES = 24
_FIELDS = 3  # offset, timestamp, position


class Place(msgspec.Struct, frozen=True):
    """Where a batch begins: its first offset, and its position in the file."""

    offset: int
    position: int


class _Entries:
    """Entries in three columns of one flat array: 24 bytes each instead of some hundred."""

    __slots__ = ("_flat", "_step_bytes")

    def __init__(self, step_bytes: int) -> None:
        self._flat = array("Q")
        self._step_bytes = step_bytes

    def __len__(self) -> int:
        return len(self._flat) // _FIELDS

    def add(self, offset: int, timestamp: int, position: int) -> None:
        """Keep an entry unless the last one is near enough."""
        flat = self._flat
        if not flat or position - flat[-1] >= self._step_bytes:
            assert not flat or offset > flat[-3]
            flat.extend((offset, timestamp, position))

    def place(self, index: int) -> Place:
        return Place(self._flat[_FIELDS * index], self._flat[_FIELDS * index + 2])

    def timestamp(self, index: int) -> int:
        return self._flat[_FIELDS * index + 1]

    def find_offset(self, offset: int) -> Place:
        """Give the last entry at or before an offset; there is one."""
        index = bisect_right(range(len(self)), offset, key=lambda at: self._flat[_FIELDS * at])
        assert index > 0
        return self.place(index - 1)

    def after(self, offset: int) -> int | None:
        """Return the offset of the first entry behind an offset."""
        index = bisect_right(range(len(self)), offset, key=lambda at: self._flat[_FIELDS * at])
        return self._flat[_FIELDS * index] if index < len(self) else None

    def find_timestamp(self, timestamp: int) -> Place:
        """Give the last entry before a time, or the first."""
        index = bisect_left(range(len(self)), timestamp, key=self.timestamp)
        return self.place(max(index - 1, 0))

    def extend(self, other: "_Entries") -> None:
        self._flat.extend(other._flat)  # noqa: SLF001  # of the same class

    def encode(self) -> bytes:
        return struct.pack(f"<{len(self._flat)}Q", *self._flat)

    @classmethod
    def decode(cls, data: Data, step_bytes: int) -> "_Entries":
        made = cls(step_bytes)
        made._flat = array("Q", struct.unpack(f"<{len(data) // 8}Q", data))
        return made

    def is_ordered(self, first: Place, position_end: int) -> bool:
        """Whether the entries begin at a place and rise from there."""
        flat = self._flat
        offsets, timestamps, positions = (flat[column::_FIELDS] for column in range(_FIELDS))
        count = len(self)
        return (
            count > 0
            and self.place(0) == first
            and positions[-1] < position_end
            and all(offsets[at] < offsets[at + 1] for at in range(count - 1))
            and all(positions[at] < positions[at + 1] for at in range(count - 1))
            and all(timestamps[at] <= timestamps[at + 1] for at in range(count - 1))
        )


class SegmentIndex:
    """The index of one segment, as far as it is known."""

    __slots__ = (
        "_late",
        "_step_bytes",
        "_walked",
        "covered_offset",
        "covered_stamp",
        "covered_to",
        "late_from",
    )

    def __init__(
        self,
        base_offset: int,
        late_from: int = SEGMENT_HEADER_BYTES,
        *,
        step_bytes: int = INDEX_STEP_BYTES,
    ) -> None:
        """Begin with nothing; batches from `late_from` on will be noted as they are appended."""
        self._step_bytes = step_bytes
        self._walked = _Entries(step_bytes)
        self._late = _Entries(step_bytes)
        self.covered_to = SEGMENT_HEADER_BYTES
        self.covered_offset = base_offset
        self.covered_stamp = 0
        self.late_from = late_from

    def is_complete(self, length: int) -> bool:
        """Whether it covers a file of that length."""
        return self.covered_to == length

    def note(self, *, offset: int, end_offset: int, timestamp: int, span: tuple[int, int]) -> None:
        """Note a batch that was appended at the end of the file."""
        if span[0] == self.covered_to:
            self.walk(offset=offset, end_offset=end_offset, timestamp=timestamp, span=span)
        else:
            self._late.add(offset, timestamp, span[0])

    def walk(self, *, offset: int, end_offset: int, timestamp: int, span: tuple[int, int]) -> None:
        """Note the next batch of a walk through the file."""
        assert span[0] == self.covered_to
        assert offset == self.covered_offset
        self._walked.add(offset, timestamp, span[0])
        self.covered_to = span[1]
        self.covered_offset = end_offset
        self.covered_stamp = timestamp

    def join(self, *, end_offset: int, timestamp: int, length: int) -> None:
        """Put both parts together, once the walk has come to where the second begins."""
        if self.covered_to != self.late_from or not self._late:
            return
        self._walked.extend(self._late)
        self._late = _Entries(self._step_bytes)
        self.covered_to = length
        self.covered_offset = end_offset
        self.covered_stamp = timestamp

    def find_offset(self, offset: int) -> Place | None:
        """Give a place at or before an offset of the segment; nothing if it must be walked to."""
        if offset < self.covered_offset:
            return self._walked.find_offset(offset)
        if self._late and offset >= self._late.place(0).offset:
            return self._late.find_offset(offset)
        return None

    def find_timestamp(self, timestamp: int) -> Place | None:
        """Give a place at or before the first batch of a time; nothing if it must be walked to."""
        if self._walked and timestamp <= self.covered_stamp:
            return self._walked.find_timestamp(timestamp)
        if self._late and timestamp > self._late.timestamp(0):
            return self._late.find_timestamp(timestamp)
        return None

    def entry_after(self, offset: int) -> int | None:
        """Return the offset of the first entry behind an offset."""
        return self._walked.after(offset) or self._late.after(offset)

    def encode(self, file: SegmentFile, length: int) -> bytes:
        """Give the index file of a sealed segment."""
        assert self.is_complete(length)
        head = _HEAD.pack(
            _MAGIC,
            _VERSION,
            len(self._walked),
            file.namespace,
            file.created_revision,
            file.history_epoch,
            file.base_offset,
            length,
        )
        covered = head + self._walked.encode()
        return covered + xxh3_64(covered).to_bytes(_CHECKSUM_BYTES, "little")


def decode_index(
    data: Data, file: SegmentFile, *, length: int, end_offset: int, newest_stamp: int
) -> SegmentIndex:
    """Read the index file of a sealed segment, whose true measures the caller knows.

    Raises:
        CorruptError: It is damaged, of another file, or does not fit the segment.
    """
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
    if len(covered) - _HEAD.size != count * _ENTRY_BYTES:
        raise CorruptError(f"index of {count} entries in {len(data)} bytes")
    index = SegmentIndex(file.base_offset)
    entries = _Entries.decode(covered[_HEAD.size :], INDEX_STEP_BYTES)  # It is whole: none comes.
    index._walked = entries  # noqa: SLF001  # of this module
    first = Place(file.base_offset, SEGMENT_HEADER_BYTES)
    if not index._walked.is_ordered(first, length):  # noqa: SLF001
        raise CorruptError("index whose entries do not rise from the segment's beginning")
    index.covered_to = length
    index.covered_offset = end_offset
    index.covered_stamp = newest_stamp
    return index
