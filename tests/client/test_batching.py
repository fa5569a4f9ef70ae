"""What waits in a producer, and which partition it goes to; with a clock of its own."""

import time
from typing import Unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.checksum import xxh32
from headrace.client.calls.messages import Sent
from headrace.client.errors import NotFound, RefusedByServer, Unavailable
from headrace.client.messages import Messages
from headrace.client.produce.batching import Batch, Batcher, Delivery
from headrace.client.produce.options import ProducerOptions, read_producer_options
from headrace.client.produce.routing import COUNT_SECONDS_MAX, Router
from headrace.client.session.call import Call
from headrace.kernel import OFFSET_MAX, PAYLOAD_BYTES_MAX, columns, verify
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.identifiers import ToPartition
from tests.client.broker import Broker, Partition


class Clock:
    now = 0.0


def make_batcher(
    clock: Clock, partitions: int = 1, **options: Unpack[ProducerOptions]
) -> Batcher[Delivery]:
    router = Router("shop/orders", lambda: clock.now)
    Broker({number: Partition() for number in range(partitions)}).run(router.refresh())
    return Batcher(read_producer_options(options), router, Delivery, lambda: clock.now)


def take_all(batcher: Batcher[Delivery]) -> list[Batch]:
    taken = []
    while (batch := batcher.take()) is not None:
        taken.append(batch)
    return taken


def _request(call: Call[Sent]) -> SendMessages:
    return SEND_MESSAGES.decode_request(memoryview(call.body + call.batch))


def read(batch: Batch) -> Messages:
    """Return the messages that a batch sends."""
    request = _request(batch.make_call("shop/orders"))
    verify(request.batch)
    return Messages(batch.partition, 0, columns(request.batch, 0, OFFSET_MAX, True))


def test_a_batch_lingers_and_then_goes() -> None:
    clock = Clock()
    batcher = make_batcher(clock, linger="5 ms")
    assert batcher.seconds_until_due() is None
    batcher.add(b"a", b"", None)
    batcher.add(b"b", b"", None)
    assert batcher.take() is None
    assert batcher.seconds_until_due() == 0.005
    clock.now = 0.005
    assert [len(batch) for batch in take_all(batcher)] == [2]
    assert batcher.is_empty


def test_a_full_batch_does_not_linger() -> None:
    batcher = make_batcher(Clock(), batch=3)
    for _ in range(7):
        batcher.add(b"a", b"", None)
    assert batcher.seconds_until_due() == 0.0
    assert [len(batch) for batch in take_all(batcher)] == [3, 3]


def test_a_batch_stays_within_its_bytes() -> None:
    batcher = make_batcher(Clock(), batch_bytes="4 KiB")
    for _ in range(10):
        batcher.add(b"x" * 1000, b"", None)
    batcher.seal_all()
    assert [len(batch) for batch in take_all(batcher)] == [3, 3, 3, 1]


def test_a_message_larger_than_a_batch_goes_alone() -> None:
    batcher = make_batcher(Clock(), batch_bytes="4 KiB")
    batcher.add(b"small", b"", None)
    batcher.add(b"x" * 9000, b"", None)
    batcher.add(b"small", b"", None)
    batcher.seal_all()
    assert [len(batch) for batch in take_all(batcher)] == [1, 1, 1]


def test_what_is_under_way_counts_until_it_is_settled() -> None:
    batcher = make_batcher(Clock(), buffer="1 KiB", linger=0)
    batcher.add(b"x" * 900, b"", None)
    assert not batcher.has_room(900)
    batch = batcher.take()
    assert batch is not None
    assert not batcher.has_room(900)
    batcher.settle(batch, Sent(0, 0, 1))
    assert batcher.has_room(900)
    assert batcher.buffered_bytes == 0
    assert batcher.has_room(5000)  # one that never fits is taken when nothing else is there


def test_balanced_batches_go_to_the_partitions_in_turn() -> None:
    batcher = make_batcher(Clock(), partitions=3, batch=2)
    for _ in range(8):
        batcher.add(b"a", b"", None)
    assert [batch.partition for batch in take_all(batcher)] == [0, 1, 2, 0]


def test_a_fixed_partition_and_a_key_that_goes_before_it() -> None:
    batcher = make_batcher(Clock(), partitions=4, partitioning=2, linger=0)
    batcher.add(b"a", b"", None)
    batcher.add(b"a", b"", "ada")
    assert {batch.partition for batch in take_all(batcher)} == {2, xxh32(b"ada") % 4}


