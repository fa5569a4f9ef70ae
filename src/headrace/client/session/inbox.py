"""The receive buffer of one connection, reused for each answer. Sans-IO.

A large answer is received directly into its place, and its memory is not freed and allocated again
for each answer: for answers of 1 MiB that took half of the time of a poll (bench/client.py). The
whole buffer is offered from the first byte on, so an answer no larger than the last one can arrive
in one read.

Invariants: a frame is a view of the buffer, valid until `clear`; copy its content to keep it.
"""

from headrace.base.limits import FRAME_BYTES_MAX, KIB, MIB
from headrace.wire.frames import read_size
from headrace.wire.layout import KIND_OFFSET, SIZE_END
from headrace.wire.numbers import FrameKind

FIRST_BYTES = 64 * KIB  # a small answer arrives in one read
KEPT_BYTES_MAX = 4 * MIB  # a larger buffer is freed after its answer


class Inbox:
    """Receives the bytes of one answer at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray(FIRST_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._size = 0  # that the frame declares; 0 until those bytes have arrived

    def clear(self) -> None:
        """Discard the received bytes; frames that were taken become invalid."""
        self._filled = self._size = 0
        if len(self._buffer) > KEPT_BYTES_MAX:
            self._replace(bytearray(FIRST_BYTES))

    @property
    def missing(self) -> int:
        """How many bytes the frame lacks; at least 1 while its size is unknown."""
        return max(self._size - self._filled, 1)

    def space(self) -> memoryview:
        """Return the part of the buffer that the next bytes are received into."""
        if self._size > len(self._buffer):
            grown = bytearray(self._size)
            grown[: self._filled] = self._view[: self._filled]
            self._replace(grown)
        return self._view[self._filled :]

    def fill(self, count: int) -> None:
        """Record the number of bytes received.

        Raises:
            RemoteError: The frame declares a size outside the limits.
        """
        self._filled += count
        assert self._filled <= len(self._buffer)
        if not self._size and self._filled >= SIZE_END:
            self._size = read_size(self._view[:SIZE_END], FRAME_BYTES_MAX)

    def take(self) -> memoryview | None:
        """Return the received frame if it is complete, else None."""
        return self._view[: self._size] if 0 < self._size <= self._filled else None

    @property
    def is_overfull(self) -> bool:
        """Whether more bytes than one frame have arrived."""
        return 0 < self._size < self._filled

    def is_followed_by(self, kind: FrameKind) -> bool:
        """Whether the bytes after the frame begin a frame of that kind, as far as they show it."""
        kind_at = self._size + KIND_OFFSET
        return self.is_overfull and (self._filled <= kind_at or self._buffer[kind_at] == kind)

    def _replace(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
