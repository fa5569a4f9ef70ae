"""Frames to one member that must all arrive, in order: kept until taken, sent again after a drop.

A lane drops a frame or delivers it whole and in order. So the receiver takes the number that
follows, and nothing else; and the sender sends again what it has kept once a lane has refused one.
"""

from collections import deque
from collections.abc import Iterator

from headrace.ports.network import Buffer


class Outgoing:
    """The sender's side."""

    __slots__ = ("_is_refused", "_kept", "last")

    def __init__(self) -> None:
        self.last = 0  # the last number that was given
        self._kept: deque[tuple[Buffer, ...]] = deque()  # those that are not known to be taken
        self._is_refused = False

    def next_number(self) -> int:
        """Return the number of the next frame, which `keep` must follow."""
        return self.last + 1

    def keep(self, parts: tuple[Buffer, ...]) -> None:
        """Keep a frame under the next number."""
        self.last += 1
        self._kept.append(parts)

    def refused(self) -> None:
        """Note that a lane has dropped one of these."""
        self._is_refused = True

    def on_taken(self, number: int) -> None:
        """Forget what the receiver has taken."""
        while self._kept and self.last - len(self._kept) < number:
            self._kept.popleft()

    def take_again(self) -> Iterator[tuple[Buffer, ...]]:
        """Return what must be sent again: all that is kept, if one was dropped."""
        if self._is_refused:
            self._is_refused = False
            yield from self._kept

    def check(self) -> None:
        """Assert that what is kept was numbered."""
        assert len(self._kept) <= self.last, "only what has a number is kept"


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
        return True
