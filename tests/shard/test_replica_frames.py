"""SH-12, SH-13: frames of other nodes go to the shard of their group, whatever their link."""

from typing import Any

import pytest

from headrace.base.ids import METADATA_GROUP, GroupId, ShardId
from headrace.base.placement import Placement, owner_of
from headrace.ports.bus import BusFrames, DropReason, SendToMember
from headrace.ports.network import FramesArrived
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.consensus.clock import Clock
from headrace.shard.drops import Variant
from headrace.shard.replica_frames import ReplicaFrames
from headrace.shard.turn import Turn
from headrace.wire.bus.forwarded import FORWARDED_REQUEST
from headrace.wire.commands.session import LOGOUT
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from tests.shard.several import HomedClient, Several
from tests.shard.test_several import marks
from tests.wire.test_replicas import lawful

# How far a primary has committed is told by the heartbeat of its store.
OF_METADATA = (
    FrameKind.NODE_HEARTBEAT,
    FrameKind.START_VIEW_CHANGE,
    FrameKind.DO_VIEW_CHANGE,
    FrameKind.START_VIEW,
    FrameKind.FORWARD_REGISTER,
    FrameKind.FORWARD_LOGOUT,
)
counts = pytest.mark.parametrize("count", range(2, 9))


class Taken:
    """Notes the kinds that a plane has taken, and who is said to have sent them."""

    def __init__(self) -> None:
        self.kinds: list[tuple[int, int]] = []

    def take_frame(self, sender: int, kind: int, _: object, __: bytes) -> None:
        self.kinds.append((sender, kind))


def made(shard: int, count: int) -> tuple[ReplicaFrames, Turn, dict[int, Any]]:
    """Return the way of frames on a shard, with what it has taken by store."""
    turn = Turn(Clock(0))
    stores = (METADATA_STORE, DATA_STORE) if shard == 0 else (DATA_STORE,)
    planes: dict[int, Any] = {store: Taken() for store in stores}
    return ReplicaFrames(Placement(ShardId(shard), count), planes, turn), turn, planes


@counts
@pytest.mark.parametrize("kind", OF_METADATA, ids=lambda kind: kind.name)
def test_frames_of_the_metadata_group_reach_shard_0(kind: FrameKind, count: int) -> None:
    """SH-13: from every link, in one hop; none is hashed, and no other shard takes one."""
    frame = lawful(kind)
    for shard in range(count):
        link, turn, planes = made(shard, count)
        link.on_frames(FramesArrived(((2, frame),)))
        if shard == 0:
            assert planes[METADATA_STORE].kinds == [(2, kind)]
            assert not turn.out
            continue
        assert turn.out == [SendToMember(0, (frame,))]
        assert planes[DATA_STORE].kinds == []
        main, _, taken = made(0, count)
        main.on_passed(bytearray(frame))
        assert taken[METADATA_STORE].kinds == [(1, kind)], "its sender is the one that it names"
        assert taken[DATA_STORE].kinds == []


@counts
def test_frames_of_a_partition_reach_its_owner(count: int) -> None:
    """SH-12: by the hash of the group, and no table is asked."""
    for group in range(20):
        owner = owner_of(GroupId(group), count)
        frame = lawful(FrameKind.START_VIEW_CHANGE, group=group)
        for shard in range(count):
            link, turn, planes = made(shard, count)
            link.on_frames(FramesArrived(((2, frame),)))
            is_taken = planes[DATA_STORE].kinds == [(2, FrameKind.START_VIEW_CHANGE)]
            assert is_taken == (shard == owner)
            assert turn.out == ([] if is_taken else [SendToMember(owner, (frame,))])


@pytest.mark.parametrize("group", [METADATA_GROUP, 0])
def test_a_frame_of_another_shard_takes_no_second_hop(group: int) -> None:
    """SH-15: it is dropped where it arrives, and counted; there is no other who gets it."""
    frame = lawful(FrameKind.START_VIEW_CHANGE, group=group)
    wrong = next(each for each in (1, 2) if each != owner_of(GroupId(group), 3))
    entry, turn, planes = made(wrong, 3)
    entry.on_passed(bytearray(frame))
    assert planes[DATA_STORE].kinds == []
    assert not turn.out
    (drop,) = turn.drops.counts()
    assert (drop.variant, drop.reason) == (Variant.CONSENSUS, DropReason.MISROUTED)


def test_a_shard_that_is_alone_has_every_group() -> None:
    entry, turn, planes = made(0, 1)
    frames = [lawful(FrameKind.START_VIEW_CHANGE, group=group) for group in (METADATA_GROUP, 7)]
    entry.on_frames(FramesArrived(tuple((1, frame) for frame in (*frames, b"nonsense"))))
    assert [len(planes[store].kinds) for store in (METADATA_STORE, DATA_STORE)] == [1, 1]
    assert not turn.out
    assert turn.probes.counts == {"frame.refused": 1}


def test_a_frame_crosses_the_lanes_of_whole_shards() -> None:
    """SH-13: what a link of the last shard gets is taken by the metadata plane of shard 0."""
    node = Several(3)
    taken = Taken()
    setattr(node.main.shard.metadata.plane, "take_frame", taken.take_frame)  # noqa: B010 - a method
    frames = tuple((1, lawful(kind)) for kind in OF_METADATA)
    node.members[2].step(FramesArrived(frames))
    node.rest()
    assert taken.kinds == [(1, kind) for kind in OF_METADATA]
    assert marks(node, 2)["frame.passed_on"] == len(OF_METADATA)
    node.main.step(BusFrames(((2, lawful(FrameKind.PREPARE)[:-1]), (2, b"short"))))
    assert (marks(node, 0)["frame.refused"], marks(node, 0)["bus.refused"]) == (1, 1)


@counts
def test_logins_and_logouts_reach_shard_0(count: int) -> None:
    """SH-13: of a client of the last shard, for the metadata group."""
    node = Several(count)
    sent: list[tuple[int, Any]] = []
    send = node.send

    def noted(sender: int, effect: SendToMember) -> Any:
        header = bytes(effect.parts[0])
        if header[KIND_OFFSET] == FrameKind.FORWARDED_REQUEST:
            sent.append((effect.member, FORWARDED_REQUEST.decode(header)))
        return send(sender, effect)

    node.send = noted  # type: ignore[method-assign]
    client = HomedClient(node, count - 1, 7)
    client.login("iggy", b"iggy")
    client.ask(LOGOUT)
    assert [(member, header.operation, header.group) for member, header in sent] == [
        (0, Operation.REGISTER, METADATA_GROUP),
        (0, Operation.LOGOUT, METADATA_GROUP),
    ]
