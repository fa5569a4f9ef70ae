"""The checkers of whole nodes see what they are there for."""

import msgspec
import pytest

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.target import PartitionTarget
from headrace.partitions.confirm import confirmations
from headrace.sim.nodes.actions import make_batch
from headrace.sim.nodes.checkers import METADATA, Checkers
from headrace.sim.nodes.history import Applied, Incarnation, Reign
from headrace.sim.nodes.repeats import content_of
from headrace.sim.violation import SimViolationError
from headrace.wire.batches import admit_batch
from headrace.wire.commands.messages import Confirmation, PolledMessages, StoredOffset
from headrace.wire.identifiers import First, FromOffset, FromTimestamp, Last, Next, Strategy
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replica.prepares import PrepareHeader

GROUP = GroupId(0)
NAME = "t0/0"


def target(*, is_persisted: bool = True) -> PartitionTarget:
    return PartitionTarget(
        group=GROUP,
        created_revision=1,
        is_persisted=is_persisted,
        is_offset_persisted=True,
        segment_bytes=5_000,
        message_expiry=0,
        bytes_max=0,
        purge_generation=0,
    )


class Stage:
    """One partition, whose ops any node may apply."""

    def __init__(self, *, is_persisted: bool = True) -> None:
        self.checkers = Checkers()
        self.key = self.checkers.known(target(is_persisted=is_persisted), NAME)
        self.next_offset = 0
        self.parent = 0

    def make(self, op: int, request: int, *, offset: int | None = None) -> Applied:
        """Give a send as a node applies it."""
        batch = make_batch([b"%d" % request] * 2, first_id=request, origin=5)
        self.checkers.sent(7, request, batch, now=request)
        stamped = bytearray(batch)
        base = self.next_offset if offset is None else offset
        admit_batch(stamped, 2, partition_id=0, base_offset=base, base_timestamp=op)
        header = PrepareHeader(
            op=op,
            operation=Operation.SEND_MESSAGES,
            group=GROUP,
            client=7,
            request=request,
            checksum=op * 1000 + request,
            parent=self.parent,
        )
        reply = confirmations(unpack_namespace(GROUP))(base)
        return Applied(header, bytes(stamped), reply, (op,), 1, op)

    def send(self, op: int, request: int) -> Applied:
        """Have node 0 apply a send."""
        applied = self.make(op, request)
        self.checkers.applied(0, self.key, applied, None)
        self.next_offset += 2
        self.parent = applied.header.checksum
        return applied


def test_equal_applications_are_fine_and_unequal_ones_are_seen() -> None:
    stage = Stage()
    applied = stage.send(1, 1)
    stage.checkers.applied(1, stage.key, applied, None)
    for wrong in (
        applied._replace(before=(9,)),
        applied._replace(table=9),
        applied._replace(state_hash=9),
        applied._replace(reply=b"other"),
    ):
        with pytest.raises(SimViolationError, match="R2"):
            stage.checkers.applied(1, stage.key, wrong, None)


def test_two_ops_of_one_number_are_seen() -> None:
    stage = Stage()
    stage.send(1, 1)
    with pytest.raises(SimViolationError, match="R1"):
        stage.checkers.applied(1, stage.key, stage.make(1, 2, offset=0), None)


def test_a_wrong_parent_is_seen() -> None:
    stage = Stage()
    stage.send(1, 1)
    stage.parent = 99
    with pytest.raises(SimViolationError, match="R1"):
        stage.checkers.applied(0, stage.key, stage.make(2, 2), None)


def test_a_request_that_is_applied_twice_is_seen() -> None:
    stage = Stage()
    stage.send(1, 1)
    with pytest.raises(SimViolationError, match="P4"):
        stage.checkers.applied(0, stage.key, stage.make(2, 1), None)


def test_what_nobody_sent_is_seen() -> None:
    stage = Stage()
    applied = stage.make(1, 1)
    other = applied._replace(body=applied.body[:-1] + b"?")
    with pytest.raises(SimViolationError, match="H2"):
        stage.checkers.applied(0, stage.key, other, None)


# One number for several requests (O4.2).


def equal_send(stage: Stage, op: int, *, is_spent: bool) -> Applied:
    """Have a client send the batch of request 1, and give it as a node applies it."""
    applied = stage.make(op, 1)
    content = content_of(Operation.SEND_MESSAGES, applied.body)
    stage.checkers.repeats.sent(7, 1, content, is_spent=is_spent)
    return applied


