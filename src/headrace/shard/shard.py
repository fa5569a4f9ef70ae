"""One whole shard without I/O: events in, effects out, in order.

```
connections -> router -> metadata plane | data plane | reads       one turn: all that came together
               planes -> apply -> keeper: partitions as metadata says, batches to their segments
                      -> answers
```

Flow: route, replicate, apply, store, reply.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.ports.credentials import (
    CredentialsBusy,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
)
from headrace.ports.disk import FromStore, OnStore
from headrace.ports.host import HostSampled, SnapshotMade, StopWanted
from headrace.ports.network import (
    ConnectionClosed,
    ConnectionOpened,
    FramesArrived,
    ReadConnections,
    RepliesWritten,
    RequestsArrived,
    SendFrame,
    SendReply,
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
from headrace.shard.consensus.clock import Clock
from headrace.shard.consensus.plane import Plane
from headrace.shard.desk import Desk
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.shard.front.connections import Connection
from headrace.shard.front.orders import Orders
from headrace.shard.front.polls import Polls
from headrace.shard.front.purges import PURGES, Purges
from headrace.shard.front.queries import Reads
from headrace.shard.front.router import Router
from headrace.shard.logins.audit import Auditor
from headrace.shard.logins.login import Logins
from headrace.shard.logins.revocation import Revocation
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.shard.timekeeper import Timekeeper
from headrace.shard.turn import Turn
from headrace.shard.watch import Watch, unwatched
from headrace.storage.store import Opened
from headrace.vsr.events import OwnOp
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.commands.users import CREATE_USER, CreateUser
from headrace.wire.errors import RemoteError
from headrace.wire.evictions import EVICTION, EvictionReason
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation, UserStatus, is_partition
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader
from headrace.wire.replies import REPLY, with_commit
from headrace.wire.requests import RequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA_STORE = 0
DATA_STORE = 1

_OPERATION_AT = REPLY.at("operation")
_REASON_AT = EVICTION.at("reason")
_SWEEP_TICKS = 100
_PAUSE_TICKS_MAX = 1000


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
        self.clock = clock = Clock(settings.clock_tolerance)
        self.metadata = MetadataGroup(
            settings.metadata, metadata, clock, may_begin=self._may_begin, watch=watch
        )
        self.data_plane = Plane(
            settings.data, data, outside=self, given=self._given, may_begin=self._may_begin
        )
        self._planes = (self.metadata.plane, self.data_plane)
        turn = Turn(clock)
        self._desk = desk = Desk(settings, turn, self.metadata, self.data_plane)
        self.marks, self.answers, self.connections = desk.probes, desk.answers, desk.connections
        self.partitions = Partitions(settings, self.metadata, self.data_plane, turn, watch)
        auditor = Auditor(desk)
        self._logins = Logins(desk, auditor)
        self._revocation = Revocation(desk, self._logins, auditor)
        self._polls = Polls(desk, self.partitions)
        self._orders = Orders(desk, self.partitions)
        self._reads = Reads(desk, self.partitions, self._polls)
        self._timekeeper = Timekeeper(desk)
        self._router = Router(
            desk, self.partitions, self._logins, self._orders, self._reads, auditor
        )
        self._purges = Purges(desk, self.partitions)
        self._sweep_due = 0
        self._checkpoints_done = 0
        self._has_begun = False
        self._is_reading = True
        self._regulate_at = 0  # until when it stays as it is, if nothing gets better
        self._on_event: dict[type, Callable[[Any], None]] = {
            RequestsArrived: self._on_requests,
            FromStore: self._on_store,
            Ticked: self._on_ticked,
            FramesArrived: self._on_frames,
            ConnectionOpened: self._on_opened,
            ConnectionClosed: self._on_closed,
            RepliesWritten: self._polls.on_written,
            SegmentWritten: self.partitions.on_segment,
            SegmentsSynced: self.partitions.on_segment,
            SegmentFailed: self.partitions.on_segment,
            SegmentRead: self.partitions.on_segment,
            IndexRead: self.partitions.on_segment,
            SegmentsOpened: self.partitions.on_segment,
            PartitionsListed: self.partitions.on_segment,
            PasswordVerified: self._on_verified,
            PasswordHashed: self._orders.on_credentials,
            TokenMinted: self._orders.on_credentials,
            CredentialsBusy: self._on_busy,
            HostSampled: self._on_host,
            SnapshotMade: self._reads.on_snapshot,
            StopWanted: self._on_stop,
        }

    def tell_cluster(self, cluster: ClusterMetadata) -> None:
        """Take what clients are told of the cluster."""
        self._desk.cluster = cluster

    @property
    def probes(self) -> list[Probes]:
        """The marks of all parts."""
        found = [self._desk.probes]
        for plane in self._planes:
            found += [plane.probes, plane.store.probes]
        return found

    def take_findings(self) -> list[Finding]:
        """Give what was noticed since the last call: for the log, once each."""
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
        desk = self._desk
        if not desk.metadata.plane.is_quiet:
            self._close_plane(METADATA_STORE)
            self._timekeeper.after_turn()
        self._revocation.after_turn()
        if not self._has_begun and desk.metadata.plane.has_begun:
            self._begin()
        self.partitions.reconcile()
        self._close_plane(DATA_STORE)
        self.partitions.after_turn()
        self._polls.after_turn()
        if desk.data_plane.has_work or self.partitions.shared.busy:
            # Polls that were resumed store offsets, and what was read may have been asked for.
            self._close_plane(DATA_STORE)
            self.partitions.after_turn()
        self._reads.check_flushes()
        self._purges.after_turn()
        out = list(desk.out)
        desk.out.clear()
        return out

    def _close_plane(self, store: int) -> None:
        desk = self._desk
        plane = self._planes[store]
        effects = plane.close_turn()
        if store == METADATA_STORE:
            self._revocation.learn()
        for effect in effects:
            if isinstance(effect, SendReply):
                self._deliver(effect)
            elif isinstance(effect, SendFrame):
                desk.out.append(effect)
            else:
                desk.out.append(OnStore(store, effect))
        if store == DATA_STORE and plane.checkpoints_done != self._checkpoints_done:
            self._checkpoints_done = plane.checkpoints_done
            self.partitions.flushes.on_checkpointed()

    def _begin(self) -> None:
        """Metadata is here, as far as this node knows it."""
        self._has_begun = True
        if self._desk.settings.metadata.replica_count == 1:
            self._logins.lose_all()
        self._make_root()

    def _make_root(self) -> None:
        """Propose the root user as the first op of an empty log (O3.7).

        Not before the time is known: all stamps are held against the first one.
        """
        desk = self._desk
        replica = desk.metadata.replica
        is_too_early = not desk.metadata.is_serving or not desk.clock.time.clock
        if is_too_early or len(desk.metadata.state.users) or replica.op > 0:
            return
        assert desk.settings.root_password_hash, "asked for when there is no user yet"
        root = CreateUser(
            username=desk.settings.root_username,
            password=desk.settings.root_password_hash.encode(),
            status=UserStatus.ACTIVE,
        )
        own = OwnOp(Operation.CREATE_USER, CREATE_USER.encode_request(root))
        desk.metadata.propose(own)

    # What planes answer.

    def _deliver(self, effect: SendReply) -> None:
        """Send an answer of consensus to who waits for it, in the form that it waits for."""
        desk = self._desk
        frame = effect.frame
        is_eviction = frame[KIND_OFFSET] == FrameKind.EVICTION
        operation = frame[_OPERATION_AT]
        if operation in PURGES and not is_eviction and not REPLY.decode(frame).status:
            self._purges.hold(effect)
            return
        found = desk.answers.take_waiting(effect)
        if found is None:
            if operation == Operation.REGISTER and not is_eviction:
                self._logins.on_unheard(effect.client)
            return
        connection, asked = found
        if is_eviction:
            if asked.operation == Operation.REGISTER:
                desk.answers.send(connection.number, frame)
            else:
                reason = EvictionReason(frame[_REASON_AT])
                desk.answers.evict_asking(connection, effect.client, reason)
            if connection.client == effect.client:
                self._logins.release(connection)  # It must log in again.
            return
        if operation == Operation.SEND_MESSAGES:
            desk.answers.send_settled(connection, asked, frame)
        else:
            self._deliver_other(connection, asked, operation, frame)

    def _deliver_other(
        self, connection: Connection, asked: RequestHeader, operation: int, frame: bytes
    ) -> None:
        answers = self._desk.answers
        if operation == Operation.DELETE_SEGMENTS:
            # Clients take the commit of such an operation for a position of the metadata log.
            frame = with_commit(frame, self._desk.metadata.commit)
        is_status = REPLY.decode(frame).status != 0
        if is_partition(Operation(operation)):
            answers.send_settled(connection, asked, frame)
        elif is_status:
            answers.pass_on(connection, frame)
        elif operation == Operation.REGISTER:
            self._logins.on_registered(connection, asked, frame[HEADER_BYTES:])
        elif operation == Operation.CREATE_PERSONAL_ACCESS_TOKEN:
            body = self._orders.token_reply(asked, frame[HEADER_BYTES:])
            answers.reply(connection.number, asked, body)
        else:
            if operation == Operation.LOGOUT and connection.is_bound:
                self._logins.release(connection)
            answers.send(connection.number, frame)

    # Events.

    def _on_requests(self, event: RequestsArrived) -> None:
        if event.wall:
            self._timekeeper.look(event.wall)
        get = self._desk.connections.get
        route = self._router.route
        for number, frame in event.frames:
            connection = get(number)
            if connection is not None:
                route(connection, frame)

    def _on_store(self, event: FromStore) -> None:
        self._planes[event.store].take(event.event)

    def _on_frames(self, event: FramesArrived) -> None:
        """Give each frame to the plane that it is for: lives and heartbeats are of one store."""
        for sender, frame in event.frames:
            try:
                kind, header = decode_replica(frame)
            except RemoteError:
                self._desk.probes.hit("frame.refused")
                continue
            if isinstance(header, NodeHeartbeatHeader):
                store = header.journal
            else:
                is_metadata = getattr(header, "group", METADATA_GROUP) == METADATA_GROUP
                store = METADATA_STORE if is_metadata else DATA_STORE
            if store < len(self._planes):
                self._planes[store].take_frame(sender, kind, header, frame)
            else:
                self._desk.probes.hit("frame.foreign")

    def _on_opened(self, event: ConnectionOpened) -> None:
        desk = self._desk
        desk.connections.open(event.connection, event.transport, event.address, desk.clock.now)

    def _on_closed(self, event: ConnectionClosed) -> None:
        desk = self._desk
        connection = desk.connections.close(event.connection)
        if connection is None:
            return
        desk.answers.forget(event.connection)
        self._orders.forget(connection.client)
        if connection.is_bound and desk.connections.of_client(connection.client) is None:
            self._logins.lose(connection.client)

    def _on_verified(self, event: PasswordVerified) -> None:
        if not self._logins.on_verified(event):
            self._orders.on_credentials(event)

    def _on_busy(self, event: CredentialsBusy) -> None:
        if not self._logins.on_busy(event.token):
            self._orders.on_busy(event.token)

    def _on_host(self, event: HostSampled) -> None:
        self._reads.facts = event.facts

    def _on_ticked(self, event: Ticked) -> None:
        told = self._timekeeper.tick(event)
        for plane in self._planes:
            plane.take(told)
        self._desk.answers.expire(event.now, self._withdraw)
        self.partitions.tick()
        self._regulate()
        if event.now >= self._sweep_due:
            self._sweep_due = event.now + _SWEEP_TICKS
            self._sweep()

    def _sweep(self) -> None:
        """Once a second: what nobody else remembers."""
        self._polls.tick()
        self._purges.tick()
        self._logins.disconnect_gone()
        self._revocation.end_expired()
        if self._has_begun:
            self._make_root()
            if not self.is_without_space:
                self._timekeeper.note()
        self._evict_stale()

    def _withdraw(self, client: int, request: int, ticket: int) -> bool:
        return any(plane.withdraw(client, request, ticket) for plane in self._planes)

    def _evict_stale(self) -> None:
        """Evict members of groups that have gone silent: their partitions are wanted."""
        desk = self._desk
        oldest = desk.clock.now - desk.settings.stale_ticks
        for connection in list(desk.connections.all()):
            if (
                connection.is_bound
                and connection.heard < oldest
                and desk.metadata.state.memberships.get(connection.client)
            ):
                desk.probes.hit("sessions.stale")
                reason = EvictionReason.STALE_CLIENT
                desk.answers.evict(connection.number, connection.client, reason)
                self._logins.release(connection)

    # Bounds.

    def _regulate(self) -> None:
        """Stop reading requests while a journal or the memory is nearly full (O2.6, O3.3).

        Not for ever: if nothing gets better, requests are read and told so. And not where a
        checkpoint waits for somebody to make space: polls are served then (DK4).
        """
        desk = self._desk
        shared = self.partitions.shared
        is_full = not self.is_without_space and (
            any(plane.store.is_crowded for plane in self._planes)
            or shared.tail_bytes > shared.tail_bytes_max * 5 // 4
        )
        if self._is_reading:
            if is_full and desk.clock.now >= self._regulate_at:
                self._regulate_at = desk.clock.now + _PAUSE_TICKS_MAX
                self._set_reading(is_reading=False)
        elif not is_full:
            self._regulate_at = desk.clock.now
            self._set_reading(is_reading=True)
        elif desk.clock.now >= self._regulate_at:
            self._regulate_at = desk.clock.now + _PAUSE_TICKS_MAX
            self._set_reading(is_reading=True)

    def _set_reading(self, *, is_reading: bool) -> None:
        self._is_reading = is_reading
        self._desk.out.append(ReadConnections(is_reading))

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
            self._has_begun
            and self._desk.data_plane.has_begun
            and len(self._desk.metadata.state.users) > 0
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
        return self._desk.answers.waiting_count == 0

    @property
    def is_stopped(self) -> bool:
        """Whether both stores know that the stop was clean."""
        return all(plane.is_stopped for plane in self._planes)

    def flush(self, groups: Sequence[int]) -> bool:
        """Have the segments of partitions synced as far as now; whether all given so far are."""
        return self.partitions.flushes.flush(groups)

    def lacking(self) -> list[int]:
        """Give the partitions whose segments never got all that was flushed."""
        return self.partitions.flushes.lacking()

    def _may_begin(self) -> bool:
        """Whether both stores know of this start: else one would seem older than it is (DK16)."""
        return all(plane.store.is_open for plane in self._planes)

    def _given(self, group: int) -> int:
        return self.partitions.next_offset(group)
