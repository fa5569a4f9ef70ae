"""Proves that the bytes of a stretch are the batches that the log has there (P6, DK15).

A stretch lies between two trusted chain values. Its batches are right if each verifies, is the next
one of its partition, and their checksums lead from the first value to the second.

```
file   | start ......... batches ......... | end       one step, several, or a whole piece
memory                      | tail ........ |           what is not in the file yet
```

Where they do not, a survey tells which batches can still be proven: damage inside a batch leaves
the link of that batch in the chain, so the others are right and exactly it cannot be read.

Flow: reply.
"""

from collections.abc import Sequence
from itertools import product
from struct import Struct

import msgspec

from headrace.kernel import BATCH_HEADER_BYTES, BatchError, Reason, fold, prove, verify
from headrace.partitions.gather import Run
from headrace.partitions.pieces import Mark, Stretch, is_marked
from headrace.ports.network import Buffer
from headrace.wire.batches import decode_batch_header

_ROW = Struct("<4Q")
_LINK_BYTES = 8
_TRIALS_MAX = 64  # how many ways of linking damaged batches are tried


class FilePart(msgspec.Struct, frozen=True):
    """How much of a stretch is to be read from the file, and the batches of it in memory."""

    end_offset: int
    length: int
    tail: tuple[Buffer, ...]


class Found(msgspec.Struct, frozen=True):
    """Batches of a stretch that are proven, or a range that cannot be read.

    `position` is where it begins, counted from the beginning of the stretch.
    """

    first: int
    end: int
    run: Run | None
    position: int = 0


class Walker:
    """Proves the beginning of a piece step by step, and notes the marks that an index has of it."""

    __slots__ = ("_chain", "_partition_id", "_step_bytes", "marks", "offset", "position", "stretch")

    def __init__(self, stretch: Stretch, partition_id: int, step_bytes: int) -> None:
        self.stretch = stretch
        self.offset = stretch.start.offset
        self.position = stretch.start.position
        self.marks: list[Mark] = []
        self._chain = stretch.start.chain
        self._partition_id = partition_id
        self._step_bytes = step_bytes

    def feed(self, data: Buffer) -> int:
        """Take the bytes that come next; return how many were good batches."""
        size, offset, chain, rows = prove(data, self._partition_id, self.offset, self._chain)
        marks = [Mark(*row) for row in _ROW.iter_unpack(rows)]
        ends = [mark.position for mark in marks[1:]] + [size]
        done = self.position - self.stretch.start.position
        for mark, end in zip(marks, ends, strict=False):  # Without a batch there is only an end.
            if is_marked(done + mark.position, done + end, self._step_bytes):
                position = self.position + mark.position
                self.marks.append(Mark(mark.offset, mark.timestamp, position, mark.chain))
        assert offset >= self.offset, "offsets of a walk rise"
        assert size <= len(data), "only what was given is proven"
        self.offset, self._chain = offset, chain
        self.position += size
        return size

    def check(self) -> None:
        """Assert that the walk is within its stretch, and its marks behind it."""
        start, end = self.stretch.start, self.stretch.end
        assert self.stretch.is_coarse, "a walk finds marks that are not known"
        assert start.offset <= self.offset, "a walk goes forward"
        assert start.position <= self.position <= end.position, "a walk ends with its stretch"
        assert all(mark.position < self.position for mark in self.marks), "marks lie behind it"
        assert bool(self.marks) == (self.position > start.position), "its first batch is marked"

    def is_proven(self) -> bool:
        """Return whether all batches have come, and are those of the log."""
        end = self.stretch.end
        return (self.offset, self.position, self._chain) == (end.offset, end.position, end.chain)


def prove_stretch(
    stretch: Stretch, part: FilePart, data: memoryview, partition_id: int
) -> Run | None:
    """Return the batches that were read of a stretch; nothing if they are not those of the log."""
    start = stretch.start
    assert part.length <= stretch.length, "what is read lies in the stretch"
    assert start.offset <= part.end_offset <= stretch.end.offset, "memory has the rest"
    size, offset, chain, rows = prove(data, partition_id, start.offset, start.chain)
    if size != part.length or size != len(data) or offset != part.end_offset:
        return None
    if _fold_tail(chain, part.tail) != stretch.end.chain:
        return None
    return _run_of(data, rows, offset)


