"""Requests are applied once: the window, the original answer, and what a full table forgets."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.partitions.dedup import ANSWERS_MAX, WINDOW, DedupTable
from headrace.ports.machine import Verdict
from headrace.ports.probes import Probes
from headrace.wire.codec import encode
from headrace.wire.commands.internal import OFFSET_KEY, OFFSET_MARK, OffsetKey, OffsetMark
from headrace.wire.errors import Code, CorruptError
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_rejection, read_answer
from headrace.wire.requests import RequestHeader
from tests.partitions.stage import CONSUMER, NAMESPACE, Stage, producer_batch, reply_frame

CLIENT = 0xC0FFEE


def request(
    number: int, operation: Operation = Operation.SEND_MESSAGES, client: int = CLIENT, user: int = 0
) -> RequestHeader:
    return RequestHeader(client=client, request=number, operation=operation, user_id=user)


def verdict(stage: Stage, number: int, body: bytes | None = None) -> Verdict:
    return stage.table.judge(request(number), body or producer_batch())[0]


def sent(*numbers: int) -> Stage:
    stage = Stage()
    for number in numbers:
        stage.send(client=CLIENT, request=number)
    return stage


def test_a_retry_gets_the_very_reply_of_the_first_time() -> None:
    """CL4, O4.2."""
    stage = Stage()
    for number in (4, 7, 9):
        stage.send(client=CLIENT, request=number)
        header, _ = stage.journal[-1]
        original = reply_frame(header, _confirmed(stage))
        found, reply = stage.table.judge(request(number), memoryview(producer_batch()))
        assert found == Verdict.REPLAY
        assert reply == original
    assert stage.machine.next_offset == 9


def _confirmed(stage: Stage) -> bytes:
    base_offset = stage.machine.next_offset - 3
    numbers = [1, 3, 2, 5]
    return b"".join(n.to_bytes(4, "little") for n in numbers) + base_offset.to_bytes(8, "little")


def test_another_request_under_the_same_number_is_new() -> None:
    """O4.2: clients of some languages send all that goes to partitions under one number."""
    stage = sent(4)
    assert verdict(stage, 4, producer_batch(2)) == Verdict.ANEW
    damaged = bytearray(producer_batch())
    damaged[-1] ^= 1
    assert verdict(stage, 4, bytes(damaged)) == Verdict.ANEW
    assert verdict(stage, 4, b"x") == Verdict.ANEW
    other = request(4, Operation.STORE_CONSUMER_OFFSET)
    assert stage.table.judge(other, producer_batch())[0] == Verdict.ANEW


def test_what_is_marked_as_new_is_new_whatever_is_known() -> None:
    stage = sent(4, 1000)
    for number in (4, 5, 999, 1000, 1001):
        header = msgspec.structs.replace(request(number), is_anew=1)
        assert stage.table.judge(header, producer_batch()) == (Verdict.NEW, b"")
        assert not stage.table.is_applied(header)


@pytest.mark.parametrize("number", [1000, 999, 500, 1])
def test_what_is_remembered_for_a_number_is_not_overwritten(number: int) -> None:
    """Applied with its answer, in the bitmap alone, and below the window."""
    stage = sent(1, 999, *range(1000 - 2 * ANSWERS_MAX, 999), 1000)
    known = verdict(stage, number)
    header, body = stage.journal[-1]
    anew = msgspec.structs.replace(header, request=number, op=header.op + 1, is_anew=1)
    before = stage.table.encode()
    stage.table.record(anew, body, reply_frame(anew, _confirmed(stage)))
    assert known != Verdict.NEW
    assert stage.table.encode() == before
    assert verdict(stage, number) == known


def test_a_request_marked_as_new_is_remembered_where_its_number_was_not_used() -> None:
    """It was spent on another partition."""
    stage = sent(4)
    header, body = stage.journal[-1]
    anew = msgspec.structs.replace(header, request=7, op=header.op + 1, is_anew=1)
    stage.table.record(anew, body, reply_frame(anew, _confirmed(stage)))
    assert verdict(stage, 7) == Verdict.REPLAY


def test_the_retry_itself_is_not_changed() -> None:
    stage = sent(4)
    batch = bytearray(producer_batch())
    stage.table.judge(request(4), batch)
    assert batch == producer_batch()


def test_numbers_below_the_window_count_as_applied() -> None:
    stage = sent(1000)
    assert verdict(stage, 1001) == Verdict.NEW
    assert verdict(stage, 999) == Verdict.NEW  # another partition may have had it
    assert verdict(stage, 1000 - WINDOW) == Verdict.NEW
    assert verdict(stage, 1000 - WINDOW - 1) == Verdict.ALREADY_APPLIED


def test_the_last_answers_are_kept_over_a_gap_wider_than_the_window() -> None:
    """O4.2: a power cut took a range, or the client sent to many partitions meanwhile."""
    stage = sent(5, 7, 7 + 3 * WINDOW)
    assert [verdict(stage, number) for number in (5, 6, 7, 8)] == [
        Verdict.REPLAY,
        Verdict.ALREADY_APPLIED,
        Verdict.REPLAY,
        Verdict.ALREADY_APPLIED,
    ]
    assert verdict(stage, 7, producer_batch(2)) == Verdict.ANEW
    assert all(stage.table.is_applied(header) for header, _ in stage.journal)


def test_numbers_may_come_in_any_order() -> None:
    stage = sent(10, 8, 12, 9)
    assert [verdict(stage, number) for number in (7, 8, 9, 10, 11, 12, 13)] == [
        Verdict.NEW,
        Verdict.REPLAY,
        Verdict.REPLAY,
        Verdict.REPLAY,
        Verdict.NEW,
        Verdict.REPLAY,
        Verdict.NEW,
    ]


def test_an_old_answer_is_gone_but_the_number_is_known() -> None:
    stage = sent(*range(1, ANSWERS_MAX + 3))
    assert [verdict(stage, number) for number in (1, 2, 3)] == [
        Verdict.ALREADY_APPLIED,
        Verdict.ALREADY_APPLIED,
        Verdict.REPLAY,
    ]


def test_clients_and_users_are_told_apart() -> None:
    stage = sent(4)
    batch = producer_batch()
    assert stage.table.judge(request(4, client=CLIENT + 1), batch)[0] == Verdict.NEW
    assert stage.table.judge(request(4, user=7), batch)[0] == Verdict.NEW


def test_ops_of_the_server_itself_pass() -> None:
    stage = Stage()
    stage.send()
    stage.auto_commit(1, 1)
    assert len(stage.table) == 0
    assert stage.table.judge(request(0, client=0), b"")[0] == Verdict.NEW
    assert not stage.table.is_applied(stage.journal[0][0])


def test_answers_of_offset_ops() -> None:
    stage = Stage()
    stage.send(3)
    store, delete = Operation.STORE_CONSUMER_OFFSET, Operation.DELETE_CONSUMER_OFFSET
    mark = encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 1))
    key = encode(OFFSET_KEY, OffsetKey(CONSUMER, 1))
    stage.propose(store, mark, client=CLIENT, request=1)
    stage.propose(delete, key, client=CLIENT, request=2)
    for number, operation, body in ((1, store, mark), (2, delete, key)):
        found, reply = stage.table.judge(request(number, operation), body)
        assert (found, reply[256:]) == (Verdict.REPLAY, RESULT_OK)
        assert bytes(read_answer(reply)) == b""
    other = encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 2))
    assert stage.table.judge(request(1, store), other)[0] == Verdict.ANEW


def test_a_committed_rejection_is_answered_again_as_such() -> None:
    stage = Stage()
    key = encode(OFFSET_KEY, OffsetKey(CONSUMER, 1))
    header = PrepareHeader(
        client=CLIENT, request=3, op=1, operation=Operation.DELETE_CONSUMER_OFFSET
    )
    assert stage.apply(header, key) == encode_rejection(Code.CONSUMER_OFFSET_NOT_FOUND)
    found, reply = stage.table.judge(request(3, Operation.DELETE_CONSUMER_OFFSET), key)
    assert found == Verdict.REPLAY
    assert reply[256:] == encode_rejection(Code.CONSUMER_OFFSET_NOT_FOUND)


def test_trimming_is_answered_without_a_result() -> None:
    stage = Stage()
    stage.send(3)
    body = (2).to_bytes(8, "little")
    stage.propose(Operation.DELETE_SEGMENTS, body, client=CLIENT, request=2)
    found, reply = stage.table.judge(request(2, Operation.DELETE_SEGMENTS), body)
    assert (found, len(reply)) == (Verdict.REPLAY, 256)


def test_a_purge_does_not_make_old_requests_new() -> None:
    stage = sent(4)
    stage.purge(1)
    assert verdict(stage, 4) == Verdict.REPLAY


def test_a_full_table_drops_the_client_that_was_silent_longest() -> None:
    """P4: the one exception, and it is counted."""
    stage = Stage()
    stage.table = DedupTable(NAMESPACE, stage.probes, clients_max=3)
    for client in (1, 2, 3, 1, 4):
        number = len(stage.journal) + 1
        stage.send(client=client, request=number)
    judged = [stage.table.judge(request(1, client=client), b"")[0] for client in (1, 2, 3, 4)]
    assert judged[1] == Verdict.NEW  # dropped: its latest op was the oldest
    assert stage.table.is_applied(stage.journal[2][0])
    assert stage.table.is_applied(stage.journal[3][0])
    assert len(stage.table) == 3
    assert stage.probes.counts["dedup_evictions_total"] == 1


class SlowTable:
    """What the window should be: a list of all numbers."""

    def __init__(self) -> None:
        self.applied: list[int] = []

    def judge(self, number: int) -> Verdict:
        if not self.applied or number > max(self.applied):
            return Verdict.NEW
        if number in self.applied[-ANSWERS_MAX:]:
            return Verdict.REPLAY
        is_known = number in self.applied or number < max(self.applied) - WINDOW
        return Verdict.ALREADY_APPLIED if is_known else Verdict.NEW


@settings(max_examples=50)
@given(st.lists(st.integers(-140, 400), max_size=40))
def test_the_window_is_what_a_list_would_say(jumps: list[int]) -> None:
    table = DedupTable(NAMESPACE, Probes())
    slow = SlowTable()
    body = encode(OFFSET_MARK, OffsetMark(CONSUMER, 1, 1))
    operation = Operation.STORE_CONSUMER_OFFSET
    at = 1000
    for op, jump in enumerate(jumps):
        number = max(at + jump, 1)
        found = table.judge(request(number, operation), body)[0]
        assert found == slow.judge(number)
        if found == Verdict.NEW:
            header = PrepareHeader(client=CLIENT, request=number, op=op + 1, operation=operation)
            assert not table.is_applied(header)
            table.record(header, body, reply_frame(header, RESULT_OK))
            assert table.is_applied(header)
            slow.applied.append(number)
            at = max(at, number)
        for earlier in slow.applied:
            assert table.judge(request(earlier, operation), body)[0] == slow.judge(earlier)


def test_equal_tables_are_equal_bytes_and_come_back() -> None:
    stage = Stage()
    for client in (5, 3, 9, 3):
        stage.send(client=client, request=100 + len(stage.journal))
    data = stage.table.encode()
    other = DedupTable(NAMESPACE, Probes())
    other.install(data, stage.op)
    assert other.encode() == data
    header, _ = stage.journal[0]
    retry = request(header.request, client=5)
    assert other.judge(retry, producer_batch()) == stage.table.judge(retry, producer_batch())
    # The order of latest ops came back too: the same client goes first.
    for table in (stage.table, other):
        table._clients_max = 3
        new = PrepareHeader(client=77, request=1, op=9, operation=160)
        table.record(new, stage.journal[0][1], reply_frame(new, _confirmed(stage)))
    assert other.encode() == stage.table.encode()
    other.install(b"", 0)
    assert len(other) == 0


def test_any_flipped_byte_of_a_table_is_noticed() -> None:
    stage = sent(1, 2)
    data = stage.table.encode()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptError):
            stage.table.install(bytes(damaged), stage.op)
    for low, high in pairwise(range(1, len(data), 7)):
        with pytest.raises(CorruptError):
            stage.table.install(data[low:high], stage.op)
    assert stage.table.encode() == data
