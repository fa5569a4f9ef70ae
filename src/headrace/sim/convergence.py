"""The second phase of a run: which nodes are the core, and whether it is level."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.base.prng import Prng
from headrace.sim.node import Node
from headrace.sim.software import GroupFace, R
from headrace.vsr.quorum import quorums_of


def choose_core(nodes: Sequence[Node[R]], atlas: tuple[int, ...], prng: Prng) -> list[int]:
    """Return the nodes that are healed: half the time no more than an election needs.

    A small core has only nodes with a sound disk that may vote; where there are not enough of
    them, or by chance, the core is everyone. One that is down, or a part of it, may turn out
    suspect: what it was writing may be torn.
    """
    everyone = [node.index for node in nodes]
    quorum = quorums_of(len(nodes)).view_change
    sound = [
        node.index
        for node in nodes
        if node.index not in atlas
        and node.is_running_whole
        and node.running is not None
        and node.running.may_vote
    ]
    if len(nodes) < 3 or len(sound) < quorum or prng.chance(1, 2):
        return everyone
    prng.shuffle(sound)
    return sorted(sound[:quorum])


def why_not_level(core: Sequence[Node[R]]) -> str:
    """Return why the core is not in one view with equal logs all applied, or nothing."""
    down = [node.index for node in core if node.running is None]
    if down:
        return f"node {down[0]} is down"
    levels = [_level(faces) for faces in _faces(core)]
    if None in levels or any(level != levels[0] for level in levels):
        return f"not level; {states(core)}"
    return ""


def lacks_voters(core: Sequence[Node[R]], replica_count: int) -> bool:
    """Whether a group has lost more than the protocol can prove its way out of.

    Fewer sound voters than an election needs, and one whose disk was replaced and that may not
    vote before it has heard a settled primary: then waiting for an operator is the right answer.
    """
    quorum = quorums_of(replica_count).view_change
    by_group: dict[Any, list[GroupFace]] = {}
    for faces in _faces(core):
        for group, face in faces.items():
            by_group.setdefault(group, []).append(face)
    return any(
        sum(face.is_voter for face in faces) < quorum and any(face.is_wiped for face in faces)
        for faces in by_group.values()
    )


def states(core: Sequence[Node[R]]) -> str:
    """Return how the replicas of the core stand, for a report."""
    return "; ".join(
        f"{node.index}/{group}: view {face.view} log_view {face.log_view} op {face.op}"
        f" commit {face.commit_min}/{face.commit_max}"
        f" settled {face.is_settled} voter {face.is_voter}"
        for node in core
        if node.running is not None
        for group, face in node.running.faces().items()
    )


def _faces(core: Sequence[Node[R]]) -> list[Mapping[Any, GroupFace]]:
    return [node.running.faces() for node in core if node.running is not None]


def _level(faces: Mapping[Any, GroupFace]) -> list[tuple[Any, int, int]] | None:
    if not all(face.is_settled and face.commit_min == face.op for face in faces.values()):
        return None
    return sorted((group, face.view, face.commit_min) for group, face in faces.items())
