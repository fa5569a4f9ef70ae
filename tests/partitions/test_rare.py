"""What a partition rarely meets: answers of the disk in a strange order, damage in many places."""

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.gather import NOTHING_POLLED, First, FromOffset, Gathering, Polled
from headrace.partitions.tail import TailBatch
from headrace.ports.segments import ReadIndex, ReadSegment, SyncSegments, WriteSegment
from headrace.wire.batches import decode_batch_header
from headrace.wire.numbers import Operation
from headrace.wire.requests import RequestHeader
from tests.partitions.stage import (
    PLENTY,
    Stage,
    make_options,
    offsets,
    poll_or_range,
    producer_batch,
    rows,
)
from tests.partitions.test_polls import file_of, flip, restarted
from tests.partitions.transfers import offered

BATCH_BYTES = len(producer_batch())


# Numbers of requests.


def test_a_number_far_below_the_latest_is_known_by_its_answer() -> None:
    """A client that has two requests on their way may number them as it likes."""
    stage = Stage()
    high, low = (
        stage.order(Operation.SEND_MESSAGES, bytearray(producer_batch()), client=5, request=number)
        for number in (5000, 1)
    )
    stage.apply(*high)
    stage.apply(*low)
    for number in (5000, 1):
        assert stage.table.is_applied(RequestHeader(client=5, request=number))
    assert not stage.table.is_applied(RequestHeader(client=5, request=4999))


# Answers.


def test_an_answer_may_begin_with_whole_batches_of_the_memory() -> None:
    gathering = Gathering(3, count=10, bytes_max=PLENTY)
    assert gathering.result() is NOTHING_POLLED
    batches = [TailBatch(first, first + 3, 0, producer_batch()) for first in (3, 6)]
    assert gathering.take_tail(batches, 0) == 2
    polled = gathering.result()
    assert (polled.first_offset, polled.last_offset) == (3, 8)


# Damage.


def one_stretch(payload_bytes: int = 100) -> Stage:
    """Return a partition whose batches, of three messages each, are one piece of one file."""
    stage = Stage(make_options(segment_bytes=PLENTY, piece_bytes=PLENTY, index_step_bytes=PLENTY))
    for _ in range(15):
        stage.send(3, 100)
    stage.send(3, payload_bytes)
    stage.forget_memory()
    return stage


def test_what_can_be_read_around_damage_is_served_up_to_a_number_of_damaged_batches() -> None:
    """Where a header is damaged its checksum may be right or wrong: all ways must be tried out."""
    stage = one_stretch()
    file = file_of(stage, 0)
    for count in range(1, 8):
        start = SEGMENT_HEADER_BYTES + (2 * count - 1) * BATCH_BYTES
        batch = stage.files.logs[file][start : start + BATCH_BYTES]
        checksum = decode_batch_header(batch).checksum.to_bytes(8, "little")
        flip(stage, file, start + batch.index(checksum))
        readable = poll_or_range(stage, First(), 3)
        if count < 7:
            assert isinstance(readable, list)
            assert [row.offset for row in readable] == [0, 1, 2]
            assert poll_or_range(stage, FromOffset(4), 3) == (3, 5)
        else:
            assert readable == (0, 47)


def test_another_batch_that_is_shorter_vouches_for_nothing() -> None:
    """A write of another history of the same partition landed here; a rest of the old one stays."""
    stage, other = one_stretch(), one_stretch(payload_bytes=90)
    file = file_of(stage, 0)
    strange = other.files.logs[file]
    held = stage.files.logs[file]
    assert 0 < len(held) - len(strange) < 256
    assert len(rows(stage.poll(First()))) == 48
    held[: len(strange)] = strange
    assert poll_or_range(stage, First(), 48) == (0, 47)


# The order of answers.


