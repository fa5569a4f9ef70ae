"""Makes the allocator keep the memory of large batches and answers.

glibc maps a block above 128 KiB from the system and unmaps it when it is freed, so every batch of
that size would pay for fresh pages: measured, five sixths of the time to build a batch of 1 MiB
(bench/client.py). glibc adapts to the largest block that is freed: it then takes blocks up to that
size from its heap, and keeps up to twice as much there. Other allocators are not affected.
"""

from headrace.base.limits import MIB

BLOCK_BYTES = 8 * MIB


def keep_large_blocks() -> None:
    """Allocate and free one large block without touching its pages."""
    bytes(BLOCK_BYTES)
