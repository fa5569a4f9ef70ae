"""Memory for bytes that are about to arrive."""

import ctypes


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
