"""The groups on one store, driven: events in, effects out, in order.

Here consensus and storage meet, and here alone the order of effects is decided: what a turn
journals is one record, and nothing that depends on it leaves before the disk has answered. A shard
has one plane for the metadata group, if it has that group, and one for its partitions.

```
inbox -> replicas step -> journaling  one record per turn; who waits for it is told when durable
                       -> timers, journal_reads, checkpoints
                       -> frames and replies leave
neighbours: heartbeats, and frames of other nodes
```

Flow: replicate, apply, reply.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.ports.disk import (
    BlockWritten,
    DiskEffect,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    JournalRead,
    Synced,
    Written,
)
from headrace.ports.machine import RequestTable, StateMachine
from headrace.ports.network import (
    Buffer,
    FramesArrived,
    NetworkEvent,
    RequestsArrived,
    SendFrame,
    SendReply,
    Ticked,
)
from headrace.ports.probes import Probes
from headrace.ports.recovered import RecoveredGroup
from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.shard.consensus.ceilings import Ceilings
from headrace.shard.consensus.checkpoints import Checkpoints, Nothing, Outside, Phase
from headrace.shard.consensus.inbox import Inbox
from headrace.shard.consensus.journal_reads import JournalReads
from headrace.shard.consensus.journaling import Journaling
from headrace.shard.consensus.neighbours import Neighbours
from headrace.shard.consensus.replicas import ReplicaMaker, origin_of
from headrace.shard.consensus.reserve import reserve_parts
from headrace.shard.consensus.timers import Timers
from headrace.storage.store import Opened
from headrace.vsr.events import (
    CheckpointDone,
    FrameReceived,
    JournalPrepare,
    JournalTruncate,
    PersistView,
    PrimarySilent,
    ReadEntry,
    ReadPiece,
    RequestReceived,
    RoomMade,
    SetTimer,
    StopTimer,
    TakeCheckpoint,
    TimerFired,
)
from headrace.vsr.invariants import check_shared
from headrace.vsr.replica import GROUP_FRAMES, Replica
from headrace.vsr.state import ReserveParts, Shared, Transfer
from headrace.wire.errors import Code, RemoteError
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader
from headrace.wire.replica.kinds import ReplicaHeader
from headrace.wire.replies import encode_reply
from headrace.wire.requests import REQUEST, RequestHeader

_LOOKS = 64  # so often is a journal looked at while it fills

Event: TypeAlias = DiskEvent | NetworkEvent
Effect: TypeAlias = DiskEffect | SendFrame | SendReply


class Plane:
    """All groups of one store.

    `outside` is what the machines keep outside the checkpoint; `on_flushed` says when a flush of it
    is over. `has_offsets` says that groups give out offsets. `may_begin` says whether the
    groups may begin to live once the store is open. `reserve_parts` says how much an op may use of
    what the journal keeps for those that make room.
    """

    def __init__(
        self,
        config: PlaneConfig,
        opened: Opened,
        *,
        outside: Outside | None = None,
        has_offsets: bool = False,
        may_begin: Callable[[], bool] = lambda: True,
        reserve_parts: ReserveParts = reserve_parts,
    ) -> None:
        self.config = config
        self.store = store = opened.store
        self._outbox = store.outbox
        self.probes = Probes()
        self._may_begin = may_begin
        self._outside = outside or Nothing()
        self.shared = shared = Shared(
            self.probes, store.has_room, opened.life, self._room_code, reserve_parts, store.fits
        )
        self.groups: dict[int, Replica] = {}
        # Groups that did something since this was cleared, more than ordering a request.
        self.touched: dict[int, None] = {}
        # How full the journal is, is looked at when so many bytes were placed in it.
        self._journal = store.journal
        self._look_step = store.journal.ring.admission_bytes // _LOOKS
        self._look_at = 0
        self._is_timed = True  # whether time has passed since checkpoints were looked at
        self.is_stirred = True  # whether time passed, or the disk answered, since this was cleared
        self.piece_reads: list[tuple[Replica, ReadPiece]] = []  # for the owner to carry out
        # Takes the frames of other nodes for which there is no group here; the owner may set it.
        self.on_early: Callable[[int, FrameKind, ReplicaHeader, bytes], None] = _drop_early
        self._configs: dict[int, GroupConfig] = {}
        # Groups that the disk knows and nobody has asked for yet: metadata may lag behind.
        self._dormant = {each.state.group: each for each in opened.groups}
        assert len(self._dormant) == len(opened.groups), "the store has a group once"
        self._short: dict[int, None] = {}  # groups whose requests wait for room in the journal
        self._out: list[Effect] = []
        prng = Prng(config.seed)
        self._maker = ReplicaMaker(config, opened, shared, prng)
        self._neighbours = Neighbours(config, self.groups, shared, prng)
        self._has_neighbours = config.replica_count > 1
        self._timers = Timers()
        self.inbox = inbox = Inbox(self.groups, self._refuse)
        self.put_request = inbox.put_request
        self.propose = inbox.propose
        self.settle_tail = inbox.settle_tail
        self.put_piece = inbox.hand_back
        self._ceilings = Ceilings(opened.ceilings, config.offsets_reserved)
        self._journaling = Journaling(
            store,
            self._configs,
            self._ceilings,
            inbox.hand_back,
            has_offsets=has_offsets,
            is_alone=config.replica_count == 1,
        )
        self._reads = reads = JournalReads(store, inbox)
        self.checkpoints = Checkpoints(
            store,
            self.groups,
            self._dormant,
            self._outside,
            reads.new_token,
            config.slice_groups_max,
        )
        self.on_event: dict[type, Callable[[Any], None]] = {  # see `take`
            Ticked: self._on_ticked,
            FramesArrived: self._on_frames,
            RequestsArrived: self._on_requests,
            Written: self._journaling.on_written,
            Synced: self._journaling.on_synced,
            JournalRead: self._on_read,
            JournalAllocated: store.step,
            FileReplaced: store.step,
            BlockWritten: self._journaling.on_block_written,
        }
        self.carry_out: dict[type, Callable[[Replica, Any], None]] = {
            JournalPrepare: self._journaling.prepare,
            JournalTruncate: self._journaling.truncate,
            PersistView: self._journaling.persist_view,
            SetTimer: self._set_timer,
            StopTimer: self._stop_timer,
            ReadEntry: reads.read,
            ReadPiece: self._read_piece,
            TakeCheckpoint: self._take_checkpoint,
            SendFrame: self._send,
            SendReply: self._send,
        }

    @property
    def is_without_space(self) -> bool:
        """Whether the checkpoint that would make room waits for space on the disk, or the journal.

        What finds no room then is refused at once (O2.3); otherwise it waits for the checkpoint.
        """
        return self.store.is_without_space or self._outside.is_without_space

    def _room_code(self, body_bytes: int) -> Code | None:
        """Return why there is no room for an op; none if a checkpoint will make some."""
        code = self.store.room_code(body_bytes)
        if code is None and self.is_without_space:
            return Code.CANNOT_APPEND_MESSAGE
        return code

    # Groups.

    def add_group(
        self, config: GroupConfig, machine: StateMachine, table: RequestTable
    ) -> RecoveredGroup | None:
        """Take up a group, with its past if the disk has one; return that past.

        A past of an earlier incarnation of the same name is gone with this.
        """
        assert config.group not in self.groups
        self.checkpoints.touch(config.group)
        past = self._dormant.pop(config.group, None)
        if past is not None and origin_of(past) not in (None, config.origin):
            self.checkpoints.forget(config.group)
            self._ceilings.forget(config.group)
            self._journaling.end_group(config.group)
            past = None
        if past is not None:
            self.checkpoints.wake(config.group, past)
        replica, past = self._maker.make(config, machine, table, past)
        assert replica.origin == config.origin, "the group is of the wanted incarnation"
        self.groups[config.group] = replica
        self._configs[config.group] = config
        self._neighbours.note_primary(replica)
        if self.inbox.has_begun:
            self._start_group(replica)
        if self._journaling.has_staged or self.inbox.queue or self._out:
            self.inbox.is_awake = True
        return past

    def remove_group(self, group: int) -> None:
        """Forget a group with all it had, known or dormant; who waits for it is told so."""
        if self.inbox.queue:
            self._run_inbox()  # What came for it is taken first: it takes nothing later.
        self.checkpoints.touch(group)
        replica = self.groups.pop(group, None)
        self._configs.pop(group, None)
        self._dormant.pop(group, None)
        self._ceilings.forget(group)
        self._neighbours.forget(group)
        self.checkpoints.forget(group)
        self.touched.pop(group, None)
        if replica is not None:
            assert replica.group == group, "a group is found by its number"
            self._timers.forget(group)
            for effect in replica.let_go():
                self.carry_out[type(effect)](replica, effect)
        self._journaling.end_group(group)
        self.inbox.is_awake = True

    def dormant_groups(self) -> list[tuple[int, int | None]]:
        """Return the groups that the disk knows and nobody has asked for, each with its origin."""
        return [(group, origin_of(past)) for group, past in self._dormant.items()]

    def is_dormant(self, group: int) -> bool:
        """Whether the disk knows a group that nobody has asked for."""
        return group in self._dormant

    def dormant_origin(self, group: int) -> int | None:
        """Return the origin of a group that nobody has asked for, if it is one and has one."""
        past = self._dormant.get(group)
        return None if past is None else origin_of(past)

    def ceiling_of(self, group: int) -> int:
        """Return the offset below which a group may have given out offsets that are not durable."""
        return self._ceilings.durable(group)

    def start(self) -> list[Effect]:
        """Open the store; the groups begin to live once the disk knows of this start."""
        return self.close_turn()

    def _begin_if_allowed(self) -> None:
        """Have every group begin to live."""
        if not self._may_begin():
            self.inbox.is_awake = True  # It is asked again at the next turn.
            return
        assert not self.inbox.queue, "before the groups live nothing is put"
        self.inbox.has_begun = True
        self.store.begin()
        for replica in self.groups.values():
            self._start_group(replica)

    def _start_group(self, replica: Replica) -> None:
        assert self.groups[replica.group] is replica, "a group that starts is here"
        self.touched[replica.group] = None
        self.checkpoints.touch(replica.group)
        for effect in replica.start():
            self.carry_out[type(effect)](replica, effect)
        for beat in self._neighbours.take_unheard(replica):
            self.inbox.queue.append((replica, beat))

    @property
    def has_begun(self) -> bool:
        """Whether the groups live."""
        return self.inbox.has_begun

    def is_current(self, replica: Replica) -> bool:
        """Whether nobody can have decided anything in a group that is not known here (O6.2).

        If that is not known, it is asked for, and again as long as somebody wants to know.
        """
        if not replica.is_serving:
            return False
        if self._has_neighbours:
            self._neighbours.ask(replica.group)
            if not replica.is_current:
                self.probes.hit("lease.missing")
                self._neighbours.hurry()
                return False
        return True

    def step(self, event: Event) -> list[Effect]:
        """Take one event; return what must now happen, in order."""
        self.take(event)
        return self.close_turn()

    @property
    def has_work(self) -> bool:
        """Whether something was put that a turn must still take."""
        return bool(self.inbox.queue)

    @property
    def is_quiet(self) -> bool:
        """Whether the end of a turn would do nothing."""
        return not self.inbox.is_awake

    def check(self) -> None:
        """Assert, between turns, that all parts speak of the same groups, and `check_awake`."""
        check_shared(self.shared, (each.state for each in self.groups.values()))
        self.check_awake()
        assert self._configs.keys() == self.groups.keys(), "every group has its configuration"
        for group, replica in self.groups.items():
            assert replica.group == group, "a group is found by its number"
            assert replica.origin == self._configs[group].origin, "a group is of one incarnation"
            assert group not in self._dormant, "a group is here, or only on the disk"
        assert self.touched.keys() <= self.groups.keys(), "a group that is gone does nothing"
        self.inbox.check()
        assert self.store.is_open or not self.inbox.has_begun, "groups live on an open store"
        assert self.inbox.has_ended == self.checkpoints.is_over, "the last checkpoint is the end"
        self._neighbours.check()
        self._journaling.check()
        self.checkpoints.check()
        is_capturing = self.checkpoints.phase is Phase.CAPTURING
        assert self.inbox.is_awake or not is_capturing, "the next slice comes with the next turn"
        assert self.inbox.has_ended or not self.store.is_stopped, "a stop is marked at the end"
        has_ended = self.inbox.has_ended
        self._timers.check(self.shared.now, self.groups, has_ended=has_ended)
        if not has_ended:
            self._journaling.check_groups(self.groups)
            self._reads.check(self.groups, self.checkpoints.reading)
            self._check_waiting()

    def _check_waiting(self) -> None:
        """Assert that what groups wait for will come."""
        for group, replica in self.groups.items():
            state = replica.state
            assert not state.is_short or group in self._short, "who lacks room is offered some"
        for replica, effect in self.piece_reads:
            is_here = self.groups.get(replica.group) is replica
            assert not is_here or effect.token in replica.state.sending, "a piece is for a transfer"

    def check_awake(self) -> None:
        """Assert that the end of the turn takes what came for groups, and what they staged."""
        if self.inbox.queue or self._journaling.has_staged or self._out:
            assert self.inbox.is_awake, "what is to be done is done by the end of the turn"

    def check_time(self, now: int, wall: int) -> None:
        """Assert that the groups have the time of the shard."""
        assert self.shared.now == now, "all planes have the same tick"
        assert self.shared.wall == wall, "stamps are made by the time that is believed"

    def stop(self) -> None:
        """Take a last checkpoint, and then mark the stop as clean; `is_stopped` says when."""
        self.inbox.is_awake = True
        self.checkpoints.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether the store knows that the stop was clean."""
        return self.store.is_stopped

    def take(self, event: Event) -> None:
        """Take one event; what must happen comes with the end of the turn."""
        self.inbox.is_awake = self.is_stirred = True
        self.on_event[type(event)](event)

    def answer_again(self, replica: Replica, header: RequestHeader, body: Buffer) -> bool:
        """Answer a request that was applied, with the end of the turn; whether it was applied."""
        effects = replica.answer_again(header, body)
        for effect in effects:
            self.carry_out[type(effect)](replica, effect)
            self.inbox.is_awake = True
        return bool(effects)

    def withdraw(self, client: int, request: int, ticket: int) -> bool:
        """Take a request back that no group has ordered yet; whether there was such a one."""
        group = self.shared.queued.get((client, request))
        return group is not None and self.groups[group].withdraw(client, request, ticket)

    def close_turn(self) -> list[Effect]:
        """End a turn: one record for all that was staged, then what may leave."""
        inbox, checkpoints = self.inbox, self.checkpoints
        if not inbox.is_awake:
            return []
        inbox.is_awake = False
        if not inbox.has_begun and self.store.is_open:
            self._begin_if_allowed()
        self._run_inbox()
        served = checkpoints.end_if_durable() if checkpoints.is_writing else None
        if served is not None:
            inbox.has_ended = checkpoints.is_over
            self._tell_served(served)
            self._run_inbox()
        if self._journaling.has_staged:
            self._journaling.flush()
        if served is None:
            # One is due when the journal has grown or refused something, or somebody wants it.
            has_grown = self._journal.placed_bytes >= self._look_at
            is_due = has_grown or self._is_timed or self._short or checkpoints.is_awake
            if is_due and (inbox.has_begun or self._may_begin()):
                self._is_timed = False
                self._look_at = self._journal.placed_bytes + self._look_step
                inbox.is_awake |= checkpoints.go_on()
        else:
            # The owner of the machines must first learn that this one is durable: what it may then
            # remove is what this one does not name, not what the next one will not.
            inbox.is_awake = True
        assert not inbox.queue, "a turn takes all that came for groups"
        out, outbox = self._out, self._outbox
        if outbox.effects:
            out += outbox.effects
            outbox.effects = []
        self._out = []
        return out

    def _run_inbox(self) -> None:
        queue = self.inbox.queue
        if self.inbox.has_ended:
            # What is written behind the clean mark could be lost with the power, and the mark says
            # that nothing was: so this replica acknowledges nothing more.
            queue.clear()
        touched, checkpoints, carry_out = self.touched, self.checkpoints, self.carry_out
        while queue:
            replica, event = queue.popleft()
            group, state = replica.group, replica.state
            if group not in checkpoints.dirty:
                checkpoints.touch(group)
            applied = state.commit_min
            for effect in replica.step(event):
                if type(effect) is SendReply:
                    self._out.append(effect)
                else:
                    carry_out[type(effect)](replica, effect)
            # A request that is only ordered changes nothing that others look at.
            assert state.commit_min >= applied, "what is applied stays applied"
            if state.commit_min != applied or type(event) is not RequestReceived:
                touched[group] = None
            if state.is_short:
                self._short[group] = None
            if self._has_neighbours:
                self._neighbours.note(replica)

    # Events.

    def _on_ticked(self, event: Ticked) -> None:
        assert event.now >= self.shared.now, "ticks do not go back"
        self._is_timed = True
        self.shared.now = event.now
        self.shared.wall = event.wall
        self.store.tick(event.now)
        self._offer_room()
        for group, timer in self._timers.take_due(event.now):
            self.inbox.queue.append((self.groups[group], TimerFired(timer)))
        if not self.inbox.has_begun:
            return
        self._out += self._neighbours.make_heartbeats()
        for replica in self._neighbours.find_silent():
            self.inbox.queue.append((replica, PrimarySilent()))

    def _offer_room(self) -> None:
        """Let those try again who found the journal full."""
        short, self._short = self._short, {}
        for group in short:
            replica = self.groups.get(group)
            if replica is not None:
                self.inbox.queue.append((replica, RoomMade()))

    def _on_frames(self, event: FramesArrived) -> None:
        """Take frames that are all for this store's groups, as tests of a plane alone send them."""
        for sender, frame in event.frames:
            try:
                kind, header = decode_replica(frame)
            except RemoteError:
                self.probes.hit("frame.refused")
                continue
            self.take_frame(sender, kind, header, frame)

    def take_frame(self, sender: int, kind: FrameKind, header: ReplicaHeader, frame: bytes) -> None:
        """Take a frame of another node that is for the groups of this store."""
        self.inbox.is_awake = True
        if not self.inbox.has_begun:
            return  # It will be sent again.
        if not self._neighbours.admits(sender, kind, header):
            return
        if isinstance(header, NodeHeartbeatHeader):
            self.inbox.queue += self._neighbours.hear(sender, header, frame[HEADER_BYTES:])
        elif kind in GROUP_FRAMES:
            replica = self._neighbours.find_group(getattr(header, "group", -1), header.origin)
            if replica is None:
                self.on_early(sender, kind, header, frame)
            else:
                self.inbox.queue.append((replica, FrameReceived(sender, kind, header, frame)))
        else:
            self.probes.hit("frame.unused")
        self._run_inbox()

    def _on_requests(self, event: RequestsArrived) -> None:
        """Take requests that name their group themselves, as tests of a plane alone send them."""
        for _, frame in event.frames:
            header = REQUEST.decode(frame)
            replica = self.groups.get(header.group)
            if replica is None or not self.inbox.has_begun:
                code = Code.TRANSIENT_NOT_ACCEPTED if replica else Code.PARTITION_NOT_FOUND
                self._out.append(SendReply(header.client, encode_reply(header, b"", status=code)))
            else:
                self.put_request(replica, header, frame[HEADER_BYTES:])
        self._run_inbox()

    def _on_read(self, event: JournalRead) -> None:
        self._reads.on_read(event, self.checkpoints.on_read)

    def _refuse(self, reply: SendReply) -> None:
        self._out.append(reply)

    # Effects of groups.

    def _set_timer(self, replica: Replica, effect: SetTimer) -> None:
        assert effect.ticks > 0, "a timer runs out after this tick"
        self._timers.start(replica.group, effect.timer, self.shared.now + effect.ticks)

    def _stop_timer(self, replica: Replica, effect: StopTimer) -> None:
        self._timers.stop(replica.group, effect.timer)

    def _read_piece(self, replica: Replica, effect: ReadPiece) -> None:
        self.piece_reads.append((replica, effect))

    def _take_checkpoint(self, replica: Replica, effect: TakeCheckpoint) -> None:
        transfer = replica.state.transfer
        assert transfer == Transfer.INSTALLING, "an installed state is in no journal"
        self.checkpoints.want(replica.group)

    def _send(self, replica: Replica, effect: SendFrame | SendReply) -> None:
        self._out.append(effect)

    # Checkpoints.

    def want_checkpoint(self) -> None:
        """Have a checkpoint taken that begins after this call."""
        self.inbox.is_awake = True
        self.checkpoints.want_one()

    def on_flushed(self) -> None:
        """Go on with a checkpoint: what machines keep outside of it is durable."""
        self.inbox.is_awake = True
        self.checkpoints.on_flushed()

    def _tell_served(self, groups: list[int]) -> None:
        self._offer_room()
        for group in groups:
            replica = self.groups.get(group)
            if replica is not None:
                self.inbox.queue.append((replica, CheckpointDone()))


def _drop_early(sender: int, kind: FrameKind, header: ReplicaHeader, frame: bytes) -> None:
    """Drop a frame for which there is no group here: it is sent again."""
