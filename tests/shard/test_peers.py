"""Heartbeats and timers of a shard."""

from headrace.shard.consensus.peers import Peer
from headrace.shard.consensus.timers import Timers
from headrace.vsr.timeouts import Timer
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import GroupBeat, NodeHeartbeatHeader, decode_beats

BEAT = GroupBeat(group=5, view=2, commit=9, is_declined=False)


FIRST = 100


def listed(peer: Peer) -> tuple[GroupBeat, ...]:
    frame = peer.make_frame(
        cluster=1,
        own_replica=0,
        life=1,
        journal=0,
        counter=1,
        beats=[BEAT] if peer.untold() else [],
    )
    _, header = decode_replica(frame)
    assert isinstance(header, NodeHeartbeatHeader)
    return decode_beats(frame[256:])


def hear(peer: Peer, number: int, acknowledged: int, counter: int, now: int = 10) -> None:
    peer.hear(NodeHeartbeatHeader(number=number, acknowledged=acknowledged, counter=counter), now)


def test_a_group_is_listed_until_a_frame_that_told_it_is_acknowledged() -> None:
    peer = Peer(1, now=0, first_number=FIRST)
    assert listed(peer) == ()
    peer.change(5)
    assert listed(peer) == (BEAT,)
    hear(peer, number=1, acknowledged=FIRST + 1, counter=1)
    assert listed(peer) == (BEAT,)
    hear(peer, number=2, acknowledged=FIRST + 2, counter=2)
    assert listed(peer) == ()


def test_a_change_after_the_telling_is_told_again() -> None:
    peer = Peer(1, now=0, first_number=FIRST)
    peer.change(5)
    listed(peer)
    peer.change(5)
    hear(peer, number=1, acknowledged=FIRST + 1, counter=1)
    assert listed(peer) == (BEAT,)


def test_a_counter_that_stands_still_is_no_sign_of_life() -> None:
    peer = Peer(1, now=0, first_number=FIRST)
    hear(peer, number=1, acknowledged=0, counter=7, now=50)
    hear(peer, number=2, acknowledged=0, counter=7, now=90)
    assert peer.heard == 50


def test_an_acknowledgement_of_an_earlier_life_tells_nothing() -> None:
    peer = Peer(1, now=0, first_number=FIRST)
    peer.change(5)
    listed(peer)
    hear(peer, number=90, acknowledged=400, counter=1)
    hear(peer, number=91, acknowledged=7, counter=2)
    assert listed(peer) == (BEAT,)


def test_timers_fire_once_in_order_and_only_as_last_set() -> None:
    timers = Timers()
    timers.start(1, Timer.REPAIR, 30)
    timers.start(2, Timer.PROBE, 20)
    timers.start(1, Timer.REPAIR, 10)
    timers.start(3, Timer.PROBE, 15)
    timers.stop(3, Timer.PROBE)
    assert timers.take_due(9) == []
    assert timers.take_due(30) == [(1, Timer.REPAIR), (2, Timer.PROBE)]
    assert timers.take_due(99) == []
