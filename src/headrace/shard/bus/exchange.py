"""A shard's place on the bus: frames of other members in, what is meant for them out.

Two kinds: `MainExchange` of shard 0, which has the metadata and all sessions, and `PeerExchange` of
every other. What both do: forward requests of their clients, and serve those of others.

Flow: route, reply.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.base.connection_numbers import home_of
from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD
from headrace.ports.bus import BusFrames, BusRefused, FrameLost, MemberLost, SendToMember
from headrace.ports.network import (
    Buffer,
    CloseConnection,
    CloseWanted,
    ConnectionLeft,
    ConnectionTrusted,
    SendToConnection,
)
from headrace.shard.bus.doubts import Doubts
from headrace.shard.bus.feed import Feed
from headrace.shard.bus.forwards import Forwards
from headrace.shard.bus.gather import Gather
from headrace.shard.bus.guests import Guests
from headrace.shard.bus.homes import Homes
from headrace.shard.bus.image import MetadataImage
from headrace.shard.bus.remote_sessions import RemoteSessions
from headrace.shard.bus.reporter import Reporter
from headrace.shard.effects import ShardEffect
from headrace.shard.front.connections import Connection, Connections
from headrace.shard.logins.room import LoginRoom
from headrace.shard.owned.partitions import Partitions
from headrace.shard.turn import Turn
from headrace.wire.bus.decode import decode_bus
from headrace.wire.bus.feed import (
    FEED_ASK,
    FeedAskHeader,
    FeedImageHeader,
    FeedOpHeader,
    FeedPointHeader,
)
from headrace.wire.bus.forwarded import ForwardedReplyHeader, ForwardedRequestHeader
from headrace.wire.bus.handover import ConnectionGoneHeader, ConnectionOrderHeader
from headrace.wire.errors import CorruptError, RemoteError
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replica.prepares import PREPARE

ASK_TICKS = 10
_OF_SESSIONS = (Operation.REGISTER, Operation.LOGOUT)
_OF_CONNECTIONS = (SendToConnection, ConnectionTrusted, CloseConnection)

# Kinds that a core takes from the lanes of other shards.
_KINDS_OF_BUS: dict[int, None] = dict.fromkeys(
    kind for kind in FrameKind if kind >= FrameKind.FORWARDED_REQUEST
)

Handler: TypeAlias = Callable[[int, Any, Buffer], None]


class Exchange:
    """What both kinds do."""

    def __init__(
        self, shard: int, forwards: Forwards, guests: Guests, reporter: Reporter, turn: Turn
    ) -> None:
        self._shard = shard
        self.forwards = forwards
        self.guests = guests
        self._reporter = reporter
        self._turn = turn
        self.drops = turn.drops
        self.on_passed: Callable[[Buffer], None]  # takes frames of replicas; a shard sets it
        self.look: Callable[[int], None]  # takes what the wall clock says; a shard sets it
        self._on_kind: dict[int, Handler] = {
            FrameKind.FORWARDED_REQUEST: self._on_request,
            FrameKind.FORWARDED_REPLY: self._on_reply,
            FrameKind.GATHER: reporter.on_question,
        }
        self.on_event: dict[type, Callable[[Any], None]] = {
            BusFrames: self._on_frames,
            BusRefused: self._on_refused,
            FrameLost: self._on_lost,
            MemberLost: self._on_member_lost,
        }

    def _on_frames(self, event: BusFrames) -> None:
        if event.wall:
            self.look(event.wall)
        for sender, frame in event.frames:
            assert sender != self._shard, "nobody sends to itself"
            if len(frame) >= HEADER_BYTES and frame[KIND_OFFSET] in LAYOUTS:
                self.on_passed(frame)
                continue
            try:
                kind, header = decode_bus(frame)
            except RemoteError:
                self._turn.probes.hit("bus.refused")
                continue
            handler = self._on_kind.get(kind)
            if handler is None:
                self._turn.probes.hit("bus.foreign")
            else:
                handler(sender, header, memoryview(frame)[HEADER_BYTES:])

    def _on_request(self, sender: int, header: ForwardedRequestHeader, frame: Buffer) -> None:
        if header.home != sender:
            self._turn.probes.hit("bus.refused")
        else:
            self.guests.on_request(header, frame)

    def _on_reply(self, sender: int, header: ForwardedReplyHeader, frame: Buffer) -> None:
        self.forwards.on_reply(sender, header, frame)

    def _on_refused(self, event: BusRefused) -> None:
        assert event.member != self._shard, "nobody sends to itself"
        self.drops.count_event(event)
        if event.kind == FrameKind.FORWARDED_REQUEST:
            assert event.ticket > 0, "who waits has a ticket"
            self.forwards.on_refused(event)

    def _on_lost(self, event: FrameLost) -> None:
        self.drops.count_event(event)

    def _on_member_lost(self, event: MemberLost) -> None:
        assert event.member != self._shard, "nobody has a lane to itself"
        self._turn.probes.hit("bus.member_lost")  # The supervisor stops this shard too.

    def translate(self, effects: list[ShardEffect]) -> list[ShardEffect]:
        """Return the effects of a turn with those for other shards' connections made to frames."""
        out: list[ShardEffect] = []
        for effect in effects:
            if isinstance(effect, _OF_CONNECTIONS):
                if self.guests.is_guest(effect.connection):
                    if isinstance(effect, SendToConnection):
                        out.append(self.guests.answer(effect))
                    elif isinstance(effect, CloseConnection):
                        self.guests.close(effect.connection)
                    continue
                if home_of(effect.connection) != self._shard:
                    out += self._order(effect)
                    if not isinstance(effect, ConnectionTrusted):
                        continue  # Who has logged in is counted here, wherever it lives.
            out.append(effect)
        return out

    def _order(
        self, effect: SendToConnection | ConnectionTrusted | CloseConnection
    ) -> list[SendToMember]:
        """Return what the home of a connection is told; a guest that was answered: nothing."""
        assert home_of(effect.connection) != self._shard, "who lives here needs no order"
        return []

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait for other shards."""
        return self.forwards.tickets()

    def tick(self) -> None:
        """Do what waits for time."""
        self.forwards.tick()
        self._reporter.after_feed()

    def check(self) -> None:
        """Assert what holds between turns."""
        self.forwards.check()
        self.guests.check()
        self._reporter.check()
        self.drops.check()
        guests = self.guests.numbers()
        assert all(home_of(number) != self._shard for number in guests), "guests live elsewhere"
        assert self._on_kind.keys() <= _KINDS_OF_BUS.keys(), "frames of replicas have another way"


class MainExchange(Exchange):
    """Of shard 0."""

    def __init__(  # noqa: PLR0913 - it joins the parts
        self,
        forwards: Forwards,
        guests: Guests,
        reporter: Reporter,
        turn: Turn,
        *,
        feed: Feed,
        gather: Gather,
        connections: Connections,
        room: LoginRoom,
        route: Callable[[Connection, Buffer], None],
        shard_count: int,
    ) -> None:
        """Make it; `route` takes the frames of connections."""
        super().__init__(METADATA_SHARD, forwards, guests, reporter, turn)
        self.feed = feed
        self.gather = gather
        self._connections = connections
        self._room = room
        self._route = route
        self._homes = Homes(connections, shard_count)
        feed.departures = self._homes.departures
        assert feed.peers.keys() == self._homes.orders.keys(), "who is fed is a home"
        self._on_kind[FrameKind.GATHERED] = gather.on_answer
        self._on_kind[FrameKind.FEED_ASK] = self._on_ask
        self._on_kind[FrameKind.CONNECTION_GONE] = self._on_gone
        self.on_event[CloseWanted] = self._on_close_wanted

    def _on_request(self, sender: int, header: ForwardedRequestHeader, frame: Buffer) -> None:
        if header.operation not in _OF_SESSIONS or header.home != sender:
            super()._on_request(sender, header, frame)
            return
        connection = self._connections.get(header.connection)
        if connection is None or home_of(connection.number) != sender:
            self._turn.probes.hit("bus.refused")  # Its home was told that it is gone, or will be.
        else:
            assert connection.stands_for == 0, "a session is that of a connection, not of a guest"
            self._route(connection, frame)

    def _on_ask(self, sender: int, header: FeedAskHeader, _: Buffer) -> None:
        assert sender in self.feed.peers, "only who is fed asks"
        if not header.number:  # Else it asks for the commit, and says nothing of itself.
            self._turn.out += self._homes.on_taken(sender, header.orders)
        self.feed.on_ask(sender, header)

    def _on_gone(self, sender: int, header: ConnectionGoneHeader, _: Buffer) -> None:
        if home_of(header.connection) != sender:
            self._turn.probes.hit("bus.refused")
            return
        if not self._homes.departures[sender].is_next(header.number):
            return
        assert self._homes.departures[sender].taken == header.number, "it is taken once"
        connection = self._connections.get(header.connection)
        if connection is None:
            return
        assert connection.home == sender, "a connection is known by its home"
        if header.is_open:
            if connection.is_bound:
                self._room.disconnects.release(connection)
            assert connection.session == 0, "it must log in again"
            return
        self._connections.close(header.connection)
        self.forwards.forget(header.connection)
        self._room.on_closed(connection)
        self._turn.out.append(ConnectionLeft(header.connection))

    def _on_close_wanted(self, event: CloseWanted) -> None:
        if self._connections.get(event.connection) is not None:
            assert event.connection not in self._connections.guests, "a guest has no transport"
            assert home_of(event.connection) in (METADATA_SHARD, *self._homes.orders), "of the node"
            self._turn.out.append(CloseConnection(event.connection, event.reason))

    def _on_refused(self, event: BusRefused) -> None:
        super()._on_refused(event)
        if event.kind == FrameKind.CONNECTION_ORDER:
            assert event.member in self._homes.orders, "only homes are ordered"
            self._homes.orders[event.member].refused()
        elif event.kind == FrameKind.GATHER:
            self.gather.on_refused(event)

    def _on_member_lost(self, event: MemberLost) -> None:
        super()._on_member_lost(event)
        if event.member in self.feed.peers:
            self.gather.on_lost(event.member)

    def _order(
        self, effect: SendToConnection | ConnectionTrusted | CloseConnection
    ) -> list[SendToMember]:
        if self._connections.get(effect.connection) is None:
            return super()._order(effect)
        return [self._homes.order(effect)]

    def end_turn(self, effects: list[ShardEffect]) -> list[ShardEffect]:
        """Feed what was applied, and return what leaves the shard."""
        self.feed.after_turn()
        effects += self._turn.out
        self._turn.out.clear()
        out = self.translate(effects)
        assert not self._turn.out, "all effects of a turn leave with it"
        return out

    def check(self) -> None:
        """Assert what holds between turns."""
        super().check()
        self.feed.check()
        self.gather.check()
        self._homes.check()


class PeerExchange(Exchange):
    """Of a shard without the metadata group."""

    def __init__(  # noqa: PLR0913 - it joins the parts
        self,
        shard: int,
        forwards: Forwards,
        guests: Guests,
        reporter: Reporter,
        turn: Turn,
        *,
        image: MetadataImage,
        sessions: RemoteSessions,
        doubts: Doubts,
        partitions: Partitions,
    ) -> None:
        assert shard > METADATA_SHARD, "shard 0 has the metadata itself"
        super().__init__(shard, forwards, guests, reporter, turn)
        self._image = image
        self.sessions = sessions
        self._doubts = doubts
        self._partitions = partitions
        self.is_awake = False  # whether something may go on that waited for the image
        self._is_lacking = True
        self._asked_at = -ASK_TICKS
        self._told_settled = -1
        self._pieces: list[bytes] = []  # of an image that is coming
        self._image_op = 0
        self._on_kind[FrameKind.FEED_OP] = self._on_op
        self._on_kind[FrameKind.FEED_IMAGE] = self._on_image
        self._on_kind[FrameKind.FEED_POINT] = self._on_point
        self._on_kind[FrameKind.CONNECTION_ORDER] = self._on_connection_order

    def _on_op(self, _: int, header: FeedOpHeader, frame: Buffer) -> None:
        body = memoryview(frame)[HEADER_BYTES:]
        prepare = PREPARE.decode(frame)
        assert prepare.op == header.op, "an op is fed under its number"
        if not self._image.apply(header.previous, prepare, body):
            self._lack()
            assert self._image.last_op < header.op, "what is missing is not applied"

    def _on_image(self, _: int, header: FeedImageHeader, piece: Buffer) -> None:
        have = sum(len(each) for each in self._pieces)
        if header.offset == 0:
            self._pieces, self._image_op, have = [], header.op, 0
        if header.op != self._image_op or header.offset != have:
            self._lack()
            return
        assert have + len(piece) <= header.total, "pieces are those of one image"
        self._pieces.append(bytes(piece))
        if have + len(piece) == header.total:
            data, self._pieces = b"".join(self._pieces), []
            assert len(data) == header.total, "an image is installed whole"
            if header.op >= self._image.last_op:
                try:
                    self._image.install(header.op, header.commit, data)
                except CorruptError:
                    self._lack()

    def _on_point(self, _: int, header: FeedPointHeader, __: Buffer) -> None:
        self.sessions.on_taken(header.departures)
        self._is_lacking = not self._image.confirm(header.op, header.commit)
        if self._is_lacking:
            self._lack()
        assert self._is_lacking or self._image.commit >= header.commit, "who lacks nothing is there"
        if header.number:
            self._doubts.on_point(header.number, header.commit, is_current=bool(header.is_current))
            self.is_awake = True

    def _lack(self) -> None:
        """Ask for what is missing; what was on its way before the answer may ask once more."""
        self._turn.probes.hit("feed.gap")
        self._is_lacking = True

    def _on_connection_order(self, _: int, header: ConnectionOrderHeader, body: Buffer) -> None:
        self.sessions.on_order(header, body)

    def _on_refused(self, event: BusRefused) -> None:
        super()._on_refused(event)
        if event.kind == FrameKind.CONNECTION_GONE:
            assert event.member == METADATA_SHARD, "shard 0 alone is told of connections"
            self.sessions.departures.refused()

    def after_feed(self) -> None:
        """Go on with what waited for the image; partitions are as it says by now."""
        self.is_awake = False
        assert self._image.machine.op <= self._image.commit, "only what is committed is fed"
        self.forwards.after_feed()
        self.guests.after_feed()
        self._reporter.after_feed()
        self._doubts.go_on()

    def after_turn(self) -> None:
        """Tell shard 0 how far this shard is, if that matters to it."""
        self.sessions.close_answered()
        settled = self._partitions.purged_revision
        if settled != self._told_settled:
            self._ask()
        assert self._told_settled == settled, "shard 0 is told how far this shard is"

    def tick(self) -> None:
        """Do what waits for time."""
        super().tick()
        if self._turn.clock.now - self._asked_at >= ASK_TICKS:
            self._ask()
            self._doubts.tick()
        assert self._turn.clock.now - self._asked_at < ASK_TICKS, "it is told ten times a second"

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait for other shards."""
        return [*super().tickets(), *self._doubts.tickets()]

    def _ask(self) -> None:
        image = self._image
        self._asked_at = self._turn.clock.now
        self._told_settled = self._partitions.purged_revision
        assert self._told_settled <= image.state.revision, "partitions follow the metadata"
        header = FeedAskHeader(
            op=image.last_op,
            commit=image.commit,
            settled=self._told_settled + 1,
            orders=self.sessions.orders.taken,
            has_image=int(image.is_caught_up),
            is_lacking=int(self._is_lacking),
        )
        self._turn.out.append(SendToMember(METADATA_SHARD, (FEED_ASK.encode(header),)))

    def check(self) -> None:
        """Assert what holds between turns."""
        super().check()
        self._image.check()
        self._doubts.check()
        self.sessions.check()
        assert self._asked_at <= self._turn.clock.now, "nobody asks in the future"
        assert self._image.is_caught_up or self._is_lacking, "who has no image lacks it"
        assert self._told_settled == self._partitions.purged_revision, "shard 0 is told of it"
        assert not self.is_awake, "what can go on has gone on"
