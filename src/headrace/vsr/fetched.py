"""Fetched ops whose predecessors are missing: they wait in memory until the gap is closed.

They are journaled together then. So the room that they will need is summed over all groups of a
store, and is not free for others.

Invariants: `Held` is the sum over the waiting ops of all groups.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.ports.network import Buffer
from headrace.wire.replica.prepares import PrepareHeader


class Held:
    """The count and the size of waiting ops, over all groups of a store."""

    __slots__ = ("body_bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.body_bytes = 0


class FetchedOp(NamedTuple):
    """A verified prepare: its header, decoded and as bytes, and its body."""

    header: PrepareHeader
    data: bytes
    body: Buffer


class Fetched:
    """The waiting ops of one group, by op number."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._ops: dict[int, FetchedOp] = {}

    def __len__(self) -> int:
        return len(self._ops)

    def ops(self) -> Iterable[int]:
        """Return the numbers of the ops that wait."""
        return self._ops.keys()

    @property
    def body_bytes(self) -> int:
        """Return the size of their bodies."""
        return sum(len(each.body) for each in self._ops.values())

    def check(self) -> None:
        """Assert what holds between two steps."""
        for op, each in self._ops.items():
            assert each.header.op == op, "an op waits under its own number"
        assert self._held.count >= 0, "nothing is given back twice"
        assert self._held.body_bytes >= 0, "nothing is given back twice"

    def __contains__(self, op: int) -> bool:
        return op in self._ops

    def put(self, header: PrepareHeader, data: bytes, body: Buffer) -> None:
        """Add a waiting op; replace one with the same number."""
        self.pop(header.op)
        self._ops[header.op] = FetchedOp(header, data, body)
        self._held.count += 1
        self._held.body_bytes += len(body)

    def pop(self, op: int) -> FetchedOp | None:
        """Remove and return a waiting op, if there is one."""
        found = self._ops.pop(op, None)
        if found is not None:
            self._held.count -= 1
            self._held.body_bytes -= len(found.body)
            assert self._held.count >= len(self._ops), "the sum of all groups has a part of each"
            assert self._held.body_bytes >= 0, "room is given back as it was taken"
        return found

    def keep(self, low: int, high: int) -> None:
        """Drop the ops outside of a range."""
        assert low <= high, "a range has at least one op"
        for op in [op for op in self._ops if not low <= op <= high]:
            self.pop(op)

    def clear(self) -> None:
        """Drop everything."""
        for op in list(self._ops):
            self.pop(op)
