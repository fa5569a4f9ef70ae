"""Guards between the shards of a node: frames of nobody, lanes that drop, tables that are full."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.connection_numbers import make_connection_id
from headrace.ports.bus import BusFrames, DropReason, FrameLost
from headrace.ports.network import ConnectionOpened
from headrace.shard.bus.feed import FedMachine, Feed
from headrace.shard.bus.numbered import Incoming
from headrace.shard.consensus.clock import Clock
from headrace.shard.front import sends
from headrace.shard.turn import Turn
from headrace.wire.commands import streams
from headrace.wire.commands.session import LOGOUT
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Balanced, ByKey
from headrace.wire.numbers import FrameKind, Operation, Transport
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import read_answer
from tests.shard.several import Several
from tests.shard.test_several import PARTITIONS, marks, poll, with_topic
from tests.shard.whole import LOOPBACK
from tests.wire.bus_frames import bus_frame

NOBODY = make_connection_id(1, 999)


def test_a_frame_that_a_lane_lost_is_counted() -> None:
    node = Several(2)
    exchange = node.members[1].exchange
    node.members[1].step(FrameLost(0, FrameKind.FEED_OP, DropReason.UNROUTABLE))
    (drop,) = exchange.drops.counts()
    assert (drop.reason, drop.count) == (DropReason.UNROUTABLE, 1)


def test_what_a_shard_tells_of_a_connection_that_nobody_knows_changes_nothing() -> None:
    node = Several(2)
    client = node.client(1)
    node.members[1].step(ConnectionOpened(NOBODY, Transport.TCP, LOOPBACK))  # there alone
    node.close(NOBODY)
    node.settle()
    assert node.main.left == []
    assert client.ask(streams.GET_STREAMS) == ()


def test_a_login_of_a_connection_that_nobody_knows_is_dropped_and_counted() -> None:
    node = Several(2)
    before = marks(node, 0)
    login = bus_frame(
        FrameKind.FORWARDED_REQUEST, operation=Operation.REGISTER, home=1, connection=NOBODY
    )
    node.main.step(BusFrames(((1, bytearray(login)),)))
    assert (marks(node, 0) - before)["bus.refused"] == 1
    assert node.client(1).ask(streams.GET_STREAMS) == ()


def test_shard_0_is_asked_again_when_a_lane_has_dropped_the_question() -> None:
    """O5.2: a request is refused by what shard 0 knows, long before its deadline."""
    node = Several(2)
    client = with_topic(node, 1)
    node.full.add((1, 0))
    client.post(client.send_frame_of("s", "never", [b"nowhere"]))
    node.rest()
    assert not client.has_answer()
    node.full.clear()
    node.settle(20)
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code in (Code.TOPIC_NAME_NOT_FOUND, Code.RESOURCE_NOT_FOUND)


@pytest.mark.parametrize("replica_count", [1, 3])
def test_a_shard_without_its_first_image_is_not_ready(replica_count: int) -> None:
    """In a cluster no file of a stranger keeps it waiting: nothing but the image does."""
    node = Several(2, replica_count=replica_count)
    node.full.add((0, 1))
    node.crash()
    assert not node.members[1].shard.is_ready
    node.full.clear()
    node.settle()
    is_fed = replica_count == 1  # Elsewhere a quorum comes first.
    assert node.members[1].shard.is_ready == is_fed


@pytest.mark.parametrize("home", [0, 1])
def test_the_transport_hears_whom_to_trust_and_whom_no_more(home: int) -> None:
    node = Several(2)
    client = node.client(home)
    trusted = node.members[home].trusted
    assert trusted[client.connection]
    client.ask(LOGOUT)
    assert not trusted[client.connection]


def test_the_home_of_a_client_takes_the_turns_of_its_balanced_sends() -> None:
    """H14: the owner sends nothing to a partition that the home has not chosen."""
    node = Several(3)
    client = with_topic(node, 1)
    for number in range(2 * PARTITIONS):
        client.send("s", "t", [b"%d" % number], to=Balanced())
    counts = [poll(client, partition).messages_count for partition in range(PARTITIONS)]
    assert counts == [2] * PARTITIONS


def test_routes_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sends, "_ROUTES_MAX", 4)
    node = Several(2)
    client = with_topic(node, 1)
    landed = Counter(
        client.send("s", "t", [b"x"], to=ByKey(b"%d" % (number % 16))).partition_id
        for number in range(32)
    )
    assert sum(landed.values()) == 32
    assert all(count % 2 == 0 for count in landed.values()), "a key stays with its partition"


def test_the_feed_keeps_the_newest_ops_up_to_a_bound() -> None:
    machine, turn = FedMachine(), Turn(Clock(0))
    group: Any = SimpleNamespace(commit=0, state=machine.state)
    feed = Feed(group, machine, 2, turn)
    feed.departures = {1: Incoming()}
    for op in range(1, 1101):
        machine.apply(PrepareHeader(op=op, operation=Operation.LOGOUT), b"")
        group.commit = op
        feed.after_turn()
        turn.out.clear()
    feed.check()


def test_what_must_arrive_is_taken_once_and_in_order() -> None:
    """A sender that knows less than was taken sends again; a lane may have dropped one before."""
    incoming = Incoming()
    assert incoming.is_next(1)
    assert not incoming.is_next(1)
    assert not incoming.is_next(3)
    assert incoming.is_next(2)
    assert not incoming.is_next(1)
    assert incoming.taken == 2
