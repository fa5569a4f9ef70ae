"""NW13: wrong frames of peers against a whole shard of three are refused and counted; it lives.

What a rule of its kind forbids changes nothing. What no rule forbids may be a lie, and stall the
replica that believes it; the process lives, and the other nodes serve on.

`FUZZ_ROUNDS` asks for more rounds of lies, `FUZZ_SEED` for others.
"""

import os

import msgspec
import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES, OP_MAX
from headrace.base.prng import Prng
from headrace.vsr.state import Status
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replica.seals import seal
from tests.shard.peer_lies import Liar
from tests.shard.peer_shots import Shooter, largest, seal_frame
from tests.shard.trio import COUNT, Trio
from tests.wire.test_replicas import lawful
from tools.simulate import tree_seed

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "60"))
SHOTS = 40
SEEN_MAX = 60
OPS = ("op", "commit", "commit_op", "to_op")


def lead(trio: Trio) -> int:
    assert all(each.is_primary for each in trio.groups(0))
    return 0


def follow(trio: Trio) -> int:
    assert all(each.status == Status.NORMAL and not each.is_primary for each in trio.groups(2))
    return 2


def elect(trio: Trio) -> int:
    """Whoever is to lead the next view, alone in its election."""
    trio.cut |= dict.fromkeys(range(COUNT))
    trio.tick(1100)
    assert all(each.status == Status.VIEW_CHANGE for each in trio.groups(1))
    return 1


def recover(trio: Trio) -> int:
    """A replica that was started again, and asks for its view."""
    trio.cut |= dict.fromkeys(range(COUNT))
    trio.nodes[2].crash()
    assert all(each.status == Status.RECOVERING for each in trio.groups(2)[:1])
    return 2


def transfer(trio: Trio) -> int:
    """A replica that is so far behind that it fetches the state of its partition."""
    trio.cut[2] = None
    for number in range(8):
        trio.send(b"missed %d" % number)
    trio.cut.clear()
    while all(each.state.pull is None for each in trio.groups(2)):
        trio.step()
    return 2


def level(trio: Trio) -> bool:
    """Whether all replicas have applied the same ops."""
    commits = [[each.commit_min for each in trio.groups(node)] for node in range(COUNT)]
    return commits.count(commits[0]) == COUNT


def malformed(kind: FrameKind) -> list[bytes]:
    """Give frames of a kind, each with a right seal and against one rule."""
    layout, good = LAYOUTS[kind], lawful(kind)
    _, header = decode_replica(good)
    body = good[HEADER_BYTES:]
    changes = {name: largest(layout, name) for name in ("view", "replica", "release", "size")}
    changes |= {name: OP_MAX + 1 for name in OPS if name in layout.made.__struct_fields__}
    if "group" in layout.made.__struct_fields__:
        changes["group"] = METADATA_GROUP + 1
    shots = [
        seal(layout.encode(msgspec.structs.replace(header, **{name: value}))) + body
        for name, value in changes.items()
    ]
    if kind not in (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE, FrameKind.STATE_CHUNK):
        shots.append(seal_frame(layout, header, body + b"x"))  # Of those any bytes are a body.
        shots += [seal_frame(layout, header, body[:-1])] if body else []
    return [*shots, good + b"x", good[:-1], good[: HEADER_BYTES - 1]]


@pytest.mark.parametrize("kind", sorted(LAYOUTS), ids=lambda kind: FrameKind(kind).name)
def test_a_malformed_frame_is_refused_and_counted(kind: int) -> None:
    trio = Trio()
    trio.send(b"before")
    for victim in range(COUNT):
        before = trio.count(victim, "frame.refused")
        shots = malformed(FrameKind(kind))
        for shot in shots:
            trio.fire(victim, (victim + 1) % COUNT, shot)
        assert trio.count(victim, "frame.refused") == before + len(shots)
    assert trio.send(b"after") == 1
    trio.tick(60)
    assert level(trio)
    assert all(each.view == 0 for node in range(COUNT) for each in trio.groups(node))


PHASES = (lead, follow, elect, recover, transfer)


def attack(seed: int) -> None:
    """Bring a node into a phase, fire at it, and see that it and the others live."""
    prng = Prng(seed)
    trio = Trio()
    for number in range(3):
        trio.send(b"before %d" % number)
    victim = prng.choice(PHASES)(trio)
    trio.cut |= dict.fromkeys(range(COUNT))
    shooter = Shooter(prng.fork("shots"))
    liars = [Liar(prng.fork(f"group {each.group}"), trio, each) for each in trio.groups(victim)]
    for _ in range(SHOTS):
        number = prng.below(len(liars))
        group = trio.groups(victim)[number]
        sender = prng.choice(group.state.others)
        if prng.chance(1, 2):
            sender, frames = liars[number].lie(sender)
        else:
            seen = [frame for _, frame in trio.seen[-SEEN_MAX:]]
            frames = [shooter.shoot(group, sender, trio.nodes[sender].starts, seen)]
        for frame in frames:
            trio.fire(victim, sender, frame)
        trio.collect()
        if prng.chance(1, 10):
            trio.nodes[victim].tick(prng.choice([1, 60, 600]))
    trio.nodes[victim].crash(is_power_cut=prng.chance(1, 2))
    trio.nodes[victim].tick(200)
    trio.cut = {victim: None}
    assert trio.send(b"after") >= 3


@pytest.mark.slow
def test_wrong_frames_of_peers() -> None:
    seed = int(os.environ.get("FUZZ_SEED", str(tree_seed())))
    for number in range(ROUNDS):
        try:
            attack(seed + number)
        except Exception as error:
            error.add_note(f"seed {seed + number}")
            raise
