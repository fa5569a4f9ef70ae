"""What a shard refuses before any group sees it, and that it carries out every effect."""

from typing import get_args

from headrace.base.ids import METADATA_GROUP
from headrace.ports.network import FramesArrived, SendFrame, Ticked
from headrace.shard.config import GroupConfig
from headrace.shard.consensus.plane import Plane
from headrace.sim.machine import AppendMachine
from headrace.vsr.events import GroupEffect, PieceRead
from headrace.vsr.sessions import ClientTable
from headrace.wire.layout import KIND_OFFSET, LIFE
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.seals import seal
from tests.shard.stage import Stage


def shard_of(stage: Stage, number: int) -> Plane:
    shard = stage.nodes[number].shard
    assert shard is not None
    return shard


def refused(stage: Stage, number: int, name: str) -> int:
    return shard_of(stage, number).probes.counts.get(name, 0)


def heartbeats(stage: Stage) -> list[bytes]:
    """Let a group commit; give what node 0 then tells node 1 in heartbeats that list groups."""
    stage.request(0, "m", 0, 0, b"")
    stage.deliver()
    found: list[bytes] = []
    for _ in range(120):
        stage.now += 1
        for node in stage.nodes:
            stage.step(node, Ticked(stage.now, stage.now))
        found += [
            sent.frame
            for sender, sent in stage.flying
            if (sender, sent.replica) == (0, 1)
            and sent.frame[KIND_OFFSET] == FrameKind.NODE_HEARTBEAT
            and len(sent.frame) > 256
        ]
        stage.flying.clear()
    return found


def test_every_effect_of_a_group_is_carried_out() -> None:
    shard = shard_of(Stage(1), 0)
    assert list(shard.carry_out) == list(dict.fromkeys(shard.carry_out))
    assert shard.carry_out.keys() == dict.fromkeys(get_args(GroupEffect)).keys()


def test_a_damaged_heartbeat_tells_nothing() -> None:
    """NW9, seed 42: its body has a checksum too."""
    stage = Stage(3)
    damaged = bytearray(heartbeats(stage)[0])
    damaged[256 + 11] ^= 0x10
    before = refused(stage, 1, "frame.refused")
    stage.step(stage.nodes[1], FramesArrived(((0, bytes(damaged)),)))
    assert refused(stage, 1, "frame.refused") == before + 1


def test_a_frame_of_an_earlier_life_is_dropped() -> None:
    """NW8, seed 1070."""
    stage = Stage(3)
    frame = heartbeats(stage)[0]
    life = int.from_bytes(frame[LIFE], "little")

    def send(life: int) -> int:
        header = frame[: LIFE.start] + life.to_bytes(8, "little") + frame[LIFE.stop : 256]
        stage.step(stage.nodes[1], FramesArrived(((0, seal(header) + frame[256:]),)))
        return refused(stage, 1, "frame.stale")

    assert send(life) == 0
    assert send(life + 1) == 0
    assert send(life) == 1


def test_a_group_made_anew_gets_nothing_that_its_namesake_asked_for() -> None:
    """Node seed 5000059: what was read for a partition that was deleted since."""
    stage = Stage(1)
    plane = shard_of(stage, 0)
    before = plane.groups[METADATA_GROUP]
    plane.remove_group(METADATA_GROUP)
    plane.add_group(GroupConfig(METADATA_GROUP, origin=2), AppendMachine(), ClientTable())
    plane.put_piece(before, PieceRead(1, b"old"))
    assert not plane.has_work
    plane.put_piece(plane.groups[METADATA_GROUP], PieceRead(1, b"new"))
    assert plane.has_work


def test_a_frame_belongs_to_its_link() -> None:
    stage = Stage(3)
    frame = heartbeats(stage)[0]
    stage.step(stage.nodes[1], FramesArrived(((2, frame),)))
    assert refused(stage, 1, "frame.foreign") == 1
    stage.step(stage.nodes[1], FramesArrived(((1, SendFrame(1, frame).frame),)))
    assert refused(stage, 1, "frame.foreign") == 2
