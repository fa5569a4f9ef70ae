"""One replica of one group: takes an event, returns effects in their order.

The phases of the protocol are functions over `State`; this module is their only entry.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.base.ids import View
from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.ports.machine import RequestTable, StateMachine
from headrace.ports.network import Buffer
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup, ViewState
from headrace.vsr import invariants, lease, normal, recovery, repair, transfer, view_change
from headrace.vsr.events import (
    CheckpointDone,
    EntryRead,
    FrameReceived,
    GroupEffect,
    GroupEvent,
    OwnOp,
    PieceRead,
    PrepareDurable,
    PrimaryBeat,
    PrimarySilent,
    RequestReceived,
    RoomMade,
    TailSettled,
    TimerFired,
    ViewDurable,
)
from headrace.vsr.log import Entry, Log, entry_of
from headrace.vsr.state import GroupOptions, Shared, State, Status, Transfer
from headrace.vsr.timeouts import Timer
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.heartbeats import GroupBeat
from headrace.wire.replica.prepares import (
    PREPARE,
    PrepareHeader,
    PrepareOkHeader,
    RangeEvictedHeader,
    RequestPreparesHeader,
)
from headrace.wire.replica.transfers import (
    RequestStateChunkHeader,
    RequestStateTransferHeader,
    StateChunkHeader,
    StateTransferTargetHeader,
)
from headrace.wire.replica.views import (
    DoViewChangeHeader,
    RecoveryReportHeader,
    RequestStartViewHeader,
    StartViewChangeHeader,
    StartViewHeader,
)
from headrace.wire.requests import RequestHeader

_WANTED = Transfer.WANTED
_Handler: TypeAlias = Callable[[State, FrameReceived], None]


class Replica:
    """One replica of one group."""

    def __init__(
        self,
        options: GroupOptions,
        machine: StateMachine,
        table: RequestTable,
        prng: Prng,
        shared: Shared,
    ) -> None:
        self.group = options.group  # which group this is a replica of
        self.origin = options.origin  # and which incarnation of it
        self.state = State(options, machine, table, prng, shared)
        self._checkpoint: GroupCheckpoint | None = None
        self._kept: dict[int, Entry] = {}

    # Read by checkers of the simulator, statistics and cluster metadata.

    @property
    def view(self) -> View:
        """The view that it is in, or is changing to."""
        return self.state.view

    @property
    def log_view(self) -> View:
        """The view whose log it has."""
        return self.state.log_view

    @property
    def op(self) -> int:
        """The head of its log."""
        return self.state.log.head

    @property
    def whole_op(self) -> int:
        """The last op up to which it has applied every op, or holds its body."""
        return self.state.log.whole_up_to(self.state.commit_min)

    @property
    def timestamp(self) -> int:
        """The highest stamp of its log."""
        return self.state.timestamp

    @property
    def commit_min(self) -> int:
        """The last op that is applied here."""
        return self.state.commit_min

    @property
    def commit_max(self) -> int:
        """The last op that is known to be committed."""
        return self.state.commit_max

    @property
    def status(self) -> Status:
        """Its status."""
        return self.state.status

    @property
    def is_primary(self) -> bool:
        """Whether it leads."""
        return self.state.is_primary

    @property
    def is_serving(self) -> bool:
        """Whether it leads and has applied every adopted op (FM-15)."""
        return self.state.is_primary and self.state.commit_min >= self.state.view_head

    @property
    def is_current(self) -> bool:
        """Whether it serves, and no other primary can have committed anything (O6.2)."""
        return self.is_serving and lease.has_proof(self.state)

    def is_in_flight(self, header: RequestHeader) -> bool:
        """Return whether a request is ordered here, or waits to be, and is not applied yet."""
        return normal.is_in_flight(self.state, header)

    def promise(self, view: int) -> bool:
        """Promise the primary of a view to stay in it for a while; return whether it did."""
        return lease.promise(self.state, view)

    @property
    def is_bound(self) -> bool:
        """Whether a promise keeps it in its view."""
        return lease.is_bound(self.state)

    def hear_promise(self, sender: int, view: int, sent: int) -> None:
        """Record the promise of a backup that answers the heartbeat of that tick."""
        lease.hear_promise(self.state, sender, view, sent)

    @property
    def is_suspect(self) -> bool:
        """Whether its log may have lost ops."""
        return self.state.is_suspect

    @property
    def is_wiped(self) -> bool:
        """Whether its disk was lost and it has not recovered yet."""
        return self.state.is_wiped

    @property
    def machine(self) -> StateMachine:
        """The state machine of the group."""
        return self.state.machine

    @property
    def table(self) -> RequestTable:
        """The requests that the group has applied."""
        return self.state.table

    def restore(self, recovered: RecoveredGroup | None, *, is_replaced: bool) -> None:
        """Restore the replica from its disk; called once, before `start`.

        A replica with a log joins as a backup that probes (MD-29); one whose disk was replaced
        first recovers (FM-7); a single replica continues at once.
        """
        state = self.state
        assert state.log.head == state.view == 0, "a replica takes up its past once"
        if state.replicas > 1 and (recovered is not None or is_replaced):
            state.status = Status.RECOVERING
        is_lost = is_replaced if recovered is None else recovered.state.is_view_lost
        state.is_wiped = is_lost and state.replicas > 1
        if recovered is not None:
            _restore(state, recovered)

    def start(self) -> list[GroupEffect]:
        """Start the replica; return its first effects."""
        state = self.state
        if state.status == Status.RECOVERING:
            recovery.start_probing(state)
        else:
            assert state.log_view == state.view, "a replica that goes on has the log of its view"
            state.commit_max = state.log.head
            state.acknowledged[state.options.replica] = state.log.head
            normal.apply_committed(state)
            assert state.commit_min == state.log.head == state.durable, (
                "all that is kept is applied"
            )
            normal.foresee(state)
        return self._take()

    def step(self, event: GroupEvent) -> list[GroupEffect]:
        """Handle one event; return effects in their order."""
        state = self.state
        _EVENTS[type(event)](state, event)
        if state.transfer is _WANTED:
            transfer.start_wanted(state)
        out = state.out
        state.out = []
        return out

    def let_go(self) -> list[GroupEffect]:
        """Release its part of what all groups share, and answer waiting clients.

        No step follows.
        """
        self.state.fetched.clear()
        normal.give_up_requests(self.state)
        assert self.group not in self.state.shared.queued.values(), "nothing of it waits any more"
        return self._take()

    def answer_again(self, header: RequestHeader, body: Buffer) -> list[GroupEffect]:
        """Repeat the answer to an applied request; do nothing for a new one."""
        normal.answer_again(self.state, header, body)
        return self._take()

    def check(self) -> None:
        """Assert what holds between two steps; for tests and the simulator, too slow for a server.

        To be called after `start`.
        """
        invariants.check(self.state)
        last = self._checkpoint
        if last is not None:
            assert last.state.commit <= self.commit_min, "a checkpoint holds applied ops only"
            assert last.state.view <= self.view, "a checkpoint is of a view that was entered"
        for op, entry in self._kept.items():
            assert entry.header.op == op, "an op is kept under its own number"
            assert last is None or op > 0, "what a checkpoint covers is not kept"

    def _take(self) -> list[GroupEffect]:
        out = self.state.out
        self.state.out = []
        return out

    def beat(self) -> GroupBeat | None:
        """Return this group's part of the node's heartbeat, if this replica is its primary."""
        state = self.state
        if state.primary != state.options.replica:
            return None
        assert state.commit_min <= state.commit_max, "a heartbeat names committed ops"
        return GroupBeat(
            self.group,
            state.view,
            state.commit_min,
            is_declined=not state.is_primary,
            origin=self.origin,
        )

    def checkpoint(self) -> GroupCheckpoint:
        """Return the group for a checkpoint; the same object as long as nothing has changed."""
        state = self.state
        view_state = ViewState(
            self.group,
            state.view,
            state.log_view,
            state.commit_min,
            is_suspect=state.is_suspect,
            is_view_lost=state.is_wiped,
            is_tail_lost=state.is_tail_lost,
        )
        entry = state.log.get(state.commit_min)
        header = b"" if entry is None else entry.data
        assert bool(header) == (state.commit_min > 0), "the op that a checkpoint reached is known"
        assert state.log_view <= state.view, "a log is of the view or of an older one"
        last = self._checkpoint
        if last is None or (last.state, last.commit_header) != (view_state, header):
            self._checkpoint = GroupCheckpoint(
                view_state, header, state.table.encode(), state.machine.checkpoint()
            )
        assert self._checkpoint is not None
        return self._checkpoint

    def withdraw(self, client: int, request: int, ticket: int) -> bool:
        """Remove a request that is not ordered yet; return whether there was one."""
        return normal.withdraw(self.state, client, request, ticket)

    def retain(self, *, is_checkpointing: bool) -> bool:
        """Keep the ops that a checkpoint that begins now does not cover, until it has ended.

        Return whether there are any. The log itself may drop them meanwhile, for an installed state
        that is not durable yet.
        """
        state = self.state
        self._kept = (
            {op: entry for op, entry in state.log.entries.items() if op > state.commit_min}
            if is_checkpointing
            else {}
        )
        return bool(self._kept)

    def live(self, op: int) -> tuple[bytes, Buffer | None] | None:
        """Return a kept op, which the journal must rewrite before it frees its file."""
        entry = self._kept.get(op)
        return None if entry is None else (entry.data, entry.body)


def _restore(state: State, recovered: RecoveredGroup) -> None:
    """Restore the log, the view and the state from the disk."""
    view_state = recovered.state
    state.view = View(view_state.view)
    state.log_view = View(view_state.log_view)
    state.durable_view = (state.view, state.log_view)
    state.is_suspect = view_state.is_suspect
    # With several replicas, the others know the lost ops: the next view settles them.
    state.is_tail_lost = view_state.is_tail_lost and state.replicas == 1
    checkpoint = recovered.checkpoint
    if checkpoint is not None and checkpoint.commit_header:
        header = PREPARE.decode(checkpoint.commit_header)
        state.machine.install(checkpoint.artifacts)
        state.table.install(checkpoint.client_table, header.op)
        state.commit_min = header.op
        state.log = Log(header.op)
        state.log.put(Entry(header, None, data=checkpoint.commit_header, is_durable=True))
        state.timestamp = header.timestamp
    state.durable = state.commit_min
    entries = [each for each in recovered.entries if each.header.op > state.commit_min]
    log = state.log
    log.head = max([state.commit_min, *(each.header.op for each in entries)])
    for each in entries:
        log.put(
            entry_of(
                each.header,
                each.body,
                is_durable=each.body is not None,
                is_never_held=each.is_never_held,
            )
        )
        state.timestamp = max(state.timestamp, each.header.timestamp)
    log.linked = log.head if log.head > state.commit_min else log.head + 1
    repair.link(state, log)
    known = [each.header.commit for each in entries if each.header.op >= log.linked]
    state.commit_max = max([state.commit_min, view_state.commit, *known])
    normal.advance_durable(state)
    normal.apply_committed(state)
    assert state.commit_min <= state.durable, "what a disk says is applied is on that disk"


def _on_probe_timer(state: State) -> None:
    if recovery.on_probe_timer(state):
        view_change.start_view_change(state, View(max(state.view, state.newer_view) + 1))


def _on_timer(state: State, event: TimerFired) -> None:
    state.timers.pop(event.timer, None)
    _TIMERS[event.timer](state)


def _on_frame(state: State, event: FrameReceived) -> None:
    _FRAMES[event.kind](state, event)


def _on_settled(state: State, _: TailSettled) -> None:
    if state.is_tail_lost:
        assert state.replicas == 1, "of several replicas the others know the tail"
        state.is_tail_lost = False
        state.persist_view()


def _on_view_durable(state: State, event: ViewDurable) -> None:
    assert state.durable_view <= (event.view, event.log_view), "views become durable in order"
    assert (event.view, event.log_view) <= (state.view, state.log_view), "views only rise"
    state.durable_view = (event.view, event.log_view)
    if state.durable_view == (state.view, state.log_view):
        state.out += state.held
        state.held.clear()


def _on_beat(state: State, event: PrimaryBeat) -> None:
    if event.view < state.view and state.is_primary:
        view_change.send_start_view(
            state, event.sender, 0
        )  # The sender leads a view that has ended.
    else:
        normal.on_beat(state, event)


def _on_checkpoint_done(state: State, _: CheckpointDone) -> None:
    if state.transfer != Transfer.INSTALLING:
        return
    assert state.commit_min <= state.log.head, "the installed state is part of the log"
    state.move_transfer(Transfer.NONE)
    state.durable = max(state.durable, state.commit_min)
    normal.advance_durable(state)
    normal.apply_committed(state)
    repair.start_repair(state, state.primary)


def _body(event: FrameReceived) -> bytes:
    return event.frame[HEADER_BYTES:]


def _on_repair_prepare(state: State, event: FrameReceived) -> None:
    header = event.header
    assert isinstance(header, PrepareHeader)
    body = _body(event)
    if not state.machine.admits(header, body):
        state.probes.hit("frame.refused")
        return
    if state.parked is None and not repair.has_room(state, header, body):
        state.probes.hit("repair.without_room")
        repair.want_transfer(state)
        return
    data = repair.header_of(event.frame)
    is_of_view = (
        state.status == Status.NORMAL
        and header.view == state.view
        and state.primary != state.options.replica
    )
    if is_of_view and header.op > state.log.head:
        repair.keep_above(state, header, data, body)
        while (following := repair.take_next(state)) is not None:
            normal.accept(state, *following)
    else:
        repair.fill(state, header, data, body)
    if state.parked is not None:
        view_change.start_view_if_complete(state)
    else:
        normal.advance_durable(state)
        normal.apply_committed(state)
    repair.after_fill(state)


def _typed(kind: type, handler: Callable[..., None], *, with_body: bool = False) -> _Handler:
    """Return a handler of frames that calls a handler of senders and headers."""

    def handle(state: State, event: FrameReceived) -> None:
        assert isinstance(event.header, kind)
        if with_body:
            handler(state, event.sender, event.header, _body(event))
        else:
            handler(state, event.sender, event.header)

    return handle


def _on_prepare(state: State, event: FrameReceived) -> None:
    assert isinstance(event.header, PrepareHeader)
    normal.on_prepare(state, event.sender, event.header, event.frame)


_EVENTS: dict[type, Callable[[State, Any], None]] = {
    RequestReceived: normal.on_request,
    OwnOp: normal.on_own,
    RoomMade: normal.on_room,
    TailSettled: _on_settled,
    PieceRead: transfer.on_piece_read,
    FrameReceived: _on_frame,
    PrepareDurable: normal.on_prepare_durable,
    ViewDurable: _on_view_durable,
    TimerFired: _on_timer,
    PrimarySilent: view_change.on_primary_silent,
    PrimaryBeat: _on_beat,
    EntryRead: repair.on_entry_read,
    CheckpointDone: _on_checkpoint_done,
}

_TIMERS: dict[Timer, Callable[[State], None]] = {
    Timer.RETRANSMIT: normal.on_retransmit_timer,
    Timer.VIEW_CHANGE_RESEND: view_change.on_view_change_resend_timer,
    Timer.VIEW_CHANGE_STATUS: view_change.on_view_change_status_timer,
    Timer.PROBE: _on_probe_timer,
    Timer.REPAIR: repair.on_repair_timer,
    Timer.TRANSFER: transfer.on_transfer_timer,
}

_FRAMES: dict[FrameKind, _Handler] = {
    FrameKind.PREPARE: _on_prepare,
    FrameKind.PREPARE_OK: _typed(PrepareOkHeader, normal.on_prepare_ok),
    FrameKind.START_VIEW_CHANGE: _typed(StartViewChangeHeader, view_change.on_start_view_change),
    FrameKind.DO_VIEW_CHANGE: _typed(
        DoViewChangeHeader, view_change.on_do_view_change, with_body=True
    ),
    FrameKind.START_VIEW: _typed(StartViewHeader, view_change.on_start_view, with_body=True),
    FrameKind.REQUEST_START_VIEW: _typed(RequestStartViewHeader, view_change.on_request_start_view),
    FrameKind.REQUEST_PREPARES: _typed(RequestPreparesHeader, repair.on_request_prepares),
    FrameKind.REPAIR_PREPARE: _on_repair_prepare,
    FrameKind.RANGE_EVICTED: _typed(RangeEvictedHeader, transfer.on_range_evicted),
    FrameKind.REQUEST_STATE_TRANSFER: _typed(
        RequestStateTransferHeader, transfer.on_request_state_transfer
    ),
    FrameKind.STATE_TRANSFER_TARGET: _typed(
        StateTransferTargetHeader, transfer.on_state_transfer_target, with_body=True
    ),
    FrameKind.REQUEST_STATE_CHUNK: _typed(RequestStateChunkHeader, transfer.on_request_state_chunk),
    FrameKind.STATE_CHUNK: _typed(StateChunkHeader, transfer.on_state_chunk, with_body=True),
    FrameKind.RECOVERY_REPORT: _typed(RecoveryReportHeader, recovery.on_report),
}

# Frames that a shard passes on to a group; other kinds are not between its replicas.
GROUP_FRAMES = tuple(_FRAMES)
