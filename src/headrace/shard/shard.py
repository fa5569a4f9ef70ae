"""The shard that has the metadata group, and with it the logins: shard 0, or the only one.

```
metadata -> revocation -> reconcile -> data -> store -> polls -> store again -> flushes -> purges
```

Flow: route, replicate, apply, store, reply.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.placement import METADATA_SHARD
from headrace.ports.credentials import (
    CredentialsBusy,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
)
from headrace.ports.network import Ticked
from headrace.shard.bus.exchange import MainExchange
from headrace.shard.bus.feed import FedMachine, Feed
from headrace.shard.bus.forwards import Forwards
from headrace.shard.bus.gather import Gather
from headrace.shard.bus.guests import Guests
from headrace.shard.bus.reporter import Reporter
from headrace.shard.config import METADATA_STORE
from headrace.shard.consensus.clock import Clock
from headrace.shard.core import ShardCore
from headrace.shard.delivery import Delivery
from headrace.shard.effects import ShardEffect
from headrace.shard.front.connections import Connection
from headrace.shard.logins.room import LoginRoom
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.settings import ShardSettings
from headrace.shard.stages import DataStages, MetadataStage
from headrace.shard.turn import Turn
from headrace.shard.watch import Watch, unwatched
from headrace.storage.store import Opened

if TYPE_CHECKING:
    from collections.abc import Callable


class Shard(ShardCore):
    """A shard that has the metadata group; alone it has all partitions too."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Opened,
        data: Opened,
        *,
        watch: Watch = unwatched,
    ) -> None:
        """Make a shard on its two stores; `watch` may look at what its machines are told."""
        assert settings.placement.shard == METADATA_SHARD, "the metadata group is on shard 0"
        assert settings.metadata.replica == settings.data.replica, "a node is one replica"
        assert settings.metadata.replica_count == settings.data.replica_count, "of one cluster"
        assert settings.metadata.cluster == settings.data.cluster, "of one cluster"
        assert settings.metadata.journal == METADATA_STORE, "a store is found by its number"
        turn = Turn(Clock(settings.clock_tolerance))
        shard_count = settings.placement.shard_count
        machine = FedMachine() if shard_count > 1 else None
        self.metadata = group = MetadataGroup(
            settings.metadata,
            metadata,
            turn.clock,
            may_begin=self._may_begin,
            watch=watch,
            machine=machine,
        )
        super().__init__(
            settings,
            group,
            data,
            turn,
            watch,
            metadata_plane=group.plane,
            propose=group.propose,
        )
        self._metadata_inbox = group.plane.inbox
        front = self.front
        self._room = room = LoginRoom(settings, group, front, turn, self._withdraw)
        self._revocation = room.revocation
        forwards = None
        if machine is not None:
            forwards = Forwards(METADATA_SHARD, group, front.answers, turn)
        router = front.make_router(
            room.logins, room.users.by_code, room.logins.auditor.deletion, forwards
        )
        self._route = router.route
        delivery = Delivery(group, front, room, turn.out)
        self._metadata_stage = MetadataStage(
            group, room, self._timekeeper, self.partitions, delivery
        )
        self._data_stages = DataStages(self.data_plane, self.partitions, front.polls, delivery)
        self._exchange: MainExchange | None = None
        if machine is not None and forwards is not None:
            gather = Gather(shard_count, self.partitions.findings, turn)
            gather.done = front.gather_by(gather)
            self._exchange = MainExchange(
                forwards,
                Guests(group, front.answers, turn, router.route_guest),
                Reporter(group, front.reports.by_subject, turn),
                turn,
                feed=Feed(group, machine, shard_count, turn),
                gather=gather,
                connections=front.connections,
                room=room,
                route=router.route,
                shard_count=shard_count,
            )
            self._exchange.on_passed = self.replica_frames.on_passed
            self._exchange.look = self._timekeeper.look
            forwards.release = room.disconnects.release
            front.purges.are_others_purged = self._exchange.feed.are_settled
            self._on_event |= self._exchange.on_event
            self._on_event[Ticked] = self._on_ticked_of_several
        self._on_event |= self._login_handlers()

    def _login_handlers(self) -> "dict[type, Callable[[Any], None]]":
        room = self._room
        return {
            PasswordVerified: room.on_verified,
            PasswordHashed: room.users.on_credentials,
            TokenMinted: room.users.on_credentials,
            CredentialsBusy: room.on_busy,
        }

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
        return effects if self._exchange is None else self._exchange.end_turn(effects)

    def _on_ticked_of_several(self, event: Ticked) -> None:
        """As `_on_ticked`, which is all that a shard does that is alone."""
        self._on_ticked(event)
        assert self._exchange is not None
        assert self.clock.now == event.now, "all parts have the tick of the shard"
        self._exchange.gather.tick()

    def hears(self, member: int) -> bool:
        """Whether another shard of the node has been heard of in the last second."""
        assert self._exchange is not None, "a shard that is alone hears of nobody"
        return self._exchange.feed.hears(member)

    def _on_departed(self, connection: Connection) -> None:
        self._room.on_closed(connection)

    def _sweep(self) -> None:
        super()._sweep()
        if self._exchange is not None:
            self._exchange.tick()
        if self._metadata_stage.has_begun:
            self._room.make_root()
            if not self.is_without_space:
                self._timekeeper.note()
        self._room.sweep()

    @property
    def is_ready(self) -> bool:
        """Whether everything that the disk held is taken up, and clients can log in."""
        return (
            self._metadata_stage.has_begun
            and len(self.metadata.state.users) > 0
            and super().is_ready
        )

    def _tickets(self) -> list[int]:
        forwarded = [] if self._exchange is None else self._exchange.tickets()
        return [*super()._tickets(), *self._room.tickets(), *forwarded]

    def check(self) -> None:
        """Assert, between turns, what holds between the parts of each room, and `check_awake`."""
        super().check()
        self._room.check()
        self._metadata_stage.check()
        self._data_stages.check()
        self.metadata.check()
        self._check_planes()
        if self._exchange is not None:
            self._exchange.check()

    def _check_planes(self) -> None:
        metadata, data = self.metadata.plane, self.data_plane
        assert self._planes == (metadata, data), "a store is found by its number"
        assert metadata.store is not data.store, "each plane has its own store"
        assert metadata.probes is not data.probes, "marks are counted once"
        assert not metadata.groups.keys() & data.groups.keys(), "a group is on one store"

    def check_awake(self) -> None:
        """Assert that no request is forgotten, and that whatever has work is awake."""
        super().check_awake()
        self._revocation.check()
