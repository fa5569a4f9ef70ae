"""The timers of all groups in one heap by due tick: nothing walks all groups (O1.4)."""

import heapq

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
        while self._heap and self._heap[0][0] <= now:
            _, count, group, timer = heapq.heappop(self._heap)
            if self._current.get((group, timer)) == count:
                del self._current[group, timer]
                due.append((group, timer))
        return due
