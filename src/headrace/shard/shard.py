"""One whole shard without I/O: events in, effects out, in order.

```
connections -> front -> metadata group | data plane | queries      one turn: all that came together
               planes -> apply -> owned: partitions as metadata says, batches to their segments
                      -> delivery
```

Flow: route, replicate, apply, store, reply.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.ids import METADATA_GROUP
from headrace.ports.credentials import (
    CredentialsBusy,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
)
from headrace.ports.disk import FromStore
from headrace.ports.host import HostSampled, SnapshotMade, StopWanted
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
    PartitionsListed,
    SegmentFailed,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
)
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.consensus.clock import Clock
from headrace.shard.consensus.plane import Plane
from headrace.shard.delivery import Delivery
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.front.backpressure import Backpressure
from headrace.shard.front.front import Front
from headrace.shard.logins.room import LoginRoom
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.shard.stages import DataStages, MetadataStage
from headrace.shard.timekeeper import Timekeeper
from headrace.shard.turn import Turn
from headrace.shard.watch import Watch, unwatched
from headrace.storage.store import Opened
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.errors import RemoteError
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader

if TYPE_CHECKING:
    from collections.abc import Callable

_SWEEP_TICKS = 100


class Shard:
    """A shard that has the metadata group and all partitions."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Opened,
        data: Opened,
        *,
        watch: Watch = unwatched,
    ) -> None:
        """Make a shard on its two stores; `watch` may look at what its machines are told."""
        self.settings = settings
        assert settings.metadata.replica == settings.data.replica, "a node is one replica"
        assert settings.metadata.replica_count == settings.data.replica_count, "of one cluster"
        assert settings.metadata.cluster == settings.data.cluster, "of one cluster"
        assert settings.metadata.journal == METADATA_STORE, "a store is found by its number"
        assert settings.data.journal == DATA_STORE, "a store is found by its number"
        self.clock = clock = Clock(settings.clock_tolerance)
        self._turn = turn = Turn(clock)
        self.metadata = group = MetadataGroup(
            settings.metadata, metadata, clock, may_begin=self._may_begin, watch=watch
        )
        self.data_plane = plane = Plane(
            settings.data, data, outside=self, has_offsets=True, may_begin=self._may_begin
        )
        self._planes = (group.plane, plane)
        self._metadata_inbox, self._data_inbox = group.plane.inbox, plane.inbox
        self._timekeeper = Timekeeper(settings, group, self._planes, turn)
        self.partitions = Partitions(settings, group, plane, turn, watch)
        self.front = front = Front(
            settings, group, plane, self.partitions, turn, lambda: self.probes
        )
        self._room = room = LoginRoom(settings, group, front, turn, self._withdraw)
        self._revocation = room.revocation
        self._route = front.make_router(
            room.logins, room.users.by_code, room.logins.auditor.deletion
        ).route
        delivery = Delivery(group, front, room, turn.out)
        self._metadata_stage = MetadataStage(
            group, room, self._timekeeper, self.partitions, delivery
        )
        self._data_stages = DataStages(plane, self.partitions, front.polls, delivery)
        self._backpressure = Backpressure(turn)
        self._sweep_due = 0
        self._on_event = self._handlers()

    def _handlers(self) -> "dict[type, Callable[[Any], None]]":
        """Return who takes which event."""
        room, on_segment = self._room, self.partitions.on_segment
        return {
            RequestsArrived: self._on_requests,
            FromStore: self._on_store,
            Ticked: self._on_ticked,
            FramesArrived: self._on_frames,
            ConnectionOpened: self._on_opened,
            ConnectionClosed: self._on_closed,
            RepliesWritten: self.front.polls.on_written,
            SegmentWritten: on_segment,
            SegmentsSynced: on_segment,
            SegmentFailed: on_segment,
            SegmentRead: on_segment,
            IndexRead: on_segment,
            SegmentsOpened: on_segment,
            PartitionsListed: on_segment,
            PasswordVerified: room.on_verified,
            PasswordHashed: room.users.on_credentials,
            TokenMinted: room.users.on_credentials,
            CredentialsBusy: room.on_busy,
            HostSampled: self._on_host,
            SnapshotMade: self.front.node.on_snapshot,
            StopWanted: self._on_stop,
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
        """End a turn: what planes did is applied, stored and answered.

        The stages of a turn in their order; each runs only if it is awake.
        """
        partitions, front, data = self.partitions, self.front, self._data_stages
        if self._metadata_inbox.is_awake:
            self._metadata_stage.close()
        if self._revocation.is_awake:
            self._revocation.after_turn()
        if partitions.reconciling.is_awake:
            partitions.reconcile()
        if self._data_inbox.is_awake:
            data.close()
        if partitions.storing.is_awake:
            data.store()
        if front.polls.is_awake:
            data.serve_polls()
        if data.again.is_awake:
            data.store_again()
        if front.flushes.is_awake:
            front.flushes.after_turn()
        if front.purges.is_awake:
            front.purges.after_turn()
        out = self._turn.out
        effects = out[:]
        del out[:]
        return effects

    def check(self) -> None:
        """Assert, between turns, what holds between the parts of each room, and `check_awake`."""
        self.check_awake()
        self.front.check()
        self._room.check()
        self.partitions.check()
        self._timekeeper.check()
        self._metadata_stage.check()
        self._data_stages.check()
        self._backpressure.check()
        self.metadata.check()
        self.front.answers.check_places([*self.front.tickets(), *self._room.tickets()])
        assert self._sweep_due <= self.clock.now + _SWEEP_TICKS, "it sweeps once a second"
        self._check_planes()

    def _check_planes(self) -> None:
        metadata, data = self._planes
        assert metadata is self.metadata.plane, "a store is found by its number"
        assert data is self.data_plane, "a store is found by its number"
        assert metadata.store is not data.store, "each plane has its own store"
        assert metadata.probes is not data.probes, "marks are counted once"
        assert not metadata.groups.keys() & data.groups.keys(), "a group is on one store"
        assert METADATA_GROUP not in data.groups, "metadata has its own store"
        is_begun = metadata.store.is_open and data.store.is_open
        assert is_begun or not metadata.has_begun, "groups live once both stores know of it"
        assert is_begun or not data.has_begun, "groups live once both stores know of it"
        assert self.clock is self._turn.clock, "a shard has one clock"
        assert self.is_idle or self.front.connections.by_number, "who waits is connected"

    def check_awake(self) -> None:
        """Assert that no request is forgotten, and that whatever has work is awake."""
        assert not self._turn.out, "all effects of a turn leave with it"
        self.front.check_awake()
        self._revocation.check()
        self.partitions.check_awake()
        for plane in self._planes:
            plane.check_awake()

    # Events.

    def _on_requests(self, event: RequestsArrived) -> None:
        if event.wall:
            self._timekeeper.look(event.wall)
        connections, route = self.front.connections.by_number, self._route
        for number, frame in event.frames:
            if number in connections:
                route(connections[number], frame)

    def _on_store(self, event: FromStore) -> None:
        plane = self._planes[event.store]
        plane.inbox.is_awake = plane.is_stirred = True
        plane.on_event[type(event.event)](event.event)

    def _on_frames(self, event: FramesArrived) -> None:
        """Pass each frame to its plane: lives and heartbeats belong to one store."""
        for sender, frame in event.frames:
            try:
                kind, header = decode_replica(frame)
            except RemoteError:
                self._turn.probes.hit("frame.refused")
                continue
            if isinstance(header, NodeHeartbeatHeader):
                store = header.journal
            else:
                is_metadata = getattr(header, "group", METADATA_GROUP) == METADATA_GROUP
                store = METADATA_STORE if is_metadata else DATA_STORE
            if store < len(self._planes):
                self._planes[store].take_frame(sender, kind, header, frame)
            else:
                self._turn.probes.hit("frame.foreign")

    def _on_opened(self, event: ConnectionOpened) -> None:
        connections = self.front.connections
        connections.open(event.connection, event.transport, event.address, self.clock.now)

    def _on_closed(self, event: ConnectionClosed) -> None:
        connections = self.front.connections
        connection = connections.close(event.connection)
        if connection is None:
            return
        assert connection.number == event.connection, "it is found by its number"
        self.front.answers.forget(event.connection)
        self._room.logins.forget(event.connection)
        self._room.users.forget_unheard()
        if connection.is_bound and connections.of_client(connection.client) is None:
            self._room.disconnects.lose(connection.client)

    def _on_host(self, event: HostSampled) -> None:
        self.front.node.facts = event.facts

    def _on_ticked(self, event: Ticked) -> None:
        told = self._timekeeper.tick(event)
        assert told.now == self.clock.now, "all parts have the tick of the shard"
        for plane in self._planes:
            plane.take(told)
        self.front.answers.expire(self._withdraw)
        self.partitions.tick()
        self._backpressure.regulate(is_full=self._is_full)
        if event.now >= self._sweep_due:
            self._sweep_due = event.now + _SWEEP_TICKS
            self._sweep()
        assert event.now < self._sweep_due, "it sweeps once a second"

    def _sweep(self) -> None:
        """Once a second: what nobody else remembers."""
        room = self._room
        self.front.polls.tick()
        self.front.purges.tick()
        room.users.forget_unheard()
        room.disconnects.disconnect_gone()
        room.revocation.end_expired()
        if self._metadata_stage.has_begun:
            room.make_root()
            if not self.is_without_space:
                self._timekeeper.note()
        room.disconnects.evict_stale()

    def _withdraw(self, client: int, request: int, ticket: int) -> bool:
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
        """Whether everything that the disk held is taken up, and clients can log in.

        What a power cut may have taken is part of the logs by then, so who asks is told of it; but
        a full disk is no reason to let nobody in who could make room.
        """
        return (
            self._metadata_stage.has_begun
            and self.data_plane.has_begun
            and len(self.metadata.state.users) > 0
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
        """Whether both stores know that the stop was clean."""
        return all(plane.is_stopped for plane in self._planes)

    def flush(self, groups: Sequence[int]) -> bool:
        """Have the segments of partitions synced as far as now; whether all given so far are."""
        return self.partitions.flushes.flush(groups)

    def lacking(self) -> list[int]:
        """Return the partitions whose segments never got all that was flushed."""
        return self.partitions.flushes.lacking()

    def _may_begin(self) -> bool:
        """Whether both stores know of this start: else one would seem older than it is (DK16)."""
        return all(plane.store.is_open for plane in self._planes)
