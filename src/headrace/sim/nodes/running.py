"""A whole shard as the world sees it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.base.checksum import xxh3_64
from headrace.base.ids import GroupId, unpack_namespace
from headrace.groups.roster import EMPTY_ROSTER
from headrace.metadata.state import State
from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.shard import Shard
from headrace.sim.faces import Face
from headrace.sim.node import Node
from headrace.sim.nodes.actions import GROUP, STREAM
from headrace.sim.nodes.checkers import METADATA
from headrace.sim.nodes.history import Incarnation
from headrace.storage.store import Opened
from headrace.vsr.replica import Replica


class ShardRunning:
    """A shard on its opened stores; machines that are made with it may already ask."""

    def __init__(self, stores: Sequence[Opened], make: Callable[["ShardRunning"], Shard]) -> None:
        self._found = Counter(
            f"recovered: {finding.kind}" for store in stores for finding in store.findings
        )
        # Whether its stores are suspect: a group that comes later is too.
        self._is_suspect = any(store.is_suspect for store in stores)
        self._shard: Shard | None = None
        self._shard = make(self)

    @property
    def shard(self) -> Shard:
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
        probes["metadata.checkpointed"] += self.shard.metadata.plane.checkpoints.done_count
        probes["data.checkpointed"] += self.shard.data_plane.checkpoints.done_count
        return probes

    @property
    def may_vote(self) -> bool:
        """Whether it votes in all its groups."""
        return not self._is_suspect and all(face.is_voter for face in self.faces().values())

    def faces(self) -> Mapping[Incarnation, Face]:
        """Return its groups."""
        return {key: Face(replica) for key, replica in self.replicas().items()}

    def components(self) -> Iterator[object]:
        """Return the parts that may check themselves."""
        yield from (self.shard, self.shard.partitions.shared)
        for plane in (self.shard.metadata.plane, self.shard.data_plane):
            yield from (plane, plane.store)
            if plane.has_begun:
                for replica in plane.groups.values():
                    yield from (replica, replica.machine)

    def replicas(self) -> dict[Incarnation, Replica]:
        """Return its groups, as they are."""
        found = {METADATA: self.shard.metadata.replica}
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
        stream = self.shard.metadata.state.streams.find(stream_id)
        topic = None if stream is None else stream.topics.find(topic_id)
        assert topic is not None
        return f"{topic.name}/{partition}"

    def table_of(self, key: Incarnation) -> int | None:
        """Return what stands for the requests that a group knows; none while it is made."""
        if self._shard is None:
            return None
        if key == METADATA:
            return xxh3_64(self._shard.metadata.sessions.encode())
        replica = self._shard.data_plane.groups.get(key.group)
        return None if replica is None else xxh3_64(replica.table.encode())


Host = Node[ShardRunning]


def replicas_of(host: Host) -> dict[Incarnation, Replica]:
    """Return the groups of a node; none while it is down."""
    return {} if host.running is None else host.running.replicas()


def machines_of(host: Host) -> dict[Incarnation, PartitionMachine]:
    """Return the partitions of a node; none while it is down."""
    return {} if host.running is None else host.running.machines()


def running_of(core: Iterable[Host]) -> list[tuple[Host, ShardRunning]]:
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
