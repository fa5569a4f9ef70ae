"""How a client finds out which messages a server cannot read."""

from collections.abc import Callable

import pytest

from headrace.client.consume.damage import SINGLE_STEPS_MAX, find_unreadable
from headrace.client.errors import RefusedByServer, Unreadable, refused
from headrace.client.messages import Messages
from headrace.client.session.call import Ahead, Call
from headrace.client.session.steps import Pause
from headrace.kernel import Columns
from headrace.wire.commands.messages import POLL_MESSAGES
from headrace.wire.errors import Code
from headrace.wire.identifiers import FromOffset, FromTimestamp


class Partition:
    """Answers polls; `is_damaged` says which offsets cannot be read."""

    def __init__(self, end: int, is_damaged: Callable[[int], bool]) -> None:
        self.asked = 0
        self._end = end
        self._is_damaged = is_damaged

    def find(self, first: int) -> Unreadable:
        flow = find_unreadable("shop/orders", 0, FromOffset(first))
        answer: object = None
        error: Exception | None = None
        while True:
            try:
                call = flow.send(answer) if error is None else flow.throw(error)
            except StopIteration as ended:
                found: Unreadable = ended.value
                return found
            answer, error = None, None
            try:
                answer = self._poll(call)
            except RefusedByServer as refusal:
                error = refusal

    def _poll(self, call: Call[object] | Pause | Ahead) -> Messages:
        assert isinstance(call, Call)
        self.asked += 1
        strategy = POLL_MESSAGES.decode_request(memoryview(call.body)).strategy
        assert isinstance(strategy, FromOffset)
        if self._is_damaged(strategy.offset):
            raise refused(Code.CANNOT_READ_MESSAGE, "poll")
        return Messages(0, self._end - 1, Columns(0, *([b""] * (len(Columns._fields) - 1))))


@pytest.mark.parametrize(
    ("first", "end", "damaged", "found"),
    [
        (5, 100, range(5, 6), (5, 6)),
        (5, 100, range(5, 40), (5, 40)),
        (7, 100, range(5, 40), (7, 40)),
        (5, 40, range(5, 40), (5, 40)),
        (0, 1, range(1), (0, 1)),
        (0, 1_000_000, range(900_000), (0, 900_000)),
        (0, 1_000_000, range(1_000_000), (0, 1_000_000)),
    ],
)
def test_the_range_is_exact(first: int, end: int, damaged: range, found: tuple[int, int]) -> None:
    partition = Partition(end, lambda offset: offset in damaged)
    unreadable = partition.find(first)
    assert (unreadable.first, unreadable.end) == found
    assert partition.asked <= SINGLE_STEPS_MAX + 100


def test_what_can_be_read_between_damaged_batches_is_not_passed_over() -> None:
    partition = Partition(3_000, lambda offset: offset // 3 % 2 == 0)
    assert [partition.find(first).end for first in (0, 6, 600)] == [3, 9, 603]


def test_a_partition_of_which_nothing_can_be_read_says_so() -> None:
    with pytest.raises(RefusedByServer) as caught:
        Partition(100, lambda _: True).find(5)
    assert not isinstance(caught.value, Unreadable)


def test_a_time_names_no_offset() -> None:
    with pytest.raises(RefusedByServer, match="poll 'shop/orders', partition 0"):
        next(find_unreadable("shop/orders", 0, FromTimestamp(5)))
