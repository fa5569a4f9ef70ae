"""Stops reading requests while a journal or the memory is nearly full (O2.6, O3.3)."""

from headrace.ports.network import ReadConnections
from headrace.shard.turn import Turn

_PAUSE_TICKS_MAX = 1000


class Backpressure:
    """Whether requests are read.

    A pause has an end: if nothing gets better, requests are read and told so.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._is_reading = True
        self._due = 0  # until when it stays as it is, if nothing gets better

    def regulate(self, *, is_full: bool) -> None:
        """Take how it is at this tick."""
        now = self._turn.clock.now
        if self._is_reading:
            if is_full and now >= self._due:
                self._due = now + _PAUSE_TICKS_MAX
                self._set_reading(is_reading=False)
        elif not is_full:
            self._due = now
            self._set_reading(is_reading=True)
        elif now >= self._due:
            self._due = now + _PAUSE_TICKS_MAX
            self._set_reading(is_reading=True)
        assert self._is_reading or now < self._due, "a pause has its end ahead"
        assert self._is_reading or is_full, "who has room reads"

    def _set_reading(self, *, is_reading: bool) -> None:
        assert is_reading != self._is_reading, "only a change is told"
        self._is_reading = is_reading
        self._turn.out.append(ReadConnections(is_reading))

    def check(self) -> None:
        """Assert that no pause is longer than the bound."""
        now = self._turn.clock.now
        assert self._due <= now + _PAUSE_TICKS_MAX, "a pause has an end"
        assert self._is_reading or now < self._due, "a pause that is over has ended"
