"""The ops that the server itself proposed to partitions, until they are applied.

A partition is looked at when it has done something, or when its op is due to be proposed again: a
turn does not look at all that wait.

Flow: apply.
"""

import heapq

from headrace.wire.numbers import Operation


class Awaited:
    """At most one op for each partition."""

    def __init__(self) -> None:
        self.ops: dict[int, tuple[Operation, int]] = {}  # with the tick at which each is due
        self._heap: list[tuple[int, int]] = []  # by due tick; what is not in `ops` too counts not
        self._stirred: dict[int, None] = {}  # partitions that did something since
        self._purges: dict[int, None] = {}

    def __contains__(self, group: int) -> bool:
        return group in self.ops

    @property
    def is_stirred(self) -> bool:
        """Whether a partition did something that may have been its op."""
        return bool(self._stirred)

    @property
    def is_purging(self) -> bool:
        """Whether a purge is not applied yet."""
        return bool(self._purges)

    @property
    def due(self) -> int | None:
        """The tick at which an op is due, at the earliest."""
        return self._heap[0][0] if self._heap else None

    def operation(self, group: int) -> Operation:
        """Return what a partition is to apply."""
        return self.ops[group][0]

    def put(self, group: int, operation: Operation, due: int) -> None:
        """Look after an op that was proposed, in the place of the one before."""
        self.pop(group)
        self.ops[group] = (operation, due)
        heapq.heappush(self._heap, (due, group))
        assert self._heap[0][0] <= due, "the first of the heap is due first"
        if operation == Operation.PURGE_PARTITION:
            self._purges[group] = None

    def pop(self, group: int) -> None:
        """Forget the op of a partition, if there is one."""
        self.ops.pop(group, None)
        self._purges.pop(group, None)

    def stir(self, group: int) -> None:
        """Note that a partition did something: it may have applied its op."""
        assert group in self.ops
        self._stirred[group] = None

    def take(self, now: int) -> tuple[dict[int, None], dict[int, None]]:
        """Return the partitions that did something, and those whose op is due, since the last call.

        An op that is due must be put again, or popped.
        """
        stirred = {group: None for group in self._stirred if group in self.ops}
        self._stirred.clear()
        due: dict[int, None] = {}
        while self._heap and self._heap[0][0] <= now:
            at, group = heapq.heappop(self._heap)
            known = self.ops.get(group)
            if known is not None and known[1] == at:
                due[group] = None
        assert due.keys() <= self.ops.keys(), "only an op that is awaited is due"
        return stirred, due

    def check(self) -> None:
        """Assert that an op is looked after when it is due, and that purges are counted."""
        for group, (operation, due) in self.ops.items():
            assert (due, group) in self._heap, "an op that is awaited will be due"
            is_purge = operation == Operation.PURGE_PARTITION
            assert (group in self._purges) == is_purge, "a purge counts until it is applied"
        assert len(self.ops) <= len(self._heap), "every op that is awaited will be due"
        assert self._purges.keys() <= self.ops.keys(), "a purge that is applied is forgotten"
        assert self._heap[:1] == sorted(self._heap)[:1], "the first of the heap is due first"
