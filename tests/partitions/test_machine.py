"""Ops of a partition: what each changes, and what it answers."""

from typing import TYPE_CHECKING

import pytest

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.kernel import verify
from headrace.partitions.gather import First, FromOffset
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.offsets import ConsumerOffsets, StoredMark
from headrace.partitions.options import AheadPolicy
from headrace.partitions.shared import PartitionsShared
from headrace.partitions.tail import BATCH_OBJECTS_BYTES
from headrace.ports.probes import Probes
from headrace.wire.batches import decode_batch_header
from headrace.wire.codec import decode, encode
from headrace.wire.commands.internal import (
    LOST_RANGE,
    OFFSET_MARK,
    PURGE_PARTITION,
    TRIM_UP_TO,
    LostRange,
    OffsetMark,
    PurgePartition,
    TrimUpTo,
)
from headrace.wire.commands.messages import SEND_MESSAGES, Confirmation
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.replica.artifacts import ArtifactKind
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection
from headrace.wire.requests import RequestHeader
from tests.partitions.stage import (
    CONSUMER,
    GROUP,
    START,
    Stage,
    make_options,
    offsets,
    producer_batch,
)

if TYPE_CHECKING:
    from headrace.ports.machine import RequestTable, StateMachine

SEND = RequestHeader(operation=Operation.SEND_MESSAGES)


def code_of(error: pytest.ExceptionInfo[RefusedError]) -> Code:
    return error.value.code


def test_it_keeps_the_contracts() -> None:
    stage = Stage()
    machine: StateMachine = stage.machine
    table: RequestTable = stage.table
    assert machine.state_hash() == 0
    assert not table.is_lockstep


def test_a_send_is_stamped_and_confirmed() -> None:
    stage = Stage()
    batch = bytearray(producer_batch(3))
    body = stage.machine.prepare(SEND, batch, START)
    assert body is batch
    verify(batch)
    header = decode_batch_header(batch)
    assert (header.partition_id, header.base_offset, header.base_timestamp) == (5, 0, START)
    reply = stage.machine.apply(PrepareHeader(op=1, operation=160, timestamp=START), body)
    assert decode(SEND_MESSAGES.reply, reply) == (Confirmation(3, 2, 5, 0),)
    assert stage.machine.next_offset == 3
    assert stage.send() == 3


def test_a_buffer_that_cannot_be_written_is_copied() -> None:
    stage = Stage()
    batch = producer_batch()
    body = stage.machine.prepare(SEND, memoryview(batch), START)
    assert batch == producer_batch()
    assert decode_batch_header(body).base_timestamp == START


def test_offsets_follow_what_is_prepared_not_what_is_applied() -> None:
    machine = Stage().machine
    bodies = [machine.prepare(SEND, bytearray(producer_batch(2)), START + op) for op in range(3)]
    assert [decode_batch_header(body).base_offset for body in bodies] == [0, 2, 4]
    assert (machine.next_offset, machine.prepared_offset) == (0, 6)
    for op, body in enumerate(bodies):
        machine.apply(PrepareHeader(op=op + 1, operation=160), body)
    assert (machine.next_offset, machine.prepared_offset) == (6, 6)


def test_a_damaged_batch_is_refused_and_takes_no_offset() -> None:
    machine = Stage().machine
    damaged = bytearray(producer_batch())
    damaged[-1] ^= 1
    before = bytes(damaged)
    with pytest.raises(RefusedError) as error:
        machine.prepare(SEND, damaged, START)
    assert code_of(error) == Code.INVALID_MESSAGE_CHECKSUM
    assert damaged == before
    with pytest.raises(RefusedError):
        machine.prepare(SEND, bytearray(b"short"), START)
    assert machine.prepared_offset == 0


def test_stamps_never_fall() -> None:
    stage = Stage()
    stage.send()
    late = stage.machine.prepare(SEND, bytearray(producer_batch()), 5)
    assert decode_batch_header(late).base_timestamp == stage.now


