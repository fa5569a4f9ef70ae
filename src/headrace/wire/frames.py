"""Cuts a byte stream into frames. Sans-IO.

Flow:       decode.
Invariants: never holds more than one unfinished frame, nor more bytes of it than have arrived;
            yields whole frames only; a size over the limit is refused before anything is held.
"""

from collections.abc import Iterator

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import RemoteError
from headrace.wire.layout import SIZE, SIZE_END


class FrameCutter:
    """Takes the bytes of one connection in any pieces, and yields its frames.

    A frame that lies whole in one piece is a view of that piece: the caller keeps the piece
    unchanged as long as it uses the frame.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        assert frame_bytes_max >= HEADER_BYTES
        self._frame_bytes_max = frame_bytes_max
        self._started = bytearray()  # the frame that the last piece left unfinished

    @property
    def held(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._started)

    def feed(self, piece: Data) -> Iterator[memoryview]:
        """Take the next bytes of the stream; yield the frames that they complete, in order.

        The iterator must be exhausted before the next call.

        Raises:
            RemoteError: A frame declares a size outside the limits; the stream is then lost.
        """
        view = memoryview(piece)
        position = 0
        if self._started:
            position = self._finish(view)
            if not self._is_complete():
                return
            frame, self._started = memoryview(self._started), bytearray()
            yield frame
        while len(view) - position >= SIZE_END:
            size = self._read_size(view[position:])
            if len(view) - position < size:
                break
            yield view[position : position + size]
            position += size
        self._started += view[position:]

    def _finish(self, view: memoryview) -> int:
        """Complete the unfinished frame from the piece; return how many bytes that took."""
        position = 0
        if len(self._started) < SIZE_END:
            position = SIZE_END - len(self._started)
            self._started += view[:position]
            if len(self._started) < SIZE_END:
                return len(view)
        missing = self._read_size(self._started) - len(self._started)
        self._started += view[position : position + missing]
        return position + missing

    def _is_complete(self) -> bool:
        return len(self._started) >= SIZE_END and len(self._started) == self._read_size(
            self._started
        )

    def _read_size(self, data: Data) -> int:
        return read_size(data, self._frame_bytes_max)


def read_size(data: Data, frame_bytes_max: int) -> int:
    """Return the size that a frame declares in its first 52 bytes.

    Raises:
        RemoteError: The size is below that of a header, or over the limit.
    """
    size = int.from_bytes(data[SIZE], "little")
    if not HEADER_BYTES <= size <= frame_bytes_max:
        raise RemoteError(f"frame of {size} bytes, allowed {HEADER_BYTES} to {frame_bytes_max}")
    return size
