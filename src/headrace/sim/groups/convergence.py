"""The second phase: which nodes are the core, and whether it has converged."""

from collections.abc import Sequence

from headrace.base.prng import Prng
from headrace.sim.groups.clients import Client
from headrace.sim.groups.node import Node
from headrace.vsr.quorum import quorums_of


def choose_core(nodes: Sequence[Node], atlas: tuple[int, ...], prng: Prng) -> list[int]:
    """Give the nodes that are healed: half the time no more than an election needs.

    A small core has only nodes with a sound disk that may vote; where there are not enough of
    them, or by chance, the core is everyone.
    """
    everyone = [node.index for node in nodes]
    quorum = quorums_of(len(nodes)).view_change
    sound = [node.index for node in nodes if node.index not in atlas and _may_vote(node)]
    if len(nodes) < 3 or len(sound) < quorum or prng.chance(1, 2):
        return everyone
    prng.shuffle(sound)
    return sorted(sound[:quorum])


def _may_vote(node: Node) -> bool:
    """Whether a node is up and votes in all its groups; one that is down may turn out suspect."""
    running = node.running
    return running is not None and all(face.is_voter for face in running.faces().values())


def why_not_converged(clients: Sequence[Client], core: Sequence[Node]) -> str:
    """Say what the core still lacks, or nothing."""
    waiting = [client.endpoint for client in clients if not client.is_done]
    if waiting:
        client = next(client for client in clients if not client.is_done)
        asked = client.outstanding
        told = f", group {asked.group} {asked.operation.name}" if asked is not None else ""
        return f"{len(waiting)} clients wait{told}; {_states(core)}"
    for node in core:
        running = node.running
        if running is None:
            return f"node {node.index} is down"
        for group, face in running.faces().items():
            if not face.is_settled:
                return f"group {group} on node {node.index} is not settled; {_states(core)}"
    if not _is_level(core):
        return f"not level; {_states(core)}"
    return ""


def lacks_voters(core: Sequence[Node], replica_count: int) -> bool:
    """Whether a group has lost more than the protocol can prove its way out of.

    Fewer sound voters than an election needs, and one whose disk was replaced and that may not
    vote before it has heard a settled primary: then waiting for an operator is the right answer.
    """
    quorum = quorums_of(replica_count).view_change
    faces = [node.running.faces() for node in core if node.running is not None]
    for group in faces[0] if faces else ():
        voters = sum(each[group].is_voter for each in faces)
        if voters < quorum and any(each[group].is_wiped for each in faces):
            return True
    return False


def _is_level(core: Sequence[Node]) -> bool:
    levels = []
    for node in core:
        assert node.running is not None
        faces = node.running.faces()
        if any(face.commit_min != face.op for face in faces.values()):
            return False
        levels.append([(group, face.view, face.commit_min) for group, face in faces.items()])
    return all(level == levels[0] for level in levels)


def _states(core: Sequence[Node]) -> str:
    told = []
    for node in core:
        if node.running is None:
            told.append(f"{node.index} down")
            continue
        for group, face in node.running.faces().items():
            told.append(
                f"{node.index}/{group}: view {face.view} log_view {face.log_view} op {face.op}"
                f" commit {face.commit_min}/{face.commit_max}"
                f" settled {face.is_settled} voter {face.is_voter}"
            )
    return "; ".join(told)