def test_a_fixed_partition_needs_no_look_at_the_topic() -> None:
    """Who may send but not read the topic can name a partition."""
    batcher = Batcher(read_producer_options({"partitioning": 2}), Router("shop/orders"), Delivery)
    assert not batcher.must_ask(None)
    assert batcher.must_ask("key")
    batcher.add(b"a", b"", None)
    batcher.seal_all()
    assert [batch.partition for batch in take_all(batcher)] == [2]
    assert Batcher(read_producer_options({}), Router("shop/orders"), Delivery).must_ask(None)


@settings(max_examples=30)
@given(keys=st.lists(st.sampled_from("abcdefg"), max_size=60), batch=st.integers(1, 5))
def test_messages_of_a_key_keep_their_order(keys: list[str], batch: int) -> None:
    batcher = make_batcher(Clock(), partitions=3, batch=batch)
    sent: dict[int, list[bytes]] = {}
    for number, key in enumerate(keys):
        value = b"%d" % number
        delivery = batcher.add(value, b"", key)
        made = delivery.batch
        assert isinstance(made, Batch)
        assert len(made) > delivery.index
        sent.setdefault(made.partition, []).append(value)
    batcher.seal_all()
    taken: dict[int, list[bytes]] = {}
    for made in take_all(batcher):
        taken.setdefault(made.partition, []).extend(read(made).values())
    assert taken == sent


def test_a_batch_becomes_a_call_that_names_its_partition() -> None:
    """A retry must reach the partition that knows the first attempt (O4.2)."""
    batcher = make_batcher(Clock(), partitions=3, partitioning=1, linger=0)
    batcher.add(b"a", b"", None)
    batcher.add(b"b", b"", None)
    (batch,) = take_all(batcher)
    request = _request(batch.make_call("shop/orders"))
    assert request.partitioning == ToPartition(1)
    assert (request.stream, request.topic, request.messages_count) == ("shop", "orders", 2)
    verify(request.batch)


def test_a_clock_that_jumps_does_not_break_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    micros = iter((10**15, 10**15 - 10**12, 10**15 + 10**12))
    monkeypatch.setattr(time, "time_ns", lambda: next(micros) * 1000 + 999)
    batcher = make_batcher(Clock(), linger=0)
    for _ in range(3):
        batcher.add(b"a", b"", None)
    (batch,) = take_all(batcher)
    times = [message.origin_timestamp for message in read(batch)]
    assert times == [10**15, 10**15, 10**15 + 3600 * 10**6]


def test_messages_without_a_key_join_the_open_batch() -> None:
    batcher = make_batcher(Clock(), partitions=3, batch=4)
    assert batcher.add_plain(b"a") is None  # nothing is open
    first = batcher.add(b"a", b"", None)
    joined = [batcher.add_plain(value) for value in (b"b", "c")]
    assert [each and (each.batch is first.batch, each.index) for each in joined] == [
        (True, 1),
        (True, 2),
    ]
    assert batcher.add_plain(b"d") is None  # it would fill the batch, which wakes the sender
    assert batcher.add(b"d", b"", None).index == 3
    assert batcher.add_plain(b"e") is None
    (batch,) = take_all(batcher)
    assert read(batch).values() == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("wrong", [b"", "", b"x" * (PAYLOAD_BYTES_MAX + 1), 7, None])
def test_what_cannot_be_sent_is_not_added(wrong: bytes) -> None:
    batcher = make_batcher(Clock(), buffer="128 MiB")
    batcher.add(b"a", b"", None)
    assert batcher.add_plain(wrong) is None
    assert batcher.unsent_count == 1


def test_a_sealed_batch_takes_no_more() -> None:
    clock = Clock()
    for seal in (Batcher.seal_all, Batcher.take):
        batcher = make_batcher(clock, linger="5 ms")
        batcher.add(b"a", b"", None)
        clock.now += 0.005
        seal(batcher)
        assert batcher.add_plain(b"b") is None
    batcher = make_batcher(clock)
    batcher.add(b"a", b"", None)
    batcher.fail_all(Unavailable("the end"))
    assert batcher.add_plain(b"b") is None
    assert (batcher.buffered_bytes, batcher.unsent_count) == (0, 1)


def test_a_full_buffer_takes_no_more() -> None:
    batcher = make_batcher(Clock(), buffer="1 KiB")
    batcher.add(b"x" * 400, b"", None)
    assert batcher.add_plain(b"x" * 400) is not None
    assert batcher.add_plain(b"x" * 400) is None
    assert not batcher.has_room(448)


def test_only_kept_deliveries_are_objects_of_their_own() -> None:
    batcher = make_batcher(Clock())
    kept = [batcher.add(b"a", b"", None)]
    kept += [each for each in (batcher.add_plain(b"a") for _ in range(3)) if each]
    assert [each.index for each in kept] == [0, 1, 2, 3]
    for _ in range(3):
        batcher.add_plain(b"a")
    assert [each.index for each in kept] == [0, 1, 2, 3]
    (last,) = [each for each in [batcher.add_plain(b"a")] if each]
    assert last.index == 7


