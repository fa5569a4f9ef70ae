"""Counts the memory of received and unsent bytes, of all connections together."""

from headrace.ports.network import RepliesWritten
from headrace.transports.slabs import LARGE_FRAME_BYTES


class ReceiveMemory:
    """Counts the bytes of unfinished frames, and those passed to the core in this turn.

    The core bounds what it keeps beyond a turn: it asks to stop reading. Large frames may hold
    `large_bytes_max`, so that slow ones leave room for all the others.
    """

    __slots__ = ("bytes_max", "held_bytes", "large_bytes", "large_bytes_max", "turn_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.large_bytes_max = share_of_large(bytes_max)
        self.held_bytes = 0
        self.large_bytes = 0  # the part for large frames
        self.turn_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether reading should stop."""
        return self.held_bytes + self.turn_bytes > self.bytes_max

    def has_room(self, count: int) -> bool:
        """Whether one connection may hold so many more bytes."""
        if self.large_bytes + _if_large(count) > self.large_bytes_max:
            return False
        return self.held_bytes + count <= self.bytes_max

    def hold(self, count: int, *, instead_of: int) -> None:
        """Count what one connection holds now, instead of what it held."""
        self.held_bytes += count - instead_of
        self.large_bytes += _if_large(count) - _if_large(instead_of)
        assert self.held_bytes >= self.large_bytes >= 0


class SendMemory:
    """Counts the bytes written to connections, and those that their peers have not read.

    The core bounds them, and gets a report when much has changed: a 64th of the bound.
    """

    __slots__ = ("_step_bytes", "_told_bytes", "waiting_bytes", "written_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.waiting_bytes = 0
        self.written_bytes = 0  # since the last report to the core
        self._step_bytes = max(1, bytes_max // 64)
        self._told_bytes = 0  # waiting bytes in the last report to the core

    def wait(self, count: int, *, instead_of: int) -> None:
        """Count what waits on one connection now, instead of what waited."""
        self.waiting_bytes += count - instead_of
        assert self.waiting_bytes >= 0

    def take_news(self) -> RepliesWritten | None:
        """Return the report for the core, if much has changed."""
        changed_bytes = abs(self.waiting_bytes - self._told_bytes)
        if max(changed_bytes, self.written_bytes) < self._step_bytes:
            return None
        news = RepliesWritten(self.written_bytes, self.waiting_bytes)
        self.written_bytes = 0
        self._told_bytes = self.waiting_bytes
        return news


def share_of_large(bytes_max: int) -> int:
    """Return the share of the memory for large frames: three quarters."""
    return bytes_max * 3 // 4


def _if_large(count: int) -> int:
    return count if count >= LARGE_FRAME_BYTES else 0
