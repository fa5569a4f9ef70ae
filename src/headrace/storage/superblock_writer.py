"""Writes the superblock: four copies, one after another, one change at a time.

Invariants: the next copy is written only when the last one is durable; a change is done when all
            four are.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from headrace.ports.disk import WriteBlock
from headrace.storage.config import SUPERBLOCK_NAME
from headrace.storage.copies import BLOCK_BYTES, COPIES
from headrace.storage.outbox import Outbox
from headrace.storage.superblock import Superblock, encode_superblock

Change: TypeAlias = Callable[[Superblock], Superblock]


class SuperblockWriter:
    """Holds the durable superblock and the changes that are on their way."""

    def __init__(
        self, current: Superblock, *, sequence: int, order: tuple[int, ...], outbox: Outbox
    ) -> None:
        assert sorted(order) == list(range(COPIES))
        self.current = current
        self._sequence = sequence
        self._order = order
        self._outbox = outbox
        self._waiting: deque[tuple[Change, Callable[[], None]]] = deque()
        self._next = current
        self._copies_done = 0
        self._token = 0

    def write(self, change: Change, done: Callable[[], None]) -> None:
        """Make a change durable; `done` is called when it is."""
        self._waiting.append((change, done))
        if len(self._waiting) == 1:
            self._start()

    def on_written(self, token: int) -> bool:
        """Take a completion; return whether it was one of ours."""
        if token != self._token:
            return False
        self._copies_done += 1
        if self._copies_done < COPIES:
            self._write_copy()
            return True
        self._token = 0
        self.current = self._next
        _, done = self._waiting.popleft()
        if self._waiting:
            self._start()
        done()
        return True

    def _start(self) -> None:
        change, _ = self._waiting[0]
        self._next = change(self.current)
        self._sequence += 1
        self._copies_done = 0
        self._write_copy()

    def _write_copy(self) -> None:
        copy = self._order[self._copies_done]
        self._token = self._outbox.new_token()
        data = encode_superblock(self._next, copy=copy, sequence=self._sequence)
        self._outbox.put(WriteBlock(self._token, SUPERBLOCK_NAME, copy * BLOCK_BYTES, data))
