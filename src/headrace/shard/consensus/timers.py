"""The timers of all groups in one heap by due tick: nothing walks all groups (O1.4)."""

import heapq
from collections.abc import Mapping

from headrace.vsr.replica import Replica
from headrace.vsr.timeouts import Timer


class Timers:
    """Timers that were set and neither stopped nor fired."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Timer]] = []
        self._current: dict[tuple[int, Timer], int] = {}
        self._count = 0

    def start(self, group: int, timer: Timer, due: int) -> None:
        """Set a timer anew; an earlier setting of it no longer counts."""
        self._count += 1
        self._current[group, timer] = self._count
        heapq.heappush(self._heap, (due, self._count, group, timer))

    def stop(self, group: int, timer: Timer) -> None:
        """Forget a timer."""
        self._current.pop((group, timer), None)

    def forget(self, group: int) -> None:
        """Forget all timers of a group."""
        for timer in Timer:
            self._current.pop((group, timer), None)

    def take_due(self, now: int) -> list[tuple[int, Timer]]:
        """Return the timers that have run out, in the order they were due."""
        due = []
        last = 0
        while self._heap and self._heap[0][0] <= now:
            at, count, group, timer = heapq.heappop(self._heap)
            assert at >= last, "timers run out in the order of their ticks"
            last = at
            if self._current.get((group, timer)) == count:
                del self._current[group, timer]
                due.append((group, timer))
        return due

    def check(self, now: int, groups: Mapping[int, Replica], *, has_ended: bool) -> None:
        """Assert that every timer which was set will run out, and none is overdue."""
        set_at = {count: (due, group, timer) for due, count, group, timer in self._heap}
        assert len(set_at) == len(self._heap), "a setting is in the heap once"
        for (group, timer), count in self._current.items():
            assert count <= self._count, "settings are counted"
            assert count in set_at, "a timer that is set runs out"
            assert set_at[count][1:] == (group, timer), "a setting is of one timer"
            assert set_at[count][0] >= now, "no timer is overdue between turns"
            assert group in groups, "a group that is gone has no timers"
            assert has_ended or timer in groups[group].state.timers, "a group knows its timers"
        counts = [len(replica.state.timers) for replica in groups.values()]
        assert has_ended or sum(counts) == len(self._current), "a timer that a group waits for runs"
