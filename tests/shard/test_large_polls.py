"""Polls give what is asked for as long as there is room for replies, and something always."""

from typing import Any

import pytest

from headrace.base.limits import KIB, MIB
from headrace.ports.network import RepliesWritten
from headrace.wire.commands import messages, streams, topics
from headrace.wire.identifiers import Consumer, First
from headrace.wire.numbers import ConsumerKind, Transport
from headrace.wire.replies import read_answer
from tests.shard.whole import Client, Whole

COUNT = 200
PAYLOAD_BYTES = 4000
SOME = COUNT * PAYLOAD_BYTES
BOUND = 2 * MIB


def make_node(*, tail_bytes_max: int = 16 * MIB, **settings: Any) -> tuple[Whole, Client]:
    """Return a node with a topic of messages, which memory holds or not."""
    node = Whole(tail_bytes_max=tail_bytes_max, replies_bytes_max=BOUND, **settings)
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    for _ in range(COUNT // 10):
        client.send("s", "t", [bytes(PAYLOAD_BYTES)] * 10)
        node.tick(10)
    node.step(RepliesWritten(BOUND, 0))
    return node, client


def frame_of_poll(client: Client, count: int = COUNT) -> bytes:
    request = messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 1),
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=count,
        auto_commit=False,
    )
    return client.make_frame(messages.POLL_MESSAGES, request)


def count_of(frame: bytes) -> int:
    return messages.POLL_MESSAGES.decode_reply(read_answer(frame)).messages_count


def poll(client: Client) -> int:
    return count_of(client.send_frame(frame_of_poll(client)))


def is_idle(node: Whole) -> bool:
    return node.shard.is_idle


def bytes_left(node: Whole) -> int:
    node.shard.partitions.shared.replies.check()
    return node.shard.partitions.shared.replies.bytes_left


@pytest.mark.parametrize("tail_bytes_max", [16 * MIB, 4 * KIB], ids=["memory", "segments"])
def test_a_poll_gives_what_is_asked_for(tail_bytes_max: int) -> None:
    node, client = make_node(tail_bytes_max=tail_bytes_max, poll_bytes_max=16 * MIB)
    for number in range(50):
        # As many bytes as there is room for: a quarter of what is left.
        assert client.send_frame(frame_of_poll(client, 100 + number % 2))
        assert bytes_left(node) > 0
        node.step(RepliesWritten(BOUND, 0))
    assert bytes_left(node) == BOUND
    node.shard.partitions.shared.replies.bytes_max = 8 * BOUND
    assert poll(client) == COUNT


@pytest.mark.parametrize("tail_bytes_max", [16 * MIB, 4 * KIB], ids=["memory", "segments"])
def test_when_room_is_short_replies_are_shorter_and_then_wait(tail_bytes_max: int) -> None:
    node, client = make_node(tail_bytes_max=tail_bytes_max, poll_bytes_max=16 * MIB)
    counts = [poll(client) for _ in range(20)]
    assert 0 < counts[-1] < counts[0]
    sent = 0
    while True:
        client.post(frame_of_poll(client))
        if not client.has_answer():
            break
        sent += 1
        assert count_of(client.take()) > 0
        assert sent < 1000
    assert -PAYLOAD_BYTES - KIB <= bytes_left(node) <= 0
    node.step(RepliesWritten(BOUND, BOUND // 2))
    assert count_of(client.take()) > 0
    assert bytes_left(node) > 0


def test_those_who_wait_go_on_in_their_order() -> None:
    node, first = make_node()
    second = node.client(client=700)
    node.step(RepliesWritten(0, BOUND))
    first.post(frame_of_poll(first))
    second.post(frame_of_poll(second))
    assert not first.has_answer()
    assert not second.has_answer()
    node.step(RepliesWritten(0, BOUND - 1))
    assert count_of(first.take()) == 1
    assert not second.has_answer()
    node.step(RepliesWritten(BOUND, 0))
    assert count_of(second.take()) > 1


def test_segments_are_not_read_on_when_others_need_the_memory() -> None:
    node, client = make_node(tail_bytes_max=4 * KIB, poll_bytes_max=16 * MIB)
    node.step(RepliesWritten(0, BOUND - BOUND // 8))
    client.post(frame_of_poll(client))
    assert 1 <= count_of(client.take()) < COUNT
    assert node.shard.partitions.shared.replies.held_bytes == 0


def test_polls_of_one_turn_share_what_their_connection_may_have() -> None:
    """A client that does not wait for answers is not cut off for their size."""
    cap = 100 * KIB
    _, client = make_node(poll_bytes_max=cap)
    client.post(*[frame_of_poll(client) for _ in range(10)])
    frames = [client.take() for _ in range(10)]
    assert all(count_of(frame) > 0 for frame in frames)
    assert sum(map(len, frames)) <= cap + 10 * (PAYLOAD_BYTES + KIB)
    assert len(client.send_frame(frame_of_poll(client))) > cap // 2


def test_a_transport_may_have_its_own_bound() -> None:
    _, client = make_node(poll_bytes_max=MIB, poll_bytes_max_of={Transport.TCP: 20 * KIB})
    assert len(client.send_frame(frame_of_poll(client))) <= 21 * KIB


def test_a_connection_that_goes_while_it_waits_leaves_nothing() -> None:
    node, client = make_node()
    node.step(RepliesWritten(0, BOUND))
    client.post(frame_of_poll(client))
    assert not is_idle(node)
    client.close()
    assert is_idle(node)
    node.tick(200)
    node.step(RepliesWritten(BOUND, 0))
    assert not client.has_answer()
