"""Index file and artifact as bytes, and how a tail keeps its budget."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.index import INDEX_STEP_BYTES, Place, SegmentIndex, decode_index
from headrace.partitions.snapshot import decode_snapshot
from headrace.partitions.tail import (
    BATCH_OBJECTS_BYTES,
    COPIED_BYTES_MAX,
    MemoryTail,
    TailBatch,
    TailBudget,
    memory_of,
    tail_copy,
)
from headrace.ports.segments import SegmentFile
from headrace.wire.errors import CorruptError
from tests.partitions.stage import GROUP, NAMESPACE, REVISION, Stage, make_options

FILE = SegmentFile(NAMESPACE, REVISION, 2, 1000)

batches = st.lists(
    st.tuples(st.integers(1, 50), st.integers(300, 90_000), st.integers(0, 5)),
    min_size=1,
    max_size=30,
)


def built(
    shape: list[tuple[int, int, int]],
) -> tuple[SegmentIndex, list[tuple[int, int, int, int]]]:
    """An index, and the batches it is of: offset, end, stamp, position."""
    index = SegmentIndex(FILE.base_offset)
    offset, position, stamp = FILE.base_offset, SEGMENT_HEADER_BYTES, 10
    placed = []
    for count, length, later in shape:
        stamp += later
        placed.append((offset, offset + count, stamp, position))
        index.note(
            offset=offset,
            end_offset=offset + count,
            timestamp=stamp,
            span=(position, position + length),
        )
        offset += count
        position += length
    return index, placed


def check_lookups(index: SegmentIndex, placed: list[tuple[int, int, int, int]]) -> None:
    starts = [Place(offset, position) for offset, _, _, position in placed]
    for offset, end, stamp, position in placed:
        for wanted in (offset, end - 1):
            place = index.find_offset(wanted)
            assert place in starts
            assert place.offset <= wanted
            assert position - place.position < INDEX_STEP_BYTES + 90_000
        place = index.find_timestamp(stamp)
        assert place in starts
        first = next(other for other in placed if other[2] >= stamp)
        assert place.offset <= first[0]
    assert index.find_offset(placed[-1][1]) is None


@settings(max_examples=40)
@given(batches)
def test_an_index_leads_to_or_before_what_is_wanted(shape: list[tuple[int, int, int]]) -> None:
    index, placed = built(shape)
    check_lookups(index, placed)
    length = placed[-1][3] + shape[-1][1]
    data = index.encode(FILE, length)
    again = decode_index(
        data, FILE, length=length, end_offset=placed[-1][1], newest_stamp=placed[-1][2]
    )
    assert again.encode(FILE, length) == data
    check_lookups(again, placed)


def test_any_flipped_or_missing_byte_of_an_index_is_noticed() -> None:
    index, placed = built([(5, 80_000, 1)] * 4)
    length = placed[-1][3] + 80_000
    data = index.encode(FILE, length)

    def refused(damaged: bytes, file: SegmentFile = FILE, by: int = 0) -> None:
        with pytest.raises(CorruptError):
            decode_index(damaged, file, length=length + by, end_offset=1020, newest_stamp=14)

    for position in range(len(data)):
        refused(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        refused(data[:position])
    refused(data, SegmentFile(NAMESPACE, REVISION, 3, 1000))
    refused(data, by=1)


def test_an_index_whose_entries_do_not_rise_is_refused() -> None:
    index, _ = built([(5, 80_000, 1)] * 4)
    flat = index._walked._flat
    for at in (3, 4, 5):
        kept = flat[at]
        flat[at] = 0
        data = index.encode(FILE, SEGMENT_HEADER_BYTES + 320_000)
        with pytest.raises(CorruptError):
            decode_index(
                data, FILE, length=SEGMENT_HEADER_BYTES + 320_000, end_offset=1020, newest_stamp=14
            )
        flat[at] = kept


def full() -> Stage:
    stage = Stage(make_options(segment_bytes=1500, piece_bytes=700))
    for _ in range(7):
        stage.send(3)
    stage.lose(21, 30)
    stage.send(2)
    stage.store_offset(1, 4)
    stage.store_offset(9, 22, GROUP)
    return stage


def test_an_artifact_brings_the_state_back() -> None:
    stage = full()
    [artifact] = stage.machine.checkpoint()
    other = Stage(stage.options, is_open=False)
    other.machine.install([artifact])
    assert other.machine.checkpoint() == (artifact,)
    assert other.machine.state_hash() == stage.machine.state_hash()
    for name in ("next_offset", "first_offset", "messages_count", "size_bytes", "segments_count"):
        assert getattr(other.machine, name) == getattr(stage.machine, name)
    assert other.machine.lost_ranges == stage.machine.lost_ranges
    assert other.machine.stored_offset(GROUP, 9) == 22


def test_any_flipped_byte_of_an_artifact_is_noticed() -> None:
    """DK10, DK11."""
    stage = full()
    [artifact] = stage.machine.checkpoint()
    data = artifact.data
    for position in range(len(data)):
        with pytest.raises(CorruptError):
            decode_snapshot(
                data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], stage.options
            )
        with pytest.raises(CorruptError):
            decode_snapshot(data[:position], stage.options)


def test_a_state_that_does_not_hang_together_is_refused() -> None:
    def refuse(stage: Stage) -> None:
        stage.machine._artifact = None
        for segment in stage.machine._log.segments:
            segment.encoded = None
        [artifact] = stage.machine.checkpoint()
        with pytest.raises(CorruptError):
            decode_snapshot(artifact.data, stage.options)

    for change in ("next", "first", "gap", "end", "piece", "seal", "stamp"):
        stage = full()
        log = stage.machine._log
        if change == "next":
            log.next_offset += 1
        elif change == "first":
            log.first_offset += 1
        elif change == "gap":
            log.gaps[0] = (21, 29)
        elif change == "end":
            log.segments[0].end_offset += 1
        elif change == "piece":
            log.segments[0].pieces[0].length += 1
        elif change == "seal":
            log.segments[0].is_sealed = False
        else:
            log.segments[0].newest_stamp = log.newest_stamp + 1
        refuse(stage)


# The tail.


def test_small_batches_are_copied_and_large_ones_are_not() -> None:
    """O3.3."""
    slab = bytearray(1 << 20)
    small = memoryview(slab)[: COPIED_BYTES_MAX - 1]
    large = memoryview(slab)[:COPIED_BYTES_MAX]
    assert isinstance(tail_copy(small), bytes)
    assert tail_copy(large) is large
    data = bytes(10)
    assert tail_copy(data) is data


def batch(offset: int, size: int = 100) -> TailBatch:
    return TailBatch(offset, offset + 2, offset * 10, bytes(size))


def test_what_was_stored_first_leaves_first_whoever_it_belongs_to() -> None:
    each = memory_of(batch(0))
    budget = TailBudget(5 * each)
    one, two = MemoryTail(budget), MemoryTail(budget)
    for offset in range(0, 6, 2):
        one.append(batch(offset))
        two.append(batch(offset))
    budget.shrink()
    assert budget.bytes_held == 6 * each  # Nothing is stored yet.
    budget.stored(two, 2)
    assert (one.first_offset, two.first_offset, budget.bytes_held) == (0, 2, 5 * each)
    budget.stored(one, 6)
    budget.stored(two, 6)
    budget.bytes_max = 3 * each - 1
    budget.shrink()
    assert (one.first_offset, two.first_offset, budget.bytes_held) == (None, 2, 2 * each)
    two.close()
    assert (budget.bytes_held, two.bytes_held) == (0, 0)
    assert not budget._stored


def test_a_budget_counts_what_small_batches_really_take() -> None:
    count = 2000
    source = bytearray(300)
    tail = MemoryTail(TailBudget(1 << 30))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for offset in range(1_000_000, 1_000_000 + count):
        tail.append(TailBatch(offset, offset + 1, offset * 10, tail_copy(source)))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(after - before - tail.bytes_held) < count * BATCH_OBJECTS_BYTES // 8


@settings(max_examples=30)
@given(st.lists(st.integers(0, 400), max_size=20))
def test_a_tail_finds_what_it_holds(drops: list[int]) -> None:
    budget = TailBudget(1 << 30)
    tail = MemoryTail(budget)
    held: list[TailBatch] = []
    offset = 0
    for drop in drops:
        for _ in range(9):
            offset += 2 if drop % 3 else 5  # with gaps
            held.append(batch(offset))
            tail.append(held[-1])
            offset += 2
        tail.drop_below(drop)
        held = [each for each in held if each.end_offset > drop]
        assert tail.first_offset == (held[0].base_offset if held else None)
        assert tail.bytes_held == budget.bytes_held == memory_of(batch(0)) * len(held)
        for wanted in range(drop, offset + 3, 7):
            expected = next((each for each in held if each.end_offset > wanted), None)
            assert tail.batch_at(tail.find_offset(wanted)) is expected
            later = next((each for each in held if each.timestamp >= wanted), None)
            assert tail.find_timestamp(wanted) is later
