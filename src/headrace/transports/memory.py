"""How much memory bytes take that arrive or wait to leave, of all connections together."""

from headrace.ports.network import RepliesWritten
from headrace.transports.slabs import LARGE_FRAME_BYTES


class ReceiveMemory:
    """Counts what is held of unfinished frames, and what this turn handed to the core.

    What the core keeps beyond a turn is the core's to bound: it asks to stop reading. Large frames
    may hold `large_bytes_max`, so that those which come slowly leave room for all the others.
    """

    __slots__ = ("bytes_max", "held_bytes", "large_bytes", "large_bytes_max", "turn_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.large_bytes_max = share_of_large(bytes_max)
        self.held_bytes = 0
        self.large_bytes = 0  # of these, for frames that are large
        self.turn_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether reading should stop."""
        return self.held_bytes + self.turn_bytes > self.bytes_max

    def has_room(self, count: int) -> bool:
        """Whether so many more bytes may be held by one connection."""
        if self.large_bytes + _if_large(count) > self.large_bytes_max:
            return False
        return self.held_bytes + count <= self.bytes_max

    def hold(self, count: int, *, instead_of: int) -> None:
        """Count what one connection holds now, instead of what it held."""
        self.held_bytes += count - instead_of
        self.large_bytes += _if_large(count) - _if_large(instead_of)
        assert self.held_bytes >= self.large_bytes >= 0


class SendMemory:
    """Counts what was written to connections, and what their peers have not taken of it.

    The core bounds it, and is told when much has changed: a 64th of the bound.
    """

    __slots__ = ("_step_bytes", "_told_bytes", "waiting_bytes", "written_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.waiting_bytes = 0
        self.written_bytes = 0  # since the core was last told
        self._step_bytes = max(1, bytes_max // 64)
        self._told_bytes = 0  # what the core believes to wait

    def wait(self, count: int, *, instead_of: int) -> None:
        """Count what waits on one connection now, instead of what waited."""
        self.waiting_bytes += count - instead_of
        assert self.waiting_bytes >= 0

    def take_news(self) -> RepliesWritten | None:
        """Return what the core should know, if it is much."""
        changed_bytes = abs(self.waiting_bytes - self._told_bytes)
        if max(changed_bytes, self.written_bytes) < self._step_bytes:
            return None
        news = RepliesWritten(self.written_bytes, self.waiting_bytes)
        self.written_bytes = 0
        self._told_bytes = self.waiting_bytes
        return news


def share_of_large(bytes_max: int) -> int:
    """Give how much of the memory large frames may hold: three quarters."""
    return bytes_max * 3 // 4


def _if_large(count: int) -> int:
    return count if count >= LARGE_FRAME_BYTES else 0
