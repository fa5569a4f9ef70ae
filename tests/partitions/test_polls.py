"""Polls: every strategy against a simple model, from memory, from files, and from both."""

import struct
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.kernel import verify
from headrace.partitions.gather import (
    NOTHING_POLLED,
    First,
    FromOffset,
    FromTimestamp,
    Last,
    NextAfter,
    Polled,
    PollStart,
)
from headrace.partitions.index import INDEX_STEP_BYTES, SegmentIndex
from headrace.partitions.pieces import Mark
from headrace.partitions.reply_room import READ_BYTES_MAX
from headrace.partitions.tail import BATCH_OBJECTS_BYTES
from headrace.ports.segments import ReadIndex, SegmentFile
from headrace.wire.batches import split_batches
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.requests import RequestHeader
from tests.kernel.samples import Row
from tests.partitions.stage import (
    NAMESPACE,
    PLENTY,
    REVISION,
    START,
    Stage,
    make_options,
    offsets,
    producer_batch,
    rows,
)

FOREVER = 10**18


class ModelBatch(NamedTuple):
    rows: list[Row]
    segment: int  # which one, counted since the beginning


class Model:
    """What a partition should hold: a list of batches, and nothing clever."""

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.batches: list[ModelBatch] = []
        self.next_offset = 0
        self.gaps: list[tuple[int, int]] = []
        self.segment = 0
        self.segment_size = 0

    def send(self, sent: list[Row], size: int) -> None:
        self.batches.append(ModelBatch(sent, self.segment))
        self.next_offset = sent[-1].offset + 1
        self.segment_size += size
        if self.segment_size >= self.segment_bytes:
            self.segment += 1
            self.segment_size = 0

    def lose(self, end: int) -> None:
        self.gaps.append((self.next_offset, end))
        self.next_offset = end
        if self.segment_size:
            self.segment += 1
            self.segment_size = 0

    def trim(self, up_to: int) -> None:
        while self.batches:
            first = self.batches[0].segment
            last = [batch for batch in self.batches if batch.segment == first][-1].rows[-1].offset
            is_sealed = first < self.segment
            if not is_sealed or last > up_to:
                return
            self.batches = [batch for batch in self.batches if batch.segment != first]

    def purge(self) -> None:
        self.batches.clear()
        self.gaps.clear()
        self.next_offset = self.segment_size = 0
        self.segment += 1

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch.rows]

    def poll(self, start: PollStart, count: int) -> list[Row]:
        wanted = 0
        match start:
            case FromOffset(offset=offset):
                wanted = offset
            case First():
                pass
            case Last():
                wanted = self.rows[-1].offset + 1 - count if self.rows else 0
            case NextAfter(stored_offset=stored):
                wanted = 0 if stored is None else stored + 1
            case FromTimestamp(timestamp=timestamp):
                later = [row.offset for row in self.rows if row.timestamp >= timestamp]
                wanted = later[0] if later else FOREVER
        found = [row for row in self.rows if row.offset >= wanted][:count]
        # Up to the first gap.
        return [row for at, row in enumerate(found) if row.offset == found[0].offset + at]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5), st.sampled_from([1, 40, 300, 1200])),
        st.tuples(st.just("send"), st.integers(1, 5), st.sampled_from([1, 40, 300, 1200])),
        st.tuples(st.just("lose"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("purge"), st.just(0), st.just(0)),
        st.tuples(st.just("store"), st.just(0), st.just(0)),
        st.tuples(st.just("forget"), st.just(0), st.just(0)),
        st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


def run(stage: Stage, model: Model, done: list[tuple[str, int, int]]) -> None:
    generation = 0
    for kind, number, size in done:
        if kind == "send":
            offset = stage.send(number, size)
            sent = rows(stage.poll(FromOffset(offset), number))
            assert [row.offset for row in sent] == list(range(offset, offset + number))
            assert offset == model.next_offset
            model.send(sent, len(producer_batch(number, size)))
        elif kind == "lose":
            stage.lose(model.next_offset, model.next_offset + number)
            model.lose(model.next_offset + number)
        elif kind == "trim":
            stage.trim(number)
            model.trim(number)
        elif kind == "purge":
            generation += 1
            stage.purge(generation)
            model.purge()
        else:
            {
                "store": stage.store,
                "forget": stage.forget_memory,
                "checkpoint": stage.checkpoint,
                "restart": stage.restart,
            }[kind]()


def check_against(stage: Stage, model: Model) -> None:
    machine = stage.machine
    assert machine.messages_count == len(model.rows)
    assert machine.next_offset == model.next_offset
    stamps = sorted({row.timestamp for row in model.rows})
    starts: list[PollStart] = [First(), Last(), NextAfter(None), FromTimestamp(0)]
    starts += [FromOffset(offset) for offset in range(0, model.next_offset + 2, 3)]
    starts += [NextAfter(offset) for offset in range(0, model.next_offset + 1, 5)]
    starts += [FromTimestamp(stamp + by) for stamp in stamps[::3] for by in (-1, 0, 1)]
    for start in starts:
        for count in (1, 4, 1000):
            assert rows(stage.poll(start, count)) == model.poll(start, count), (start, count)


@settings(max_examples=30)
@given(steps, st.sampled_from([1, 700, 2500]))
def test_polls_are_what_the_model_says(done: list[tuple[str, int, int]], segment: int) -> None:
    stage = Stage(make_options(segment_bytes=segment, piece_bytes=700))
    model = Model(segment)
    run(stage, model, done)
    check_against(stage, model)
    stage.forget_memory()
    check_against(stage, model)


@pytest.mark.slow
@settings(max_examples=300)
@given(steps, st.sampled_from([1, 700, 2500]), st.sampled_from([0, 1000, 4000]))
def test_polls_with_little_memory(
    done: list[tuple[str, int, int]], segment: int, tail_bytes: int
) -> None:
    stage = Stage(make_options(segment_bytes=segment, piece_bytes=700), tail_bytes_max=tail_bytes)
    model = Model(segment)
    run(stage, model, done)
    check_against(stage, model)
    stage.checkpoint()
    stage.restart()
    stage.files.indexes.clear()
    check_against(stage, model)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=5, max_size=25), st.data())