def test_equal_sends_under_a_spent_number_are_applied_as_often_as_they_were_sent() -> None:
    stage = Stage()
    stage.send(1, 1)
    for op in (2, 3):
        applied = equal_send(stage, op, is_spent=True)
        stage.checkers.applied(0, stage.key, applied, None)
        stage.next_offset += 2
        stage.parent = applied.header.checksum
    with pytest.raises(SimViolationError, match="P4"):
        stage.checkers.applied(0, stage.key, stage.make(4, 1), None)


def test_a_repetition_under_a_number_that_is_not_spent_is_applied_once() -> None:
    stage = Stage()
    stage.send(1, 1)
    with pytest.raises(SimViolationError, match="P4"):
        stage.checkers.applied(0, stage.key, equal_send(stage, 2, is_spent=False), None)


def test_a_new_request_that_is_answered_from_memory_is_seen() -> None:
    stage = Stage()
    stage.send(1, 1)
    told = Confirmation(0, 0, 0, 0)
    stage.checkers.confirmed(7, 1, told, now=5)
    stage.checkers.confirmed(7, 1, told, now=6)  # a repetition
    with pytest.raises(SimViolationError, match="answered from memory"):
        stage.checkers.confirmed(7, 1, told, now=7, is_new=True)


def test_another_body_under_a_used_number_is_applied_as_often_as_it_was_sent() -> None:
    stage = Stage()
    stage.send(1, 1)
    for op, is_lawful in ((2, True), (3, False)):
        other = stage.make(op, 2)
        content = content_of(Operation.SEND_MESSAGES, other.body)
        if is_lawful:
            stage.checkers.repeats.sent(7, 1, content, is_spent=False)
        stage.checkers.sent(7, 1, other.body, now=op)
        header = msgspec.structs.replace(other.header, request=1)
        applied = other._replace(header=header)
        if not is_lawful:
            with pytest.raises(SimViolationError, match="P4"):
                stage.checkers.applied(0, stage.key, applied, None)
            return
        stage.checkers.applied(0, stage.key, applied, None)
        stage.next_offset += 2
        stage.parent = applied.header.checksum


def test_a_confirmation_must_tell_what_was_committed() -> None:
    stage = Stage()
    stage.send(1, 1)
    stage.checkers.confirmed(7, 1, Confirmation(0, 0, 0, 0), now=5)
    with pytest.raises(SimViolationError, match="P4"):
        stage.checkers.confirmed(7, 1, Confirmation(0, 0, 0, 2), now=5)
    with pytest.raises(SimViolationError, match="P1"):
        stage.checkers.confirmed(7, 2, Confirmation(0, 0, 0, 2), now=5)


def test_sends_in_a_row_have_rising_offsets() -> None:
    stage = Stage()
    stage.send(1, 1)
    stage.send(2, 5)
    stage.checkers.confirmed(7, 5, Confirmation(0, 0, 0, 2), now=6)
    stage.checkers.sent(7, 1, stage.make(9, 1).body, now=8)  # as if it had begun only now
    with pytest.raises(SimViolationError, match="H6"):
        stage.checkers.confirmed(7, 1, Confirmation(0, 0, 0, 0), now=9)


def polled(*batches: bytes, current: int = 100) -> PolledMessages:
    return PolledMessages(0, current, 2 * len(batches), memoryview(b"".join(batches)))


def test_a_poll_must_serve_what_was_committed_without_a_gap() -> None:
    stage = Stage()
    first, second, third = (stage.send(op, op).body for op in (1, 2, 3))
    assert stage.checkers.polled(0, NAME, polled(first, second)) == (0, 3)
    assert stage.checkers.polled(0, NAME, polled()) is None
    with pytest.raises(SimViolationError, match="gap"):
        stage.checkers.polled(0, NAME, polled(first, third))
    with pytest.raises(SimViolationError, match="P3"):
        stage.checkers.polled(0, "t1/0", polled(first))
    with pytest.raises(SimViolationError, match="P3"):
        stage.checkers.polled(0, NAME, polled(stage.make(4, 4).body))
    with pytest.raises(SimViolationError, match="R6"):
        stage.checkers.polled(0, NAME, polled(first, current=0))


def test_a_poll_serves_no_history_that_was_over_when_it_was_asked_for() -> None:
    stage = Stage()
    first = stage.send(1, 1).body
    for floor in (None, Reign(1, 0), Reign(0, 7)):
        assert stage.checkers.polled(0, NAME, polled(first), floor=floor) == (0, 1)
    for floor in (Reign(1, 1), Reign(2, 0)):
        with pytest.raises(SimViolationError, match="was over"):
            stage.checkers.polled(0, NAME, polled(first), floor=floor)


