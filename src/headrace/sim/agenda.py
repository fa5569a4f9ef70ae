"""Virtual time: what is due, in the order in which it is due.

Invariants: time never goes back; what is due at the same microsecond happens in the order in which
            it was planned, so that a run depends on its seed alone.
"""

import heapq
import math
from collections.abc import Callable
from typing import Any

from headrace.base.prng import Prng

MILLISECOND = 1_000
SECOND = 1_000_000

_QUANTILE_BITS = 10
_QUANTILES = tuple(
    round(-1024 * math.log(1 - (index + 0.5) / (1 << _QUANTILE_BITS)))
    for index in range(1 << _QUANTILE_BITS)
)


def exponential(draw: int, mean: int) -> int:
    """Turn the low 10 bits of a draw into a delay with that mean and a long tail.

    A table of whole numbers stands for the logarithm, so that no mathematics library changes what
    a seed means.
    """
    return mean * _QUANTILES[draw & (1 << _QUANTILE_BITS) - 1] >> 10


def draw_delay(prng: Prng, mean: int) -> int:
    """Draw a delay of at least one microsecond."""
    return 1 + exponential(prng.u64(), mean)


class Agenda:
    """A heap of tuples: due, planned as number, what to call, with what."""

    __slots__ = ("_heap", "_planned", "now")

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._planned = 0

    def after(self, delay: int, call: Callable[[Any], None], argument: object) -> None:
        """Plan a call; a delay of 0 means later in this microsecond."""
        self._planned += 1
        heapq.heappush(self._heap, (self.now + delay, self._planned, call, argument))

    def run_next(self) -> None:
        """Move time to what is due next, and do it."""
        self.now, _, call, argument = heapq.heappop(self._heap)
        call(argument)

    def __len__(self) -> int:
        return len(self._heap)
