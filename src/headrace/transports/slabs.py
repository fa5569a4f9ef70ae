"""The memory that sockets are read into.

One slab serves all connections of a loop. A loop requests a buffer, reads, and reports how much it
read, with nothing in between; whole frames are copied out before the next connection. So the bytes
land in memory that is in the cache, and ten thousand connections need no more of it than one. A
frame of `LARGE_FRAME_BYTES` or more is not copied: it gets its own memory and the kernel writes
into that.
"""

import ctypes

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


def _declare_allocator() -> "ctypes._NamedFuncPointer":
    function = ctypes.pythonapi.PyByteArray_FromStringAndSize
    function.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
    function.restype = ctypes.py_object
    return function


_allocate = _declare_allocator()


def new_frame(size: int) -> bytearray:
    """Return memory for a frame, not zeroed: it is passed on only when every byte has arrived.

    `bytearray(size)` writes zeros. The header of a frame that never comes would make the loop touch
    up to 64 MiB: some 20 ms.
    """
    frame = _allocate(None, size)
    assert type(frame) is bytearray
    assert len(frame) == size
    return frame
