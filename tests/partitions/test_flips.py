"""One flipped bit in a segment or an index: the right bytes, or an error that names its range."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.gather import First, FromOffset, FromTimestamp, Last, NextAfter, PollStart
from headrace.partitions.options import PartitionOptions
from headrace.ports.segments import SegmentFile
from headrace.wire.errors import Code, RefusedError
from tests.kernel.samples import Row
from tests.partitions.stage import Stage, make_options, poll_or_range, rows

OPTIONS = make_options(segment_bytes=1900, piece_bytes=1300, index_step_bytes=500)
Range = tuple[int, int]
NOTHING: Range = (-1, -1)
FLIP_STEP = int(os.environ.get("FLIP_STEP", "13"))

SHAPE = ((1, 8), (3, 20), (2, 90), (1, 700), (4, 8), (2, 60), (1, 1), (3, 10))
SMALL = make_options(segment_bytes=900, piece_bytes=600, index_step_bytes=300)
SMALL_SHAPE = ((1, 8), (2, 1), (1, 1), (1, 1))


def filled(
    *,
    is_restarted: bool,
    options: PartitionOptions = OPTIONS,
    shape: tuple[tuple[int, int], ...] = SHAPE,
) -> Stage:
    """Some segments, the last one not sealed, all of them on disk only."""
    stage = Stage(options)
    for count, size in shape:
        stage.send(count, size)
    stage.forget_memory()
    if is_restarted:
        stage.checkpoint()
        stage.restart()
    return stage


def check_polls(stage: Stage, good: list[Row], damaged: Range) -> list[Range]:
    """Poll by every strategy from every offset; return the ranges that could not be read."""
    ranges: dict[Range, None] = {}
    stamps = sorted({row.timestamp for row in good})
    end = good[-1].offset + 1
    starts: list[tuple[PollStart, int, int]] = [(First(), 0, 100), (NextAfter(None), 0, 100)]
    starts += [(Last(), end - count, count) for count in range(1, end + 1)]
    starts += [(FromOffset(row.offset), row.offset, 3) for row in good]
    starts += [(NextAfter(row.offset - 1), row.offset, 1) for row in good[1:]]
    for stamp in stamps:
        wanted = next(row.offset for row in good if row.timestamp >= stamp)
        starts += [(FromTimestamp(stamp), wanted, 2), (FromTimestamp(stamp - 1), wanted, 1)]
    for start, wanted, count in starts:
        found = poll_or_range(stage, start, count)
        if isinstance(found, tuple):
            first, last = found
            assert first <= wanted <= last or isinstance(start, FromTimestamp), (start, found)
            ranges[found] = None
        else:
            right = good[wanted : wanted + count]
            assert found
            assert found == right[: len(found)], start
            if len(found) < len(right):  # It ends where the damage begins.
                cut = poll_or_range(stage, FromOffset(found[-1].offset + 1), 1)
                assert isinstance(cut, tuple)
                assert cut[0] == found[-1].offset + 1
    assert list(ranges) in ([], [damaged])
    for row in good:
        is_served = isinstance(poll_or_range(stage, FromOffset(row.offset), 1), list)
        assert is_served == (not ranges or not damaged[0] <= row.offset <= damaged[1])
    return list(ranges)


def batch_at(stage: Stage, file: SegmentFile, position: int) -> Range:
    """The offsets of the batch that holds a byte of a sound file."""
    data = stage.files.logs[file]
    at = SEGMENT_HEADER_BYTES
    while True:
        length = int.from_bytes(data[at + 32 : at + 40], "little")
        if position < at + length:
            first = int.from_bytes(data[at + 8 : at + 16], "little")
            return first, first + int.from_bytes(data[at + 48 : at + 52], "little") - 1
        at += length


def flip_and_poll(stage: Stage, good: list[Row], file: SegmentFile, bit: int) -> None:
    """Flip one bit of a segment's batches, poll everything, and flip it back."""
    byte = bit // 8
    damaged = batch_at(stage, file, byte)
    stage.files.logs[file][byte] ^= 1 << bit % 8
    assert check_polls(stage, good, damaged), "no poll noticed the damage"
    stage.files.logs[file][byte] ^= 1 << bit % 8


