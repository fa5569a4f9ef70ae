"""One simulated node: its disks and its folder, and its shard while it runs."""

from typing import TYPE_CHECKING

from headrace.base.checksum import xxh3_64
from headrace.base.ids import GroupId, unpack_namespace
from headrace.groups.roster import EMPTY_ROSTER
from headrace.metadata.state import State
from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.sim.disk import Disk
from headrace.sim.folder import Folder
from headrace.sim.inbox import Inbox
from headrace.sim.nodes.actions import GROUP, STREAM
from headrace.sim.nodes.checkers import METADATA
from headrace.sim.nodes.history import Incarnation
from headrace.vsr.replica import Replica
from headrace.vsr.state import Status

if TYPE_CHECKING:
    from headrace.shard.effects import ShardEvent
    from headrace.shard.shard import Shard


class Host:
    """What the world knows of a node; the world alone changes it."""

    def __init__(self, index: int, disks: tuple[Disk, Disk], folder: Folder) -> None:
        self.index = index
        self.disks = disks
        self.folder = folder
        self.shard: Shard | None = None
        self.tick_length = 0
        self.life = 0
        self.incarnation = 0
        self.boot_identity = 1  # another one after every power cut
        self.booted_at = 0
        self.told_ticks = 0  # since then, as its shard was told last
        self.wall_skew = 0
        self.is_paused = False
        self.is_refused = False
        self.is_suspect = False  # whether its stores are: a group that comes later is too
        self.is_reading = True
        self.is_turn_planned = False
        self.effects_left = -1  # effects until the node crashes; below zero: it does not
        self.is_power_next = False
        self.inbox: Inbox[ShardEvent] = Inbox()

    @property
    def is_up(self) -> bool:
        """Whether it runs, paused or not."""
        return self.shard is not None

    def ticks_at(self, now: int) -> int:
        """Give the ticks of its clock in this life."""
        return (now - self.booted_at) // self.tick_length

    def replicas(self) -> dict[Incarnation, Replica]:
        """Give the groups of a running node."""
        if self.shard is None:
            return {}
        found = {METADATA: self.shard.metadata.replica}
        for local in self.shard.partitions.locals.values():
            key = Incarnation(local.target.group, local.target.created_revision)
            found[key] = local.replica
        return found

    def machines(self) -> dict[Incarnation, PartitionMachine]:
        """Give the partitions of a running node."""
        if self.shard is None:
            return {}
        return {
            Incarnation(local.target.group, local.target.created_revision): local.machine
            for local in self.shard.partitions.locals.values()
        }

    @property
    def fence(self) -> str | None:
        """Why a running node refuses one of its partitions, if it does."""
        if self.shard is None:
            return None
        fences = [local.fence for local in self.shard.partitions.locals.values()]
        return next((fence for fence in fences if fence is not None), None)

    def name_of(self, target: PartitionTarget) -> str:
        """Give what checkers call a partition: its topic's name, and its number."""
        assert self.shard is not None
        stream_id, topic_id, partition = unpack_namespace(GroupId(target.group))
        stream = self.shard.metadata.state.streams.find(stream_id)
        topic = None if stream is None else stream.topics.find(topic_id)
        assert topic is not None
        return f"{topic.name}/{partition}"

    def table_of(self, key: Incarnation) -> int | None:
        """Give what stands for the requests that a group knows; none while it is made."""
        if self.shard is None:
            return None
        if key == METADATA:
            return xxh3_64(self.shard.metadata.sessions.encode())
        replica = self.shard.data_plane.groups.get(key.group)
        return None if replica is None else xxh3_64(replica.table.encode())

    def may_vote(self) -> bool:
        """Whether it is up and votes in all its groups."""
        is_sound = self.shard is not None and not self.is_suspect
        return is_sound and all(map(is_voter, self.replicas().values()))


def owners_of(state: State) -> dict[str, dict[int, int]]:
    """Give who owns which partitions of the groups, by the names of their topics."""
    stream = state.streams.find(STREAM)
    owners: dict[str, dict[int, int]] = {}
    for topic in () if stream is None else stream.topics:
        group = topic.groups.find(GROUP)
        roster = EMPTY_ROSTER if group is None else group.roster
        owners[topic.name] = {at: member.client for at, member in roster.owners.items()}
    return owners


def is_voter(replica: Replica) -> bool:
    """Whether a replica may take part in an election."""
    state = replica.state
    is_damaged = any(
        entry.body is None and not entry.is_never_held
        for op, entry in state.log.entries.items()
        if op > state.commit_max
    )
    return not (state.is_suspect or state.is_wiped or is_damaged)


def is_settled(replica: Replica) -> bool:
    """Whether a replica is in the normal case and has applied all of its log."""
    return replica.status == Status.NORMAL and replica.commit_min == replica.op
