"""From one seed to the options of one run: the draws that all workloads share.

Every seed draws its own mix, so that over many seeds faults meet in all combinations, and no fault
hides behind another that always strikes first. A workload declares a table of choices for each part
(`NetworkOptions`, `DiskOptions`, `FaultOptions`); `draw` makes one draw for each entry, in order.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from headrace.base.prng import Prng
from headrace.sim.agenda import MILLISECOND
from headrace.vsr.quorum import quorums_of

_T = TypeVar("_T")


class Sometimes(NamedTuple):
    """A choice in so many of 100 draws, else 0: never."""

    percent: int
    choices: tuple[int, ...]


Table = Mapping[str, tuple[int, ...] | Sometimes]


def millis(*values: int) -> tuple[int, ...]:
    """Return milliseconds as the microseconds of virtual time."""
    return tuple(value * MILLISECOND for value in values)


def sometimes(percent: int, *values: int) -> Sometimes:
    """Return a choice between milliseconds, in so many of 100 draws."""
    return Sometimes(percent, millis(*values))


def draw(kind: Callable[..., _T], prng: Prng, table: Table) -> _T:
    """Draw one part of the options, field by field."""
    return kind(**{name: _draw_one(prng, choices) for name, choices in table.items()})


def _draw_one(prng: Prng, choices: tuple[int, ...] | Sometimes) -> int:
    if not isinstance(choices, Sometimes):
        return prng.choice(choices)
    return prng.choice(choices.choices) if prng.below(100) < choices.percent else 0


def draw_atlas(prng: Prng, replica_count: int) -> tuple[int, ...]:
    """Choose the nodes whose disk may be damaged, so that every op keeps a good copy."""
    nodes = list(range(replica_count))
    prng.shuffle(nodes)
    damaged_max = quorums_of(replica_count).replication - 1
    return tuple(sorted(nodes[:damaged_max]))


def tells_all(seed: int) -> bool:
    """Whether a disk tells of every write, or, as the real one does, only of those awaited.

    Both keep the port's word, and bugs that take the one answer for the other need the first.
    """
    return seed % 4 != 0


def draw_slice(seed: int) -> int:
    """Return how many groups a turn looks at of a walk over many: one, two, or all there are.

    It is not drawn from the generator of the rest, so that the other draws of a seed stay.
    """
    return (1, 2, 256)[seed % 3]
