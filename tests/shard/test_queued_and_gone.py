"""A partition that is removed in the turn in which something was put for it."""

import pytest

from headrace.ports.network import SendReply
from headrace.vsr.events import OwnOp
from headrace.wire.codec import encode
from headrace.wire.commands import streams, topics
from headrace.wire.commands.internal import OFFSET_MARK, RETAIN, OffsetMark, Retain
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.requests import RequestHeader
from tests.shard.whole import Whole


@pytest.fixture
def node() -> Whole:
    node = Whole()
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    client.send("s", "t", [b"one"])
    return node


def test_an_op_of_the_server_is_dropped(node: Whole) -> None:
    """Retention proposes on a tick; metadata may be caught up with by the same tick."""
    plane = node.shard.data_plane
    (group,) = plane.groups
    plane.propose(group, OwnOp(Operation.RETAIN, encode(RETAIN, Retain(1, 0, 0))))
    node.shard.partitions.tear_down(group, plane.groups[group].origin)
    assert not any(isinstance(each, SendReply) for each in plane.close_turn())
    plane.check()


def test_a_request_is_answered(node: Whole) -> None:
    plane = node.shard.data_plane
    (group,) = plane.groups
    header = RequestHeader(client=5, request=1, operation=Operation.STORE_CONSUMER_OFFSET)
    body = encode(OFFSET_MARK, OffsetMark(ConsumerKind.CONSUMER, 1, 0))
    plane.put_request(plane.groups[group], header, body)
    node.shard.partitions.tear_down(group, plane.groups[group].origin)
    (reply,) = [each for each in plane.close_turn() if isinstance(each, SendReply)]
    assert reply.client == 5
    plane.check()
