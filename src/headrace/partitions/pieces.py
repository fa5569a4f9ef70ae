"""Pieces: runs of batches with the chain of their checksums, which is what a read is proven by.

The log keeps pieces batch by batch from committed ops, and the checkpoint holds them: they are the
trusted part of what is known of a file (P6, docs/decisions/0018).
"""

import struct

import msgspec

_MARK = struct.Struct("<4Q")


class Piece:
    """A run of batches of one segment; the last one of a partition still grows."""

    __slots__ = ("chain", "first_offset", "length", "position")

    def __init__(self, first_offset: int, position: int, length: int = 0, chain: int = 0) -> None:
        self.first_offset = first_offset
        self.position = position
        self.length = length
        self.chain = chain

    @property
    def end_position(self) -> int:
        """Where the next piece begins."""
        return self.position + self.length


class Mark(msgspec.Struct, frozen=True):
    """Where a batch begins, its stamp, and the chain of its piece before it."""

    offset: int
    timestamp: int
    position: int
    chain: int

    def encode(self) -> bytes:
        """Return the entry of an index."""
        return _MARK.pack(self.offset, self.timestamp, self.position, self.chain)


class Stretch(msgspec.Struct, frozen=True):
    """Batches between two marks of one piece: they lead from the first chain to the second.

    `is_coarse`: the index has no marks between the two yet, and a walk finds them.
    """

    number: int  # of the piece
    start: Mark
    end: Mark
    steps_count: int
    is_coarse: bool = True

    @property
    def length(self) -> int:
        """How many bytes it takes."""
        assert self.start.position < self.end.position, "a stretch has a batch"
        return self.end.position - self.start.position


def is_marked(start: int, end: int, step_bytes: int) -> bool:
    """Return whether a batch gets a mark: the first of its piece, and each that completes a step.

    Both places count from the beginning of the piece. It depends on the batch alone, so that every
    replica and every walk marks the same ones.
    """
    assert 0 <= start < end, "a batch has bytes"
    return start == 0 or start // step_bytes != end // step_bytes
