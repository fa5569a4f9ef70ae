"""Whole batches at the wrong place: of another topic, another node, another history (P6, DK15)."""

from collections.abc import Callable

import pytest

from headrace.base.checksum import xxh3_64
from headrace.base.ids import Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.kernel import verify
from headrace.partitions.gather import First, FromOffset, FromTimestamp, Last, NextAfter, PollStart
from headrace.partitions.options import PartitionOptions
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import split_batches
from tests.kernel.samples import batch_of, simple_messages
from tests.partitions.stage import (
    NAMESPACE,
    PLENTY,
    REVISION,
    Stage,
    make_options,
    poll_or_range,
    rows,
)

STEP = 800
SENDS = 24


def options(topic: int = 2, segment_bytes: int = 4500) -> PartitionOptions:
    return make_options(
        namespace=pack_namespace(Namespace(StreamId(3), TopicId(topic), PartitionId(5))),
        segment_bytes=segment_bytes,
        piece_bytes=2500,
        index_step_bytes=STEP,
    )


def send(stage: Stage, tag: int, number: int) -> None:
    """Send a batch whose length depends on the number alone, and its payloads on the tag."""
    messages = simple_messages(1 + number % 3, 40 + number)
    marked = [each._replace(payload=bytes([tag]) * len(each.payload)) for each in messages]
    stage.propose_batch(bytearray(batch_of(marked)))


def filled(tag: int, made: PartitionOptions, *, before: int | None = None) -> Stage:
    """A partition on disk, checkpointed and restarted; maybe purged once before."""
    stage = Stage(made)
    if before is not None:
        for number in range(SENDS):
            send(stage, before, number)
        stage.store()
        stage.purge(1)
    for number in range(SENDS):
        send(stage, tag, number)
    stage.checkpoint()
    stage.restart()
    stage.forget_memory()
    return stage


def batches_of(stage: Stage, file: SegmentFile) -> list[tuple[int, bytes]]:
    found, position = [], SEGMENT_HEADER_BYTES
    for batch in split_batches(bytes(stage.files.logs[file][position:])):
        found.append((position, bytes(batch)))
        position += len(batch)
    return found


class Case:
    """A sound partition, and the batches of somebody else at the same places."""

    def __init__(self, kind: str) -> None:
        if kind == "history before a purge":
            self.stage = filled(1, options(), before=2)
        else:
            self.stage = filled(1, options())
        topic = 9 if kind == "another topic" else 2
        self.other = filled(2, options(topic))
        self.good = rows(self.stage.poll(First()))
        self.stage.restart()
        own, others = self.files(self.stage), self.files(self.other)
        assert [each.base_offset for each in own] == [each.base_offset for each in others]
        assert len(own) >= 3
        self.pairs = list(zip(own, others, strict=True))

    @staticmethod
    def files(stage: Stage) -> list[SegmentFile]:
        epoch = stage.machine.history_epoch
        found = [file for file in stage.files.logs if file.history_epoch == epoch]
        return sorted(found, key=lambda each: each.base_offset)

    def misplace(self, segment: int, batch: int) -> tuple[int, int]:
        """Copy one batch; return its offsets."""
        file, source = self.pairs[segment]
        position, found = batches_of(self.other, source)[batch]
        verify(found)  # It is whole.
        held = self.stage.files.logs[file]
        assert held[position : position + 16] == found[:16]  # the same partition number and offset
        assert held[position + 32 : position + 40] == found[32:40]  # and length
        assert held[position : position + len(found)] != found
        held[position : position + len(found)] = found
        first = int.from_bytes(found[8:16], "little")
        return first, first + int.from_bytes(found[48:52], "little") - 1

    def misplace_file(self, segment: int) -> tuple[int, int]:
        """Copy all batches of another's segment; its header block stays right."""
        file, source = self.pairs[segment]
        held = self.stage.files.logs[file]
        held[SEGMENT_HEADER_BYTES:] = self.other.files.logs[source][SEGMENT_HEADER_BYTES:]
        found = batches_of(self.stage, file)
        last = found[-1][1]
        end = int.from_bytes(last[8:16], "little") + int.from_bytes(last[48:52], "little")
        return file.base_offset, end - 1


KINDS = ["another topic", "another node", "history before a purge"]


def keep(_: Stage) -> None:
    """The index stays as it is."""


def delete(stage: Stage) -> None:
    stage.files.indexes.clear()


def rebuild(stage: Stage) -> None:
    """Delete the indexes, and poll everything, so that they are built again where they can be."""
    stage.files.indexes.clear()
    stage.restart()
    for offset in range(60):
        poll_or_range(stage, FromOffset(offset), 3)


INDEXES = [keep, delete, rebuild]


