"""Where the answers of one connection arrive: one buffer, used again for each. Sans-IO.

A large answer is received straight into its place, and its memory is not given back and asked for
again with each one: for answers of 1 MiB that was half of a poll's time (bench/client.py). All of
it is offered from the first byte on, so an answer as large as the last one comes in one piece if it
is there already.

Invariants: a frame is a view of the buffer, which holds until `clear`; whoever wants to keep what
            is in it copies it before.
"""

from headrace.base.limits import FRAME_BYTES_MAX, KIB, MIB
from headrace.wire.frames import read_size
from headrace.wire.layout import KIND_OFFSET, SIZE_END
from headrace.wire.numbers import FrameKind

FIRST_BYTES = 64 * KIB  # of which a small answer arrives in one piece
KEPT_BYTES_MAX = 4 * MIB  # a larger buffer is let go after its answer


class Inbox:
    """Takes the bytes of one answer at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray(FIRST_BYTES)
        self._filled = 0

    def clear(self) -> None:
        """Forget what came; the frames that were taken are void."""
        self._filled = 0
        if len(self._buffer) > KEPT_BYTES_MAX:
            self._buffer = bytearray(FIRST_BYTES)

    @property
    def missing(self) -> int:
        """How many bytes the frame lacks; at least one as long as that is not known."""
        return max(self._size() - self._filled, 1)

    def space(self) -> memoryview:
        """Give the place of the next bytes.

        Raises:
            RemoteError: The frame declares a size outside the limits.
        """
        size = self._size()
        if size > len(self._buffer):
            grown = bytearray(size)
            grown[: self._filled] = memoryview(self._buffer)[: self._filled]
            self._buffer = grown
        return memoryview(self._buffer)[self._filled :]

    def fill(self, count: int) -> None:
        """Note that so many bytes have come."""
        self._filled += count
        assert self._filled <= len(self._buffer)

    def take(self) -> memoryview | None:
        """Give the frame that has come, if it is whole.

        Raises:
            RemoteError: It declares a size outside the limits.
        """
        size = self._size()
        return memoryview(self._buffer)[:size] if 0 < size <= self._filled else None

    @property
    def is_overfull(self) -> bool:
        """Whether more has come than one frame."""
        return 0 < self._size() < self._filled

    def is_followed_by(self, kind: FrameKind) -> bool:
        """Whether what came behind the frame is, as far as it tells, one of that kind."""
        kind_at = self._size() + KIND_OFFSET
        return self.is_overfull and (self._filled <= kind_at or self._buffer[kind_at] == kind)

    def _size(self) -> int:
        """Give the size that the frame declares, 0 until it has come that far."""
        if self._filled < SIZE_END:
            return 0
        return read_size(memoryview(self._buffer)[:SIZE_END], FRAME_BYTES_MAX)