def test_a_time_is_found_however_many_batches_have_it(
    sends: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """Stamps are equal while the clock stands still; some batches are in files, some in memory."""
    stage = Stage(make_options(segment_bytes=2500, piece_bytes=1000, index_step_bytes=500))
    stored_count = data.draw(st.integers(1, len(sends)))
    for number, (count, is_still) in enumerate(sends, 1):
        stage.now -= 1000 * is_still
        stage.send(count)
        if number == stored_count:
            stage.forget_memory()
    good = rows(stage.poll(First()))
    for time in sorted({row.timestamp + by for row in good for by in (-1, 0, 1)}):
        expected = [row for row in good if row.timestamp >= time]
        assert rows(stage.poll(FromTimestamp(time))) == expected


def test_whole_batches_are_given_as_they_are_stored() -> None:
    stage = Stage()
    for _ in range(4):
        stage.send(3)
    polled = stage.poll(FromOffset(3), 6)
    assert len(polled.parts) == 2
    assert b"".join(polled.parts) == b"".join(body for _, body in stage.journal[1:3])
    cut = stage.poll(FromOffset(4), 4)
    assert offsets(cut) == [4, 5, 6, 7]
    data = b"".join(cut.parts)
    batches = list(split_batches(data))
    assert len(batches) == 2
    for batch in batches:
        verify(batch)


def test_nothing_is_polled_where_nothing_is() -> None:
    stage = Stage()
    starts = (First(), Last(), FromOffset(0), FromTimestamp(0), NextAfter(None))
    for start in starts:
        assert stage.poll(start) == NOTHING_POLLED
    stage.send(3)
    assert stage.poll(First(), 0) == NOTHING_POLLED
    assert stage.poll(FromOffset(3)) == NOTHING_POLLED
    assert stage.poll(FromOffset(2**64 - 1)) == NOTHING_POLLED
    assert stage.poll(NextAfter(2**64 - 1)) == NOTHING_POLLED
    assert stage.poll(FromTimestamp(stage.now + 1)) == NOTHING_POLLED


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_an_answer_has_a_limit_of_bytes(is_in_memory: bool) -> None:
    stage = Stage()
    for _ in range(3):
        stage.send(10, 100)
    length = len(stage.journal[0][1])
    if not is_in_memory:
        stage.forget_memory()
    one = 256 + 48 + 100
    for limit, count in (
        (3 * length, 30),
        (2 * length, 20),
        (2 * length - 1, 10),
        (length, 10),
        (length - 1, 9),
        (one + 148, 2),
        (one, 1),
        (1, 1),  # never nothing: its reader would not get past it
    ):
        polled = stage.poll(First(), bytes_max=limit)
        assert offsets(polled) == list(range(count))
        assert sum(len(part) for part in polled.parts) <= max(limit, one)
    assert offsets(stage.poll(FromOffset(8), bytes_max=length)) == [8, 9]


def test_no_offset_beyond_the_committed_end_is_seen() -> None:
    stage = Stage()
    stage.send(3)
    request = RequestHeader(operation=Operation.SEND_MESSAGES)
    stage.machine.prepare(request, bytearray(producer_batch(5)), stage.now + 1)
    assert stage.machine.prepared_offset == 8
    assert offsets(stage.poll(First())) == [0, 1, 2]
    assert stage.poll(FromOffset(3)) == NOTHING_POLLED


# From files.


def test_small_polls_read_little_and_large_batches_are_read_whole() -> None:
    stage = Stage(make_options(segment_bytes=PLENTY, piece_bytes=PLENTY))
    for _ in range(40):
        stage.send(10, 10_000)
    stage.send(1, 3_000_000)
    stage.forget_memory()
    polled = stage.poll(FromOffset(203), 2)
    assert offsets(polled) == [203, 204]
    assert len(stage.files.reads) <= 2
    assert all(read.length <= 2 * INDEX_STEP_BYTES + 2 * 10_500 for read in stage.files.reads)
    stage.files.reads.clear()
    assert offsets(stage.poll(FromOffset(400))) == [400]
    assert [read.length for read in stage.files.reads][-1] > 3_000_000
    stage.files.reads.clear()
    assert len(offsets(stage.poll(First(), 400))) == 400
    longest = max(read.length for read in stage.files.reads)
    assert 10 * 100_000 <= longest <= READ_BYTES_MAX


def test_an_index_of_small_steps_leads_to_the_batch_before() -> None:
    stage = Stage(make_options(segment_bytes=PLENTY, piece_bytes=PLENTY, index_step_bytes=500))
    for _ in range(60):
        stage.send(2)
    stage.forget_memory()
    for offset in (0, 59, 60, 119):
        stage.files.reads.clear()
        assert offsets(stage.poll(FromOffset(offset), 1)) == [offset]
        assert all(read.length < 2_000 for read in stage.files.reads)


def test_a_poll_goes_from_files_into_memory() -> None:
    stage = Stage(make_options(segment_bytes=1500), tail_bytes_max=1200)
    for _ in range(9):
        stage.send(3)
        stage.store()
    assert 0 < stage.machine.tail_bytes <= 1200
    assert offsets(stage.poll(First())) == list(range(27))
    assert offsets(stage.poll(FromTimestamp(START))) == list(range(27))
    last = stage.files.reads[-1].file
    assert last.base_offset < 27 - 3


def test_what_is_not_written_never_leaves_memory() -> None:
    stage = Stage(tail_bytes_max=0)
    for _ in range(5):
        stage.send(3)
    waiting = stage.machine.writer.waiting_bytes - SEGMENT_HEADER_BYTES
    assert stage.machine.tail_bytes == waiting + 5 * BATCH_OBJECTS_BYTES
    assert offsets(stage.poll(First())) == list(range(15))
    stage.store()
    assert stage.machine.tail_bytes == 0
    assert offsets(stage.poll(First())) == list(range(15))


def test_several_polls_at_once_each_get_their_answer() -> None:
    stage = Stage(make_options(segment_bytes=2000))
    for _ in range(12):
        stage.send(3)
    stage.checkpoint()
    stage.restart()
    stage.forget_memory()
    stage.files.indexes.clear()
    machine = stage.machine
    for ticket in range(30):
        assert machine.poll(ticket, FromOffset(ticket), count=3, bytes_max=PLENTY) is None
    stage.settle()
    answers = dict(machine.take_polled())
    assert len(answers) == 30
    for ticket, answer in answers.items():
        assert isinstance(answer, Polled)
        assert offsets(answer) == [ticket, ticket + 1, ticket + 2]
    assert machine.take_polled() == []


def begun_poll(stage: Stage) -> None:
    assert stage.machine.poll(1, First(), count=5, bytes_max=PLENTY) is None
    stage.files.waiting.extend(stage.machine.take_effects())


def ended_poll(stage: Stage) -> Polled:
    stage.settle()
    [(ticket, answer)] = stage.machine.take_polled()
    assert ticket == 1
    assert isinstance(answer, Polled)
    return answer


def on_disk() -> Stage:
    stage = Stage(make_options(segment_bytes=1500))
    for _ in range(12):
        stage.send(3)
    stage.forget_memory()
    return stage


def test_retention_overtakes_a_poll() -> None:
    stage = on_disk()
    begun_poll(stage)
    stage.trim(20)
    assert stage.machine.first_offset > 3
    assert ended_poll(stage).first_offset == stage.machine.first_offset
    assert stage.probes.counts["partition.read_overtaken"] == 1


def test_a_purge_overtakes_a_poll() -> None:
    stage = on_disk()
    begun_poll(stage)
    stage.purge(1)
    stage.send(1)
    assert offsets(ended_poll(stage)) == [0]


def long_disk_poll() -> Stage:
    """A poll that has read one stretch and waits for the next."""
    stage = Stage(make_options(segment_bytes=700_000))
    for _ in range(60):
        stage.send(3, 20_000)
    stage.forget_memory()
    machine = stage.machine
    assert machine.poll(1, First(), count=150, bytes_max=PLENTY) is None
    for _ in range(2):
        assert stage.step_files()
    stage.files.waiting.extend(machine.take_effects())
    assert stage.files.waiting
    assert machine.take_polled() == []
    return stage


def test_a_poll_that_is_overtaken_gives_what_it_has() -> None:
    stage = long_disk_poll()
    stage.trim(10**9)
    found = offsets(ended_poll(stage))
    assert found == list(range(len(found)))
    assert 0 < len(found) < 150


def test_a_poll_that_is_overtaken_again_and_again_is_refused() -> None:
    stage = Stage(make_options(segment_bytes=1500))
    for _ in range(24):
        stage.send(3)
    stage.forget_memory()
    begun_poll(stage)
    for _ in range(5):
        assert stage.machine.take_polled() == []
        stage.trim(stage.machine.first_offset + 8)
        assert stage.step_files()
    [(ticket, answer)] = stage.machine.take_polled()
    assert ticket == 1
    assert isinstance(answer, RefusedError)
    assert answer.code == Code.CANNOT_READ_MESSAGE


def test_polls_wait_for_the_files_to_be_open() -> None:
    stage = Stage(is_open=False)
    stage.send(2)
    assert offsets(stage.poll(First())) == [0, 1]  # from memory
    stage.checkpoint_unopened()
    with pytest.raises(RefusedError) as error:
        stage.poll(First())
    assert error.value.code == Code.TRANSIENT_NOT_ACCEPTED


# Damage.


def flip(stage: Stage, file: SegmentFile, position: int) -> None:
    stage.files.logs[file][position] ^= 0x10


def file_of(stage: Stage, base_offset: int) -> SegmentFile:
    return SegmentFile(NAMESPACE, REVISION, stage.machine.history_epoch, base_offset)


def expect_damage(stage: Stage, start: PollStart) -> None:
    with pytest.raises(RefusedError) as error:
        stage.poll(start)
    assert error.value.code == Code.CANNOT_READ_MESSAGE


def polled_or_nothing(stage: Stage) -> Polled:
    try:
        return stage.poll(First())
    except RefusedError as error:
        if error.code != Code.CANNOT_READ_MESSAGE:
            raise
        return NOTHING_POLLED


def test_damage_behind_a_good_beginning_cuts_the_answer() -> None:
    """P6: right bytes or an error, never wrong ones."""
    stage = on_disk()
    length = len(producer_batch(3))
    flip(stage, file_of(stage, 0), SEGMENT_HEADER_BYTES + length + 300)
    assert offsets(stage.poll(First())) == [0, 1, 2]
    assert stage.probes.counts["partition.read_cut_short"] == 1
    expect_damage(stage, FromOffset(3))
    expect_damage(stage, FromOffset(5))
    assert stage.probes.counts["partition.read_damaged"] == 2
    assert offsets(stage.poll(FromOffset(6)))[:4] == [6, 7, 8, 9]
    assert stage.machine.fence is None


def test_every_flipped_byte_of_a_file_is_noticed() -> None:
    """DK10: each byte of two small batches, header and body."""
    stage = Stage(make_options(segment_bytes=900))
    for _ in range(4):
        stage.send(1, 8)
    stage.forget_memory()
    file = file_of(stage, 0)
    size = len(stage.files.logs[file])
    good = rows(stage.poll(First()))
    for position in range(SEGMENT_HEADER_BYTES, size):
        flip(stage, file, position)
        seen = rows(polled_or_nothing(stage))
        assert seen == good[: len(seen)]
        assert len(seen) < 3
        flip(stage, file, position)
    assert rows(stage.poll(First())) == good


def test_a_file_cut_short_is_noticed() -> None:
    """DK11."""
    stage = on_disk()
    file = file_of(stage, 0)
    whole = bytes(stage.files.logs[file])
    for length in (0, 100, 4096, 4097, 4096 + 255, 4096 + 256, len(whole) - 1):
        stage.files.logs[file] = bytearray(whole[:length])
        seen = offsets(polled_or_nothing(stage))
        assert seen == list(range(len(seen)))
        assert len(seen) < 9


def test_a_file_that_cannot_be_read_fails_that_read_alone() -> None:
    """DK3."""
    stage = on_disk()
    stage.files.reads_fail = True
    with pytest.raises(RefusedError) as error:
        stage.poll(First())
    facts = error.value.facts
    assert (error.value.code, facts["what"]) == (Code.CANNOT_READ_MESSAGE, "the disk gave an error")
    assert (facts["first_offset"], facts["last_offset"]) == (0, 8)  # one step of the index
    stage.files.reads_fail = False
    assert len(offsets(stage.poll(First()))) == 36


def test_batches_of_another_partition_are_refused() -> None:
    """A misdirected write: right-looking bytes at the wrong place."""
    stage = on_disk()
    other = Stage(make_options(segment_bytes=1500, namespace=type(NAMESPACE)(NAMESPACE + 1)))
    for _ in range(12):
        other.send(3)
    other.store()
    [source] = [file for file in other.files.logs if file.base_offset == 0]
    stage.files.logs[file_of(stage, 0)] = other.files.logs[source]
    expect_damage(stage, First())


# The index.


def restarted() -> Stage:
    stage = on_disk()
    stage.checkpoint()
    stage.restart()
    return stage


def test_an_index_file_is_used_and_held() -> None:
    stage = restarted()
    assert offsets(stage.poll(FromOffset(5), 1)) == [5]
    assert stage.probes.counts == {}
    assert len(stage.files.reads) == 1


@pytest.mark.parametrize("fault", ["missing", "cut", "flipped", "of another file", "empty"])
def test_an_index_of_no_use_is_built_again(fault: str) -> None:
    """DK9, DK14: it is derived, and never evidence."""
    stage = restarted()
    file = file_of(stage, 0)
    data = stage.files.indexes[file]
    if fault == "missing":
        del stage.files.indexes[file]
    else:
        stage.files.indexes[file] = {
            "cut": data[:-1],
            "flipped": data[:70] + bytes([data[70] ^ 1]) + data[71:],
            "of another file": stage.files.indexes[file_of(stage, 9)],
            "empty": b"",
        }[fault]
    assert offsets(stage.poll(FromOffset(5), 1)) == [5]
    kind = "missing" if fault == "missing" else "damaged"
    assert stage.probes.counts == {f"partition.index_{kind}": 1, "partition.index_rebuilt": 1}
    assert stage.files.indexes[file] == data
    stage.restart()
    assert offsets(stage.poll(FromOffset(5), 1)) == [5]
    assert stage.probes.counts == {}


def long_segments() -> Stage:
    stage = Stage(make_options(segment_bytes=400_000, piece_bytes=PLENTY))
    for _ in range(50):
        stage.send(3, 10_000)
    stage.checkpoint()
    stage.restart()
    stage.forget_memory()
    return stage


def test_an_index_that_disagrees_with_the_log_is_replaced() -> None:
    """FM-9: right in itself, and of this segment, but not what the log vouches for."""
    stage = long_segments()
    file = file_of(stage, 0)
    honest = stage.files.indexes[file]
    lying = SegmentIndex([])
    lying.note(0, Mark(0, START, 4096, 0), is_marked=True)
    lying.note(0, Mark(4, START + 1, 4096 + 70_000, 5), is_marked=True)
    stage.files.indexes[file] = lying.encode(file, len(stage.files.logs[file]))
    for start, first in ((FromOffset(8), 8), (FromTimestamp(START + 2001), 6)):
        assert stage.poll(start, 1).first_offset == first
    assert stage.probes.counts["partition.index_damaged"] == 1
    assert stage.files.indexes[file] == honest


def test_damage_where_an_index_points_costs_that_batch_alone() -> None:
    stage = long_segments()
    file = file_of(stage, 0)
    honest = stage.files.indexes[file]
    first, _, position, _ = struct.unpack_from("<4Q", honest, 56 + 32)
    assert first > 0
    flip(stage, file, position + 8)  # the base offset in a header that the index points at
    for _ in range(3):
        with pytest.raises(RefusedError) as error:
            stage.poll(FromOffset(first + 1))
        facts = error.value.facts
        assert (facts["first_offset"], facts["last_offset"]) == (first, first + 2)
    assert offsets(stage.poll(First())) == list(range(first))
    assert stage.poll(FromOffset(first + 3), 1).first_offset == first + 3
    assert stage.files.indexes[file] == honest


def test_the_active_segment_is_walked_after_a_restart() -> None:
    stage = Stage(make_options(segment_bytes=PLENTY, piece_bytes=PLENTY))
    for _ in range(60):
        stage.send(3, 10_000)
    stage.checkpoint()
    for _ in range(60):
        stage.send(3, 10_000)
    stage.restart()
    stage.forget_memory()
    assert stage.poll(FromOffset(300), 1).first_offset == 300  # noted when it was applied again
    assert len(stage.files.reads) <= 2
    assert stage.poll(FromTimestamp(START + 30 * 1000), 1).first_offset == 87
    assert stage.poll(FromOffset(179), 5).first_offset == 179
    assert offsets(stage.poll(FromOffset(179), 3)) == [179, 180, 181]
    before = len(stage.files.reads)
    assert stage.poll(FromOffset(100), 1).first_offset == 100
    assert len(stage.files.reads) - before == 1


def test_a_long_segment_is_walked_stretch_by_stretch() -> None:
    stage = Stage(make_options(segment_bytes=3_000_000, piece_bytes=PLENTY))
    for _ in range(120):
        stage.send(3, 10_000)
    stage.checkpoint()
    stage.restart()
    file = file_of(stage, 0)
    honest = stage.files.indexes.pop(file)
    assert stage.poll(FromOffset(290), 2).first_offset == 290
    walked = [read.position for read in stage.files.reads]
    assert len(walked) >= 4
    assert walked[:3] == sorted(walked[:3])
    assert file in stage.files.indexes or stage.machine._log.segments[0].index is not None
    assert stage.poll(FromTimestamp(START + 100 * 1000), 1).first_offset == 297
    assert stage.files.indexes[file] == honest


def test_a_time_is_looked_up_in_all_parts_of_an_active_segment() -> None:
    """Walked after a restart, applied since and stored, applied since and only in memory."""
    stage = Stage(make_options(segment_bytes=PLENTY))
    for _ in range(30):
        stage.send(2, 10_000)
    stage.checkpoint()
    for _ in range(30):
        stage.send(2, 10_000)
    stage.restart()
    stage.forget_memory()
    for _ in range(30):
        stage.send(2, 10_000)
    for batch in (59, 31, 30, 29, 3, 0, 60, 89):
        for by, expected in ((0, 2 * batch), (1, 2 * batch + 2)):
            polled = stage.poll(FromTimestamp(START + 1000 * (batch + 1) + by), 1)
            if expected == 180:
                assert polled == NOTHING_POLLED
            else:
                assert polled.first_offset == expected


def test_a_time_between_what_is_stored_and_what_is_not() -> None:
    """The files have only what is older, and no index says so."""
    stage = Stage(make_options(segment_bytes=PLENTY))
    for _ in range(10):
        stage.send(2)
    stage.forget_memory()
    stage.send(2)
    [segment] = stage.machine._log.segments
    segment.index = SegmentIndex(segment.pieces)
    assert stage.poll(FromTimestamp(stage.now)).first_offset == 20
    assert stage.poll(FromTimestamp(stage.now - 1)).first_offset == 20


def test_a_damaged_time_is_noticed() -> None:
    """The search for a time believes verified batches only (P6)."""
    stage = on_disk()
    file = file_of(stage, 0)
    length = len(producer_batch(3))
    position = SEGMENT_HEADER_BYTES + length + 16
    flip(stage, file, position)
    expect_damage(stage, FromTimestamp(START + 2000))
    assert stage.poll(FromTimestamp(START + 1000)).last_offset == 2
    flip(stage, file, position)
    assert stage.poll(FromTimestamp(START + 2000)).first_offset == 3


def test_an_index_that_is_read_for_a_poll_that_ends_is_held_too() -> None:
    """Room for replies becomes short while a poll waits for the index of its second segment."""
    stage = on_disk()
    for segment in stage.machine._log.sealed():
        stage.shared.indexes.forget(segment)
    stage.is_holding = True
    stage.ticket += 1
    assert stage.machine.poll(stage.ticket, First(), count=36, bytes_max=PLENTY) is None
    for _ in range(2):  # the index and the batches of the first segment
        assert stage.step_files()
    [effect] = stage.machine.take_effects()
    assert isinstance(effect, ReadIndex)
    stage.files.waiting.append(effect)
    stage.shared.replies.send(stage.shared.replies.bytes_max)
    assert stage.shared.replies.is_scarce
    assert stage.step_files()
    [(_, polled)] = stage.machine.take_polled()
    assert isinstance(polled, Polled)
    assert offsets(polled) == list(range(stage.machine._log.segments[1].base_offset))


def test_few_indexes_are_held() -> None:
    stage = on_disk()
    for segment in stage.machine._log.sealed():
        stage.shared.indexes.forget(segment)
    stage.shared.indexes.indexes_max = 2
    for offset in range(36):
        assert stage.poll(FromOffset(offset), 1).first_offset == offset
    sealed = [segment for segment in stage.machine._log.segments if segment.index is not None]
    assert len(sealed) == 2
