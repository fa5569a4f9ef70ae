"""The shards of a node as the world sees them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.base.checksum import xxh3_64
from headrace.base.ids import GroupId, unpack_namespace
from headrace.groups.roster import EMPTY_ROSTER
from headrace.metadata.state import State
from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.peer import PeerShard
from headrace.shard.shard import Shard
from headrace.sim.faces import Face
from headrace.sim.node import Node, Pump
from headrace.sim.nodes.actions import GROUP, STREAM
from headrace.sim.nodes.checkers import METADATA
from headrace.sim.nodes.history import Incarnation
from headrace.storage.store import Opened
from headrace.vsr.replica import Replica


class ShardRunning:
    """A shard on its opened stores; machines that are made with it may already ask."""

    def __init__(
        self, stores: Sequence[Opened], make: Callable[["ShardRunning"], Shard | PeerShard]
    ) -> None:
        self._found = Counter(
            f"recovered: {finding.kind}" for store in stores for finding in store.findings
        )
        # Whether its stores are suspect: a group that comes later is too.
        self._is_suspect = any(store.is_suspect for store in stores)
        self._shard: Shard | PeerShard | None = None
        self._shard = make(self)

    @property
    def shard(self) -> Shard | PeerShard:
        """The shard itself."""
        assert self._shard is not None
        return self._shard

    def start(self) -> list[ShardEffect]:
        """Return what is to be done first."""
        return self.shard.start()

    def step(self, event: ShardEvent) -> list[ShardEffect]:
        """Take one event; return what must now happen, in order."""
        return self.shard.step(event)

    @property
    def probes(self) -> Mapping[str, int]:
        """The marks that it has reached, and what recovery noticed."""
        probes = Counter(self._found)
        for part in self.shard.probes:
            probes.update(part.counts)
        if isinstance(self.shard, Shard):
            probes["metadata.checkpointed"] += self.shard.metadata.plane.checkpoints.done_count
        probes["data.checkpointed"] += self.shard.data_plane.checkpoints.done_count
        return probes

    @property
    def may_vote(self) -> bool:
        """Whether it votes in all its groups."""
        return not self._is_suspect and all(
            Face(replica).is_voter for replica in self.replicas().values()
        )

    def components(self) -> Iterator[object]:
        """Return the parts that may check themselves."""
        yield from (self.shard, self.shard.partitions.shared)
        planes = [self.shard.data_plane]
        if isinstance(self.shard, Shard):
            planes.insert(0, self.shard.metadata.plane)
        for plane in planes:
            yield from (plane, plane.store)
            if plane.has_begun:
                for replica in plane.groups.values():
                    yield from (replica, replica.machine)

    def replicas(self) -> dict[Incarnation, Replica]:
        """Return its groups, as they are."""
        found: dict[Incarnation, Replica] = {}
        if isinstance(self.shard, Shard):
            found[METADATA] = self.shard.metadata.replica
        for local in self.shard.partitions.locals.values():
            key = Incarnation(local.target.group, local.target.created_revision)
            found[key] = local.replica
        return found

    def machines(self) -> dict[Incarnation, PartitionMachine]:
        """Return its partitions."""
        return {
            Incarnation(local.target.group, local.target.created_revision): local.machine
            for local in self.shard.partitions.locals.values()
        }

    @property
    def fence(self) -> str | None:
        """Why it refuses one of its partitions, if it does."""
        fences = [local.fence for local in self.shard.partitions.locals.values()]
        return next((fence for fence in fences if fence is not None), None)

    def name_of(self, target: PartitionTarget) -> str:
        """Return what checkers call a partition: its topic's name, and its number."""
        stream_id, topic_id, partition = unpack_namespace(GroupId(target.group))
        stream = self.state.streams.find(stream_id)
        topic = None if stream is None else stream.topics.find(topic_id)
        assert topic is not None
        return f"{topic.name}/{partition}"

    @property
    def state(self) -> State:
        """The metadata, as the shard has it."""
        shard = self.shard
        return shard.metadata.state if isinstance(shard, Shard) else shard.image.state

    def table_of(self, key: Incarnation) -> int | None:
        """Return what stands for the requests that a group knows; none while it is made."""
        if self._shard is None:
            return None
        if isinstance(self._shard, Shard) and key == METADATA:
            return xxh3_64(self._shard.metadata.sessions.encode())
        replica = self._shard.data_plane.groups.get(key.group)
        return None if replica is None else xxh3_64(replica.table.encode())


