"""The flag of a node that its shards look at: go on, finish, end (SH-34).

One byte of memory that the supervisor makes and all shards inherit. It only rises.
"""

import mmap
import os
from enum import IntEnum


class Wish(IntEnum):
    """What is wanted of all shards; a later one includes the earlier."""

    RUN = 0
    FINISH = 1  # take no more requests, and answer those in flight
    END = 2  # make everything durable, and end


class StopFlag:
    """The flag, in the process that made it or in one that inherited its descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Look at the memory behind a descriptor, which is now this object's.

        Raises:
            OSError: It is not such a memory.
            ValueError: It is empty.
        """
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 1)

    @property
    def wish(self) -> Wish:
        """What is wanted now."""
        return Wish(self._memory[0])

    def raise_to(self, wish: Wish) -> None:
        """Want this of all shards; it is never lowered."""
        self._memory[0] = max(self._memory[0], wish)

    def close(self) -> None:
        """Look at it no more."""
        self._memory.close()
        os.close(self.descriptor)


def make_stop_flag() -> StopFlag:
    """Return a new flag; children get its descriptor by `pass_fds`.

    Raises:
        OSError: There is no memory for it.
    """
    descriptor = os.memfd_create("headrace-stop")
    os.ftruncate(descriptor, 1)
    return StopFlag(descriptor)
