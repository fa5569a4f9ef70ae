"""What every shard of a node does, whether it has the metadata group or not.

```
connections -> front -> metadata | data plane | queries     one turn: all that came together
               planes -> apply -> owned: partitions as metadata says, batches to their segments
                      -> delivery
```

Flow: route, replicate, apply, store, reply.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.connection_numbers import home_of
from headrace.base.ids import METADATA_GROUP, GroupId
from headrace.base.placement import METADATA_SHARD
from headrace.ports.disk import FromStore
from headrace.ports.host import HostSampled, NodeOpened, SnapshotMade, StopWanted, TurnBegun
from headrace.ports.network import (
    ConnectionClosed,
    ConnectionOpened,
    FramesArrived,
    RepliesWritten,
    RequestsArrived,
    Ticked,
)
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding
from headrace.ports.segments import (
    IndexRead,
    PartitionRemoved,
    PartitionsListed,
    SegmentFailed,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
)
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.consensus.plane import Plane
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.front.backpressure import Backpressure
from headrace.shard.front.connections import Connection
from headrace.shard.front.front import Front
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.shard.replica_frames import ReplicaFrames
from headrace.shard.settings import ShardSettings
from headrace.shard.timekeeper import Timekeeper
from headrace.shard.turn import Turn
from headrace.shard.watch import Watch
from headrace.storage.store import Opened
from headrace.wire.commands.system import ClusterMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ports.network import Buffer
    from headrace.vsr.events import OwnOp

SWEEP_TICKS = 100


class ShardCore:
    """One shard; a kind of shard says what it does with logins and the metadata."""

    def __init__(  # noqa: PLR0913 - it joins the parts
        self,
        settings: ShardSettings,
        metadata: Metadata,
        data: Opened,
        turn: Turn,
        watch: Watch,
        *,
        metadata_plane: Plane | None = None,
        propose: "Callable[[OwnOp], None] | None" = None,
    ) -> None:
        """Make it on its store; with the plane of the metadata group if it has that group."""
        self.settings = settings
        self.clock = turn.clock
        self._turn = turn
        self._metadata = metadata
        self._is_node_open = settings.placement.shard_count == 1  # else it is told
        self.data_plane = plane = Plane(
            settings.data, data, outside=self, has_offsets=True, may_begin=self._may_begin
        )
        self._data_inbox = plane.inbox
        assert settings.data.journal == DATA_STORE, "a store is found by its number"
        self._planes = (plane,) if metadata_plane is None else (metadata_plane, plane)
        self._plane_of = {DATA_STORE: plane}
        if metadata_plane is not None:
            self._plane_of[METADATA_STORE] = metadata_plane
        self.replica_frames = ReplicaFrames(settings.placement, self._plane_of, turn)
        self._timekeeper = Timekeeper(settings, metadata, self._planes, turn, propose)
        self.partitions = Partitions(settings, metadata, plane, turn, watch)
        self.front = Front(settings, metadata, plane, self.partitions, turn, lambda: self.probes)
        self.front.reports.stores = tuple([each.store for each in self._planes])
        self._backpressure = Backpressure(turn)
        self._sweep_due = 0
        self._route: Callable[[Connection, Buffer], None]
        self._on_event: dict[type, Callable[[Any], None]] = self._handlers()

    def _handlers(self) -> "dict[type, Callable[[Any], None]]":
        """Return who takes which event."""
        on_segment = self.partitions.on_segment
        return {
            RequestsArrived: self._on_requests,
            FromStore: self._on_store,
            Ticked: self._on_ticked,
            FramesArrived: self.replica_frames.on_frames,
            ConnectionOpened: self._on_opened,
            ConnectionClosed: self._on_closed,
            RepliesWritten: self.front.polls.on_written,
            SegmentWritten: on_segment,
            SegmentsSynced: on_segment,
            SegmentFailed: on_segment,
            SegmentRead: on_segment,
            IndexRead: on_segment,
            SegmentsOpened: on_segment,
            PartitionRemoved: on_segment,
            PartitionsListed: on_segment,
            HostSampled: self._on_host,
            SnapshotMade: self.front.node.on_snapshot,
            NodeOpened: self._on_node_opened,
            StopWanted: self._on_stop,
            TurnBegun: lambda _: self.partitions.on_turn(),
        }

    def tell_cluster(self, cluster: ClusterMetadata) -> None:
        """Take what clients are told of the cluster."""
        self.front.node.cluster = cluster

    @property
    def marks(self) -> Probes:
        """The marks of the rooms; `probes` has those of planes and stores too."""
        return self._turn.probes

    @property
    def probes(self) -> list[Probes]:
        """The marks of all parts."""
        found = [self._turn.probes]
        for plane in self._planes:
            found += [plane.probes, plane.store.probes]
        assert len(found) == 1 + 2 * len(self._planes), "marks are counted once"
        return found

    def take_findings(self) -> list[Finding]:
        """Return what was noticed since the last call: for the log, once each."""
        found = self.partitions.take_findings()
        for plane in self._planes:
            found += plane.store.take_findings()
        return found

    def start(self) -> list[ShardEffect]:
        """Open the stores; the groups begin to live once the disk knows of this start."""
        return self._close_turn()

    def step(self, event: ShardEvent) -> list[ShardEffect]:
        """Take one event; return what must now happen, in order."""
        self._on_event[type(event)](event)
        return self._close_turn()

    def _close_turn(self) -> list[ShardEffect]:
        """End a turn: what planes did is applied, stored and answered."""
        raise NotImplementedError

    def check(self) -> None:
        """Assert, between turns, what holds between the parts of each room, and `check_awake`."""
        self.check_awake()
        self.front.check()
        self.partitions.check()
        self._timekeeper.check()
        self._backpressure.check()
        self.front.answers.check_places(self._tickets())
        assert self._sweep_due <= self.clock.now + SWEEP_TICKS, "it sweeps once a second"
        assert self.clock is self._turn.clock, "a shard has one clock"
        assert self.is_idle or self.front.connections.by_number, "who waits is connected"
        is_open = self._may_begin()
        for plane in self._planes:
            assert is_open or not plane.has_begun, "groups live once all stores know of it"
        assert METADATA_GROUP not in self.data_plane.groups, "metadata has its own store"
        assert is_open <= self.is_open, "all stores of the node are open, so its own are"
        self._check_place()
        placement = self.settings.placement
        for group in self.data_plane.groups:
            assert placement.owns(GroupId(group)), "only its owner has a partition"

    def _check_place(self) -> None:
        """Assert that this shard has what is its own among the shards of the node."""
        shard, shard_count = self.settings.placement
        assert 0 <= shard < shard_count, "it is one of the shards of its node"
        has_metadata = METADATA_STORE in self._plane_of
        assert has_metadata == (shard == METADATA_SHARD), "the metadata group is on shard 0"
        assert list(self._plane_of.values())[::-1] == list(self._planes), "a plane has one store"
        assert self._plane_of[DATA_STORE] is self.data_plane, "a store is found by its number"
        connections = self.front.connections
        assert shard_count > 1 or not connections.guests, "who is alone has no guests"
        for connection in connections.all():
            assert connection.home < shard_count, "a connection lives on a shard of the node"
            assert shard in (METADATA_SHARD, connection.home), "its home and shard 0 know it"
        for group in self.partitions.locals:
            assert group in self.data_plane.groups, "a partition has its group"
        assert self._metadata.state.revision <= self._metadata.commit, "only an op changes it"

    def check_awake(self) -> None:
        """Assert that no request is forgotten, and that whatever has work is awake."""
        assert not self._turn.out, "all effects of a turn leave with it"
        self.front.check_awake()
        self.partitions.check_awake()
        for plane in self._planes:
            plane.check_awake()

    def _tickets(self) -> list[int]:
        """Return the tickets of all requests that wait for anything but consensus."""
        return self.front.tickets()

    # Events.

    def _on_requests(self, event: RequestsArrived) -> None:
        if event.wall:
            self._timekeeper.look(event.wall)
        connections, route = self.front.connections, self._route
        by_number = connections.by_number
        for number, frame in event.frames:
            if number in by_number:
                connections.requests_count += 1  # not a mark: that would be a call of every send
                route(by_number[number], frame)

    def _on_store(self, event: FromStore) -> None:
        plane = self._plane_of[event.store]
        plane.inbox.is_awake = plane.is_stirred = True
        plane.on_event[type(event.event)](event.event)

    def _on_opened(self, event: ConnectionOpened) -> None:
        connections = self.front.connections
        shard, shard_count = self.settings.placement
        home = home_of(event.connection)
        assert home < shard_count, "a connection lives on a shard of the node"
        assert shard in (METADATA_SHARD, home), "its home and shard 0 know a connection"
        connections.open(event.connection, event.transport, event.address, self.clock.now)

    def _on_closed(self, event: ConnectionClosed) -> None:
        connection = self.front.connections.close(event.connection)
        if connection is None:
            return
        assert connection.number == event.connection, "it is found by its number"
        assert event.connection not in self.front.connections.guests, "a guest has no transport"
        self.front.answers.forget(event.connection)
        self.partitions.parking.tidy()
        self._on_departed(connection)

    def _on_departed(self, connection: Connection) -> None:
        """See to the session of a connection that has closed."""
        raise NotImplementedError

    def _on_host(self, event: HostSampled) -> None:
        self.front.reports.facts = event.facts

    def _on_ticked(self, event: Ticked) -> None:
        told = self._timekeeper.tick(event)
        assert told.now == self.clock.now, "all parts have the tick of the shard"
        for plane in self._planes:
            plane.take(told)
        self.front.answers.expire(self._withdraw)
        if self.partitions.parking.parked.count:
            self.partitions.parking.tidy()
        self.partitions.tick()
        self._backpressure.regulate(is_full=self._is_full)
        if event.now >= self._sweep_due:
            self._sweep_due = event.now + SWEEP_TICKS
            self._sweep()
        assert event.now < self._sweep_due, "it sweeps once a second"

    def _sweep(self) -> None:
        """Once a second: what nobody else remembers."""
        self.front.polls.tick()
        self.front.purges.tick()

    def _withdraw(self, client: int, request: int, ticket: int) -> bool:
        assert ticket < self.front.answers.next_ticket, "what is taken back has waited here"
        return any(plane.withdraw(client, request, ticket) for plane in self._planes)

    @property
    def _is_full(self) -> bool:
        """Whether a journal or the memory is nearly full (O2.6, O3.3).

        Not where a checkpoint waits for somebody to make space: polls are served then (DK4).
        """
        shared = self.partitions.shared
        return not self.is_without_space and (
            any(plane.store.is_crowded for plane in self._planes)
            or shared.tail_bytes > shared.tail_bytes_max * 5 // 4
        )

    # The end.

    def _on_stop(self, _: StopWanted) -> None:
        for plane in self._planes:
            plane.stop()

    @property
    def is_ready(self) -> bool:
        """Whether everything that the disk held is taken up.

        What a power cut may have taken is part of the logs by then, so who asks is told of it; but
        a full disk is no reason to let nobody in who could make room.
        """
        return (
            self.data_plane.has_begun
            and self.partitions.is_open
            and (not self.partitions.is_short or self.is_without_space)
        )

    @property
    def is_without_space(self) -> bool:
        """Whether something waits for space on the disk."""
        stores = (plane.store for plane in self._planes)
        return self.partitions.is_stuck or any(store.is_without_space for store in stores)

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered."""
        return self.front.answers.waiting_count == 0

    @property
    def is_stopped(self) -> bool:
        """Whether all stores know that the stop was clean."""
        return all(plane.is_stopped for plane in self._planes)

    def flush(self, groups: Sequence[int]) -> bool:
        """Have the segments of partitions synced as far as now; whether all given so far are."""
        return self.partitions.flushes.flush(groups)

    def lacking(self) -> list[int]:
        """Return the partitions whose segments never got all that was flushed."""
        return self.partitions.flushes.lacking()

    @property
    def is_open(self) -> bool:
        """Whether the stores of this shard know of this start."""
        return all(plane.store.is_open for plane in self._planes)

    def _on_node_opened(self, _: NodeOpened) -> None:
        assert self.is_open, "its own stores are among those of the node"
        assert self.settings.placement.shard_count > 1, "who is alone needs not be told"
        self._is_node_open = True

    def _may_begin(self) -> bool:
        """Whether all stores of the node know of this start.

        Else one would seem older than it is (DK16).
        """
        return self._is_node_open and self.is_open
