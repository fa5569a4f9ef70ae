"""Keeps large buffers in the heap of the process.

glibc maps each block above 128 KiB from the system and unmaps it when it is freed, so every frame
and every reply of that size would pay for fresh pages: measured, half of the throughput of large
polls. With the thresholds raised, freed blocks are reused.
"""

import ctypes

from headrace.base.limits import FRAME_BYTES_MAX, MIB

HEAP_BLOCK_BYTES_MAX = 2 * FRAME_BYTES_MAX
TRIM_BYTES = 256 * MIB

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_DONE = 1


def keep_large_blocks() -> bool:
    """Raise the allocator's thresholds; return whether it took them. Only glibc does."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    # The trim threshold first: setting either one ends their automatic adjustment.
    answers = [
        mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES),
        mallopt(_M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX),
    ]
    return answers == [_DONE, _DONE]


def give_back() -> bool:
    """Return free memory to the system; return whether there was any.

    Recovery reads the whole journal; its memory would otherwise stay with the process.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    return bool(trim(0))
