"""Ops that came before those that they follow, and wait in memory until the gap is closed.

They are journaled together then. So the room that they will take is counted for all groups of a
store: whoever asks for some is told what is left without it.

Invariants: `Held` is the sum of all that wait, of every group that lives.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.ports.network import Buffer
from headrace.wire.replica.prepares import PrepareHeader


class Held:
    """How much waits, in all groups of a store."""

    __slots__ = ("body_bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.body_bytes = 0


class FetchedOp(NamedTuple):
    """A verified prepare: its header, also as it travels, and its body."""

    header: PrepareHeader
    data: bytes
    body: Buffer


class Fetched:
    """The ops that wait in one group, by number."""

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
        """Have an op wait, instead of one that may have its number."""
        self.pop(header.op)
        self._ops[header.op] = FetchedOp(header, data, body)
        self._held.count += 1
        self._held.body_bytes += len(body)

    def pop(self, op: int) -> FetchedOp | None:
        """Give an op that waits no more, if it is here."""
        found = self._ops.pop(op, None)
        if found is not None:
            self._held.count -= 1
            self._held.body_bytes -= len(found.body)
            assert self._held.count >= len(self._ops), "the sum of all groups has a part of each"
            assert self._held.body_bytes >= 0, "room is given back as it was taken"
        return found

    def keep(self, low: int, high: int) -> None:
        """Drop what lies outside of a range."""
        assert low <= high, "a range has at least one op"
        for op in [op for op in self._ops if not low <= op <= high]:
            self.pop(op)

    def clear(self) -> None:
        """Drop everything."""
        for op in list(self._ops):
            self.pop(op)