def test_a_new_primary_foresees_what_it_adopted() -> None:
    stage = Stage()
    stage.send(4)
    other = Stage()
    other.apply(*stage.journal[0])
    bodies = [
        other.machine.prepare(SEND, bytearray(producer_batch(2)), START * 2 + op) for op in range(2)
    ]
    send = PrepareHeader(operation=Operation.SEND_MESSAGES)
    purge = PrepareHeader(operation=Operation.PURGE_PARTITION)
    lost = PrepareHeader(operation=Operation.LOST_RANGE)
    machine = stage.machine
    machine.foresee([(send, bodies[0]), (send, bodies[1])])
    assert machine.prepared_offset == 8
    machine.foresee([(send, bodies[0])])
    assert machine.prepared_offset == 6
    machine.foresee([(send, bodies[0]), (lost, encode(LOST_RANGE, LostRange(6, 100)))])
    assert machine.prepared_offset == 100
    machine.foresee([(send, bodies[0]), (purge, encode(PURGE_PARTITION, PurgePartition(1)))])
    assert machine.prepared_offset == 0
    machine.foresee([])
    assert machine.prepared_offset == 4
    trim = PrepareHeader(operation=Operation.DELETE_SEGMENTS)
    machine.foresee([(send, bodies[0]), (trim, encode(TRIM_UP_TO, TrimUpTo(2)))])
    assert machine.prepared_offset == 6
    machine.foresee([(send, b"")])  # Its body is damaged here, and so it is not applied here.
    assert machine.prepared_offset == 4
    machine.foresee([(send, bodies[0]), (send, bodies[0])])  # The second follows nothing.
    assert machine.prepared_offset == 6


def test_every_op_changes_the_hash_of_the_state() -> None:
    """Also one that changes nothing else: replicas with equal hashes have applied the same ops."""
    stage = Stage()
    ops = (
        lambda: stage.send(2),
        lambda: stage.store_offset(1, 1),
        lambda: stage.auto_commit(2, 0),
        lambda: stage.delete_offset(1),
        lambda: stage.forget_groups(7),
        lambda: stage.trim(0),
        stage.retain,
        lambda: stage.lose(2, 5),
        lambda: stage.purge(1),
    )
    hashes = {stage.machine.state_hash(): None}
    for op in ops:
        op()
        hashes[stage.machine.state_hash()] = None
    assert len(hashes) == len(ops) + 1


def test_a_partition_that_is_closed_holds_no_index() -> None:
    stage = Stage(make_options(segment_bytes=1000))
    for _ in range(12):
        stage.send(3)
    segments = stage.machine._log.segments
    assert any(map(stage.shared.indexes.holds, segments))
    stage.machine.close()
    assert not any(map(stage.shared.indexes.holds, segments))


def test_an_empty_partition() -> None:
    machine = Stage().machine
    assert (machine.current_offset, machine.first_offset, machine.next_offset) == (0, 0, 0)
    assert (machine.messages_count, machine.size_bytes, machine.segments_count) == (0, 0, 1)
    assert machine.sealed_end(3) is None
    assert machine.oldest_sealed_stamp is None
    assert machine.stored_offset(CONSUMER, 1) is None


def test_a_segment_is_sealed_by_the_batch_that_reaches_its_size() -> None:
    length = len(producer_batch(3))
    stage = Stage(make_options(segment_bytes=2 * length))
    stage.send()
    assert (stage.machine.segments_count, stage.machine.oldest_sealed_stamp) == (1, None)
    stage.send()  # exactly at the size
    assert stage.machine.segments_count == 2
    assert stage.machine.oldest_sealed_stamp is not None
    stage.send()
    assert stage.machine.segments_count == 2
    stage.send(30)  # crosses it, and stays whole
    stage.store()
    found = {file.base_offset: len(data) for file, data in stage.files.logs.items()}
    assert found == {
        0: SEGMENT_HEADER_BYTES + 2 * length,
        6: SEGMENT_HEADER_BYTES + length + len(producer_batch(30)),
    }


