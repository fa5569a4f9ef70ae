"""Random schedules over perfect disks: whatever is lost, doubled or late, replicas agree.

The simulator does this with broken disks and whole shards; this one is small enough to debug.
"""

import pytest

from headrace.base.prng import Prng
from headrace.sim.machine import encode_append
from headrace.vsr.state import Status
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.numbers import Operation
from headrace.wire.replies import REPLY, read_answer
from tests.vsr.cluster import Cluster

STEPS = 2000
ROUNDS = 300


class Clients:
    """A few clients that each have one request under way and repeat it until it is answered."""

    def __init__(self) -> None:
        self.sessions: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        self.answered = 0

    def send(self, cluster: Cluster, node: int, client: int) -> None:
        session = self.sessions.get(client, 0)
        if not session:
            cluster.request(node, client, 0, 0, b"")
            return
        number = self.numbers.setdefault(client, 1)
        cluster.request(node, client, number, session, encode_append(b"key", b"%d" % number))

    def read(self, cluster: Cluster) -> None:
        for node in cluster.nodes:
            for reply in node.replies:
                self._read(reply.client, reply.frame)
            node.replies.clear()

    def _read(self, client: int, frame: bytes) -> None:
        try:
            payload = bytes(read_answer(frame))
        except EvictedError:
            self.sessions.pop(client, None)
            return
        except RefusedError:
            return
        header = REPLY.decode(frame)
        if header.operation == Operation.REGISTER:
            self.sessions[client] = int.from_bytes(payload, "little")
        elif header.request == self.numbers.get(client):
            self.numbers[client] += 1
            self.answered += 1


def disturb(cluster: Cluster, clients: Clients, prng: Prng) -> None:
    """Do one random thing."""
    replicas = len(cluster.nodes)
    choice = prng.below(1000)
    if choice < 680 and cluster.flying:
        position = prng.below(len(cluster.flying))
        match prng.below(12):
            case 0:
                cluster.flying.pop(position)
            case 1:
                cluster.flying.append(cluster.flying[position])
            case _:
                cluster.deliver(position)
    elif choice < 880:
        clients.send(cluster, prng.below(replicas), 1 + prng.below(3))
    elif choice < 920:
        node = prng.choice(cluster.nodes)
        if node.timers:
            cluster.fire(node.number, prng.choice(sorted(node.timers)))
    elif choice < 921:
        cluster.silent(prng.below(replicas))
    elif choice < 950:
        cluster.beat()
    elif choice < 953 and replicas > 1:
        cluster.restart(prng.below(replicas))


def calm(cluster: Cluster) -> bool:
    """Deliver everything and let every timer run; return whether the replicas came to agree."""
    for _ in range(ROUNDS):
        cluster.deliver_all()
        cluster.beat()
        cluster.deliver_all()
        for node in cluster.nodes:
            for timer in sorted(node.timers):
                cluster.fire(node.number, timer)
                cluster.deliver_all()
        replicas = [node.replica for node in cluster.nodes]
        if all(
            each.status == Status.NORMAL
            and each.view == replicas[0].view
            and each.commit_min == each.op == replicas[0].op
            for each in replicas
        ):
            return True
    return False


def run(seed: int, replicas: int) -> tuple[Cluster, Clients]:
    cluster = Cluster(replicas, seed)
    clients = Clients()
    prng = Prng(seed)
    for _ in range(STEPS):
        disturb(cluster, clients, prng)
        clients.read(cluster)
    return cluster, clients


def check(seed: int, replicas: int) -> int:
    cluster, clients = run(seed, replicas)
    assert calm(cluster), [
        (node.replica.status.name, node.replica.view, node.replica.commit_min, node.replica.op)
        for node in cluster.nodes
    ]
    machines = {node.replica.machine.state_hash(): None for node in cluster.nodes}
    tables = {node.replica.table.encode(): None for node in cluster.nodes}
    assert len(machines) == len(tables) == 1
    return clients.answered


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5, 6])
def test_replicas_agree(replicas: int) -> None:
    assert check(seed=replicas, replicas=replicas) > 10


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5, 6])
def test_replicas_agree_over_many_schedules(replicas: int) -> None:
    """Share: simulator, about 5 s in all."""
    for seed in range(100, 130):
        check(seed, replicas)
