"""Partitions merged by time, from consumers that are lists."""

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.tail.merge import Lane, merge
from headrace.client.errors import DataLost
from headrace.client.messages import Messages, build_batch, read_messages
from headrace.wire.batches import admit_batch
from headrace.wire.commands.messages import PolledMessages

if TYPE_CHECKING:
    from headrace.client.sync.consumer import Consumer


def polled(partition: int, base: int, batches: list[tuple[int, int]]) -> Messages:
    """Give a poll of batches, each of a time and a number of messages."""
    data, offset = b"", base
    for time, count in batches:
        values = [f"{time}/{partition}/{offset + each}".encode() for each in range(count)]
        batch = bytearray(build_batch(values, [b""] * count, array("Q", [1]) * count))
        admit_batch(batch, count, partition_id=partition, base_offset=offset, base_timestamp=time)
        data, offset = data + bytes(batch), offset + count
    return read_messages(PolledMessages(partition, offset - 1, offset - base, memoryview(data)))


class Listed:
    """A consumer that has its polls already; an error among them is raised."""

    def __init__(self, polls: list[Messages | DataLost]) -> None:
        self._polls = polls

    def batches(self) -> Iterator[Messages]:
        while self._polls:
            poll = self._polls.pop(0)
            if isinstance(poll, DataLost):
                raise poll
            yield poll


def lane(polls: list[Messages | DataLost], told: list[str] | None = None) -> Lane:
    return Lane(cast("Consumer", Listed(polls)), (told if told is not None else []).append)


def read(lanes: list[Lane]) -> list[bytes]:
    return [value for run in merge(lanes, lambda: 1 << 30) for value in run.values()]


BATCHES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=4)


@settings(max_examples=20)
@given(st.lists(st.lists(BATCHES, max_size=3), min_size=1, max_size=4))
def test_the_order_is_time_then_partition_then_offset(
    partitions: list[list[list[tuple[int, int]]]],
) -> None:
    lanes, expected = [], []
    for number, polls in enumerate(partitions):
        times = sorted(time for poll in polls for time, _ in poll)  # as a partition has them
        made: list[Messages | DataLost] = []
        offset = 0
        for poll in polls:
            stamped = [(times.pop(0), count) for _, count in poll]
            made.append(polled(number, offset, stamped))
            for time, count in stamped:
                expected += [(time, number, offset + each) for each in range(count)]
                offset += count
        lanes.append(lane(made))
    assert read(lanes) == [f"{t}/{p}/{o}".encode() for t, p, o in sorted(expected)]
    assert all(each.is_shown for each in lanes)


def test_times_that_go_back_keep_the_order_of_their_partition() -> None:
    """A clock that was set back: nothing is lost, and a partition stays in order."""
    first = lane([polled(0, 0, [(5, 1), (3, 1), (9, 1)])])
    second = lane([polled(1, 0, [(4, 1)])])
    found = read([first, second])
    assert sorted(found) == [b"3/0/1", b"4/1/0", b"5/0/0", b"9/0/2"]
    assert [each for each in found if b"/0/" in each[1:4]] == [b"5/0/0", b"3/0/1", b"9/0/2"]


def test_a_loss_is_told_and_reading_goes_on() -> None:
    told: list[str] = []
    lost = DataLost("shop/orders", 0, first=2, end=7, resume=7)
    found = read([lane([polled(0, 0, [(1, 2)]), lost, polled(0, 7, [(2, 1)])], told)])
    assert found == [b"1/0/0", b"1/0/1", b"2/0/7"]
    assert told == [str(lost)]


def test_a_bound_cuts_a_poll() -> None:
    one = lane([polled(0, 0, [(1, 5)])])
    left = [2]
    runs = []
    for run in merge([one], lambda: left[0]):
        runs.append(run.values())
        left[0] -= len(runs[-1])
    assert runs == [[b"1/0/0", b"1/0/1"]]
    assert not one.is_shown
    assert one.shown is not None
    assert one.shown.offset == 1