@pytest.mark.parametrize("step", [1, 2, 7])
def test_files_do_not_depend_on_how_commits_were_grouped(step: int) -> None:
    """PT-12."""
    alone, grouped = Stage(), Stage()
    for number in range(21):
        alone.send(1 + number % 4)
        alone.store()
        grouped.send(1 + number % 4)
        if number % step == 0:
            grouped.store()
    grouped.store()
    assert grouped.files.logs == alone.files.logs
    assert grouped.files.indexes == alone.files.indexes
    assert grouped.machine.export() == alone.machine.export()
    assert grouped.machine.state_hash() == alone.machine.state_hash()


def test_batches_of_one_file_are_one_write() -> None:
    stage = Stage()
    for _ in range(4):
        stage.send()
    stage.machine.store()
    [write] = stage.machine.take_effects()
    assert type(write).__name__ == "WriteSegment"
    assert len(getattr(write, "parts", ())) == 5  # the header block and four batches
    assert stage.machine.writer.waiting_bytes == 0


# Consumer offsets.


def test_offsets_are_stored_rewound_and_deleted() -> None:
    stage = Stage()
    stage.send(5)
    assert stage.store_offset(1, 4) == RESULT_OK
    assert stage.machine.stored_offset(CONSUMER, 1) == 4
    assert stage.store_offset(1, 2) == RESULT_OK
    assert stage.machine.stored_offset(CONSUMER, 1) == 2
    assert stage.machine.stored_offset(GROUP, 1) is None
    assert stage.delete_offset(1) == RESULT_OK
    assert stage.machine.stored_offset(CONSUMER, 1) is None


def test_an_auto_commit_never_moves_back() -> None:
    stage = Stage()
    stage.send(5)
    for offset, stored in ((3, 3), (1, 3), (4, 4), (9, 4)):
        assert stage.auto_commit(1, offset, GROUP) == b""
        assert stage.machine.stored_offset(GROUP, 1) == stored


def test_offsets_beyond_the_end_are_refused_by_the_log() -> None:
    """A primary that was deposed would refuse one of a message that was sent since."""
    stage = Stage()
    assert stage.store_offset(1, 0) == encode_rejection(Code.INVALID_OFFSET)
    stage.send(2)
    assert stage.store_offset(1, 2) == encode_rejection(Code.INVALID_OFFSET)
    assert stage.machine.stored_offset(CONSUMER, 1) is None
    assert stage.op == 3


def test_that_there_is_no_offset_is_said_by_the_log() -> None:
    """H10: a primary that was deposed would say so of one that was stored since."""
    stage = Stage()
    stage.send(1)
    assert stage.delete_offset(1) == encode_rejection(Code.CONSUMER_OFFSET_NOT_FOUND)
    assert stage.op == 2


def test_what_was_true_when_prepared_may_be_rejected_when_applied() -> None:
    """The op has its place in the log, so the refusal is a committed one."""
    stage = Stage()
    stage.send(2)
    stage.store_offset(1, 1)
    machine = stage.machine
    delete = stage.journal[-1][0].__class__(operation=Operation.DELETE_CONSUMER_OFFSET)
    body = encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 0))[:5]
    assert machine.apply(delete, body) == RESULT_OK
    assert machine.apply(delete, body) == encode_rejection(Code.CONSUMER_OFFSET_NOT_FOUND)
    store = PrepareHeader(operation=Operation.STORE_CONSUMER_OFFSET)
    body = encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 7))
    assert machine.apply(store, body) == encode_rejection(Code.INVALID_OFFSET)


def test_there_is_a_limit_of_offsets() -> None:
    stage = Stage(make_options(offsets_max=2))
    stage.send(3)
    stage.store_offset(1, 0)
    stage.store_offset(2, 0)
    limit_reached = encode_rejection(Code.CONSUMER_OFFSET_LIMIT_REACHED)
    assert stage.store_offset(3, 0) == limit_reached
    stage.auto_commit(3, 1)
    assert stage.machine.stored_offset(CONSUMER, 3) is None
    assert stage.store_offset(2, 1) == RESULT_OK


