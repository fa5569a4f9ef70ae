"""The groups on one store, driven: events in, effects out, in order.

Here consensus and storage meet, and here alone the order of effects is decided: what a turn
journals is one record, and nothing that depends on it leaves before the disk has answered. A shard
has one plane for the metadata group, if it is the first, and one for its partitions.

Flow: replicate, apply, reply.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

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
from headrace.ports.recovered import RecoveredGroup, ViewState
from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.shard.consensus.ceilings import Ceilings
from headrace.shard.consensus.checkpoints import Checkpoints, Nothing, Outside
from headrace.shard.consensus.neighbours import Neighbours
from headrace.shard.consensus.reserve import reserve_parts
from headrace.shard.consensus.timers import Timers
from headrace.storage.store import Opened
from headrace.vsr.events import (
    CheckpointDone,
    EntryRead,
    FrameReceived,
    GroupEvent,
    JournalPrepare,
    JournalTruncate,
    OwnOp,
    PersistView,
    PieceRead,
    PrepareDurable,
    PrimarySilent,
    ReadEntry,
    ReadPiece,
    RequestReceived,
    RoomMade,
    SetTimer,
    StopTimer,
    TailSettled,
    TakeCheckpoint,
    TimerFired,
    ViewDurable,
)
from headrace.vsr.quorum import quorums_of
from headrace.vsr.replica import GROUP_FRAMES, Replica
from headrace.vsr.state import GroupOptions, ReserveParts, Shared
from headrace.wire.errors import Code, RemoteError
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader
from headrace.wire.replica.kinds import ReplicaHeader
from headrace.wire.replica.prepares import PREPARE
from headrace.wire.replies import encode_reply
from headrace.wire.requests import REQUEST, RequestHeader

Event: TypeAlias = DiskEvent | NetworkEvent
Effect: TypeAlias = DiskEffect | SendFrame | SendReply
# What groups wait for, in journal order: the record that must get so far, and what is told then.
_Waiting: TypeAlias = deque[tuple[int, Replica, GroupEvent]]


_OPERATION_AT = PREPARE.at("operation")
_OFFSET_OPERATIONS = (
    Operation.STORE_CONSUMER_OFFSET,
    Operation.DELETE_CONSUMER_OFFSET,
    Operation.AUTO_COMMIT_OFFSET,
)


class Plane:
    """All groups of one store.

    `outside` is what the machines keep outside the checkpoint; `on_flushed` says when a flush of it
    is over. `given` tells the next offset that a group gives out. `may_begin` says whether the
    groups may begin to live once the store is open. `reserve_parts` says how much an op may use of
    what the journal keeps for those that make room.
    """

    def __init__(
        self,
        config: PlaneConfig,
        opened: Opened,
        *,
        outside: Outside | None = None,
        given: Callable[[int], int] | None = None,
        may_begin: Callable[[], bool] = lambda: True,
        reserve_parts: ReserveParts = reserve_parts,
    ) -> None:
        self._may_begin = may_begin
        self.config = config
        self.store = opened.store
        self.probes = Probes()
        self._opened = opened
        self._given = given
        self._prng = prng = Prng(config.seed)
        self._incarnation = prng.fork("incarnation").u64() | 1
        self._outside = outside or Nothing()
        self._shared = Shared(
            self.probes, self.store.has_room, opened.life, self._room_code, reserve_parts
        )
        self.groups: dict[int, Replica] = {}
        self.touched: dict[int, None] = {}  # groups that did something since this was cleared
        self.piece_reads: list[tuple[Replica, ReadPiece]] = []  # for the owner to carry out
        self._configs: dict[int, GroupConfig] = {}
        # Groups that the disk knows and nobody has asked for yet: metadata may lag behind.
        self._dormant = {each.state.group: each for each in opened.groups}
        self._ceilings = Ceilings(opened.ceilings, config.offsets_reserved)
        self._checkpoints = Checkpoints(
            self.store,
            self.groups,
            self._dormant,
            self._outside,
            self._new_read_token,
            config.slice_groups_max,
        )
        self._has_begun = False
        self._timers = Timers()
        self._neighbours = Neighbours(config, self.groups, self._shared, prng)
        self._inbox: deque[tuple[Replica, GroupEvent]] = deque()
        self._out: list[Effect] = []
        # What the turn journals, and who waits for its durability, in journal order. Not by number:
        # a group that is made anew under the same one has asked for nothing of its namesake's.
        self._staged: list[tuple[_Waiting, Replica, GroupEvent]] = []
        self._has_staged = False
        self._is_stirred = True  # whether a turn has anything to do
        self._wants_sync = False
        self._is_write_awaited = False  # whether somebody waits for less than a sync
        self._until_written: _Waiting = deque()
        self._until_synced: _Waiting = deque()
        self._until_named: _Waiting = deque()  # synced, and the superblock says so (O2.9)
        self._reads: dict[int, tuple[Replica, int]] = {}
        self._read_token = 0
        self._short: dict[int, None] = {}  # groups whose requests wait for room in the journal
        self._on_event: dict[type, Callable[[Any], None]] = {
            Ticked: self._on_ticked,
            FramesArrived: self._on_frames,
            RequestsArrived: self._on_requests,
            Written: self._on_written,
            Synced: self._on_synced,
            JournalRead: self._on_read,
            JournalAllocated: self.store.step,
            FileReplaced: self.store.step,
            BlockWritten: self._on_block_written,
        }
        self.carry_out: dict[type, Callable[[Replica, Any], None]] = {
            JournalPrepare: self._journal_prepare,
            JournalTruncate: self._journal_truncate,
            PersistView: self._persist_view,
            SetTimer: self._set_timer,
            StopTimer: self._stop_timer,
            ReadEntry: self._read_entry,
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
        """Say why there is no room for an op; nothing if a checkpoint will make some."""
        code = self.store.room_code(body_bytes)
        if code is None and self.is_without_space:
            return Code.CANNOT_APPEND_MESSAGE
        return code

    # Groups.

    def add_group(
        self, config: GroupConfig, machine: StateMachine, table: RequestTable
    ) -> RecoveredGroup | None:
        """Take up a group, with its past if the disk has one; give that past.

        A past of an earlier incarnation of the same name is gone with this.
        """
        assert config.group not in self.groups
        self._checkpoints.touch(config.group)
        past = self._dormant.pop(config.group, None)
        if past is not None and origin_of(past) not in (None, config.origin):
            self._checkpoints.forget(config.group)
            self.store.stage_gone(config.group)
            self._has_staged = True
            past = None
        if past is not None:
            self._checkpoints.wake(config.group, past)
        if past is None:
            past = _forgotten(config.group, self._opened)
        past = _after_power_loss(past, is_persisted=config.is_persisted)
        replica = self._make_replica(config, machine, table)
        replica.restore(past, is_replaced=self._opened.incarnation > 0)
        self.groups[config.group] = replica
        self._configs[config.group] = config
        self._neighbours.note_primary(replica)
        if self._has_begun:
            self._start_group(replica)
        return past

    def _make_replica(
        self, config: GroupConfig, machine: StateMachine, table: RequestTable
    ) -> Replica:
        plane = self.config
        options = GroupOptions(
            cluster=plane.cluster,
            group=config.group,
            replica=plane.replica,
            quorums=quorums_of(plane.replica_count),
            timeouts=plane.timeouts,
            incarnation=self._incarnation,
            origin=config.origin,
            pipeline_max=plane.pipeline_max,
            queue_max=plane.queue_max,
            repair_ops_max=plane.repair_ops_max,
            chunk_bytes=plane.chunk_bytes,
        )
        prng = self._prng.fork(f"group {config.group}")
        return Replica(options, machine, table, prng, self._shared)

    def remove_group(self, group: int) -> None:
        """Forget a group with all it had, known or dormant; who waits for it is told so."""
        self._checkpoints.touch(group)
        replica = self.groups.pop(group, None)
        self._configs.pop(group, None)
        self._dormant.pop(group, None)
        self._ceilings.forget(group)
        self._neighbours.forget(group)
        self._checkpoints.forget(group)
        self.touched.pop(group, None)
        if replica is not None:
            self._timers.forget(group)
            for effect in replica.let_go():
                self.carry_out[type(effect)](replica, effect)
        self.store.stage_gone(group)
        self._has_staged = True

    def dormant_groups(self) -> list[tuple[int, int | None]]:
        """Give the groups that the disk knows and nobody has asked for, each with its origin."""
        return [(group, origin_of(past)) for group, past in self._dormant.items()]

    def dormant_origin(self, group: int) -> int | None:
        """Return the origin of a group that nobody has asked for, if it is one and has one."""
        past = self._dormant.get(group)
        return None if past is None else origin_of(past)

    def ceiling_of(self, group: int) -> int:
        """Give the offset below which a group may have given out offsets that are not durable."""
        return self._ceilings.durable(group)

    def start(self) -> list[Effect]:
        """Open the store; the groups begin to live once the disk knows of this start."""
        return self.close_turn()

    def _begin_if_allowed(self) -> None:
        """Have every group begin to live."""
        if not self._may_begin():
            self._is_stirred = True  # It is asked again at the next turn.
            return
        self._has_begun = True
        self.store.begin()
        for replica in self.groups.values():
            self._start_group(replica)

    def _start_group(self, replica: Replica) -> None:
        self.touched[replica.group] = None
        self._checkpoints.touch(replica.group)
        for effect in replica.start():
            self.carry_out[type(effect)](replica, effect)
        for beat in self._neighbours.take_unheard(replica):
            self._inbox.append((replica, beat))

    @property
    def has_begun(self) -> bool:
        """Whether the groups live."""
        return self._has_begun

    def is_current(self, replica: Replica) -> bool:
        """Whether nobody can have decided anything in a group that is not known here (O6.2).

        If that is not known, it is asked for, and again as long as somebody wants to know.
        """
        if not replica.is_serving:
            return False
        if self._neighbours.are_there:
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

    def set_wall(self, wall: int) -> None:
        """Tell the time, for stamps; timers count ticks."""
        self._shared.wall = wall

    @property
    def has_work(self) -> bool:
        """Whether something was put that a turn must still take."""
        return bool(self._inbox)

    @property
    def is_quiet(self) -> bool:
        """Whether the end of a turn would do nothing."""
        return not (self._inbox or self._has_staged or self._is_stirred)

    def stop(self) -> None:
        """Take a last checkpoint, and then mark the stop as clean; `is_stopped` says when."""
        self._is_stirred = True
        self._checkpoints.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether the store knows that the stop was clean."""
        return self.store.is_stopped

    def take(self, event: Event) -> None:
        """Take one event; what must happen comes with the end of the turn."""
        self._is_stirred = True
        self._on_event[type(event)](event)

    def put_request(self, replica: Replica, header: RequestHeader, body: Buffer) -> None:
        """Take one request for a group; its effects come with the end of the turn."""
        if not self._has_begun:
            # The replica would take what it ordered now for something that the disk remembered.
            frame = encode_reply(header, b"", status=Code.TRANSIENT_NOT_ACCEPTED)
            self._out.append(SendReply(header.client, frame, ticket=header.ticket))
            self._is_stirred = True
            return
        self._inbox.append((replica, RequestReceived(header, body)))

    def answer_again(self, replica: Replica, header: RequestHeader, body: Buffer) -> bool:
        """Answer a request that was applied, with the end of the turn; whether it was applied."""
        effects = replica.answer_again(header, body)
        for effect in effects:
            self.carry_out[type(effect)](replica, effect)
            self._is_stirred = True
        return bool(effects)

    def withdraw(self, client: int, request: int, ticket: int) -> bool:
        """Take a request back that no group has ordered yet; whether there was such a one."""
        group = self._shared.queued.get((client, request))
        return group is not None and self.groups[group].withdraw(client, request, ticket)

    def propose(self, group: int, event: OwnOp) -> None:
        """Take an op of the server itself; before the groups live it finds no place."""
        if not self._has_begun:
            return
        self._inbox.append((self.groups[group], event))

    def settle_tail(self, group: int) -> None:
        """Have a group forget that its tail was lost with the power: its log says so now."""
        self._inbox.append((self.groups[group], TailSettled()))

    def put_piece(self, replica: Replica, event: PieceRead) -> None:
        """Take what was read of a stored piece."""
        self._hand_back(replica, event)

    def _hand_back(self, replica: Replica, event: GroupEvent) -> None:
        """Give a group what it asked for; it may be gone, or another one has its number."""
        if self.groups.get(replica.group) is replica:
            self._inbox.append((replica, event))

    def close_turn(self) -> list[Effect]:
        """End a turn: one record for all that was staged, then what may leave."""
        if self.is_quiet:
            return []
        self._is_stirred = False
        if not self._has_begun and self.store.is_open:
            self._begin_if_allowed()
        self._run_inbox()
        served = self._checkpoints.end_if_durable()
        if served is not None:
            self._tell_served(served)
            self._run_inbox()
        self._flush()
        if served is None:
            if self._has_begun or self._may_begin():
                self._is_stirred |= self._checkpoints.go_on()
        else:
            # The owner of the machines must first learn that this one is durable: what it may then
            # remove is what this one does not name, not what the next one will not.
            self._is_stirred = True
        self._out += self.store.take_effects()
        out = self._out
        self._out = []
        return out

    def _run_inbox(self) -> None:
        while self._inbox:
            replica, event = self._inbox.popleft()
            self.touched[replica.group] = None
            self._checkpoints.touch(replica.group)
            for effect in replica.step(event):
                self.carry_out[type(effect)](replica, effect)
            if replica.state.is_short:
                self._short[replica.group] = None
            if self._neighbours.are_there:
                self._neighbours.note(replica)

    def _flush(self) -> None:
        if not self._has_staged:
            return
        sequence = self.store.flush(sync=self._wants_sync, is_awaited=self._is_write_awaited)
        for queue, replica, event in self._staged:
            queue.append((sequence, replica, event))
        self._staged.clear()
        self._ceilings.on_flushed(sequence)
        self._has_staged = self._wants_sync = self._is_write_awaited = False

    # Events.

    def _on_ticked(self, event: Ticked) -> None:
        assert event.now >= self._shared.now
        self._shared.now = event.now
        self._shared.wall = event.wall
        self.store.tick(event.now)
        self._offer_room()
        for group, timer in self._timers.take_due(event.now):
            self._inbox.append((self.groups[group], TimerFired(timer)))
        if not self._has_begun:
            return
        self._out += self._neighbours.make_heartbeats()
        for replica in self._neighbours.find_silent():
            self._inbox.append((replica, PrimarySilent()))

    def _offer_room(self) -> None:
        """Let those try again who found the journal full."""
        short, self._short = self._short, {}
        for group in short:
            replica = self.groups.get(group)
            if replica is not None:
                self._inbox.append((replica, RoomMade()))

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
        self._is_stirred = True
        if not self._has_begun:
            return  # It will be sent again.
        if not self._neighbours.admits(sender, kind, header):
            return
        if isinstance(header, NodeHeartbeatHeader):
            self._inbox += self._neighbours.hear(sender, header, frame[HEADER_BYTES:])
        elif kind in GROUP_FRAMES:
            replica = self._neighbours.find_group(getattr(header, "group", -1), header.origin)
            if replica is not None:
                self._inbox.append((replica, FrameReceived(sender, kind, header, frame)))
        else:
            self.probes.hit("frame.unused")
        self._run_inbox()

    def _on_requests(self, event: RequestsArrived) -> None:
        """Take requests that name their group themselves, as tests of a plane alone send them."""
        for _, frame in event.frames:
            header = REQUEST.decode(frame)
            replica = self.groups.get(header.group)
            if replica is None or not self._has_begun:
                code = Code.TRANSIENT_NOT_ACCEPTED if replica else Code.PARTITION_NOT_FOUND
                self._out.append(SendReply(header.client, encode_reply(header, b"", status=code)))
            else:
                self.put_request(replica, header, frame[HEADER_BYTES:])
        self._run_inbox()

    def _on_written(self, event: Written) -> None:
        self.store.step(event)
        self._notify(self._until_written, event.sequence)

    def _on_synced(self, event: Synced) -> None:
        self.store.step(event)
        self._ceilings.on_synced(event.sequence)
        self._notify(self._until_synced, event.sequence)
        self._name_views()

    def _on_block_written(self, event: BlockWritten) -> None:
        self.store.step(event)
        self._name_views()

    def _name_views(self) -> None:
        """Have the superblock name the views that are synced: one write for all groups (O2.9)."""
        self._notify(self._until_named, self.store.named)
        if self._until_named and self._until_named[0][0] <= self.store.synced:
            self.store.name_synced()

    def _notify(self, queue: _Waiting, sequence: int) -> None:
        while queue and queue[0][0] <= sequence:
            _, replica, event = queue.popleft()
            self._hand_back(replica, event)

    def _on_read(self, event: JournalRead) -> None:
        self.store.step(event)
        for token, header, body in self.store.take_reads():
            if self._checkpoints.on_read(token, header, body):
                continue
            replica, group_token = self._reads.pop(token)
            self._hand_back(replica, EntryRead(group_token, header, body))

    # Effects of groups.

    def _journal_prepare(self, replica: Replica, effect: JournalPrepare) -> None:
        self.store.stage_prepare(effect.header, effect.body, is_never_held=effect.is_never_held)
        self._has_staged = True
        is_synced = effect.body is None or self._waits_for_sync(replica, effect.header)
        self._wants_sync |= is_synced
        if effect.body is not None:
            self._is_write_awaited |= not is_synced
            event = PrepareDurable(effect.op, effect.checksum)
            queue = self._until_synced if is_synced else self._until_written
            self._staged.append((queue, replica, event))

    def _waits_for_sync(self, replica: Replica, header: bytes) -> bool:
        """Whether an op is acknowledged only when it survives a power cut."""
        config = self._configs[replica.group]
        operation = header[_OPERATION_AT]
        if operation in _OFFSET_OPERATIONS:
            return config.is_offset_persisted
        if operation != Operation.SEND_MESSAGES or config.is_persisted:
            return True
        if self._given is None or self.config.replica_count > 1:
            return False
        return self._is_above_ceiling(replica.group, self._given(replica.group))

    def _is_above_ceiling(self, group: int, given: int) -> bool:
        """Raise the ceiling in time; whether an op must wait until it is durable (FM-7)."""
        ceiling = self._ceilings.raise_over(group, given)
        if ceiling is not None:
            self.store.stage_ceiling(group, ceiling)
            self._wants_sync = True
        return given > self._ceilings.durable(group)

    def _journal_truncate(self, replica: Replica, effect: JournalTruncate) -> None:
        self.store.stage_truncate(replica.group, effect.from_op)
        self._has_staged = self._wants_sync = True

    def _persist_view(self, replica: Replica, effect: PersistView) -> None:
        self.store.stage_view(effect.state)
        self._has_staged = self._wants_sync = True
        event = ViewDurable(effect.state.view, effect.state.log_view)
        is_promise = self.config.replica_count > 1
        queue = self._until_named if is_promise else self._until_synced
        self._staged.append((queue, replica, event))

    def _set_timer(self, replica: Replica, effect: SetTimer) -> None:
        self._timers.start(replica.group, effect.timer, self._shared.now + effect.ticks)

    def _stop_timer(self, replica: Replica, effect: StopTimer) -> None:
        self._timers.stop(replica.group, effect.timer)

    def _read_entry(self, replica: Replica, effect: ReadEntry) -> None:
        token = self._new_read_token()
        if self.store.read(replica.group, effect.op, token):
            self._reads[token] = (replica, effect.token)
        else:
            self._inbox.append((replica, EntryRead(effect.token, b"", b"")))

    def _new_read_token(self) -> int:
        self._read_token += 1
        return self._read_token

    def _read_piece(self, replica: Replica, effect: ReadPiece) -> None:
        self.piece_reads.append((replica, effect))

    def _take_checkpoint(self, replica: Replica, effect: TakeCheckpoint) -> None:
        self._checkpoints.want(replica.group)

    def _send(self, replica: Replica, effect: SendFrame | SendReply) -> None:
        self._out.append(effect)

    # Checkpoints.

    @property
    def checkpoints_done(self) -> int:
        """How many checkpoints have become durable."""
        return self._checkpoints.done_count

    def want_checkpoint(self) -> None:
        """Have a checkpoint taken that begins after this call."""
        self._is_stirred = True
        self._checkpoints.want_one()

    def on_flushed(self) -> None:
        """Go on with a checkpoint: what machines keep outside of it is durable."""
        self._is_stirred = True
        self._checkpoints.on_flushed()

    def _tell_served(self, groups: list[int]) -> None:
        self._offer_room()
        for group in groups:
            replica = self.groups.get(group)
            if replica is not None:
                self._inbox.append((replica, CheckpointDone()))