class NodeRunning:
    """All shards of a node; one that was killed alone stays as it was, until the node ends."""

    def __init__(self, shards: Sequence[ShardRunning]) -> None:
        self.shards = shards
        self.is_opened = False  # whether all shards were told that all stores are open

    @property
    def probes(self) -> Mapping[str, int]:
        """The marks that its shards have reached."""
        probes: Counter[str] = Counter()
        for running in self.shards:
            probes.update(running.probes)
        return probes

    @property
    def may_vote(self) -> bool:
        """Whether it votes in all its groups."""
        return all(running.may_vote for running in self.shards)

    def faces(self) -> Mapping[Incarnation, Face]:
        """Return its groups."""
        return {key: Face(replica) for key, replica in self.replicas().items()}

    def replicas(self) -> dict[Incarnation, Replica]:
        """Return its groups, as they are."""
        return {key: replica for shard in self.shards for key, replica in shard.replicas().items()}

    def machines(self) -> dict[Incarnation, PartitionMachine]:
        """Return its partitions."""
        return {key: machine for shard in self.shards for key, machine in shard.machines().items()}

    @property
    def fence(self) -> str | None:
        """Why it refuses one of its partitions, if it does."""
        return next((each.fence for each in self.shards if each.fence is not None), None)


Host = Node[NodeRunning]
HostPump = Pump[NodeRunning]


def shard_of(pump: HostPump) -> ShardRunning:
    """Return the shard that a pump runs."""
    assert pump.node.running is not None
    return pump.node.running.shards[pump.index]


def replicas_of(host: Host) -> dict[Incarnation, Replica]:
    """Return the groups of a node; none while it is down."""
    return {} if host.running is None else host.running.replicas()


def machines_of(host: Host) -> dict[Incarnation, PartitionMachine]:
    """Return the partitions of a node; none while it is down."""
    return {} if host.running is None else host.running.machines()


def running_of(core: Iterable[Host]) -> list[tuple[Host, NodeRunning]]:
    """Return the nodes that are up, with their shards."""
    return [(host, host.running) for host in core if host.running is not None]


def owners_of(state: State) -> dict[str, dict[int, int]]:
    """Return who owns which partitions of the groups, by the names of their topics."""
    stream = state.streams.find(STREAM)
    owners: dict[str, dict[int, int]] = {}
    for topic in () if stream is None else stream.topics:
        group = topic.groups.find(GROUP)
        roster = EMPTY_ROSTER if group is None else group.roster
        owners[topic.name] = {at: member.client for at, member in roster.owners.items()}
    return owners


def partitions_of(state: State) -> dict[str, int]:
    """Return when each partition that clients know was created, by what checkers call it."""
    stream = state.streams.find(STREAM)
    return {
        f"{topic.name}/{number}": partition.created_revision
        for topic in (() if stream is None else stream.topics)
        for number, partition in enumerate(topic.partitions)
    }


def purges_of(state: State) -> dict[tuple[str, Incarnation], int]:
    """Return the last purge of each partition that clients know, by name and incarnation."""
    stream = state.streams.find(STREAM)
    return {
        (
            f"{topic.name}/{number}",
            Incarnation(topic.namespace(number), partition.created_revision),
        ): partition.purge_generation
        for topic in (() if stream is None else stream.topics)
        for number, partition in enumerate(topic.partitions)
    }
