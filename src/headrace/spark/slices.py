"""What one task reads: a slice of a partition, cut to the wanted size.

Flow:       plan.
Invariants: the parts of a slice are disjoint, in order, and cover it; its losses are reported once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.spark.losses import Loss
from headrace.spark.offsets import Key
from headrace.wire.commands.segments import SegmentPlan

UNBOUNDED = 1 << 63
# A smaller partition is one task: each further task costs 20 to 35 ms.
SLICE_BYTES = 256 << 20


@dataclass(frozen=True)
class Bounds:
    """The wanted rows: offsets and stamps from the first up to, not including, the last."""

    offset_min: int = 0
    offset_max: int = UNBOUNDED
    time_min: int = 0
    time_max: int = UNBOUNDED
    partitions: tuple[int, ...] | None = None

    def wants(self, partition: int) -> bool:
        """Whether rows of a partition with this number are wanted."""
        return self.partitions is None or partition in self.partitions

    @property
    def has_times(self) -> bool:
        """Whether the bounds limit stamps."""
        return self.time_min > 0 or self.time_max < UNBOUNDED


@dataclass(frozen=True)
class Split:
    """The wanted number of tasks, if the user sets it."""

    partitions_min: int | None = None
    records_max: int | None = None


@dataclass(frozen=True)
class Slice:
    """The input of one task: a range of offsets of one partition, and where to find it.

    `log` has only the segments and lost ranges that touch the range.
    """

    key: Key
    first: int
    end: int
    bounds: Bounds
    log: SegmentPlan
    losses: tuple[Loss, ...] = ()


def make_slice(
    key: Key, first: int, end: int, bounds: Bounds, log: SegmentPlan, losses: Sequence[Loss]
) -> Slice:
    """Return a slice with only the relevant part of the log."""
    return Slice(key, first, end, bounds, _narrow(log, first, end), tuple(losses))


def _narrow(log: SegmentPlan, first: int, end: int) -> SegmentPlan:
    """Return the log without what a task does not need."""
    return SegmentPlan(
        namespace=log.namespace,
        created_revision=log.created_revision,
        history_epoch=log.history_epoch,
        first_offset=log.first_offset,
        next_offset=log.next_offset,
        folder=log.folder,
        lost=tuple(each for each in log.lost if each.end > first and each.first < end),
        segments=tuple(
            each for each in log.segments if each.end_offset > first and each.base_offset < end
        ),
        is_more=False,
    )


def split_slices(slices: Sequence[Slice], split: Split) -> list[Slice]:
    """Split slices that are too large, and all in proportion if more are wanted."""
    total = sum(each.end - each.first for each in slices)
    cut: list[Slice] = []
    for each in slices:
        size = each.end - each.first
        parts = -(-_bytes_of(each) // SLICE_BYTES)
        if split.records_max is not None:
            parts = max(parts, -(-size // split.records_max))
        if split.partitions_min is not None and total:
            parts = max(parts, -(-size * split.partitions_min // total))
        cut += _cut(each, max(min(parts, size), 1))
    return cut


def _bytes_of(each: Slice) -> int:
    """Return about how many bytes of segments a slice touches; the tail is always small."""
    total = 0
    for segment in each.log.segments:
        low, high = max(each.first, segment.base_offset), min(each.end, segment.end_offset)
        total += segment.length * (high - low) // segment.messages_count
    return total


def _cut(each: Slice, parts: int) -> list[Slice]:
    """Split into parts of equal size, plus or minus one record."""
    if parts == 1:
        return [each]
    size = each.end - each.first
    edges = [each.first + size * index // parts for index in range(parts + 1)]
    return [
        make_slice(each.key, low, high, each.bounds, each.log, each.losses if not index else ())
        for index, (low, high) in enumerate(pairwise(edges))
    ]
