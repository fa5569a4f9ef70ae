"""Index file and artifact as bytes, and how a tail keeps its budget."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.checksum import xxh3_64
from headrace.partitions.index import INDEX_STEP_BYTES, SegmentIndex, decode_index
from headrace.partitions.log import Segment
from headrace.partitions.snapshot import decode_snapshot
from headrace.partitions.tail import (
    BATCH_OBJECTS_BYTES,
    COPIED_BYTES_MAX,
    MemoryTail,
    TailBatch,
    TailBudget,
    memory_of,
)
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import BatchHeader, chain_batch
from headrace.wire.errors import CorruptError
from headrace.wire.numbers import Operation
from tests.partitions.stage import (
    GROUP,
    NAMESPACE,
    REVISION,
    Stage,
    make_options,
    producer_batch,
)

FILE = SegmentFile(NAMESPACE, REVISION, 2, 1000)

PIECE_BYTES = 250_000

batches = st.lists(
    st.tuples(st.integers(1, 50), st.integers(300, 90_000), st.integers(0, 5)),
    min_size=1,
    max_size=30,
)


class Built:
    """A segment as a log makes it, and its batches: offset, end, stamp, position."""

    def __init__(self, shape: list[tuple[int, int, int]]) -> None:
        self.segment = Segment(FILE, INDEX_STEP_BYTES)
        self.segment.index = SegmentIndex(self.segment.pieces)
        self.placed: list[tuple[int, int, int, int]] = []
        offset, stamp = FILE.base_offset, 10
        for number, (count, length, later) in enumerate(shape):
            stamp += later
            header = BatchHeader(5, offset, stamp, 0, length, 1000 + number, count)
            position = self.segment.append(header, offset + count, PIECE_BYTES)
            self.placed.append((offset, offset + count, stamp, position))
            offset += count

    @property
    def index(self) -> SegmentIndex:
        assert self.segment.index is not None
        return self.segment.index

    def encode(self) -> bytes:
        return self.index.encode(FILE, self.segment.length)

    def decode(self, data: bytes, file: SegmentFile = FILE, by: int = 0) -> SegmentIndex:
        segment = self.segment
        return decode_index(
            data, file, segment.pieces, length=segment.length + by, digest=segment.digest
        )


def check_lookups(index: SegmentIndex, built: Built) -> None:
    segment, placed = built.segment, built.placed
    starts = {offset: position for offset, _, _, position in placed}
    starts[segment.end_offset] = segment.length
    for offset, end, stamp, position in placed:
        for wanted in (offset, end - 1):
            for until, bytes_max in ((wanted + 1, 0), (wanted + 100, 300_000)):
                found = index.stretch(
                    wanted, until, end_offset=segment.end_offset, bytes_max=bytes_max
                )
                assert not found.is_coarse
                assert found.start.offset <= wanted < found.end.offset
                assert starts[found.start.offset] == found.start.position
                assert starts[found.end.offset] == found.end.position
                assert position - found.start.position < INDEX_STEP_BYTES + 90_000
                assert found.length <= bytes_max or found.steps_count == 1
                inside = [
                    each for each in placed if found.start.offset <= each[0] < found.end.offset
                ]
                chain = found.start.chain
                for each in inside:
                    chain = chain_batch(chain, 1000 + placed.index(each))
                assert chain == found.end.chain
        first = next(other for other in placed if other[2] >= stamp)
        assert index.find_time(stamp) <= first[0]


@settings(max_examples=40)
@given(batches)
def test_an_index_leads_to_or_before_what_is_wanted(shape: list[tuple[int, int, int]]) -> None:
    built = Built(shape)
    check_lookups(built.index, built)
    data = built.encode()
    again = built.decode(data)
    assert again.encode(FILE, built.segment.length) == data
    check_lookups(again, built)


def test_any_flipped_or_missing_byte_of_an_index_is_noticed() -> None:
    built = Built([(5, 80_000, 1)] * 4)
    data = built.encode()

    def refused(damaged: bytes, file: SegmentFile = FILE, by: int = 0) -> None:
        with pytest.raises(CorruptError):
            built.decode(damaged, file, by)

    for position in range(len(data)):
        refused(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        refused(data[:position])
    refused(data, SegmentFile(NAMESPACE, REVISION, 3, 1000))
    refused(data, by=1)


@pytest.mark.parametrize("at", range(0, 128, 8))
def test_an_index_that_the_log_does_not_vouch_for_is_refused(at: int) -> None:
    """FM-9: it is whole and of this segment, and another field of an entry than the log's."""
    built = Built([(5, 80_000, 1)] * 4)
    data = bytearray(built.encode())
    data[56 + at] ^= 1
    data[-8:] = xxh3_64(data[:-8]).to_bytes(8, "little")
    with pytest.raises(CorruptError, match="vouches"):
        built.decode(bytes(data))


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


def as_version_1(data: bytes) -> bytes:
    """Give an artifact as it was before segments had a digest of their index."""
    (segments_count,) = struct.unpack_from("<I", data, 80)
    made, at = bytearray(data[:96]), 96
    made[8:12] = struct.pack("<I", 1)
    for _ in range(segments_count):
        (pieces_count,) = struct.unpack_from("<I", data, at + 44)
        end = at + 48 + 24 * pieces_count
        made += data[at : at + 32] + data[at + 40 : end]
        at = end
    made += data[at:-8]
    return bytes(made) + xxh3_64(made).to_bytes(8, "little")


def test_an_artifact_of_version_1_is_read() -> None:
    stage = full()
    [artifact] = stage.machine.checkpoint()
    old = decode_snapshot(as_version_1(artifact.data), stage.options)
    new = decode_snapshot(artifact.data, stage.options)
    assert any(segment.digest for segment in new.log.segments)
    assert not any(segment.digest for segment in old.log.segments)
    for one, other in zip(old.log.segments, new.log.segments, strict=True):
        assert (one.file, one.length, one.end_offset) == (
            other.file,
            other.length,
            other.end_offset,
        )
        assert [piece.chain for piece in one.pieces] == [piece.chain for piece in other.pieces]
    assert (old.marks, old.state_hash) == (new.marks, new.state_hash)


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
    stage = Stage()
    for payload_bytes, is_copied in ((100, True), (COPIED_BYTES_MAX, False)):
        sent = bytearray(producer_batch(1, payload_bytes))
        header, body = stage.order(Operation.SEND_MESSAGES, sent)
        given = memoryview(body)
        stage.apply(header, given)
        kept = stage.machine._tail._batches[-1].data
        assert kept == given
        assert (kept is given) != is_copied


def batch(offset: int, size: int = 100) -> TailBatch:
    return TailBatch(offset, offset + 2, offset * 10, bytes(size))


def test_what_was_stored_first_leaves_first_whoever_it_belongs_to() -> None:
    each = memory_of(batch(0))
    budget = TailBudget(5 * each)
    one, two = MemoryTail(budget), MemoryTail(budget)
    for offset in range(0, 6, 2):
        one.append(batch(offset), 100)
        two.append(batch(offset), 100)
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
        tail.append(TailBatch(offset, offset + 1, offset * 10, bytes(source)), len(source))
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
            tail.append(held[-1], len(held[-1].data))
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
