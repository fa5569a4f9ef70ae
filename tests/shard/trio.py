"""Whole shards in memory, the frames between them, and clients of whoever leads."""

from typing import TYPE_CHECKING

from headrace.ports.network import FramesArrived, SendFrame
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.errors import Code, RefusedError
from tests.shard.whole import ROOT, STEPS_MAX, Client, Whole

if TYPE_CHECKING:
    from headrace.vsr.replica import Replica

COUNT = 3
STREAM = "stream"
TOPIC = "topic"
_PATIENCE = 60  # times 50 ticks


class Cluster:
    """Nodes; those that are cut off neither hear nor are heard, and time passes for who is down."""

    def __init__(self, nodes: list[Whole]) -> None:
        self.nodes = nodes
        self.flying: list[tuple[int, SendFrame]] = []
        self.seen: list[tuple[int, bytes]] = []  # every frame that was sent, and by whom
        self.cut: dict[int, None] = {}
        self.down: dict[int, None] = {}

    def tick(self, count: int = 1) -> None:
        """Let time pass for all; frames arrive between any two ticks."""
        for _ in range(count):
            self._tick_nodes()
            self.deliver()

    def _tick_nodes(self) -> None:
        for node in self.nodes:
            if node.replica in self.down:
                node.now += 1
            else:
                node.tick()

    def deliver(self) -> None:
        """Deliver what was sent, and what comes of it."""
        self.collect()
        for _ in range(STEPS_MAX):
            if not self.flying:
                return
            self._deliver_one()
        raise AssertionError("the nodes do not come to rest")

    def step(self) -> None:
        """Deliver one frame; let a tick pass if there is none."""
        self.collect()
        if self.flying:
            self._deliver_one()
        else:
            self._tick_nodes()

    def _deliver_one(self) -> None:
        sender, sent = self.flying.pop(0)
        if not any(each in self.cut or each in self.down for each in (sender, sent.replica)):
            self.fire(sent.replica, sender, sent.frame)
        self.collect()

    def collect(self) -> None:
        """Take what the nodes have sent."""
        for node in self.nodes:
            self.flying += [(node.replica, sent) for sent in node.sent]
            self.seen += [(node.replica, sent.frame) for sent in node.sent]
            node.sent.clear()

    def fire(self, target: int, sender: int, frame: bytes) -> None:
        """Have a frame arrive at a node."""
        self.nodes[target].step(FramesArrived(((sender, frame),)))


class Trio(Cluster):
    """A cluster of three with a topic."""

    def __init__(self) -> None:
        super().__init__(
            [Whole(replica=each, replica_count=COUNT, repair_ops_max=4) for each in range(COUNT)]
        )
        self.number = 1000
        self.tick(3)
        client = self.login(0)
        client.ask(CREATE_STREAM, CreateStream(STREAM))
        client.ask(CREATE_TOPIC, CreateTopic(STREAM, 1, TOPIC))
        self.tick(3)

    def login(self, node: int) -> "TrioClient":
        """Give a client of a node that leads the metadata group."""
        self.number += 1
        client = TrioClient(self, self.nodes[node], self.number)
        client.login(*ROOT)
        return client

    def groups(self, node: int) -> "list[Replica]":
        """Give the replicas of a node: that of the metadata group, then those of partitions."""
        shard = self.nodes[node].shard
        return [shard.metadata.replica, *shard.data_plane.groups.values()]

    def count(self, node: int, name: str) -> int:
        """Tell how often a mark was reached on a node."""
        return sum(each.counts.get(name, 0) for each in self.nodes[node].shard.probes)

    def send(self, payload: bytes) -> int:
        """Send a message through whoever leads, once somebody does; give its offset."""
        for _ in range(_PATIENCE):
            leaders = [
                node.replica
                for node in self.nodes
                if node.replica not in self.cut
                and all(each.is_serving for each in self.groups(node.replica))
            ]
            if leaders:
                try:
                    return self.login(leaders[0]).send(STREAM, TOPIC, [payload]).base_offset
                except RefusedError as refused:
                    assert refused.code in (  # noqa: PT017  # others are no matter of time
                        Code.TRANSIENT_NOT_ACCEPTED,
                        Code.TRANSIENT_NOT_COMMITTED,
                    )
            self.tick(50)
        raise AssertionError("nobody leads")


class TrioClient(Client):
    """A client whose requests travel between the nodes before it looks for its answer."""

    def __init__(self, trio: Trio, node: Whole, client: int) -> None:
        self._trio = trio
        super().__init__(node, client)

    def take(self) -> bytes:
        for _ in range(_PATIENCE):
            self._trio.tick(20)
            if self.node.inbox.get(self.connection):
                break
        return super().take()