@settings(max_examples=60)
@given(st.data(), st.booleans(), st.booleans())
def test_a_flipped_bit_of_a_segment_is_named(
    data: st.DataObject, is_restarted: bool, has_index: bool
) -> None:
    stage = filled(is_restarted=is_restarted)
    good = rows(stage.poll(First()))
    if is_restarted:
        stage.restart()
    if not has_index:
        stage.files.indexes.clear()
    file = data.draw(st.sampled_from(sorted(stage.files.logs, key=lambda each: each.base_offset)))
    # Headers are drawn as often as all the rest.
    size = len(stage.files.logs[file])
    bit = data.draw(
        st.one_of(
            st.integers(8 * SEGMENT_HEADER_BYTES, 8 * (SEGMENT_HEADER_BYTES + 56) - 1),
            st.integers(8 * SEGMENT_HEADER_BYTES, 8 * size - 1),
        )
    )
    flip_and_poll(stage, good, file, bit)


def test_a_damaged_batch_before_a_lost_range_at_the_end_is_named_to_one_who_asks_for_its_time() -> (
    None
):
    stage = Stage(SMALL)
    stage.send(2)
    stamp = rows(stage.poll(First()))[-1].timestamp
    stage.lose(2, 10)
    stage.forget_memory()
    (file,) = stage.files.logs
    stage.files.logs[file][SEGMENT_HEADER_BYTES + 60] ^= 1
    assert poll_or_range(stage, FromTimestamp(stamp), 1) == (0, 1)
    assert poll_or_range(stage, FromTimestamp(stamp + 1), 1) == []


@settings(max_examples=40)
@given(st.data())
def test_a_flipped_bit_of_an_index_loses_nothing(data: st.DataObject) -> None:
    stage = filled(is_restarted=True)
    good = rows(stage.poll(First()))
    stage.restart()
    file = data.draw(st.sampled_from(sorted(stage.files.indexes, key=lambda at: at.base_offset)))
    index = bytearray(stage.files.indexes[file])
    bit = data.draw(st.integers(0, 8 * len(index) - 1))
    index[bit // 8] ^= 1 << bit % 8
    stage.files.indexes[file] = bytes(index)
    assert check_polls(stage, good, NOTHING) == []
    assert stage.probes.counts["partition.index_damaged"] == 1


@settings(max_examples=20)
@given(st.data())
def test_a_flipped_bit_of_a_header_block_fences_its_partition_alone(data: st.DataObject) -> None:
    stage = filled(is_restarted=True)
    file = data.draw(st.sampled_from(sorted(stage.files.logs, key=lambda at: at.base_offset)))
    bit = data.draw(st.integers(0, 8 * SEGMENT_HEADER_BYTES - 1))
    stage.files.logs[file][bit // 8] ^= 1 << bit % 8
    stage.restart()
    assert stage.machine.fence is not None
    for start in (First(), Last(), FromOffset(3), FromTimestamp(0), NextAfter(1)):
        with pytest.raises(RefusedError) as error:
            stage.poll(start)
        assert error.value.code == Code.CANNOT_READ_MESSAGE


@settings(max_examples=20)
@given(st.data())
def test_a_flipped_bit_of_a_header_block_costs_a_running_node_nothing(data: st.DataObject) -> None:
    stage = filled(is_restarted=False)
    good = rows(stage.poll(First()))
    file = data.draw(st.sampled_from(sorted(stage.files.logs, key=lambda at: at.base_offset)))
    bit = data.draw(st.integers(0, 8 * SEGMENT_HEADER_BYTES - 1))
    stage.files.logs[file][bit // 8] ^= 1 << bit % 8
    assert check_polls(stage, good, NOTHING) == []


@pytest.mark.slow
@pytest.mark.parametrize("has_index", [True, False])
def test_every_bit_of_a_segment_with_its_index(has_index: bool) -> None:
    """Each bit of one sealed segment and of its index; every 13th unless the night asks for all."""
    stage = filled(is_restarted=True, options=SMALL, shape=SMALL_SHAPE)
    good = rows(stage.poll(First()))
    [file] = [each for each in stage.files.logs if each.base_offset == 0]
    index = stage.files.indexes[file]
    if not has_index:
        stage.files.indexes.clear()
    for bit in range(8 * SEGMENT_HEADER_BYTES, 8 * len(stage.files.logs[file]), FLIP_STEP):
        stage.restart()
        flip_and_poll(stage, good, file, bit)
    for bit in range(0, 8 * len(index) if has_index else 0, FLIP_STEP):
        damaged = bytearray(index)
        damaged[bit // 8] ^= 1 << bit % 8
        stage.files.indexes[file] = bytes(damaged)
        stage.restart()
        assert check_polls(stage, good, NOTHING) == []
