"""The memory that sockets are read into.

One slab serves all connections of a loop. A loop requests a buffer, reads, and reports how much it
read, with nothing in between; whole frames are copied out before the next connection. So the bytes
land in memory that is in the cache, and ten thousand connections need no more of it than one. A
frame of `LARGE_FRAME_BYTES` or more is not copied: it gets its own memory and the kernel writes
into that.
"""

from headrace.base.limits import HEADER_BYTES, KIB

SLAB_BYTES = 256 * KIB
LARGE_FRAME_BYTES = 64 * KIB

assert HEADER_BYTES <= LARGE_FRAME_BYTES <= SLAB_BYTES


class Slab:
    """The shared receive buffer: valid from one `get_buffer` to the `buffer_updated` after it."""

    __slots__ = ("data", "head", "view")

    def __init__(self) -> None:
        self.data = bytearray(SLAB_BYTES)
        self.view = memoryview(self.data)
        self.head = self.view[:HEADER_BYTES]