def _run_of(data: memoryview, rows: bytes, end_offset: int) -> Run:
    run = Run(data)
    numbers = Struct(f"<{len(rows) // 8}Q").unpack(rows)
    run.offsets = [*numbers[0::4], end_offset]
    run.timestamps = [*numbers[1::4]]
    run.positions = [*numbers[2::4], len(data)]
    assert run.offsets[-1] > run.offsets[0], "proven batches have messages"
    assert len(run.offsets) == len(run.positions) == run.count + 1, "columns have one length"
    return run


def _fold_tail(chain: int, tail: Sequence[Buffer]) -> int:
    links = b"".join([_link(batch) for batch in tail])
    return fold(chain, links, _LINK_BYTES)


def _link(batch: Buffer | memoryview) -> bytes:
    return decode_batch_header(batch).checksum.to_bytes(_LINK_BYTES, "little")


# What is left where a stretch is damaged.


def survey(stretch: Stretch, part: FilePart, data: memoryview, partition_id: int) -> list[Found]:
    """Return what can be proven of a damaged stretch, and the ranges between that cannot be read.

    Batches count only if the chain leads through all of them and through what is left of the
    damaged ones; otherwise nothing of the stretch can be read.
    """
    assert part.length <= stretch.length, "what is read lies in the stretch"
    whole = [Found(stretch.start.offset, part.end_offset, None)]
    if len(data) != part.length:
        return whole
    found: list[Found] = []
    links: list[list[bytes]] = []  # of each run or damaged batch: one, or the possible ones
    at, offset = 0, stretch.start.offset
    while at < len(data):
        size, end, _, rows = prove(data[at:], partition_id, offset, 0)
        if size:
            found.append(Found(offset, end, _run_of(data[at : at + size], rows, end), at))
            links.append([_links_of(data[at:], rows)])
        at, offset = at + size, end
        if at < len(data):
            behind, end = _behind(data, at, offset, part.end_offset, partition_id)
            assert at < behind <= len(data), "a survey goes forward, and ends with the data"
            found.append(Found(offset, end, None, at))
            links.append(_possible_links(data[at:behind]))
            at, offset = behind, end
    is_proven = offset == part.end_offset and _is_linked(stretch, links, part.tail)
    return found if is_proven else whole


def _links_of(data: memoryview, rows: bytes) -> bytes:
    starts = [row[2] for row in _ROW.iter_unpack(rows)]
    return b"".join([_link(data[start:]) for start in starts])


def _possible_links(batch: memoryview) -> list[bytes]:
    """Return what the link of a damaged batch may be: its checksum as stored, or as computed."""
    if len(batch) < BATCH_HEADER_BYTES:
        return []
    links = [_link(batch)]
    try:
        verify(batch)
    except BatchError as error:
        if error.reason == Reason.BATCH_CHECKSUM:
            links.append(error.wanted.to_bytes(_LINK_BYTES, "little"))
    return links


def _is_linked(stretch: Stretch, links: list[list[bytes]], tail: Sequence[Buffer]) -> bool:
    trials = 1
    for possible in links:
        trials *= len(possible)
    if not 1 <= trials <= _TRIALS_MAX:
        return False
    return any(
        _fold_tail(fold(stretch.start.chain, b"".join(chosen), _LINK_BYTES), tail)
        == stretch.end.chain
        for chosen in product(*links)
    )


def _behind(
    data: memoryview, at: int, offset: int, end_offset: int, partition_id: int
) -> tuple[int, int]:
    """Return position and offset of the first sound batch behind a damaged one, or the end."""
    end = (len(data), end_offset)
    if len(data) - at < BATCH_HEADER_BYTES:
        return end
    header = decode_batch_header(data[at:])
    # Either the length is right and tells where the next batch is, or the count is, and what is
    # then the offset of the next batch can be looked for.
    stated = at + header.length
    if at < stated <= len(data) - BATCH_HEADER_BYTES:
        following = decode_batch_header(data[stated:]).base_offset
        if offset < following < end_offset and prove(data[stated:], partition_id, following, 0)[0]:
            return stated, following
    following = offset + header.messages_count
    if offset < following < end_offset:
        held = bytes(data)
        sought = _ROW.pack(partition_id, following, 0, 0)[:16]
        found = held.find(sought, at + BATCH_HEADER_BYTES)
        while found >= 0:
            if prove(data[found:], partition_id, following, 0)[0]:
                return found, following
            found = held.find(sought, found + 1)
    return end
