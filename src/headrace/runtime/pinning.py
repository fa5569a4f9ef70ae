"""The CPUs of this process: which it may use, and which it keeps to (SH-6, SH-7)."""

import os
import sys
from collections.abc import Iterable


def allowed_cpus() -> list[int]:
    """Return the CPUs that this process may use, in order; off Linux those of the machine."""
    if sys.platform != "linux":
        return list(range(os.cpu_count() or 1))
    return sorted(os.sched_getaffinity(0))


def pin_process(cpus: Iterable[int]) -> None:
    """Keep this process to some CPUs; off Linux nothing happens.

    It holds for the calling thread and for threads and processes that it starts from now on. So a
    shard calls it first of all: memory that it takes later is of the NUMA node of these CPUs.

    Raises:
        OSError: None of them may be used.
    """
    if sys.platform == "linux":
        os.sched_setaffinity(0, cpus)