def origin_of(past: RecoveredGroup) -> int | None:
    """Give which incarnation of its name a group on the disk is, if its ops tell."""
    if past.entries:
        return past.entries[-1].header.origin
    if past.checkpoint is not None and past.checkpoint.commit_header:
        return PREPARE.decode(past.checkpoint.commit_header).origin
    return None


def _forgotten(group: int, opened: Opened) -> RecoveredGroup | None:
    """Give the past of a group that the disk does not know of.

    There is none if the store was never open before, and a replaced one knows that it forgot.
    Otherwise the group may have lived without leaving a trace, for a primary sends what it has not
    journaled yet.
    """
    if not opened.is_suspect and (opened.is_first or opened.incarnation > 0):
        return None
    state = ViewState(
        group,
        0,
        0,
        0,
        is_suspect=opened.is_suspect,
        is_view_lost=opened.is_rotten,
        is_tail_lost=opened.is_power_loss,
    )
    return RecoveredGroup(state, None, ())


def _after_power_loss(past: RecoveredGroup | None, *, is_persisted: bool) -> RecoveredGroup | None:
    """Give the past of a group as its class has it: who waits for syncs lost nothing of its own."""
    if past is None or not past.state.is_tail_lost:
        return past
    if is_persisted:
        state = msgspec.structs.replace(past.state, is_tail_lost=False)
    else:
        state = msgspec.structs.replace(past.state, is_suspect=True)
    return msgspec.structs.replace(past, state=state)
