"""Things found by number or by name, and the numbers that are free.

Invariants: a number and a name stand once; the next free number is a function of those taken alone,
            so that a restored replica and one that lived through it agree (MD-2).
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from headrace.wire.identifiers import Identifier


class Named(Protocol):
    """What a table can hold."""

    id: int
    name: str


T = TypeVar("T", bound=Named)


class Table(Generic[T]):
    """Things by number and by name.

    One dict serves both: numbers and texts never compare equal, and an identifier of either kind is
    found in one step.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Identifier, T] = {}

    def __len__(self) -> int:
        return len(self._found) // 2

    def __iter__(self) -> Iterator[T]:
        """Go through all in ascending order of numbers, whatever order they came in."""
        numbers = sorted([key for key in self._found if isinstance(key, int)])
        return (self._found[number] for number in numbers)

    def find(self, identifier: Identifier) -> T | None:
        """Return the thing with this number or name, if there is one."""
        return self._found.get(identifier)

    def is_taken(self, name: str, *, but_for: T) -> bool:
        """Return whether something else has this name."""
        return self._found.get(name, but_for) is not but_for

    def add(self, thing: T) -> None:
        """Add what has a number and a name of its own."""
        assert thing.id not in self._found, "a number stands once"
        assert thing.name not in self._found, "a name stands once"
        self._found[thing.id] = thing
        self._found[thing.name] = thing

    def remove(self, thing: T) -> None:
        """Remove what is there."""
        assert self._found[thing.id] is thing, "it is found by its number"
        assert self._found[thing.name] is thing, "it is found by its name"
        del self._found[thing.id]
        del self._found[thing.name]

    def rename(self, thing: T, name: str) -> None:
        """Rename a thing; its own name is accepted."""
        assert self._found[thing.id] is thing, "it is found by its number"
        assert self._found[thing.name] is thing, "it is found by its name"
        del self._found[thing.name]
        assert name not in self._found, "a name stands once"
        thing.name = name
        self._found[name] = thing

    def check(self) -> None:
        """Assert that each thing is found by its number and by its name, and by nothing else."""
        for thing in self:
            assert self._found[thing.id] is thing, "it is found by its number"
            assert self._found.get(thing.name) is thing, "it is found by its name"
        assert len(self._found) == 2 * sum(1 for _ in self), "it is found by nothing else"


class LowestFree:
    """Hands out the lowest number that is free."""

    __slots__ = ("_end", "_gaps")

    def __init__(self, taken: Iterable[int] = ()) -> None:
        """Begin with some numbers taken, in ascending order."""
        self._gaps: list[int] = []  # a heap of the free numbers below `_end`
        self._end = 0
        for number in taken:
            assert number >= self._end, "numbers are given in ascending order"
            self._gaps.extend(range(self._end, number))  # ascending, so a heap
            self._end = number + 1

    def take(self) -> int:
        """Return the lowest free number; it is taken now."""
        if self._gaps:
            assert self._gaps[0] < self._end, "a gap lies below the end"
            return heapq.heappop(self._gaps)
        self._end += 1
        return self._end - 1

    def give_back(self, number: int) -> None:
        """Make a number free again."""
        assert 0 <= number < self._end, "only a number that was taken is given back"
        heapq.heappush(self._gaps, number)

    def check(self, taken: list[int]) -> None:
        """Assert that every number up to the end is either taken, in ascending order, or free."""
        assert sorted([*self._gaps, *taken]) == list(range(self._end)), "each is taken or free"
        lowest = min(self._gaps, default=self._end)
        assert (self._gaps[0] if self._gaps else self._end) == lowest, "the lowest is next"
