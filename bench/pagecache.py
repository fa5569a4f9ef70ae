"""Fills the page cache before a run, so that a first touch of memory is nobody's figure.

On a virtual machine a page that the guest never used, or gave back, comes from the host at a
fraction of the speed of memory: new files are then several times slower, sometimes. A server that
has run for a while finds its page cache full of clean pages. Reading a hole in a file makes it so
without writing anything; the pages are given up as soon as somebody needs them.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

from headrace.base.limits import GIB, MIB

PIECE_BYTES = MIB
LOOK_EVERY_BYTES = 256 * MIB
FREE_SHARE_MAX = 0.1  # of memory; the kernel itself keeps some per cent free


class Filled(NamedTuple):
    """What a fill came to."""

    filled_bytes: int
    seconds: float
    free_bytes: int  # of memory, afterwards
    total_bytes: int

    @property
    def is_full(self) -> bool:
        """Whether so little memory is free that new pages come from the cache."""
        return self.free_bytes <= self.total_bytes * FREE_SHARE_MAX

    def __str__(self) -> str:
        word = "full" if self.is_full else "NOT full"
        return (
            f"page cache {word}: {self.filled_bytes / GIB:.1f} GiB in {self.seconds:.0f} s,"
            f" {self.free_bytes / GIB:.1f} of {self.total_bytes / GIB:.1f} GiB free"
        )


def fill(folder: Path) -> Filled:
    """Fill the page cache from a file in this folder.

    The file must stay until the run has ended: removing it gives the pages back.
    """
    began = time.perf_counter()
    path = folder / "hole"
    filled = 0
    total = _read_memory("MemTotal")
    length = (total // LOOK_EVERY_BYTES + 2) * LOOK_EVERY_BYTES
    with path.open("wb") as made:
        made.truncate(length)
    fd = os.open(path, os.O_RDONLY)
    try:
        buffer = bytearray(PIECE_BYTES)
        # Others take and free memory meanwhile, so only what is free now says when to end.
        while _read_memory("MemFree") > total * FREE_SHARE_MAX / 2 and filled < length:
            for _ in range(LOOK_EVERY_BYTES // PIECE_BYTES):
                filled += os.preadv(fd, [buffer], filled)
    finally:
        os.close(fd)
    return Filled(filled, time.perf_counter() - began, _read_memory("MemFree"), total)


def _read_memory(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) << 10
    raise KeyError(key)
