"""Provides the read buffer of a connection, and cuts received bytes into frames. Sans-IO.

```
slab:    | frame | frame | frame |  -> each copied into its own memory
                         | part  |  -> kept as `rest`, copied in front of the next read
rest:    | header of a large frame, part |  -> memory for all of it; reads go there directly
```

Flow:       receive.
Invariants: a size outside the bounds is refused before anything is allocated for it (CL2);
            memory for a large frame is taken only by the read that follows `receive`, so that
            the owner can refuse to read until there is room;
            no byte of the slab is used after `receive` has returned.
"""

from collections.abc import Sequence
from struct import Struct

from headrace.base.limits import HEADER_BYTES
from headrace.base.memory import new_frame
from headrace.transports.slabs import LARGE_FRAME_BYTES, SLAB_BYTES, Slab
from headrace.wire.layout import SIZE_END, SIZE_OFFSET
from headrace.wire.old_framing import OLD_FRAMING, OLD_START_BYTES, is_old_framing

_read_size = Struct("<I").unpack_from
_NOTHING = bytearray()


class FrameReceiver:
    """Takes the bytes of one connection in any pieces; returns frames in their own memory."""

    __slots__ = (
        "_filled",
        "_is_begun",
        "_kept",
        "_slab",
        "_view",
        "breach",
        "cut_bytes",
        "frame",
        "frame_bytes_max",
        "next_buffer",
        "rest",
        "wanted",
    )

    def __init__(self, slab: Slab, frame_bytes_max: int) -> None:
        assert frame_bytes_max >= HEADER_BYTES
        self._slab = slab
        self.frame_bytes_max = frame_bytes_max
        self.breach = ""  # why this stream is invalid; no frame follows
        self.next_buffer: memoryview | None = slab.view  # for the next read; none: ask `buffer`
        self.cut_bytes = 0  # of the frames that were returned last
        self.rest = _NOTHING  # bytes that are not a whole frame, or not cut yet
        self.wanted = 0  # the size of the frame that `rest` begins, once it is known
        self._kept = 0  # bytes of `rest` in front of the next read
        self.frame: bytearray | None = None  # the large frame being received
        self._view = memoryview(_NOTHING)
        self._filled = 0
        self._is_begun = False  # whether the first bytes were checked

    @property
    def unfinished_bytes(self) -> int:
        """The number of received bytes of an unfinished frame."""
        return len(self.rest) if self.frame is None else self._filled

    @property
    def missing_bytes(self) -> int:
        """The number of missing bytes of an unfinished frame, as far as it is known."""
        if self.frame is not None:
            return len(self.frame) - self._filled
        return self.wanted - len(self.rest) if self.wanted else 0

    @property
    def is_large_next(self) -> bool:
        """Whether the next read allocates memory for a large frame."""
        return self.wanted >= LARGE_FRAME_BYTES

    def buffer(self) -> memoryview:
        """Return the buffer for the next read; call it again before each read.

        `next_buffer` is the same where it is known: nothing of a frame has been received.
        """
        if self.frame is not None:
            return self._view[self._filled :]
        if self.rest:
            return self._begin_large() if self.is_large_next else self._lay_rest()
        assert self.next_buffer is not None, "nothing has been received of the next frame"
        return self.next_buffer

    def receive(self, count: int, frames_max: int) -> Sequence[bytearray]:
        """Process the bytes read into the buffer; return up to so many completed frames.

        With `breach` set the stream is invalid after them. Frames above the maximum stay for `cut`.
        """
        if self.frame is None:
            end = self._kept + count
            self._kept = 0
            if end >= HEADER_BYTES and frames_max > 0 and self._is_begun:
                source = self._slab.data
                (size,) = _read_size(source, SIZE_OFFSET)
                if HEADER_BYTES <= size == end <= self.frame_bytes_max:
                    # Exactly one whole frame: what a client in lockstep sends.
                    self.rest = _NOTHING
                    self.wanted = 0
                    self.next_buffer = self._slab.view
                    self.cut_bytes = end
                    return (source[:end],)
            return self._cut(self._slab.data, end, frames_max)
        self._filled += count
        assert self._filled <= len(self.frame)
        if self._filled < len(self.frame):
            return ()
        frame = self.frame
        self.frame = None
        self._view = self._slab.view
        # A separate read for the header alone; filling the slab would copy those bytes twice.
        self.cut_bytes = len(frame)
        is_huge = self.cut_bytes > SLAB_BYTES
        self.next_buffer = self._slab.head if is_huge else self._slab.view
        return (frame,)

    def cut(self, frames_max: int) -> Sequence[bytearray]:
        """Return frames that `receive` had to leave, up to the maximum."""
        return self._cut(self.rest, len(self.rest), frames_max)

    def _cut(self, source: bytearray, end: int, frames_max: int) -> Sequence[bytearray]:
        if not self._is_begun and end >= OLD_START_BYTES:
            self._is_begun = True
            if is_old_framing(source):
                self._lose(OLD_FRAMING)
                return ()
        frames: list[bytearray] = []
        position = 0
        self.wanted = 0
        while end - position >= SIZE_END and len(frames) < frames_max:
            (size,) = _read_size(source, position + SIZE_OFFSET)
            if not HEADER_BYTES <= size <= self.frame_bytes_max:
                self._lose(
                    f"frame of {size} bytes, allowed {HEADER_BYTES} to {self.frame_bytes_max}"
                )
                return frames
            if size > end - position:
                self.wanted = size
                break
            frames.append(source[position : position + size])
            position += size
            self.cut_bytes = position
        if position < end:
            self.rest = source[position:end]
            self.next_buffer = None
        else:
            self.rest = _NOTHING
            self.next_buffer = self._slab.view
        return frames

    def _lose(self, breach: str) -> None:
        self.breach = breach
        self.rest = _NOTHING
        self.next_buffer = self._slab.view

    def _lay_rest(self) -> memoryview:
        """Copy the rest to the start of the slab: many frames may follow it."""
        self._kept = len(self.rest)
        assert self._kept < LARGE_FRAME_BYTES
        self._slab.view[: self._kept] = self.rest
        return self._slab.view[self._kept :]

    def _begin_large(self) -> memoryview:
        """Allocate the large frame; the kernel writes its remaining bytes into it."""
        assert len(self.rest) < self.wanted  # within the bound that applied when it was read
        self.frame = new_frame(self.wanted)
        self._view = memoryview(self.frame)
        self._filled = len(self.rest)
        self._view[: self._filled] = self.rest
        self.rest = _NOTHING
        self.wanted = 0
        self.next_buffer = None
        return self._view[self._filled :]