def test_an_index_that_was_let_go_of_while_it_was_built_again() -> None:
    stage = restarted()
    first, second = file_of(stage, 0), file_of(stage, 9)
    del stage.files.indexes[first]
    stage.shared.indexes.indexes_max = 1
    stage.is_holding = True
    assert stage.machine.poll(1, FromOffset(5), count=1, bytes_max=PLENTY) is None
    assert stage.step_files()
    [walk] = stage.machine.take_effects()
    assert isinstance(walk, ReadSegment)
    assert stage.machine.poll(2, FromOffset(10), count=1, bytes_max=PLENTY) is None
    [index] = stage.machine.take_effects()
    assert isinstance(index, ReadIndex)
    assert index.file == second
    stage.files.waiting += (index, walk)
    stage.is_holding = False
    stage.settle()
    answers = dict(stage.machine.take_polled())
    assert all(isinstance(each, Polled) for each in answers.values())
    assert [offsets(answers[ticket]) for ticket in (1, 2)] == [[5], [10]]  # type: ignore[arg-type]
    assert stage.probes.counts["partition.index_rebuilt"] == 1
    assert first in stage.files.indexes


def test_two_flushes_under_way_each_stand_for_what_came_before() -> None:
    stage = Stage()
    stage.is_holding = True
    tokens = []
    for _ in range(2):
        stage.send()
        tokens.append(stage.machine.flush())
        stage.check()
    assert tokens[0] != tokens[1]
    stage.is_holding = False
    stage.settle()
    assert all(token is not None and stage.machine.is_flushed(token) for token in tokens)
    assert len(stage.files.durable) == 1


def test_a_sync_that_returns_after_a_write_has_failed_counts_for_nothing() -> None:
    stage = Stage()
    stage.send()
    stage.is_holding = True
    token = stage.machine.flush()
    assert token is not None
    assert stage.step_files()
    stage.send()
    stage.machine.store()
    sync, write = stage.machine.take_effects()
    assert isinstance(sync, SyncSegments)
    assert isinstance(write, WriteSegment)
    stage.files.waiting += (write, sync)
    stage.files.failing = "input/output error"
    assert stage.step_files()
    assert stage.machine.fence == "input/output error"
    stage.files.failing = None
    assert stage.step_files()
    assert not stage.machine.is_flushed(token)
    assert stage.machine.is_lacking


def test_of_two_writes_that_fail_the_first_says_why() -> None:
    stage = Stage(make_options(segment_bytes=1000))
    stage.is_holding = True
    for _ in range(4):
        stage.send()
    ordered = [stage.order(Operation.SEND_MESSAGES, bytearray(producer_batch())) for _ in range(4)]
    stage.machine.store()
    for failing in ("the first", "the second"):
        stage.files.failing = failing
        assert stage.step_files()
    assert stage.machine.fence == "the first"
    assert stage.machine.is_lacking
    segments = stage.machine.segments_count
    for each in ordered:
        stage.apply(*each)
    assert stage.machine.segments_count > segments, "the log goes on without its files"
    assert stage.machine.take_effects() == []


def test_a_partition_whose_file_is_gone_lacks_nothing_that_a_flush_could_give() -> None:
    stage = Stage()
    stage.send()
    stage.checkpoint()
    stage.files.logs.clear()
    stage.restart()
    assert stage.machine.fence is not None
    assert not stage.machine.is_lacking
    assert stage.machine.flush() is None


def test_a_state_that_comes_to_a_fenced_partition_stays_in_the_journal() -> None:
    source, fenced = Stage(), Stage()
    for stage in (source, fenced):
        stage.send()
    fenced.files.failing = "input/output error"
    fenced.machine.store()
    fenced.settle()
    assert fenced.machine.fence == "input/output error"
    for _ in range(10):
        source.send()
    fenced.machine.install(tuple(offered(source, fenced)))
    fenced.check()
    assert fenced.machine.next_offset == source.machine.next_offset
    assert fenced.machine.is_lacking
    assert fenced.machine.writer.waiting_bytes == 0
