"""A whole shard, asked by clients: one test for each way through it."""

import pytest

from headrace.wire.batches import split_batches, decode_batch_header
from headrace.wire.commands import groups, messages, streams, system, tokens, topics, users
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, First, FromOffset, Last, Next
from headrace.wire.numbers import ConsumerKind, UserStatus
from tests.shard.whole import Client, Whole

ME = Consumer(ConsumerKind.CONSUMER, 1)


def with_topic(node: Whole, partitions: int = 1) -> Client:
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", partitions, "t"))
    return client


def poll(
    client: Client, start: object = First(), count: int = 100, *, auto: bool = False, who: Consumer = ME
) -> messages.PolledMessages:
    request = messages.PollMessages(
        consumer=who,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=start,  # type: ignore[arg-type]
        count=count,
        auto_commit=auto,
    )
    polled = client.ask(messages.POLL_MESSAGES, request)
    assert isinstance(polled, messages.PolledMessages)
    return polled


def test_ping_needs_no_login() -> None:
    node = Whole()
    assert Client(node, 5).ask(system.PING) is None


def test_a_message_comes_back() -> None:
    node = Whole()
    client = with_topic(node)
    assert client.send("s", "t", [b"one", b"two"]).base_offset == 0
    assert client.send("s", "t", [b"three"]).base_offset == 2
    polled = poll(client)
    assert (polled.messages_count, polled.current_offset) == (3, 2)
    assert b"three" in bytes(polled.batches)


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_what_was_acknowledged_survives_two_restarts(is_power_cut: bool) -> None:
    node = Whole()
    client = with_topic(node)
    for number in range(20):
        client.send("s", "t", [b"message %d" % number] * 3)
    for _ in range(2):
        node.crash(is_power_cut=is_power_cut)
        client = node.client(client=77)
        polled = poll(client)
        assert polled.messages_count == 60
        offsets = [decode_batch_header(each).base_offset for each in split_batches(polled.batches)]
        assert offsets == list(range(0, 60, 3))
