"""Many readers that ask for much and take nothing cost no more memory than is configured."""

import resource
from collections.abc import Iterator

import pytest

from headrace.base.limits import KIB, MIB
from headrace.wire.commands import messages, streams, tokens, topics
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.identifiers import Consumer, First, ToPartition
from headrace.wire.numbers import ConsumerKind
from tests.e2e.raw import RawClient
from tests.node import Node, running_node
from tools.recorder_model import make_batch

pytestmark = pytest.mark.slow

READERS = 500
MESSAGES = 1000
PAYLOAD = bytes(20_000)
REPLIES_BYTES_MAX = 64 * MIB
# Besides the replies: what 500 connections cost, what the disk is read into, and the allocator.
OTHER_BYTES_MAX = 128 * MIB
LIMITS = {
    "HEADRACE_SEGMENTS_REPLIES_BYTES_MAX": "64 MiB",
    "HEADRACE_TCP_FRAME_BYTES_MAX": "2 MiB",
    "HEADRACE_SEGMENTS_TAIL_BYTES_MAX": "4 MiB",  # Polls read segments: nothing is shared.
}


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    wanted = READERS + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with running_node(environment=LIMITS) as made:
        yield made


def make_poll() -> messages.PollMessages:
    return messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 1),
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=MESSAGES,
        auto_commit=False,
    )


def prepare(client: RawClient) -> str:
    """Fill a topic; return a token to log in with."""
    client.login()
    client.call(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.call(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    for _ in range(MESSAGES // 50):
        batch = make_batch(*[PAYLOAD] * 50)
        client.call(SEND_MESSAGES, SendMessages("s", "t", ToPartition(0), 50, batch))
    return client.call(tokens.CREATE_TOKEN, tokens.CreateToken("readers", 0)).token


def test_500_slow_readers_of_large_polls(node: Node) -> None:
    """SH-30: their replies wait in queues, and others are answered."""
    healthy = RawClient(node.tcp, client=1)
    token = prepare(healthy)
    assert healthy.call(messages.POLL_MESSAGES, make_poll()).messages_count > MESSAGES // 3
    readers = []
    for number in range(READERS):
        reader = RawClient(node.tcp, client=1000 + number)
        reader.connection.shrink(64 * KIB)
        reader.login(token=token)
        readers.append(reader)
    before = node.resident_bytes()
    highest = 0
    for reader in readers:
        reader.connection.send(reader.make_frame(messages.POLL_MESSAGES, make_poll()))
        highest = max(highest, node.resident_bytes())
    # Others are still answered.
    for _ in range(20):
        small = healthy.call(
            messages.GET_OFFSET, messages.GetOffset(make_poll().consumer, "s", "t", 0)
        )
        assert small is None
        highest = max(highest, node.resident_bytes())
    assert highest - before < REPLIES_BYTES_MAX + OTHER_BYTES_MAX, (before, highest)
    # A reply that waits is whole once its reader takes it.
    first = readers[0].connection.receive()
    assert first is not None
    assert len(first) > len(PAYLOAD)
    for reader in readers:
        reader.close()
    assert healthy.call(messages.POLL_MESSAGES, make_poll()).messages_count > 0
    healthy.close()
