"""A shard without the metadata group: it rests on an image that shard 0 feeds (SH-2, O5.2).

```
feed -> reconcile -> what waited for that -> data -> store -> polls -> store again -> flushes
```

Flow: route, replicate, apply, store, reply.
"""

from typing import TYPE_CHECKING

from headrace.base.placement import METADATA_SHARD
from headrace.ports.network import Ticked
from headrace.shard.bus.doubts import Doubts
from headrace.shard.bus.exchange import PeerExchange
from headrace.shard.bus.forwards import Forwards
from headrace.shard.bus.guests import Guests
from headrace.shard.bus.image import MetadataImage
from headrace.shard.bus.remote_sessions import RemoteSessions
from headrace.shard.bus.reporter import Reporter
from headrace.shard.consensus.clock import Clock
from headrace.shard.core import ShardCore
from headrace.shard.delivery import PartitionDelivery
from headrace.shard.effects import ShardEffect
from headrace.shard.front.connections import Connection
from headrace.shard.front.stale import Stale
from headrace.shard.settings import ShardSettings
from headrace.shard.stages import DataStages
from headrace.shard.turn import Turn
from headrace.shard.watch import Watch, unwatched
from headrace.storage.store import Opened
from headrace.wire.commands import topics
from headrace.wire.errors import Code

if TYPE_CHECKING:
    from headrace.ports.network import Buffer


class PeerShard(ShardCore):
    """A shard of a node of several, other than shard 0."""

    def __init__(self, settings: ShardSettings, data: Opened, *, watch: Watch = unwatched) -> None:
        """Make a shard on its store; `watch` may look at what its machines are told."""
        placement = settings.placement
        assert METADATA_SHARD < placement.shard < placement.shard_count, "it is one of several"
        turn = Turn(Clock(settings.clock_tolerance))
        self.image = image = MetadataImage(turn.clock)
        super().__init__(settings, image, data, turn, watch)
        front = self.front
        forwards = Forwards(placement.shard, image, front.answers, turn)
        sessions = RemoteSessions(front.answers, forwards, turn, self._withdraw)
        self._stale = Stale(
            placement.shard, image, front.answers, turn, settings.stale_ticks, sessions.release
        )
        doubts = Doubts(image, front.answers, turn)
        router = front.make_router(sessions, {}, _audit_nothing, forwards, doubts)
        self._router = router
        self._route = self._route_if_fresh
        doubts.begin(router.route)
        forwards.release = sessions.release
        guests = Guests(image, front.answers, turn, router.route_guest)
        self._exchange = PeerExchange(
            placement.shard,
            forwards,
            guests,
            Reporter(image, front.reports.by_subject, turn),
            turn,
            image=image,
            sessions=sessions,
            doubts=doubts,
            partitions=self.partitions,
        )
        self._exchange.on_passed = self.replica_frames.on_passed
        self._exchange.look = self._timekeeper.look
        front.reports.age_ticks = image.age
        delivery = PartitionDelivery(image, front, sessions.release, turn.out)
        self._data_stages = DataStages(self.data_plane, self.partitions, front.polls, delivery)
        assert not self._on_event.keys() & self._exchange.on_event.keys(), "an event has one taker"
        self._on_event |= self._exchange.on_event

    def _route_if_fresh(self, connection: Connection, frame: "Buffer") -> None:
        """Take a frame; not while shard 0 is silent: it may have decided anything since."""
        assert not self.image.is_current, "only what waited for that is judged as current"
        if self.image.is_fresh or not self._router.refuse_of_partition(
            connection, frame, Code.TRANSIENT_NOT_ACCEPTED
        ):
            self._router.route(connection, frame)
        else:
            self._turn.probes.hit("image.stale")

    def _on_ticked(self, event: Ticked) -> None:
        super()._on_ticked(event)
        self._exchange.tick()

    def _after_feed(self) -> None:
        """Wake those who look at the metadata."""
        self.image.is_awake = False
        assert self.image.state.revision <= self.image.commit, "only what is committed is fed"
        self._timekeeper.after_turn()
        self.partitions.reconciling.is_awake = True
        self._exchange.is_awake = True

    def _close_turn(self) -> list[ShardEffect]:
        """End a turn: what the feed and the plane did is applied, stored and answered.

        The stages of a turn in their order; each runs only if it is awake.
        """
        partitions, front, data = self.partitions, self.front, self._data_stages
        if self.image.is_awake:
            self._after_feed()
        if partitions.reconciling.is_awake:
            partitions.reconcile()
        if self._exchange.is_awake:
            self._exchange.after_feed()
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
        self._exchange.after_turn()
        assert not self.image.is_awake, "the feed is looked at first"
        out = self._turn.out
        effects = out[:]
        del out[:]
        leaving = self._exchange.translate(effects)
        assert not self._turn.out, "all effects of a turn leave with it"
        return leaving

    def _on_departed(self, connection: Connection) -> None:
        assert connection.home == self.settings.placement.shard, "its home tells that it is gone"
        self._exchange.sessions.lose(connection)

    def _sweep(self) -> None:
        super()._sweep()
        self._stale.evict()

    @property
    def is_ready(self) -> bool:
        """Whether everything that the disk held is taken up, and the metadata is here."""
        return self.image.is_caught_up and super().is_ready

    def _tickets(self) -> list[int]:
        return [*super()._tickets(), *self._exchange.tickets()]

    def check(self) -> None:
        """Assert, between turns, what holds between the parts of each room, and `check_awake`."""
        super().check()
        self._data_stages.check()
        self._exchange.check()
        assert self._metadata is self.image, "all rooms look at the image"
        assert self._planes == (self.data_plane,), "the metadata group is on shard 0"
        assert self.partitions.purged_revision <= self.image.state.revision, "it follows the image"
        assert not self.image.is_awake, "what was fed in a turn is looked at in it"
        assert self.image.is_caught_up or not self.is_ready, "nobody is served without an image"


def _audit_nothing(connection: Connection, request: topics.DeleteSegments) -> None:
    """Write nothing: shard 0 writes the audit log."""
