"""The plan as properties: every wanted offset in one slice, and what is gone named exactly."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.offsets import Key, Position
from headrace.spark.plan import (
    ANEW,
    NO_PARTITION,
    PURGED,
    RETENTION,
    Plan,
    PlanError,
    complete,
    plan,
    position_of,
)
from headrace.spark.slices import SLICE_BYTES, Bounds, Split
from headrace.wire.commands.segments import OffsetRange, PlannedSegment, SegmentPlan

KEY = Key("shop/orders", 0)


def segment(
    base: int, end: int, *, oldest: int = 0, newest: int = 0, length: int = 5000
) -> PlannedSegment:
    return PlannedSegment(
        base_offset=base,
        end_offset=end,
        oldest_stamp=oldest,
        newest_stamp=newest,
        length=length,
        pieces=(),
    )


def log(
    first: int,
    end: int,
    *segments: PlannedSegment,
    lost: Sequence[tuple[int, int]] = (),
    revision: int = 1,
    epoch: int = 0,
) -> SegmentPlan:
    return SegmentPlan(
        namespace=7,
        created_revision=revision,
        history_epoch=epoch,
        first_offset=first,
        next_offset=end,
        folder="/data",
        lost=tuple(OffsetRange(*each) for each in lost),
        segments=segments,
        is_more=False,
    )


def plan_one(first: int, end: int, held: SegmentPlan, *rest: Bounds | Split) -> Plan:
    bounds = next((each for each in rest if isinstance(each, Bounds)), Bounds())
    split = next((each for each in rest if isinstance(each, Split)), Split())
    start, stop = {KEY: position_of(held, first)}, {KEY: position_of(held, end)}
    return plan(start, stop, {KEY: held}, bounds, split)


def ranges(made: Plan) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in made.slices]


@st.composite
def logs(draw: st.DrawFn) -> SegmentPlan:
    """A log with segments, a tail, stamps that never fall, and lost ranges between batches."""
    edges = sorted(draw(st.lists(st.integers(0, 200), min_size=2, max_size=8, unique=True)))
    stamps = sorted(draw(st.lists(st.integers(0, 50), min_size=len(edges), max_size=len(edges))))
    segments = []
    lost = []
    for index, (base, end) in enumerate(pairwise(edges)):
        if draw(st.integers(0, 4)) == 0:
            lost.append((base, end))
        else:
            segments.append(segment(base, end, oldest=stamps[index], newest=stamps[index + 1]))
    return log(edges[0], edges[-1] + draw(st.integers(0, 20)), *segments, lost=lost)


BOUNDS = st.builds(
    Bounds,
    offset_min=st.integers(0, 200),
    offset_max=st.integers(0, 250),
    time_min=st.integers(0, 50),
    time_max=st.integers(0, 60),
)
SPLITS = st.builds(Split, st.none() | st.integers(1, 20), st.none() | st.integers(1, 50))


@given(logs(), st.integers(0, 220), st.integers(0, 220), BOUNDS, SPLITS)
def test_every_wanted_offset_is_in_one_slice_or_named(
    held: SegmentPlan, first: int, end: int, bounds: Bounds, split: Split
) -> None:
    end = min(end, held.next_offset)
    made = plan_one(first, end, held, bounds, split)
    given_offsets = [offset for low, high in ranges(made) for offset in range(low, high)]
    assert given_offsets == sorted(set(given_offsets))
    gone = [offset for loss in made.losses for offset in range(loss.first, loss.end or 0)]
    lost = {offset for gap in held.lost for offset in range(gap.first, gap.end)}
    wanted = range(max(first, bounds.offset_min), min(end, bounds.offset_max))
    assert gone == [each for each in wanted if each < held.first_offset and each not in lost]
    assert set(given_offsets) <= set(wanted)
    for offset in wanted:
        if offset >= held.first_offset and offset not in given_offsets:
            (pruned,) = [
                each for each in held.segments if each.base_offset <= offset < each.end_offset
            ]
            assert pruned.newest_stamp < bounds.time_min or pruned.oldest_stamp >= bounds.time_max


@given(logs(), SPLITS)
def test_splitting_keeps_to_what_was_asked(held: SegmentPlan, split: Split) -> None:
    made = plan_one(held.first_offset, held.next_offset, held, split)
    sizes = [high - low for low, high in ranges(made)]
    if split.records_max is not None:
        assert all(size <= split.records_max for size in sizes)
    total = sum(sizes)
    if split.partitions_min is not None and total:
        assert len(sizes) >= min(split.partitions_min, total)


@given(logs(), SPLITS)
def test_a_slice_knows_what_it_touches_and_nothing_else(held: SegmentPlan, split: Split) -> None:
    for each in plan_one(held.first_offset, held.next_offset, held, split).slices:
        touching = [
            segment
            for segment in held.segments
            if segment.end_offset > each.first and segment.base_offset < each.end
        ]
        assert list(each.log.segments) == touching


def test_a_partition_is_one_task_unless_it_is_large() -> None:
    small = log(0, 1000, segment(0, 900, length=SLICE_BYTES))
    assert ranges(plan_one(0, 1000, small)) == [(0, 1000)]
    large = log(0, 1000, segment(0, 1000, length=3 * SLICE_BYTES))
    assert len(ranges(plan_one(0, 1000, large))) == 3


def test_what_retention_removed_is_named_without_what_never_was() -> None:
    held = log(50, 100, lost=[(20, 30), (60, 70)])
    made = plan_one(10, 100, held)
    assert [(each.first, each.end, each.why) for each in made.losses] == [
        (10, 20, RETENTION),
        (30, 50, RETENTION),
    ]
    assert made.slices[0].losses == tuple(made.losses)
    assert ranges(made) == [(50, 100)]


def test_losses_have_a_slice_even_if_nothing_is_left() -> None:
    made = plan_one(0, 40, log(50, 100))
    assert ranges(made) == [(50, 50)]
    assert str(made.slices[0].losses[0]) == (
        "shop/orders, partition 0: the 40 offsets 0 to 39 are gone: retention removed them, or they"
        " were deleted"
    )


@pytest.mark.parametrize(
    ("now", "why"), [(log(0, 30, revision=2), ANEW), (log(0, 30, epoch=1), PURGED)]
)
def test_another_log_under_the_same_name(now: SegmentPlan, why: str) -> None:
    old = Position(1, 0, 90)
    made = plan({KEY: old}, {KEY: position_of(now, 30)}, {KEY: now})
    assert [(each.first, each.end, each.why) for each in made.losses] == [(90, None, why)]
    assert "from 90 on are gone" in str(made.losses[0])
    assert ranges(made) == [(0, 30)]
    # A batch that was planned before and is run again after: all of it is gone.
    again = plan({KEY: old}, {KEY: old._replace(next=95)}, {KEY: now})
    assert [(each.first, each.end, each.why) for each in again.losses] == [(90, 95, why)]
    assert sum(high - low for low, high in ranges(again)) == 0


def test_a_partition_that_is_no_more() -> None:
    made = plan({KEY: Position(1, 0, 10)}, {KEY: Position(1, 0, 30)}, {})
    assert [(each.first, each.end, each.why) for each in made.losses] == [(10, 30, NO_PARTITION)]
    assert plan({KEY: Position(1, 0, 30)}, {KEY: Position(1, 0, 30)}, {}).losses == []


def test_a_server_that_lags_is_no_loss() -> None:
    with pytest.raises(PlanError, match="lags behind"):
        plan_one(0, 40, log(0, 30))


def test_where_new_partitions_begin() -> None:
    held = {KEY: log(5, 9), Key("shop/orders", 1): log(6, 9), Key("new/topic", 0): log(7, 9)}
    start = {KEY: Position(1, 0, 8)}
    begun = complete(start, held)
    assert {key: place.next for key, place in begun.items()} == {
        KEY: 8,
        Key("shop/orders", 1): 0,
        Key("new/topic", 0): 7,
    }


def test_partitions_that_nobody_wants() -> None:
    held = log(0, 10)
    assert plan_one(0, 10, held, Bounds(partitions=(1,))).slices == []
    assert ranges(plan_one(0, 10, held, Bounds(partitions=(0, 1)))) == [(0, 10)]
