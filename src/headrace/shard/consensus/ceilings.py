"""Keeps a durable number ahead of the offsets that a single replica gives out (FM-7).

A partition of class `replicated` confirms offsets that a power cut may take. It goes on above its
ceiling then, so that no offset is given out twice.
"""

from collections import deque
from collections.abc import Iterable, Mapping


class Ceilings:
    """The ceilings of all partitions on one store: those that the disk has, and those to come."""

    def __init__(self, durable: Iterable[tuple[int, int]], reserved: int) -> None:
        self._durable = dict(durable)
        self._newest = dict(self._durable)
        self._reserved = reserved
        # Below so many offsets of a partition nothing needs to be done or waited for.
        self.free: dict[int, int] = {}
        self.staged: list[tuple[int, int]] = []  # in the record of this turn
        for group in self._durable:
            self._set_free(group)
        self._until_synced: deque[tuple[int, int, int]] = deque()

    def durable(self, group: int) -> int:
        """Return the offset below which a partition may have given out offsets."""
        return self._durable.get(group, 0)

    def raise_over(self, group: int, given: int) -> int | None:
        """Return a new ceiling to be journaled, if the next offset to give out comes close."""
        if given + self._reserved // 2 <= self._newest.get(group, 0):
            return None
        ceiling = given + self._reserved
        assert ceiling > self._newest.get(group, 0), "a ceiling only rises"
        self._newest[group] = ceiling
        self._set_free(group)
        self.staged.append((group, ceiling))
        return ceiling

    def on_flushed(self, sequence: int) -> None:
        """Note the record that holds what was staged."""
        waiting = self._until_synced
        assert not waiting or waiting[-1][0] < sequence, "records follow"
        for group, ceiling in self.staged:
            self._until_synced.append((sequence, group, ceiling))
        self.staged.clear()

    def on_synced(self, sequence: int) -> None:
        """Count the ceilings that are durable now."""
        while self._until_synced and self._until_synced[0][0] <= sequence:
            _, group, ceiling = self._until_synced.popleft()
            assert self._durable.get(group, 0) < ceiling, "records are synced in their order"
            self._durable[group] = ceiling
            self._set_free(group)

    def _set_free(self, group: int) -> None:
        newest, durable = self._newest.get(group, 0), self._durable.get(group, 0)
        assert durable <= newest, "a durable ceiling was asked for"
        self.free[group] = min(newest - self._reserved // 2, durable)

    def forget(self, group: int) -> None:
        """Forget a partition that is gone: one that takes its number has a ceiling of its own."""
        self._durable.pop(group, None)
        self._newest.pop(group, None)
        self.free.pop(group, None)
        self.staged = [each for each in self.staged if each[0] != group]
        self._until_synced = deque(each for each in self._until_synced if each[1] != group)

    def check(self, issued: int, journaled: Mapping[int, int]) -> None:
        """Assert that ceilings rise in the order of their records, and are those of the journal."""
        assert self._newest == journaled, "a partition counts on a ceiling of its own record"
        assert self.free.keys() == self._newest.keys(), "who has a ceiling has offsets below it"
        waiting = [sequence for sequence, _, _ in self._until_synced]
        assert waiting == sorted(waiting), "records are synced in their order"
        assert not waiting or waiting[-1] <= issued, "a ceiling waits for a record that was issued"
        for group, ceiling in self._durable.items():
            assert ceiling <= self._newest[group], "a durable ceiling was asked for"
        for group, free in self.free.items():
            assert free <= self._durable.get(group, 0), "what is free needs no wait"
            assert free <= self._newest[group] - self._reserved // 2, "nor a new ceiling"
        rising = dict(self._durable)
        coming = [(group, ceiling) for _, group, ceiling in self._until_synced]
        for group, ceiling in [*coming, *self.staged]:
            assert rising.get(group, 0) < ceiling, "each ceiling is above the one before"
            rising[group] = ceiling
        assert rising == self._newest, "the newest ceiling is the last that was asked for"
