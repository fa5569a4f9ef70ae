"""The files of the journal as a ring: which are in use, which are free, where the next record goes.

The ordinal of a file never repeats: `ordinal = (lap - 1) * files + file`, so the files in use are a
run of ordinals that ends at the head.

Invariants: a record never spans two files; a file is opened only when its space is taken.
"""

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from headrace.base.limits import RESERVE_PARTS

ADMISSION_FILES_FREE = 2  # admission leaves two files free: one for control entries, ...
CONTROL_FILES_FREE = 1  # ... and one that only the rewriting of live entries may open
# Ops that make room may fill this part of the first of them; the rest stays for control entries.
RESERVE_SHARE = 2
_FILES_AHEAD = 3  # so many files behind the head are allocated before they are needed

assert CONTROL_FILES_FREE < ADMISSION_FILES_FREE <= _FILES_AHEAD, "what is kept free is allocated"


class UsedFile(msgspec.Struct):
    """A file in use, and the sequences it holds; `last` is `first - 1` while it holds none."""

    ordinal: int
    first: int
    last: int


class Ring:
    """Accounts for the space of the journal; it moves no bytes."""

    def __init__(
        self,
        *,
        files_count: int,
        file_bytes: int,
        used: list[UsedFile],
        position: int,
        is_allocated: list[bool],
    ) -> None:
        assert used
        assert len(used) <= files_count == len(is_allocated), "no file is in use twice"
        assert files_count > ADMISSION_FILES_FREE, "admission may fill a file"
        assert 0 <= position <= file_bytes, "no record spans two files"
        self.files_count = files_count
        self.file_bytes = file_bytes
        self.used = used  # oldest first; the last is the head
        self.head = used[-1]  # the file that is written
        self.position = position
        self._is_allocated = is_allocated
        self._count()

    def file_of(self, ordinal: int) -> int:
        """Return the number of the file of an ordinal."""
        return ordinal % self.files_count

    def lap_of(self, ordinal: int) -> int:
        """Return the lap of an ordinal, from 1."""
        return ordinal // self.files_count + 1

    @property
    def used_bytes(self) -> int:
        """How many bytes lie between the oldest kept entry and the head."""
        return (len(self.used) - 1) * self.file_bytes + self.position

    @property
    def admission_bytes(self) -> int:
        """How many bytes of the journal admission may fill."""
        return (self.files_count - ADMISSION_FILES_FREE) * self.file_bytes

    @property
    def reserve_bytes(self) -> int:
        """How many bytes are kept for ops that make room, in the file for control entries."""
        return self.file_bytes // RESERVE_SHARE

    @property
    def _head_file(self) -> int:
        return self.head.ordinal % self.files_count

    def _count(self) -> None:
        """Count again what follows from the files; called when one of them changed."""
        self._ready_count = self._count_ready()  # files behind the head, free and with their space
        # Whether the head has its space, and admission leaves what it must behind it.
        self.is_roomy = (
            self._is_allocated[self._head_file] and self._ready_count >= ADMISSION_FILES_FREE
        )
        self.is_wanting = self.wanted_file() is not None  # whether a file is to be allocated

    def _count_ready(self) -> int:
        ready = 0
        for step in range(1, self.files_count - len(self.used) + 1):
            if not self._is_allocated[self.file_of(self.head.ordinal + step)]:
                break
            ready += 1
        return ready

    def allocate(self, file: int) -> None:
        """Note that a file is allocated."""
        assert 0 <= file < self.files_count, "it is a file of this ring"
        self._is_allocated[file] = True
        self._count()

    def wanted_file(self) -> int | None:
        """Return the next file to allocate, or None."""
        ahead = min(self.files_count - len(self.used), _FILES_AHEAD)
        is_head_full = self.position == self.file_bytes
        if self._ready_count >= ahead and (is_head_full or self._is_allocated[self._head_file]):
            return None  # The usual case, without a walk.
        for step in range(1 if is_head_full else 0, ahead + 1):
            file = self.file_of(self.head.ordinal + step)
            if not self._is_allocated[file]:
                return file
        return None

    def can_place(self, sizes: Iterable[int], *, leave: int) -> bool:
        """Whether these records fit, where opening a file must leave so many free."""
        assert 0 <= leave < ADMISSION_FILES_FREE, "admission leaves more than placing"
        opened, ready, _ = self._after(sizes)
        return ready >= leave if opened else ready >= 0

    def can_admit(self, sizes: Iterable[int]) -> bool:
        """Whether after these records the journal still has all that admission must leave."""
        _, ready, _ = self._after(sizes)
        return ready >= ADMISSION_FILES_FREE

    def can_admit_reserved(self, sizes: Iterable[int], parts: int) -> bool:
        """Whether these records fit if they use so many parts of the reserve.

        The file for live entries stays free, and so does the share of control entries.
        """
        assert 0 < parts <= RESERVE_PARTS, "nobody may use more than the reserve"
        _, ready, position = self._after(sizes)
        if ready == CONTROL_FILES_FREE:
            return position <= self.reserve_bytes * parts // RESERVE_PARTS
        return ready > CONTROL_FILES_FREE

    def _after(self, sizes: Iterable[int]) -> tuple[int, int, int]:
        """Return how many files these records open, how many are then free, and the position."""
        position, opened = self.position, 0
        is_head_used = False
        for size in sizes:
            if position + size > self.file_bytes:
                position, opened = 0, opened + 1
            is_head_used = is_head_used or opened == 0
            position += size
            assert position <= self.file_bytes, "a record fits a file"
        if is_head_used and not self._is_allocated[self._head_file]:
            return opened, -1, position
        return opened, self._ready_count - opened, position

    def advance(self, size: int, sequence: int) -> int:
        """Reserve the place of the next record; return its position in the head file."""
        if self.position + size > self.file_bytes:
            self.open_next(sequence)
        position = self.position
        assert position + size <= self.file_bytes, "no record spans two files"
        assert sequence == self.head.last + 1, "sequences have no gap"
        self.position += size
        self.head.last = sequence
        return position

    def open_next(self, sequence: int) -> None:
        """Make the next file the head."""
        assert len(self.used) < self.files_count, "a file in use is not overwritten"
        assert self._ready_count > 0, "a file is opened when its space is taken"
        assert sequence == self.head.last + 1, "the new file goes on where the head ends"
        self.head = UsedFile(self.head.ordinal + 1, sequence, sequence - 1)
        self.used.append(self.head)
        self.position = 0
        self._count()

    def release(self, count: int) -> None:
        """Free the oldest files."""
        assert 0 <= count < len(self.used), "the head is never freed"
        ready_before = self._ready_count
        del self.used[:count]
        self._count()
        assert self._ready_count >= ready_before, "freeing takes no space away"

    def check(self) -> None:
        """Assert that the account of space is consistent."""
        assert 0 < len(self.used) <= self.files_count, "no file is in use twice"
        assert len(self._is_allocated) == self.files_count, "each file has its space or not"
        assert self.head is self.used[-1], "records go to the newest file in use"
        assert 0 <= self.position <= self.file_bytes, "no record spans two files"
        for older, newer in pairwise(self.used):
            assert older.ordinal + 1 == newer.ordinal, "files are used one after another"
            assert older.last + 1 == newer.first, "each sequence is in one file"
        for used in self.used:
            assert used.first <= used.last + 1, "sequences rise within a file"
            file, lap = self.file_of(used.ordinal), self.lap_of(used.ordinal)
            assert (lap - 1) * self.files_count + file == used.ordinal, "a record names its file"
        assert self._ready_count == self._count_ready(), "the count follows the files"
        is_roomy = self._is_allocated[self._head_file] and self.can_admit(())
        assert self.is_roomy == is_roomy, "and so does what admission may fill"
        assert self.is_wanting or self.wanted_file() is None, "a file that is wanted is known"
        assert self._ready_count + len(self.used) <= self.files_count, "a ready file is free"
        kept = [self.file_of(used.ordinal) for used in self.used[:-1]]
        assert self.wanted_file() not in kept, "no space is taken for records behind the head"
        assert self.used_bytes <= self.files_count * self.file_bytes, "what is used has its file"
        assert self.reserve_bytes < self.file_bytes, "control entries have a part of the reserve"
        assert self.reserve_bytes <= self.admission_bytes, "the reserve is the smaller part"