def test_the_first_failure_is_raised_once() -> None:
    batcher = make_batcher(Clock(), linger=0, batch=1)
    for _ in range(2):
        batcher.add(b"a", b"", None)
    first, second = take_all(batcher)
    batcher.settle(first, Unavailable("gone"))
    batcher.settle(second, Sent(0, 5, 1))
    assert second.future.result() == Sent(0, 5, 1)
    assert isinstance(first.future.exception(), Unavailable)
    with pytest.raises(Unavailable, match="gone"):
        batcher.raise_failure()
    batcher.raise_failure()


@pytest.mark.parametrize("is_closing", [True, False])
def test_who_closes_waits_for_an_absent_server_once(is_closing: bool) -> None:
    batcher = make_batcher(Clock(), batch=1)
    for _ in range(3):
        batcher.add(b"a", b"", None)
    first = batcher.take()
    assert first is not None
    batcher.settle(first, Unavailable("gone"), is_closing=is_closing)
    assert batcher.is_empty is is_closing
    assert len(batcher.unsettled()) == (0 if is_closing else 2)


def test_giving_up_fails_what_waits_and_what_is_under_way() -> None:
    batcher = make_batcher(Clock(), batch=2)
    for _ in range(3):
        batcher.add(b"a", b"", None)
    assert batcher.take() is not None
    waiting = batcher.unsettled()
    batcher.fail_all(Unavailable("the end"))
    assert len(waiting) == 2
    assert all(isinstance(future.exception(), Unavailable) for future in waiting)
    assert batcher.is_empty


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch": 0}, "batch: 0"),
        ({"batch_bytes": "1 GiB"}, "batch_bytes: '1 GiB'"),
        ({"buffer": 5}, "buffer: 5"),
        ({"linger": "often"}, "linger: "),
        ({"partitioning": "random"}, "partitioning: 'random'"),
        ({"partitioning": -1}, "partitioning: -1"),
        ({"partitioning": True}, "partitioning: True"),
    ],
)
def test_wrong_options_are_refused(options: ProducerOptions, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_producer_options(options)


def test_the_number_of_partitions_is_asked_for_again_after_a_while() -> None:
    clock = Clock()
    broker = Broker({0: Partition()})
    router = Router("shop/orders", lambda: clock.now)
    was_stale = [router.is_stale]
    broker.run(router.refresh())
    was_stale.append(router.is_stale)
    broker.partitions[1] = Partition()
    clock.now += COUNT_SECONDS_MAX
    was_stale.append(router.is_stale)
    assert was_stale == [True, False, True]
    broker.run(router.refresh())
    turns = []
    for _ in range(4):
        router.advance()
        turns.append(router.in_turn())
    assert sorted(set(turns)) == [0, 1]


def test_a_topic_without_partitions_takes_no_message() -> None:
    router = Router("shop/orders")
    with pytest.raises(RefusedByServer, match="no partitions") as raised:
        Broker({}).run(router.refresh())
    assert not isinstance(raised.value, NotFound)


@pytest.mark.parametrize("key", ["", b"", "x" * 256])
def test_a_key_has_bounds(key: bytes | str) -> None:
    batcher = make_batcher(Clock())
    with pytest.raises(ValueError, match="allowed 1 to 255"):
        batcher.add(b"a", b"", key)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    batch=st.integers(1, 10),
    headers=st.sampled_from([b"", b"h" * 40]),
)
def test_many_at_once_make_the_batches_that_one_by_one_make(
    sizes: list[int], batch: int, headers: bytes
) -> None:
    values = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    one_by_one = make_batcher(Clock(), batch=batch, batch_bytes="4 KiB", linger=0)
    at_once = make_batcher(Clock(), batch=batch, batch_bytes="4 KiB", linger=0)
    for value in values:
        one_by_one.add(value, headers, None)
    left = values
    while left:
        left = left[at_once.add_many(left, 0, headers, None) :]
    assert at_once.buffered_bytes == one_by_one.buffered_bytes
    expected, made = take_all(one_by_one), take_all(at_once)
    assert [each.size for each in made] == [each.size for each in expected]
    for many, single in zip(map(read, made), map(read, expected), strict=True):
        assert many.values() == single.values()
        assert [each.raw_headers for each in many] == [headers] * len(single)


def test_many_at_once_stop_at_the_buffer() -> None:
    batcher = make_batcher(Clock(), buffer="2 KiB", batch_bytes="4 KiB")
    values = [b"v" * 600] * 10
    taken = batcher.add_many(values, 0, b"", None)
    assert 1 <= taken < 4
    assert batcher.buffered_bytes <= 2048
    assert not batcher.has_room(700)
