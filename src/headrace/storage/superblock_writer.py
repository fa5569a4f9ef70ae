"""Writes the superblock: four copies, one after another, one change at a time.

    copies   A B C D      a change is agreed once two copies hold it: every recovery chooses it
    change 1 x x . .      if the next one waits by then, it begins
    change 2 . . x x      with the copies that are behind

Invariants: the next copy is written only when the last one is durable; while one is written, at
            least two others hold the newest agreed change; a change is done when every copy holds
            it, or a later one.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from headrace.ports.disk import WriteBlock
from headrace.storage.config import SUPERBLOCK_NAME
from headrace.storage.copies import BLOCK_BYTES, COPIES, COPIES_QUORUM
from headrace.storage.outbox import Outbox
from headrace.storage.superblock import Superblock, encode_superblock

Change: TypeAlias = Callable[[Superblock], Superblock]


class SuperblockWriter:
    """Holds the superblock that a recovery would choose, and the changes that are on their way."""

    def __init__(
        self, current: Superblock, *, sequence: int, order: tuple[int, ...], outbox: Outbox
    ) -> None:
        assert sorted(order) == list(range(COPIES))
        self.current = current  # the newest agreed one
        self._sequence = sequence
        self._order = order
        self._outbox = outbox
        self._waiting: deque[tuple[Change, Callable[[], None]]] = deque()
        self._undone: deque[tuple[int, Callable[[], None]]] = deque()  # begun, by their sequences
        self._next = current
        self._held = [0] * COPIES  # the sequence of each copy that was written in this life
        self._copies_done = COPIES  # of the newest change
        self._token = 0

    def write(self, change: Change, done: Callable[[], None]) -> None:
        """Make a change durable; `done` is called when all copies hold it."""
        self._waiting.append((change, done))
        if not self._token:
            self._start()

    def on_written(self, token: int) -> bool:
        """Take a completion; return whether it was one of ours."""
        if token != self._token:
            return False
        self._token = 0
        self._held[self._order[self._copies_done]] = self._sequence
        self._copies_done += 1
        if self._copies_done == COPIES_QUORUM:
            self.current = self._next
        self._go_on()
        self._tell_done()
        return True

    def _go_on(self) -> None:
        if self._copies_done < (COPIES_QUORUM if self._waiting else COPIES):
            self._write_copy()
        elif self._waiting:
            self._start()

    def _start(self) -> None:
        change, done = self._waiting.popleft()
        self._next = change(self._next)
        self._sequence += 1
        self._undone.append((self._sequence, done))
        self._order = self._order[self._copies_done :] + self._order[: self._copies_done]
        self._copies_done = 0
        self._write_copy()

    def _write_copy(self) -> None:
        copy = self._order[self._copies_done]
        self._token = self._outbox.new_token()
        data = encode_superblock(self._next, copy=copy, sequence=self._sequence)
        self._outbox.put(WriteBlock(self._token, SUPERBLOCK_NAME, copy * BLOCK_BYTES, data))

    def _tell_done(self) -> None:
        everywhere = min(self._held)
        while self._undone and self._undone[0][0] <= everywhere:
            self._undone.popleft()[1]()
