"""The model of a partition: what committed ops must come to."""

import msgspec
import pytest

from headrace.base.ids import GroupId, unpack_namespace
from headrace.kernel import slice_batch
from headrace.metadata.target import PartitionTarget
from headrace.partitions.confirm import confirmations
from headrace.sim.nodes.actions import make_batch
from headrace.sim.nodes.model import PartitionModel, is_part_of, span_of
from headrace.sim.violation import SimViolationError
from headrace.wire.batches import admit_batch
from headrace.wire.codec import encode
from headrace.wire.commands.internal import (
    LOST_RANGE,
    OFFSET_MARK,
    PURGE_PARTITION,
    RETAIN,
    TRIM_UP_TO,
    LostRange,
    OffsetMark,
    PurgePartition,
    Retain,
    TrimUpTo,
)
from headrace.wire.errors import Code
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection

GROUP = GroupId(0)
TARGET = PartitionTarget(
    group=GROUP,
    created_revision=1,
    is_persisted=True,
    is_offset_persisted=True,
    segment_bytes=700,
    message_expiry=0,
    bytes_max=0,
    purge_generation=0,
)
CONSUMER = (ConsumerKind.CONSUMER, 1)


class Stage:
    def __init__(self) -> None:
        self.model = PartitionModel(TARGET)
        self.op = 0

    def apply(self, operation: Operation, body: bytes, reply: bytes = b"") -> None:
        self.op += 1
        header = PrepareHeader(
            op=self.op, operation=operation, group=GROUP, client=7, request=self.op
        )
        self.model.apply(header, body, reply)

    def send(self, count: int = 1, *, offset: int | None = None, stamp: int | None = None) -> bytes:
        base = self.model.next_offset if offset is None else offset
        batch = bytearray(make_batch([b"payload"] * count, first_id=self.op + 1, origin=5))
        stamp = self.op + 1 if stamp is None else stamp
        admit_batch(batch, count, partition_id=0, base_offset=base, base_timestamp=stamp)
        reply = confirmations(unpack_namespace(GROUP))(base)
        self.apply(Operation.SEND_MESSAGES, bytes(batch), reply)
        return bytes(batch)

    def store(self, offset: int, *, is_ok: bool = True) -> None:
        body = encode(OFFSET_MARK, OffsetMark(*CONSUMER, offset))
        reply = RESULT_OK if is_ok else encode_rejection(Code.INVALID_OFFSET)
        self.apply(Operation.STORE_CONSUMER_OFFSET, body, reply)


def test_offsets_follow_each_other_and_segments_are_sealed_by_size() -> None:
    stage = Stage()
    batches = [stage.send(2) for _ in range(3)]
    assert stage.model.next_offset == 6
    assert [segment.is_sealed for segment in stage.model.segments] == [True, False]
    assert list(stage.model.files().values()) == [batches[0] + batches[1], batches[2]]


def test_a_gap_a_reuse_and_an_older_stamp_are_seen() -> None:
    for offset in (1, 3):
        stage = Stage()
        stage.send(2)
        with pytest.raises(SimViolationError, match="P2"):
            stage.send(1, offset=offset)
    stage = Stage()
    stage.send(1, stamp=9)
    with pytest.raises(SimViolationError, match="stamp"):
        stage.send(1, stamp=8)


def test_a_wrong_confirmation_is_seen() -> None:
    stage = Stage()
    batch = bytearray(make_batch([b"x"], first_id=1, origin=5))
    admit_batch(batch, 1, partition_id=0, base_offset=0, base_timestamp=1)
    reply = confirmations(unpack_namespace(GROUP))(1)
    with pytest.raises(SimViolationError, match="R6"):
        stage.apply(Operation.SEND_MESSAGES, bytes(batch), reply)


def test_offsets_are_stored_within_the_log_only() -> None:
    stage = Stage()
    stage.send(3)
    stage.store(2)
    stage.store(1)
    assert stage.model.marks == {CONSUMER: 1}
    stage.store(3, is_ok=False)
    with pytest.raises(SimViolationError, match="P5"):
        stage.store(3)


def test_auto_commit_never_moves_back_nor_past_the_end() -> None:
    stage = Stage()
    stage.send(3)
    for offset in (1, 0, 7):
        body = encode(OFFSET_MARK, OffsetMark(*CONSUMER, offset))
        stage.apply(Operation.AUTO_COMMIT_OFFSET, body)
    assert stage.model.marks == {CONSUMER: 1}


def test_a_purge_begins_a_history_once_a_generation() -> None:
    stage = Stage()
    stage.send(3)
    stage.store(1)
    for _ in range(2):
        stage.apply(Operation.PURGE_PARTITION, encode(PURGE_PARTITION, PurgePartition(1)))
    assert (stage.model.epoch, stage.model.next_offset, stage.model.marks) == (1, 0, {})


def test_retention_drops_sealed_segments_by_stamp_and_by_size() -> None:
    stage = Stage()
    for _ in range(5):
        stage.send(2)
    stage.apply(Operation.RETAIN, encode(RETAIN, Retain(2, 0)))
    assert stage.model.first_offset == 4
    stage.apply(Operation.RETAIN, encode(RETAIN, Retain(0, 1)))
    assert (stage.model.first_offset, stage.model.messages_count) == (8, 2)


def test_retention_that_drops_what_a_consumer_needs_is_seen() -> None:
    """O3.4: where consumers are waited for, and none can be idle."""

    def retain(model: PartitionModel, keep_from: int | None) -> int:
        stage = Stage()
        stage.model = model
        for _ in range(6):
            stage.send(2)
        stage.store(3)
        stage.apply(Operation.RETAIN, encode(RETAIN, Retain(99, 0, keep_from)))
        return model.first_offset

    assert retain(PartitionModel(TARGET), 4) == 4
    for keep_from in (8, None):
        with pytest.raises(SimViolationError, match="dropped before"):
            retain(PartitionModel(TARGET), keep_from)
    assert retain(PartitionModel(TARGET, is_waiting=False), 8) == 8
    ignoring = msgspec.structs.replace(TARGET, retention_consumers="ignore")
    assert retain(PartitionModel(ignoring), None) == 12


def test_trimming_stops_at_the_slowest_consumer() -> None:
    stage = Stage()
    for _ in range(5):
        stage.send(2)
    stage.store(2)
    stage.apply(Operation.DELETE_SEGMENTS, encode(TRIM_UP_TO, TrimUpTo(7)))
    assert stage.model.first_offset == 0
    stage.store(9)
    stage.apply(Operation.DELETE_SEGMENTS, encode(TRIM_UP_TO, TrimUpTo(7)))
    assert stage.model.first_offset == 8


def test_a_lost_range_seals_and_is_remembered() -> None:
    stage = Stage()
    stage.send(2)
    stage.apply(Operation.LOST_RANGE, encode(LOST_RANGE, LostRange(2, 10)))
    stage.send(1)
    assert stage.model.gaps == [(2, 10)]
    assert [segment.base_offset for segment in stage.model.segments] == [0, 10]


def test_a_cut_of_a_batch_is_part_of_it_and_nothing_else_is() -> None:
    stage = Stage()
    data = stage.send(4)
    (batch,) = stage.model.batches()
    head, start, end = slice_batch(data, 1, 2)
    cut = head + data[start:end]
    assert span_of(cut) == (1, 3)
    assert is_part_of(data, batch)
    assert is_part_of(cut, batch)
    assert not is_part_of(cut[:-1] + b"!", batch)
    stage.send(1)
    assert not is_part_of(cut, stage.model.batches()[1])