def test_offsets_of_deleted_groups_are_forgotten() -> None:
    stage = Stage()
    stage.send(3)
    for group in (3, 1, 2):
        stage.store_offset(group, 1, GROUP)
    stage.store_offset(1, 1)
    assert stage.machine.stored_group_ids() == [1, 2, 3]
    assert stage.forget_groups(1, 3, 9) == b""
    assert [stage.machine.stored_offset(GROUP, group) for group in (1, 2, 3)] == [None, 1, None]
    assert stage.machine.stored_offset(CONSUMER, 1) == 1


def ahead_of_data(policy: AheadPolicy) -> Stage:
    """A checkpoint whose offsets reach further than its data."""
    options = make_options(offsets_ahead=policy)
    stage = Stage(options)
    stage.send(10)
    stage.store_offset(1, 9)
    stage.store_offset(2, 3)
    stage.store()
    machine = stage.machine
    machine._log.next_offset = 5  # what no op does, and a lost write might
    machine._log.segments[-1].end_offset = 5
    machine._artifact = None
    stage.saved = (stage.op, machine.checkpoint(), b"")
    stage.restart()
    return stage


def test_an_offset_ahead_of_the_data_is_an_error_until_it_is_stored_anew() -> None:
    """PT-20: never clamped in silence, and not forgotten by the next restart either."""
    stage = ahead_of_data(AheadPolicy.FAIL)
    for _ in range(2):
        assert stage.probes.counts["partition.offset_ahead"] == 1
        with pytest.raises(RefusedError) as error:
            stage.machine.stored_offset(CONSUMER, 1)
        assert code_of(error) == Code.INVALID_OFFSET
        assert stage.machine.peek_offset(CONSUMER, 1) == 9
        assert stage.machine.stored_offset(CONSUMER, 2) == 3
        stage.checkpoint()
        stage.restart()
    stage.store_offset(1, 4)
    assert stage.machine.stored_offset(CONSUMER, 1) == 4


@pytest.mark.parametrize("is_purged", [False, True])
def test_an_offset_ahead_is_forgotten_with_its_store(*, is_purged: bool) -> None:
    stage = ahead_of_data(AheadPolicy.FAIL)
    with pytest.raises(RefusedError):
        stage.machine.stored_offset(CONSUMER, 1)
    if is_purged:
        stage.purge(1)
    else:
        stage.delete_offset(1)
    assert stage.machine.stored_offset(CONSUMER, 1) is None
    assert stage.machine.stored_offset(CONSUMER, 2) == (None if is_purged else 3)


def test_an_offset_ahead_stays_an_error_when_the_data_grows_past_it() -> None:
    stage = ahead_of_data(AheadPolicy.FAIL)
    stage.send(20)
    stage.checkpoint()
    stage.restart()
    with pytest.raises(RefusedError):
        stage.machine.stored_offset(CONSUMER, 1)
    stage.delete_offset(1)
    assert stage.machine.stored_offset(CONSUMER, 1) is None


def test_an_offset_ahead_is_clamped_where_that_was_chosen() -> None:
    stage = ahead_of_data(AheadPolicy.CLAMP)
    assert stage.probes.counts["partition.offset_ahead"] == 1
    assert stage.machine.stored_offset(CONSUMER, 1) == 4


def test_an_offset_ahead_of_no_data_at_all_is_dropped_by_the_clamp() -> None:
    stored = ConsumerOffsets(8)
    mark = StoredMark(CONSUMER, 1, 3, is_ahead=False)
    assert stored.restore([mark], next_offset=0, policy=AheadPolicy.CLAMP) == 1
    assert stored.find(CONSUMER, 1) is None
    assert stored.restore([mark], next_offset=0, policy=AheadPolicy.FAIL) == 1
    assert stored.peek(CONSUMER, 1) == 3


