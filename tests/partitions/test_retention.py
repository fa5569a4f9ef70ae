"""Retention keeps what stored offsets still need; the op says from which offset on (O3.4)."""

import pytest

from headrace.partitions.machine import PartitionMachine
from headrace.wire.codec import decode_exactly, encode
from headrace.wire.commands.internal import OFFSET_MARK, RETAIN, OffsetMark, Retain
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader
from tests.partitions.stage import START, Stage
from tests.partitions.test_machine import filled

CONSUMER = ConsumerKind.CONSUMER
GROUP = ConsumerKind.GROUP
EVERYTHING = Retain(START * 2, 0, 0)  # with the place for what the primary decides


def prepared(machine: PartitionMachine) -> Retain:
    """Return a retain op as the primary would order it now."""
    header = RequestHeader(operation=Operation.RETAIN)
    return decode_exactly(RETAIN, machine.prepare(header, encode(RETAIN, EVERYTHING), START))


def expire(stage: Stage) -> int:
    stage.retain(stamp_max=stage.now)
    return stage.machine.first_offset


@pytest.mark.parametrize(
    ("stored", "first"), [(0, 0), (7, 0), (8, 9), (16, 9), (17, 18), (35, 36), (38, 36)]
)
def test_what_a_stored_offset_needs_stays(stored: int, first: int) -> None:
    """Segments end at 9, 18, 27 and 36: one goes when its last message is consumed."""
    stage = filled()
    stage.store_offset(1, stored)
    assert expire(stage) == first


def test_a_size_limit_waits_as_well() -> None:
    stage = filled()
    stage.store_offset(1, 8)
    stage.retain(bytes_max=1)
    assert stage.machine.first_offset == 9
    stage.store_offset(1, 38)
    stage.retain(bytes_max=1)
    assert stage.machine.first_offset == 36


def test_the_slowest_of_all_counts_until_its_offset_is_deleted() -> None:
    stage = filled()
    stage.store_offset(1, 30)
    stage.store_offset(7, 9, GROUP)
    stage.store_offset(9, 20, GROUP)
    assert expire(stage) == 9
    stage.forget_groups(7)
    assert expire(stage) == 18
    stage.store_offset(9, 38, GROUP)
    assert expire(stage) == 27
    stage.delete_offset(1)
    assert expire(stage) == 36


def test_an_automatic_commit_counts() -> None:
    stage = filled()
    stage.auto_commit(1, 8)
    assert expire(stage) == 9


def test_those_that_are_waived_hold_nothing_back_until_they_store_again() -> None:
    stage = filled()
    machine = stage.machine
    stage.store_offset(1, 0)
    stage.store_offset(2, 20)
    machine.waived = {(CONSUMER, 1): None}
    assert machine.needed_from() == 21
    assert prepared(machine).keep_from == 21
    stage.store_offset(1, 1)
    assert machine.needed_from() == 2


def test_nobody_is_waited_for_where_consumers_are_ignored() -> None:
    stage = filled()
    stage.store_offset(1, 0)
    stage.machine.is_ignoring_consumers = True
    assert expire(stage) == 36


def test_a_store_that_is_ordered_and_not_applied_counts() -> None:
    """It stands before the op in the log: its data must be there when it is applied."""
    machine = filled().machine
    assert prepared(machine).keep_from is None
    machine = filled().machine
    store = encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 4))
    machine.prepare(RequestHeader(operation=Operation.STORE_CONSUMER_OFFSET), store, START)
    assert prepared(machine).keep_from == 5
    machine.is_ignoring_consumers = True
    assert prepared(machine).keep_from is None


def test_a_new_primary_counts_the_stores_that_it_inherits() -> None:
    stage = filled()
    stage.store_offset(2, 20)
    store = PrepareHeader(operation=Operation.AUTO_COMMIT_OFFSET)
    stage.machine.foresee([(store, encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 4)))])
    assert prepared(stage.machine).keep_from == 5


def test_apply_looks_at_the_number_in_the_op_alone() -> None:
    stage = filled()
    stage.store_offset(1, 0)
    header = PrepareHeader(operation=Operation.RETAIN)
    stage.machine.apply(header, encode(RETAIN, Retain(stage.now, 0, 18)))
    assert stage.machine.first_offset == 18


def test_an_op_of_the_old_form_is_applied_as_it_was() -> None:
    """Journals hold ops of 16 bytes: they kept nothing for consumers."""
    old = START.to_bytes(8, "little") + bytes(8)
    assert decode_exactly(RETAIN, old) == Retain(START, 0, None)
    assert encode(RETAIN, Retain(START, 0, None)) == old
    stage = filled()
    stage.store_offset(1, 0)
    body = stage.now.to_bytes(8, "little") + bytes(8)
    stage.machine.apply(PrepareHeader(operation=Operation.RETAIN), body)
    assert stage.machine.first_offset == 36
