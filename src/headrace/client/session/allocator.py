"""Has the allocator keep what large batches and answers take.

glibc maps a block above 128 KiB from the system and gives it back when it is freed, so every batch
of that size would pay for fresh pages: measured, five sixths of the time of making one of 1 MiB
(bench/client.py). It learns from the largest block that is freed: blocks up to that size then come
from its heap, and up to twice as much stays there. Other allocators do not mind.
"""

from headrace.base.limits import MIB

BLOCK_BYTES = 8 * MIB


def keep_large_blocks() -> None:
    """Free one large block, of which not a page was touched."""
    bytes(BLOCK_BYTES)