# Trimming, retention, purge, lost ranges.


def filled(segments: int = 4) -> Stage:
    """Segments of three batches of three messages each, and an active one with one batch."""
    stage = Stage(make_options(segment_bytes=3 * len(producer_batch(3))))
    for _ in range(3 * segments + 1):
        stage.send(3)
    return stage


def test_segments_are_trimmed_up_to_an_offset() -> None:
    stage = filled()
    assert [stage.machine.sealed_end(count) for count in (0, 1, 2, 99)] == [None, 8, 17, 35]
    assert stage.trim(17) == b""
    assert (stage.machine.first_offset, stage.machine.segments_count) == (18, 3)
    assert stage.machine.messages_count == 21
    stage.trim(17)
    stage.trim(25)  # within a segment: it stays
    assert stage.machine.first_offset == 18
    stage.trim(10**9)
    assert (stage.machine.first_offset, stage.machine.messages_count) == (36, 3)
    assert offsets(stage.poll(First())) == [36, 37, 38]


def test_trimming_stops_at_the_slowest_consumer() -> None:
    """PT-27."""
    stage = filled()
    stage.store_offset(1, 16)
    stage.store_offset(7, 30, GROUP)
    stage.trim(35)
    assert stage.machine.first_offset == 9
    stage.store_offset(1, 17)
    stage.trim(35)
    assert stage.machine.first_offset == 18


def test_retention_drops_what_is_stamped_up_to_the_ops_time() -> None:
    """PT-28, O3.4: the newest stamp of each segment decides."""
    stage = filled()
    stamp = stage.machine.oldest_sealed_stamp
    assert stamp == START + 3000
    stage.retain(stamp_max=stamp - 1)
    assert stage.machine.first_offset == 0
    stage.retain(stamp_max=stamp)
    assert stage.machine.first_offset == 9
    stage.retain(stamp_max=stage.now)
    assert (stage.machine.first_offset, stage.machine.segments_count) == (36, 1)


def test_retention_keeps_sealed_bytes_below_a_limit() -> None:
    stage = filled()
    size = 3 * len(producer_batch(3))
    stage.retain(bytes_max=4 * size)
    assert stage.machine.first_offset == 0
    stage.retain(bytes_max=4 * size - 1)
    assert stage.machine.first_offset == 9
    stage.retain(bytes_max=1)
    assert (stage.machine.first_offset, stage.machine.oldest_sealed_stamp) == (36, None)
    stage.retain()
    assert stage.machine.first_offset == 36


def test_everything_may_be_trimmed_and_offsets_go_on() -> None:
    stage = Stage(make_options(segment_bytes=1))
    stage.send(3)
    stage.trim(2)
    machine = stage.machine
    assert (machine.first_offset, machine.next_offset, machine.current_offset) == (3, 3, 2)
    assert stage.poll(First()).messages_count == 0
    assert stage.send(2) == 3
    assert offsets(stage.poll(First())) == [3, 4]


def test_a_purge_begins_a_new_history() -> None:
    stage = filled()
    stage.store_offset(1, 3)
    assert stage.purge(4) == b""
    machine = stage.machine
    assert (machine.history_epoch, machine.purge_generation) == (1, 4)
    assert (machine.first_offset, machine.next_offset, machine.messages_count) == (0, 0, 0)
    assert machine.stored_offset(CONSUMER, 1) is None
    assert stage.poll(First()).messages_count == 0
    stage.purge(4)
    stage.purge(3)
    assert machine.history_epoch == 1
    assert stage.send(2) == 0
    assert offsets(stage.poll(First())) == [0, 1]


