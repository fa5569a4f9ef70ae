"""A node of several shards in memory: each on disks of its own, joined by lanes that deliver.

Lanes may be told to hold or to drop what they get; time passes for all shards alike.
"""

from collections import deque
from typing import Any

from headrace.base.connection_numbers import home_of, make_connection_id
from headrace.base.ids import (
    GroupId,
    Namespace,
    PartitionId,
    ShardId,
    StreamId,
    TopicId,
    pack_namespace,
)
from headrace.base.placement import Placement, owner_of
from headrace.ports.bus import BusFrames, BusRefused, DropReason, ReleaseReply, SendToMember
from headrace.ports.host import NodeOpened
from headrace.ports.network import ConnectionClosed, ConnectionLeft, ConnectionOpened
from headrace.shard.bus.exchange import Exchange
from headrace.shard.bus.image import MetadataImage
from headrace.shard.consensus.plane import Plane
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.peer import PeerShard
from headrace.shard.settings import ShardSettings
from headrace.shard.shard import Shard
from headrace.storage.store import Opened
from headrace.wire.bus.decode import group_of as group_of_frame
from headrace.wire.bus.decode import ticket_of
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import Transport
from tests.shard.whole import LOOPBACK, Client, Whole


class Member(Whole):
    """One shard of the node."""

    def __init__(self, node: "Several", shard: int, count: int, **settings: Any) -> None:
        self.several = node
        self.number = shard
        self.left: list[int] = []  # connections of other shards that are gone
        self.is_fed = True  # It waits for the others: they open their stores, shard 0 feeds.
        super().__init__(placement=Placement(ShardId(shard), count), **settings)

    def _make(self, settings: ShardSettings, opened: list[Opened]) -> Any:
        return Shard(settings, *opened) if self.number == 0 else PeerShard(settings, opened[1])

    def _planes(self) -> tuple[Plane, ...]:
        if self.number == 0:
            return super()._planes()
        return (self.shard.data_plane,)

    @property
    def exchange(self) -> Exchange:
        """Return its place on the bus."""
        found: Exchange | None = self.shard._exchange
        assert found is not None
        return found

    def _carry_out(self, effect: ShardEffect) -> list[ShardEvent]:
        if isinstance(effect, SendToMember):
            return self.several.send(self.number, effect)
        if isinstance(effect, ReleaseReply):
            return []
        if isinstance(effect, ConnectionLeft):
            self.left.append(effect.connection)
            return []
        return super()._carry_out(effect)


class Several:
    """The node; its clients are homed where they say."""

    def __init__(self, count: int, **settings: Any) -> None:
        self.count = count
        self.lanes: dict[tuple[int, int], deque[bytes]] = {
            (sender, target): deque() for sender in range(count) for target in range(count)
        }
        self.held: set[tuple[int, int]] = set()  # lanes that deliver nothing for now
        self.full: set[tuple[int, int]] = set()  # lanes that take nothing
        self.frames: list[tuple[int, int, int]] = []  # sender, target, kind of all that were taken
        self.wall = 0  # what the clock says when frames of other shards arrive; 0: it did not move
        self._connection = 0
        self.members: list[Member] = []
        for shard in range(count):
            self.members.append(Member(self, shard, count, **settings))
        self.begin()

    def begin(self) -> None:
        """Tell all shards that all stores are open, as the supervisor does."""
        for member in self.members:
            assert member.shard.is_open
            assert not member.shard.data_plane.has_begun
            member.step(NodeOpened())
        self.settle()

    @property
    def main(self) -> Member:
        """Shard 0."""
        return self.members[0]

    def send(self, sender: int, effect: SendToMember) -> list[ShardEvent]:
        """Take a frame into its lane, or refuse it."""
        frame = b"".join(bytes(part) for part in effect.parts)
        kind = frame[KIND_OFFSET]
        if (sender, effect.member) in self.full:
            return [
                BusRefused(
                    effect.member, kind, ticket_of(frame), DropReason.FULL, group_of_frame(frame)
                )
            ]
        self.lanes[sender, effect.member].append(frame)
        self.frames.append((sender, effect.member, kind))
        return []

    def deliver(self) -> bool:
        """Deliver what the lanes hold; return whether there was anything."""
        is_any = False
        for (sender, target), lane in self.lanes.items():
            if lane and (sender, target) not in self.held and target < len(self.members):
                frames = tuple((sender, bytearray(frame)) for frame in lane)
                lane.clear()
                is_any = True
                self.members[target].step(BusFrames(frames, self.wall))
        return is_any

    def settle(self, ticks: int = 30) -> None:
        """Let time pass, and everything arrive."""
        for _ in range(ticks):
            self.rest()
            for member in self.members:
                member.tick()
        self.rest()

    def rest(self) -> None:
        """Deliver until nothing is on its way."""
        while self.deliver():
            pass

    def step(self, event: ShardEvent) -> None:
        """Hand what comes to a connection to its home, and let the answer come."""
        number = event.frames[0][0]  # type: ignore[union-attr]
        self.members[home_of(number)].step(event)
        self.rest()

    def connect(self, address: str = LOOPBACK, home: int = 0) -> int:
        """Open a connection that lives on a shard: shard 0 has accepted it."""
        self._connection += 1
        number = make_connection_id(home, self._connection)
        for shard in dict.fromkeys((0, home)):
            self.members[shard].step(ConnectionOpened(number, Transport.TCP, address))
        return number

    def close(self, connection: int) -> None:
        """Close a connection, as its client does."""
        self.members[home_of(connection)].step(ConnectionClosed(connection))
        self.rest()

    def crash(self, *, is_power_cut: bool = False) -> None:
        """End all shards, as a kill of the node does, and start them again."""
        for lane in self.lanes.values():
            lane.clear()
        for member in self.members:
            member.end(is_power_cut=is_power_cut)
        for member in self.members:
            member.start()
        self.begin()

    @property
    def inbox(self) -> dict[int, list[bytes]]:
        """What was sent to the connections."""
        return {number: got for each in self.members for number, got in each.inbox.items()}

    def client(self, home: int, client: int = 0) -> "HomedClient":
        """Return a client that lives on a shard and is logged in."""
        made = HomedClient(self, home, client or 1000 + self._connection)
        made.login("iggy", b"iggy")
        return made

    def image(self, shard: int) -> MetadataImage:
        """Return the metadata as a shard other than the first has it."""
        peer: object = self.members[shard].shard
        assert isinstance(peer, PeerShard)
        return peer.image

    def partition_of(self, shard: int, partitions: int = 64) -> int:
        """Return a partition of topic 0 of stream 0 that a shard owns."""
        return next(at for at in range(partitions) if owner_of(group_of(at), self.count) == shard)


class HomedClient(Client):
    """A client whose connection lives on a shard of its choice."""

    def __init__(self, node: Several, home: int, client: int) -> None:
        self.node = node  # type: ignore[assignment]  # it steps and has an inbox, as a whole does
        self.client = client
        self.connection = node.connect(home=home)
        self.session = 0
        self.number = 0


def group_of(partition: int) -> GroupId:
    """Return the group of a partition of the first topic of the first stream."""
    return pack_namespace(Namespace(StreamId(0), TopicId(0), PartitionId(partition)))
