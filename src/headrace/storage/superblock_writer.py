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
    """Holds the superblock that a recovery would choose, and the pending changes."""

    def __init__(
        self, current: Superblock, *, sequence: int, order: tuple[int, ...], outbox: Outbox
    ) -> None:
        assert sorted(order) == list(range(COPIES)), "each copy has its turn"
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

    @property
    def is_busy(self) -> bool:
        """Whether a change is being written."""
        return self._token != 0

    def write(self, change: Change, done: Callable[[], None]) -> None:
        """Make a change durable; `done` is called when all copies hold it."""
        self._waiting.append((change, done))
        if not self._token:
            self._start()
        assert self._token != 0, "a change is written at once, or behind another"

    def on_written(self, token: int) -> bool:
        """Handle a completion; return whether it belongs to this writer."""
        if token != self._token:
            return False
        self._token = 0
        assert self._copies_done < COPIES, "a change is written to each copy once"
        self._held[self._order[self._copies_done]] = self._sequence
        self._copies_done += 1
        if self._copies_done == COPIES_QUORUM:
            self.current = self._next
        self._go_on()
        self._tell_done()
        assert self._token != 0 or not self._undone, "a change goes on until all copies hold it"
        return True

    def check(self) -> None:
        """Assert that copies, changes and the write under way agree."""
        assert sorted(self._order) == list(range(COPIES)), "each copy has its turn"
        assert 0 <= self._copies_done <= COPIES, "a change is written to each copy once"
        is_writing = self.is_busy
        assert is_writing == (self._copies_done < COPIES), (
            "a change goes on until all copies hold it"
        )
        assert is_writing or not self._waiting, "no change waits for nothing"
        assert is_writing or not self._undone, "no change is left undone"
        assert (self.current is self._next) or is_writing, "what all copies hold is agreed"
        self._check_copies()
        self._check_block()
        begun = [sequence for sequence, _ in self._undone]
        first = self._sequence - len(begun) + 1
        assert begun == list(range(first, self._sequence + 1)), "changes are done in their order"
        assert min(self._held) < first, "a change that every copy holds is done"
        _check_later(self.current, self._next)

    def _check_block(self) -> None:
        blocks = self._outbox.waiting(WriteBlock)
        assert len(blocks) <= 1, "copies are written one at a time"
        for block in blocks:
            copy = self._order[self._copies_done]
            assert block.token == self._token, "its completion is awaited"
            assert block.position == copy * BLOCK_BYTES, "each copy has its place"
            assert len(block.data) == BLOCK_BYTES, "no copy reaches into another"

    def _check_copies(self) -> None:
        if not any(self._held):
            return  # Nothing was written in this life: recovery has judged the copies.
        written, others = self._order[: self._copies_done], self._order[self._copies_done :]
        for copy in written:
            assert self._held[copy] == self._sequence, "a copy is counted when it is durable"
        assert max(self._held) <= self._sequence, "no copy holds a change that was not begun"
        for copy in others:
            assert self._held[copy] < self._sequence, "a copy that waits holds an older change"
        if self._copies_done < COPIES_QUORUM:
            first, second = self._order[COPIES_QUORUM:]
            assert self._held[first] == self._held[second], "two copies hold the agreed change"
            agreed = self._held[first]
            assert agreed in (0, self._sequence - 1), "it is the one before this change"

    def _go_on(self) -> None:
        if self._copies_done < (COPIES_QUORUM if self._waiting else COPIES):
            self._write_copy()
        elif self._waiting:
            self._start()

    def _start(self) -> None:
        assert self._token == 0, "copies are written one at a time"
        assert self._copies_done >= COPIES_QUORUM, "a change is agreed before the next begins"
        change, done = self._waiting.popleft()
        changed = change(self._next)
        _check_later(self._next, changed)
        self._next = changed
        self._sequence += 1
        self._undone.append((self._sequence, done))
        self._order = self._order[self._copies_done :] + self._order[: self._copies_done]
        self._copies_done = 0
        self._write_copy()

    def _write_copy(self) -> None:
        copy = self._order[self._copies_done]
        assert self._held[copy] < self._sequence, "a change is written to each copy once"
        self._token = self._outbox.new_token()
        data = encode_superblock(self._next, copy=copy, sequence=self._sequence)
        self._outbox.put(WriteBlock(self._token, SUPERBLOCK_NAME, copy * BLOCK_BYTES, data))

    def _tell_done(self) -> None:
        everywhere = min(self._held)
        assert everywhere <= self._sequence, "no copy holds a change that was not begun"
        while self._undone and self._undone[0][0] <= everywhere:
            self._undone.popleft()[1]()


def _check_later(old: Superblock, new: Superblock) -> None:
    """Assert that a change takes nothing back that a recovery relies on."""
    assert old.identity == new.identity, "a store keeps its identity"
    assert old.journal_files == new.journal_files, "a ring keeps its number of files"
    assert old.file_bytes == new.file_bytes, "and their size"
    assert old.opening <= new.opening, "openings are numbered once"
    is_same = old.history == new.history
    assert is_same or old.opening + 1 == new.opening, "each opening is named"
    assert old.checkpoint_number <= new.checkpoint_number, "checkpoints are numbered once"
    assert old.covered <= new.covered, "a checkpoint covers all that the one before did"
    assert old.synced <= new.synced, "a record that was named stays named"
    assert old.tail <= new.tail, "a record that was freed is not needed again"
    assert old.tail_ordinal <= new.tail_ordinal, "nor is its file"
