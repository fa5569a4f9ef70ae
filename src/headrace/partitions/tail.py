"""The newest batches of a partition in memory: polls of them read no disk and verify nothing.

A small batch is copied, so that it does not hold the large buffer that it arrived in; a large one
keeps its buffer (O3.3). All partitions of a shard share one budget; over it, batches leave in the
order in which they reached their segments, whichever partition they belong to. The budget counts
what a batch takes of memory, not only its bytes: of a single small message a third is objects.

Invariants: the batches reach from the first one here to the end of the log without a gap that the
            log does not record; a batch leaves only after it is written to its segment.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from operator import attrgetter

import msgspec

from headrace.base.limits import KIB
from headrace.ports.network import Buffer

COPIED_BYTES_MAX = 64 * KIB
BATCH_OBJECTS_BYTES = 192  # of a batch's own objects: measured, 189
_SLACK = 64  # how many dropped batches may stand at the head of the list

_BASE_OFFSET = attrgetter("base_offset")
_TIMESTAMP = attrgetter("timestamp")


class TailBatch(msgspec.Struct, frozen=True, gc=False):
    """One committed batch; `end_offset` is the next one after it."""

    base_offset: int
    end_offset: int
    timestamp: int
    data: Buffer


class TailBudget:
    """How much memory all tails take together, and whose batches leave next."""

    __slots__ = ("_stored", "_tails", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max >= 0
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._stored: deque[tuple[MemoryTail, int]] = deque()  # written up to an end offset
        self._tails: dict[MemoryTail, None] = {}  # all that are in use

    def begin(self, tail: "MemoryTail") -> None:
        """Count the batches of a tail from now on."""
        self._tails[tail] = None

    def stored(self, tail: "MemoryTail", end_offset: int) -> None:
        """Note that the batches of a tail below an offset may leave."""
        assert tail.bytes_held <= self.bytes_held, "the budget counts every tail"
        if tail in self._tails:  # One that was closed since holds nothing.
            self._stored.append((tail, end_offset))
        self.shrink()

    def shrink(self) -> None:
        """Let the oldest batches leave until the budget is kept, or nothing more may leave."""
        while self.bytes_held > self.bytes_max and self._stored:
            tail, end_offset = self._stored.popleft()
            tail.drop_below(end_offset)
        assert self.bytes_held >= 0, "what leaves was counted"

    def forget(self, tail: "MemoryTail") -> None:
        """Forget a tail that is gone."""
        assert tail.bytes_held == 0, "a tail that is gone holds nothing"
        self._tails.pop(tail, None)
        self._stored = deque(entry for entry in self._stored if entry[0] is not tail)

    def check(self) -> None:
        """Assert that the sum is that of all tails, and is bounded."""
        held = sum(tail.bytes_held for tail in self._tails)
        assert self.bytes_held == held, "the budget counts every tail"
        for tail, _ in self._stored:
            assert tail in self._tails, "only a tail in use has batches that may leave"
        assert self.bytes_held <= self.bytes_max or not self._stored, "what may leave has left"


class MemoryTail:
    """The batches of one history of one partition."""

    __slots__ = ("_batches", "_budget", "_head", "bytes_held")

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._batches: list[TailBatch] = []
        self._head = 0
        self.bytes_held = 0
        budget.begin(self)

    @property
    def first_offset(self) -> int | None:
        """Where the batches here begin; nothing if there are none."""
        return self._batches[self._head].base_offset if self._head < len(self._batches) else None

    @property
    def first_timestamp(self) -> int:
        """When the first batch here was stamped; there is one."""
        assert self._head < len(self._batches), "memory holds a batch"
        return self._batches[self._head].timestamp

    def append(self, batch: TailBatch, size: int) -> None:
        """Take the next batch, of so many bytes."""
        assert batch.base_offset < batch.end_offset, "a batch has a message"
        if self._batches:
            last = self._batches[-1]
            assert batch.base_offset >= last.end_offset, "offsets rise from batch to batch"
            assert batch.timestamp >= last.timestamp, "stamps never fall"
        self._batches.append(batch)
        size += BATCH_OBJECTS_BYTES  # as `memory_of`
        self.bytes_held += size
        self._budget.bytes_held += size

    def drop_below(self, end_offset: int) -> None:
        """Drop the batches that end at or before an offset."""
        batches = self._batches
        head = self._head
        freed = 0
        while head < len(batches) and batches[head].end_offset <= end_offset:
            freed += memory_of(batches[head])
            head += 1
        if head > _SLACK and head * 2 > len(batches):
            del batches[:head]
            head = 0
        else:
            # The list keeps its places; what the places held must go all the same.
            for index in range(self._head, head):
                batches[index] = _GONE
        self._head = head
        self.bytes_held -= freed
        self._budget.bytes_held -= freed
        assert self.bytes_held >= 0, "what leaves was counted"
        assert self.bytes_held <= self._budget.bytes_held, "the budget counts every tail"

    def close(self) -> None:
        """Release all batches; the tail is not used any more."""
        assert self.bytes_held <= self._budget.bytes_held, "the budget counts every tail"
        self._budget.bytes_held -= self.bytes_held
        self.bytes_held = 0
        self._batches.clear()
        self._head = 0
        self._budget.forget(self)

    def find_offset(self, offset: int) -> int:
        """Return the index of the batch with an offset, or of the next one after it."""
        index = bisect_right(self._batches, offset, lo=self._head, key=_BASE_OFFSET)
        if index > self._head and offset < self._batches[index - 1].end_offset:
            return index - 1
        return index

    def find_timestamp(self, timestamp: int) -> TailBatch | None:
        """Return the first batch that was stamped at or after a time."""
        index = bisect_left(self._batches, timestamp, lo=self._head, key=_TIMESTAMP)
        assert index == self._head or self._batches[index - 1].timestamp < timestamp, "stamps rise"
        return self._batches[index] if index < len(self._batches) else None

    def check(self, skip_gap: Callable[[int], int], *, first_offset: int, end_offset: int) -> None:
        """Assert that the batches reach without a gap to the end of a log.

        Args:
            skip_gap: Returns the end of the lost range that an offset lies in, else the offset.
            first_offset: The first one of the log.
            end_offset: The end of the log, as far as batches of it were taken.
        """
        assert 0 <= self._head <= len(self._batches), "the head is a place of the list"
        assert all(batch is _GONE for batch in islice(self._batches, self._head)), (
            "the places of dropped batches hold nothing"
        )
        held = self._batches[self._head :]
        assert self.bytes_held == sum(map(memory_of, held)), "the sum is that of the batches"
        assert self.bytes_held <= self._budget.bytes_held, "the budget counts every tail"
        for left, right in pairwise(held):
            assert skip_gap(left.end_offset) == right.base_offset, "batches follow each other"
            assert left.timestamp <= right.timestamp, "stamps never fall"
        if held:
            assert held[0].base_offset >= first_offset, "what the log dropped has left"
            assert skip_gap(held[-1].end_offset) == end_offset, "the tail continues the log"

    @property
    def batches(self) -> Sequence[TailBatch]:
        """The batches by index, for looking only; those before the first one here are gone."""
        return self._batches

    def batch_at(self, index: int) -> TailBatch | None:
        """Return a batch by its index."""
        assert index >= self._head, "batches before the first one are gone"
        return self._batches[index] if index < len(self._batches) else None


_GONE = TailBatch(0, 0, 0, b"")


def memory_of(batch: TailBatch) -> int:
    """Return how much memory a batch takes."""
    return len(batch.data) + BATCH_OBJECTS_BYTES
