"""Frames to one member that must all arrive, in order: kept until taken, sent again after a drop.

A lane drops a frame or delivers it whole and in order. So the receiver takes the number that
follows, and nothing else; and the sender sends again what it has kept once a lane has refused one.
"""

from collections import deque
from collections.abc import Iterator

from headrace.ports.network import Buffer


class Outgoing:
    """The sender's side."""

    __slots__ = ("_is_refused", "_kept", "last", "taken")

    def __init__(self) -> None:
        self.last = 0  # the last number that was given
        self.taken = 0  # the last number that the receiver is known to have taken
        self._kept: deque[tuple[Buffer, ...]] = deque()  # those that are not known to be taken
        self._is_refused = False

    def next_number(self) -> int:
        """Return the number of the next frame, which `keep` must follow."""
        return self.last + 1

    def keep(self, parts: tuple[Buffer, ...]) -> None:
        """Keep a frame under the next number."""
        self.last += 1
        self._kept.append(parts)
        assert len(self._kept) == self.last - self.taken, "all that is not taken is kept"

    def refused(self) -> None:
        """Note that a lane has dropped one of these."""
        assert self.last > 0, "a lane drops what was sent"
        self._is_refused = True

    def on_taken(self, number: int) -> None:
        """Forget what the receiver has taken."""
        assert self.taken <= number, "what was taken stays taken"
        assert number <= self.last, "nobody takes what was not sent"
        for _ in range(number - self.taken):
            self._kept.popleft()
        self.taken = number

    def take_again(self) -> Iterator[tuple[Buffer, ...]]:
        """Return what must be sent again: all that is kept, if one was dropped."""
        if self._is_refused:
            assert len(self._kept) == self.last - self.taken, "all that is not taken is kept"
            self._is_refused = False
            yield from self._kept

    def check(self) -> None:
        """Assert that what is kept has the numbers behind the last one that was taken."""
        assert 0 <= self.taken <= self.last, "only what has a number is taken"
        assert len(self._kept) == self.last - self.taken, "all that is not taken is kept"
        assert not self._is_refused or self.last > 0, "a lane drops what was sent"


class Incoming:
    """The receiver's side."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0  # the last number that was taken

    def is_next(self, number: int) -> bool:
        """Take a frame if it follows the last one; else it came before, or one is missing."""
        if number != self.taken + 1:
            return False
        self.taken = number
        assert self.taken > 0, "numbers begin with 1"
        return True
