"""Watches the memory of Spark's Python workers while a query runs."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench import machine

_SAMPLE_SECONDS = 0.1
_WORKER = "pyspark.daemon"


class Sample(NamedTuple):
    """How much the largest worker had in memory, and when."""

    seconds: float
    resident: int


class Watch:
    """Samples of a run, in their order."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def peak(self, *, first_half: bool) -> int:
        """Give the largest sample of one half of the run."""
        assert self.samples
        middle = (self.samples[0].seconds + self.samples[-1].seconds) / 2
        half = [each.resident for each in self.samples if (each.seconds < middle) == first_half]
        return max(half, default=0)


@contextmanager
def watching() -> Iterator[Watch]:
    """Sample the workers of this process's Spark until the end of the block."""
    watch = Watch()
    is_over = threading.Event()
    thread = threading.Thread(target=_sample, args=(watch, is_over), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        is_over.set()
        thread.join()


def _sample(watch: Watch, is_over: threading.Event) -> None:
    waited = 0.0
    while not is_over.wait(_SAMPLE_SECONDS):
        waited += _SAMPLE_SECONDS
        found = [machine.memory_of(pid) for pid in machine.family_of(os.getpid())]
        workers = [each.resident for each in found if each is not None and _WORKER in each.name]
        if workers:
            watch.samples.append(Sample(waited, max(workers)))