def test_an_offset_of_the_old_history_does_not_enter_the_new_one() -> None:
    stage = filled()
    machine = stage.machine
    own = RequestHeader(operation=Operation.PURGE_PARTITION)
    machine.prepare(own, encode(PURGE_PARTITION, PurgePartition(1)), START)
    for operation in (Operation.AUTO_COMMIT_OFFSET, Operation.STORE_CONSUMER_OFFSET):
        with pytest.raises(RefusedError) as error:
            machine.prepare(
                RequestHeader(operation=operation),
                encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 3)),
                START,
            )
        assert code_of(error) == Code.TRANSIENT_NOT_ACCEPTED


def test_lost_offsets_are_recorded_and_never_given_out() -> None:
    stage = Stage()
    stage.send(3)
    assert stage.lose(3, 100) == b""
    assert stage.machine.lost_ranges == ((3, 100),)
    assert stage.send(2) == 100
    stage.lose(3, 100)  # repeated: nothing more is lost
    assert stage.machine.lost_ranges == ((3, 100),)
    assert (stage.machine.messages_count, stage.machine.segments_count) == (5, 2)
    # No answer crosses the gap, and none begins in it.
    assert offsets(stage.poll(First())) == [0, 1, 2]
    for offset in (3, 50, 99, 100):
        assert offsets(stage.poll(FromOffset(offset))) == [100, 101]
    stage.forget_memory()
    assert offsets(stage.poll(First())) == [0, 1, 2]
    assert offsets(stage.poll(FromOffset(50))) == [100, 101]


def test_lost_ranges_at_both_ends() -> None:
    stage = Stage(make_options(segment_bytes=1))
    stage.lose(0, 10)
    assert (stage.machine.first_offset, stage.machine.lost_ranges) == (10, ())
    stage.send(2)
    stage.lose(12, 20)
    stage.lose(20, 30)
    assert stage.machine.lost_ranges == ((12, 30),)
    assert stage.poll(FromOffset(12)).messages_count == 0
    stage.trim(11)
    assert (stage.machine.first_offset, stage.machine.next_offset) == (30, 30)
    assert stage.send() == 30


# Checkpoint artifact.


def test_an_unchanged_partition_gives_the_same_artifact() -> None:
    stage = Stage()
    stage.send()
    [first] = stage.machine.checkpoint()
    [second] = stage.machine.checkpoint()
    assert first is second
    assert (first.kind, first.frontier) == (ArtifactKind.CONSUMER_OFFSETS, 3)
    stage.send()
    assert stage.machine.checkpoint() != (first,)


def test_equal_ops_give_equal_hashes_and_others_do_not() -> None:
    def run(*, store: int) -> Stage:
        stage = Stage()
        stage.send(4)
        stage.store_offset(1, store)
        stage.lose(4, 8)
        stage.purge(1)
        stage.send(1)
        return stage

    one, two, other = run(store=1), run(store=1), run(store=2)
    assert one.machine.state_hash() == two.machine.state_hash()
    assert one.machine.checkpoint() == two.machine.checkpoint()
    assert one.machine.state_hash() != other.machine.state_hash()


def test_a_closed_partition_gives_its_memory_back() -> None:
    shared = PartitionsShared()
    machine = PartitionMachine(make_options(), shared, Probes())
    body = machine.prepare(SEND, bytearray(producer_batch()), START)
    machine.apply(PrepareHeader(op=1, operation=160), body)
    machine.open()
    assert shared.tail_bytes == machine.tail_bytes == len(body) + BATCH_OBJECTS_BYTES
    assert list(shared.busy) == [machine]
    machine.close()
    assert shared.tail_bytes == 0
    assert not shared.busy


def test_what_another_primary_ordered_at_the_same_moment_is_behind_us() -> None:
    """Its stamp tells nothing: offsets go on from what is applied."""
    ours, theirs = Stage(), Stage()
    ours.send(2)
    theirs.apply(*ours.journal[0])
    theirs.now = ours.now - 1000  # An op takes a millisecond.
    theirs.send(3)
    ours.apply(*theirs.journal[-1])
    body = ours.machine.prepare(SEND, bytearray(producer_batch()), ours.now)
    assert decode_batch_header(body).base_offset == 5
