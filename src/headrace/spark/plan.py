"""From two maps of offsets to the slices that tasks read: a pure function.

```
start, end, logs of the partitions        ranges        clip        remove missing offsets
 {0: 100, 1: 0}  {0: 900, 1: 50}   ──►  [100, 900)  ──► bounds ──►  losses, exactly
                                                                     │
 slices  ◄── split by records, bytes, minPartitions  ◄── prune segments by their stamps
```

Flow:       plan.
Invariants: the slices of a partition are disjoint, in order, and hold every offset of its range
            that is within the bounds and not missing; missing ranges are listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.spark.losses import Loss
from headrace.spark.offsets import Key, Position, Positions
from headrace.spark.slices import Bounds, Slice, Split, make_slice, split_slices
from headrace.wire.commands.segments import OffsetRange, PlannedSegment, SegmentPlan

RETENTION = "retention removed them, or they were deleted"
ANEW = "the partition was made anew under the same name"
PURGED = "the partition was purged"
NO_PARTITION = "there is no such partition any more"


@dataclass(frozen=True)
class Plan:
    """The slices for the tasks, and the ranges that are lost."""

    slices: list[Slice] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


class PlanError(Exception):
    """A range cannot be read now, whatever losses the user accepts."""


def position_of(log: SegmentPlan, upcoming: int) -> Position:
    """Return a position in the partition's current log."""
    return Position(log.created_revision, log.history_epoch, upcoming)


def complete(start: Positions, logs: Mapping[Key, SegmentPlan]) -> dict[Key, Position]:
    """Return the start with a position for every new partition.

    If its topic is known, a new partition is read from offset 0, so that messages trimmed before
    they were read are reported; if the topic is new too, from its oldest existing message.
    """
    known = {key.topic for key in start}
    begun = dict(start)
    for key, log in logs.items():
        if key not in start:
            begun[key] = position_of(log, 0 if key.topic in known else log.first_offset)
    return begun


def plan(
    start: Positions,
    end: Positions,
    logs: Mapping[Key, SegmentPlan],
    bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    split: Split = Split(),  # noqa: B008 - frozen
) -> Plan:
    """Return the slices of everything from `start` up to `end`.

    A partition that is not in `start` is new: `complete` decides where it begins.

    Raises:
        PlanError: A partition ends before the range does.
    """
    made = Plan()
    begun = complete(start, logs)
    for key in sorted(end):
        if not bounds.wants(key.partition):
            continue
        log = logs.get(key)
        if log is None:
            _lose_partition(made, key, start.get(key), end[key])
            continue
        _plan_partition(made, key, begun[key], end[key], log, bounds)
    return replace(made, slices=split_slices(made.slices, split))


def _lose_partition(made: Plan, key: Key, start: Position | None, end: Position) -> None:
    first = start.next if start is not None and start.is_same_log(end) else 0
    if first < end.next:
        made.losses.append(Loss(key, first, end.next, NO_PARTITION))


def _plan_partition(
    made: Plan, key: Key, start: Position, end: Position, log: SegmentPlan, bounds: Bounds
) -> None:
    """Add the slices and losses of one partition."""
    losses: list[Loss] = []
    first, stop = start.next, end.next
    if not start.is_same_log(end):
        losses.append(Loss(key, start.next, None, explain_other(start, end)))
        first = 0
    now = position_of(log, log.next_offset)
    if not end.is_same_log(now):
        if first < stop:
            losses.append(Loss(key, first, stop, explain_other(end, now)))
        stop = first
    elif stop > log.next_offset:
        raise PlanError(
            f"{key}: it ends at offset {log.next_offset}, and the range up to {stop} was seen"
            " before: the server that answered lags behind; try again"
        )
    first, stop = max(first, bounds.offset_min), min(stop, bounds.offset_max)
    losses += find_gone(key, first, min(stop, log.first_offset), log.lost)
    first = max(first, log.first_offset)
    made.losses.extend(losses)
    runs = _prune(first, stop, log.segments, bounds)
    if not runs and losses:
        runs = [(first, first)]  # An empty slice for the rows that report the losses.
    for index, (low, high) in enumerate(runs):
        made.slices.append(make_slice(key, low, high, bounds, log, losses if not index else []))


def explain_other(old: Position, new: Position) -> str:
    """Return why a position in one log is not one in another log of the same name."""
    return PURGED if old.incarnation == new.incarnation else ANEW


def find_gone(key: Key, first: int, end: int, lost: Sequence[OffsetRange]) -> list[Loss]:
    """Return the missing parts of a range, without offsets that never existed (O3.5)."""
    gone = []
    for gap in lost:
        if gap.end > first and gap.first < end:
            if first < gap.first:
                gone.append(Loss(key, first, gap.first, RETENTION))
            first = gap.end
    if first < end:
        gone.append(Loss(key, first, end, RETENTION))
    return gone


def _prune(
    first: int, end: int, segments: Sequence[PlannedSegment], bounds: Bounds
) -> list[tuple[int, int]]:
    """Return the parts of a range that may contain wanted stamps; parts without a segment may."""
    runs = []
    for segment in segments:
        is_wanted = (
            segment.newest_stamp >= bounds.time_min and segment.oldest_stamp < bounds.time_max
        )
        if not is_wanted:
            if first < min(segment.base_offset, end):
                runs.append((first, min(segment.base_offset, end)))
            first = max(first, segment.end_offset)
    if first < end:
        runs.append((first, end))
    return runs