@pytest.mark.parametrize(
    ("strategy", "ops"),
    [
        (First(), [1]),
        (FromOffset(0), [1]),
        (FromOffset(2), [2]),
        (FromOffset(3), []),  # It would begin within the second batch.
        (FromTimestamp(1), [1]),
        (FromTimestamp(2), [2]),
        (FromTimestamp(3), [3]),
        (Last(), [1, 2, 3]),
        (Next(), [1, 2, 3]),
    ],
)
def test_a_poll_begins_where_it_was_asked_to(strategy: Strategy, ops: list[int]) -> None:
    stage = Stage()
    for op, body in [(op, stage.send(op, op).body) for op in (1, 2, 3)]:
        told = polled(body)
        if op in ops:
            assert stage.checkers.polled(0, NAME, told, strategy=strategy)
        else:
            with pytest.raises(SimViolationError, match="began elsewhere"):
                stage.checkers.polled(0, NAME, told, strategy=strategy)


def test_a_poll_may_pass_over_what_retention_took() -> None:
    stage = Stage()
    stage.send(1, 1)
    second = stage.send(2, 2).body
    model = stage.checkers.histories[stage.key].model
    assert model is not None
    del model.segments[0].batches[0]
    for strategy in (First(), FromOffset(0), FromTimestamp(1)):
        assert stage.checkers.polled(0, NAME, polled(second), strategy=strategy) == (2, 3)


@pytest.mark.parametrize("at", [3, 60, 260, 310])
def test_a_flipped_bit_is_never_served(at: int) -> None:
    stage = Stage()
    data = bytearray(stage.send(1, 1).body)
    data[at] ^= 1
    with pytest.raises(SimViolationError, match=r"P6|P3"):
        stage.checkers.polled(0, NAME, polled(bytes(data)))


def test_the_end_of_a_log_may_be_lost_by_its_class_and_once() -> None:
    stage = Stage(is_persisted=False)
    stage.send(1, 1)
    stage.send(2, 2)
    stage.checkers.lose_power_alone()
    stage.parent = 1001
    stage.checkers.applied(0, stage.key, stage.make(2, 3, offset=2), None)
    with pytest.raises(SimViolationError, match="R1"):
        stage.checkers.applied(0, stage.key, stage.make(2, 4, offset=2), None)


def test_an_offset_that_was_seen_is_never_given_again() -> None:
    stage = Stage(is_persisted=False)
    stage.send(1, 1)
    stage.send(2, 2)
    stage.checkers.confirmed(7, 2, Confirmation(0, 0, 0, 2), now=5)
    stage.checkers.lose_power_alone()
    stage.parent = 1001
    with pytest.raises(SimViolationError, match="given twice"):
        stage.checkers.applied(0, stage.key, stage.make(2, 3, offset=2), None)


def test_a_persisted_log_loses_nothing() -> None:
    stage = Stage()
    stage.send(1, 1)
    stage.checkers.lose_power_alone()
    with pytest.raises(SimViolationError, match="R1"):
        stage.checkers.applied(0, stage.key, stage.make(1, 2, offset=0), None)


def test_an_offset_that_nobody_stored_is_seen() -> None:
    stage = Stage()
    told = StoredOffset(0, 5, 3)
    with pytest.raises(SimViolationError, match="P5"):
        stage.checkers.offset_told(NAME, ConsumerKind.CONSUMER, 1, told, 0)


def test_an_answer_of_the_metadata_must_be_the_applied_one() -> None:
    checkers = Checkers()
    header = PrepareHeader(op=1, operation=Operation.CREATE_STREAM, client=7, request=1, checksum=5)
    checkers.applied(0, METADATA, Applied(header, b"", b"made", (), 1, 1), None)
    checkers.answered(1, 7, 1, b"made")
    for op, client, request, body in ((2, 7, 1, b"made"), (1, 8, 1, b"made"), (1, 7, 1, b"no")):
        with pytest.raises(SimViolationError, match="R6"):
            checkers.answered(op, client, request, body)


def test_an_audit_wants_the_whole_segment_unless_retention_took_it() -> None:
    stage = Stage()
    stage.send(1, 1)
    stage.checkers.audited(0, stage.key, 0, 1, (0, 1))
    for span in (None, (0, 0), (1, 1)):
        with pytest.raises(SimViolationError, match="P1"):
            stage.checkers.audited(0, stage.key, 0, 1, span)
    model = stage.checkers.histories[stage.key].model
    assert model is not None
    model.first_offset = 2
    stage.checkers.audited(0, stage.key, 0, 1, None)


def test_one_incarnation_has_one_name() -> None:
    stage = Stage()
    assert stage.key == Incarnation(GROUP, 1)
    with pytest.raises(SimViolationError, match="two names"):
        stage.checkers.known(target(), "t1/0")