def check(case: Case, wrong: tuple[int, int], *, offsets_max: int) -> None:
    """Nothing wrong is served, all that is misplaced is refused, and little else."""
    good, refused = case.good, 0
    for row in good:
        stamped = next(each.offset for each in good if each.timestamp == row.timestamp)
        starts: list[tuple[PollStart, int]] = [
            (FromOffset(row.offset), row.offset),
            (NextAfter(row.offset - 1), row.offset),
            (Last(), good[-1].offset - 6),
            (FromTimestamp(row.timestamp), stamped),
        ]
        for start, wanted in starts:
            found = poll_or_range(case.stage, start, 7)
            if isinstance(found, list):
                assert found == good[wanted : wanted + len(found)]
                assert found
            else:
                # The first batch of a time may also be among those just before it.
                assert found[0] <= wanted <= found[1] + isinstance(start, FromTimestamp)
                refused += isinstance(start, FromOffset)
        is_wrong = wrong[0] <= row.offset <= wrong[1]
        assert not is_wrong or isinstance(
            poll_or_range(case.stage, FromOffset(row.offset), 1), tuple
        )
    assert wrong[1] - wrong[0] + 1 <= refused <= offsets_max
    assert case.stage.machine.fence is None


@pytest.mark.parametrize("change", INDEXES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_batch_of_somebody_else_is_not_served(
    kind: str, segment: int, change: Callable[[Stage], None]
) -> None:
    case = Case(kind)
    wrong = case.misplace(segment, 2)
    change(case.stage)
    step, piece = 4 * 3, 12 * 3
    is_active = segment == -1  # Its index is never in a file.
    check(case, wrong, offsets_max=step if change is keep and not is_active else piece)


@pytest.mark.parametrize("change", INDEXES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_segment_of_somebody_else_is_not_served(
    kind: str, change: Callable[[Stage], None]
) -> None:
    case = Case(kind)
    wrong = case.misplace_file(1)
    change(case.stage)
    check(case, wrong, offsets_max=wrong[1] - wrong[0] + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_somebody_else_does_not_vouch_for_his_segment(kind: str) -> None:
    """FM-9: segment and index fit each other, and the log has neither."""
    case = Case(kind)
    file, source = case.pairs[0]
    wrong = case.misplace_file(0)
    theirs = bytearray(case.other.files.indexes[source])
    theirs[16:48] = case.stage.files.indexes[file][16:48]  # the identity of ours
    theirs[-8:] = checksum(theirs[:-8])
    case.stage.files.indexes[file] = bytes(theirs)
    check(case, wrong, offsets_max=wrong[1] - wrong[0] + 1)
    assert case.stage.probes.counts["partition.index_damaged"] == 1


def test_a_misplaced_batch_is_noticed_while_the_process_that_wrote_it_runs() -> None:
    """Marks in memory, and batches behind them that memory still holds."""
    made = options(segment_bytes=PLENTY)
    stage, other = Stage(made), Stage(made)
    for number in range(SENDS):
        send(stage, 1, number)
        send(other, 2, number)
        if number == 10:
            stage.forget_memory()
    stage.store()
    other.store()
    assert stage.machine.tail_bytes
    file = SegmentFile(NAMESPACE, REVISION, 0, 0)
    position, batch = batches_of(other, file)[9]
    first = int.from_bytes(batch[8:16], "little")
    good = rows(stage.poll(First()))
    assert len(good) > first + 10
    stage.files.logs[file][position : position + len(batch)] = batch
    refused = [poll_or_range(stage, FromOffset(offset), 1) for offset in range(len(good))]
    for offset, found in enumerate(refused):
        assert isinstance(found, tuple) or found == [good[offset]]
    assert isinstance(refused[first], tuple)


@pytest.mark.parametrize("moved", [(0, 5), (5, 0), (1, 2)])
def test_batches_that_changed_places_inside_a_file_are_not_served(moved: tuple[int, int]) -> None:
    stage = Stage(options())
    for _ in range(SENDS):
        stage.send(2, 50)
    stage.checkpoint()
    stage.restart()
    good = rows(stage.poll(First()))
    stage.restart()
    file = SegmentFile(NAMESPACE, REVISION, 0, 0)
    found = batches_of(stage, file)
    (position, _), (_, batch) = found[moved[0]], found[moved[1]]
    stage.files.logs[file][position : position + len(batch)] = batch
    first = 2 * moved[0]
    for offset in range(len(good)):
        served = poll_or_range(stage, FromOffset(offset), 1)
        assert served == ([good[offset]] if isinstance(served, list) else served)
        assert isinstance(served, tuple) or not first <= offset <= first + 1


def checksum(data: bytes | bytearray) -> bytes:
    return xxh3_64(data).to_bytes(8, "little")
