"""The normal case: a primary orders requests, backups journal and acknowledge, all apply.

    client ── request ──▶ primary ── prepare ──▶ backups
                            │  ▲                    │
                         journal └── prepare ok ◀── journal
                            ▼
                     quorum: commit, apply, reply

Flow: replicate, apply.
"""

import msgspec

from headrace.base.ids import View
from headrace.base.limits import HEADER_BYTES, PIPELINE_OPS_MAX
from headrace.ports.machine import Verdict
from headrace.ports.network import Buffer, SendFrame, SendReply
from headrace.vsr.events import (
    JournalPrepare,
    OwnOp,
    PrepareDurable,
    PrimaryBeat,
    RequestReceived,
    RoomMade,
)
from headrace.vsr.log import GENESIS, Entry
from headrace.vsr.recovery import hear_of_view
from headrace.vsr.repair import fill, has_room, start_repair
from headrace.vsr.sessions import ClientTable
from headrace.vsr.state import INSTALLING, NORMAL, State, Status
from headrace.vsr.timeouts import Timer
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.layout import VIEW
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PREPARE_OK, PrepareHeader, PrepareOkHeader, seal_prepare
from headrace.wire.replica.seals import body_checksum
from headrace.wire.replies import RESULT_OK, encode_committed, encode_rejection, encode_reply
from headrace.wire.requests import RequestHeader

_EVICTIONS = {
    Verdict.NO_SESSION: EvictionReason.NO_SESSION,
    Verdict.FENCED: EvictionReason.SESSION_TOO_LOW,
    Verdict.UNMINTED: EvictionReason.SESSION_ERROR,
}
_STATUSES = {
    Verdict.ALREADY_APPLIED: Code.REQUEST_ALREADY_APPLIED,
    Verdict.REUSED: Code.INVALID_FORMAT,
}
_NEW, _ANEW = Verdict.NEW, Verdict.ANEW
_REGISTER, _LOGOUT = int(Operation.REGISTER), int(Operation.LOGOUT)
_DISCONNECT = int(Operation.DISCONNECT)
_TO_VIEW = slice(VIEW.start)
_FROM_VIEW = slice(VIEW.stop, None)


def on_request(state: State, event: RequestReceived) -> None:
    """Order a client's request, or refuse it with the reason."""
    header = event.header
    if not state.is_primary or state.commit_min < state.view_head:
        answer(state, header, Code.TRANSIENT_NOT_ACCEPTED)
        return
    assert state.log_view == state.view, "a primary orders on the log of its view"
    if header.operation == _REGISTER:
        if not _is_of_its_user(state, header):
            return
    elif state.table.is_lockstep and header.session > state.commit_min:
        # This replica has not applied that session: another one leads, or this one lags. A session
        # at or below the commit point is judged correctly even by a deposed primary.
        answer(state, header, Code.TRANSIENT_NOT_ACCEPTED)
        return
    else:
        verdict, reply = state.table.judge(header, event.body)
        if verdict is _ANEW:  # Another request with this number was applied.
            state.probes.hit("session.number_taken_again")
            header = msgspec.structs.replace(header, is_anew=1)
        elif verdict is not _NEW:
            _answer_old(state, header, verdict, reply)
            return
    flight = (header.client, 0 if state.table.is_lockstep else header.request)
    if flight in state.in_flight:
        answer(state, header, Code.TRANSIENT_NOT_COMMITTED)
        return
    if (
        not state.queue
        and state.log.head - state.commit_min < state.options.pipeline_max
        and _propose(state, header, event.body)
    ):
        return
    if len(state.queue) < state.options.queue_max:
        state.queue.append((header, event.body))
        state.shared.queued[header.client, header.request] = state.options.group
        state.in_flight[flight] = header
    else:
        answer(state, header, Code.TRANSIENT_NOT_ACCEPTED)


def _has_place(state: State) -> bool:
    """Return whether the pipeline takes another op."""
    assert state.commit_min <= state.log.head, "only ops of the log are applied"
    return state.log.head - state.commit_min < state.options.pipeline_max


def on_own(state: State, event: OwnOp) -> None:
    """Order an op of the server itself, if there is a place for it now."""
    if not state.is_primary or state.commit_min < state.view_head or not _has_place(state):
        return
    assert state.log_view == state.view, "a primary orders on the log of its view"
    header = RequestHeader(client=event.client, operation=event.operation)
    waiting = state.in_flight.get(_flight(state, header)) if event.client else None
    if waiting is not None and waiting.operation == Operation.REGISTER:
        return  # It is about a session that has ended: after the login it would hit the new one.
    _propose(state, header, event.body, is_own=True)


def foresee(state: State) -> None:
    """Pass the ordered and unapplied ops to the machine of a new primary."""
    assert state.log.linked <= state.commit_min + 1, "a primary has the whole log"
    entries = [state.log.entries[op] for op in range(state.commit_min + 1, state.log.head + 1)]
    state.machine.foresee((entry.header, entry.body or b"") for entry in entries)


def _flight(state: State, header: RequestHeader | PrepareHeader) -> tuple[int, int]:
    """Return the key of a request in flight: its client alone, if clients send one at a time."""
    return header.client, 0 if state.table.is_lockstep else header.request


def _is_of_its_user(state: State, header: RequestHeader) -> bool:
    """Return whether a login may be ordered; if not, it has been answered."""
    assert isinstance(state.table, ClientTable)
    assert state.view_head <= state.commit_min, "requests are judged by all that was adopted"
    if state.table.is_of_another_user(header.client, header.user_id):
        evict(state, header, EvictionReason.SESSION_ERROR)
        return False
    return True


def _answer_old(state: State, header: RequestHeader, verdict: Verdict, reply: bytes) -> None:
    """Answer a request that is not to be ordered."""
    assert state.view_head <= state.commit_min, "requests are judged by all that was adopted"
    if verdict in _EVICTIONS:
        evict(state, header, _EVICTIONS[verdict])
    else:
        _answer_again(state, header, verdict, reply)


def answer_again(state: State, header: RequestHeader, body: Buffer) -> None:
    """Repeat the answer to a request, if it was applied."""
    verdict, reply = state.table.judge(header, body)
    if verdict == Verdict.REPLAY or verdict in _STATUSES:
        _answer_again(state, header, verdict, reply)


def _answer_again(state: State, header: RequestHeader, verdict: Verdict, reply: bytes) -> None:
    assert verdict not in (Verdict.NEW, Verdict.ANEW), "a new request has no answer yet"
    assert (verdict == Verdict.REPLAY) == bool(reply), "a replay is one that has its reply"
    if verdict == Verdict.REPLAY:
        state.probes.hit("session.duplicate_replayed")
        state.out.append(SendReply(header.client, reply, ticket=header.ticket))
    else:
        is_applied = verdict == Verdict.ALREADY_APPLIED
        state.probes.hit("session.already_applied" if is_applied else "session.number_reused")
        answer(state, header, _STATUSES[verdict])


def is_in_flight(state: State, header: RequestHeader) -> bool:
    """Return whether a request is ordered here, or waits to be, and is not applied yet."""
    return _flight(state, header) in state.in_flight


def _propose(state: State, header: RequestHeader, body: Buffer, *, is_own: bool = False) -> bool:
    """Order a request, or refuse it; return whether either was done.

    If not, the journal is full and a checkpoint will make room: the request waits (O2.6).
    """
    shared = state.shared
    # Above that of the head, whatever the clock says (VS-6, CK1).
    timestamp = shared.wall if shared.wall > state.timestamp else state.timestamp + 1
    refusal: Code | None = None
    body_bytes = len(body)
    is_fitting = shared.held.count == 0 and shared.fits(body_bytes)  # the usual case
    if not is_fitting and not shared.admits(header.operation, body):
        refusal = shared.room_code(body_bytes)
        if refusal is None and not is_own:
            state.is_short = True
            state.probes.hit("normal.waits_for_room")
            return False
        refusal = refusal or Code.TRANSIENT_NOT_ACCEPTED
    else:
        try:
            given, body = body, state.machine.prepare(header, body, timestamp)
            if body is not given:  # A batch is stamped in place.
                body_bytes = len(body)
        except RefusedError as error:
            refusal = error.code
    if refusal is not None:
        if not is_own:  # Its client may have a request in flight.
            state.in_flight.pop(_flight(state, header), None)
            answer(state, header, refusal)
        return True
    log, options = state.log, state.options
    op = log.head + 1
    assert timestamp > state.timestamp, "stamps rise from op to op"
    assert state.durable < op, "nothing above the head is durable"
    assert op - state.commit_min <= PIPELINE_OPS_MAX, "a vote names every uncommitted op"
    state.timestamp = timestamp
    prepare, data = seal_prepare(
        body_checksum(header.operation, body),
        options.cluster,
        HEADER_BYTES + body_bytes,
        state.view,
        0,  # the release
        options.replica,
        0,  # the life
        options.origin,
        header.client,
        log.entries[op - 1].header.checksum if op > 1 else GENESIS,
        header.request_checksum,
        op,
        state.commit_max,
        timestamp,
        header.request,
        header.operation,
        options.group,
        header.user_id,
        header.is_anew,
    )
    if not is_own:
        state.in_flight[header.client, 0 if state.table.is_lockstep else header.request] = header
    was_idle = log.head == state.commit_max
    entry = Entry(prepare, body, data)
    log.append(entry)
    state.out.append(JournalPrepare(op, prepare.checksum, data, body))
    if state.replicas > 1:
        _replicate(state, entry)
        if was_idle:
            _start_retransmission(state)
    return True


def _journal(state: State, entry: Entry) -> None:
    header = entry.header
    assert state.durable < header.op <= state.log.head, "what is durable is not written again"
    state.out.append(JournalPrepare(header.op, header.checksum, entry.data, entry.body))


def _replicate(state: State, entry: Entry) -> None:
    """Send to all backups if there are at most two; otherwise along the ring (O6.1)."""
    assert entry.body is not None
    replica = state.options.replica
    assert state.primary == replica, "only a primary orders"
    targets = state.others if state.replicas <= 3 else [(replica + 1) % state.replicas]
    for target in targets:
        send_prepare(state, target, entry)


def send_prepare(state: State, target: int, entry: Entry) -> None:
    """Send a prepare with the current view, which its checksum does not cover."""
    assert entry.body is not None
    assert target != state.options.replica, "a primary journals its own prepares itself"
    assert entry.header.op <= state.log.head, "only ops of the log are sent"
    view = state.view.to_bytes(4, "little")
    frame = SendFrame(
        target, b"".join((entry.data[_TO_VIEW], view, entry.data[_FROM_VIEW], entry.body))
    )
    if state.durable_view == (state.view, state.log_view):
        state.out.append(frame)
    else:
        state.held.append(frame)


def _start_retransmission(state: State) -> None:
    state.start_timer(Timer.RETRANSMIT, state.options.timeouts.prepare_retransmit_interval)


def on_retransmit_timer(state: State) -> None:
    """Resend ops without a quorum to the replicas that have not acknowledged them (VS-12)."""
    if not state.is_primary or state.log.head == state.commit_max:
        return
    assert state.commit_min <= state.log.head, "only ops of the log are applied"
    state.probes.hit("normal.retransmitted")
    for target in state.others:
        first = max(state.acknowledged[target], state.commit_min) + 1
        for op in range(first, min(state.log.head, first + state.options.pipeline_max) + 1):
            entry = state.log.get(op)
            if entry is not None and entry.body is not None:
                send_prepare(state, target, entry)
    state.restart_timer(Timer.RETRANSMIT, state.options.timeouts.prepare_retransmit_interval)


def on_prepare(state: State, sender: int, header: PrepareHeader, frame: bytes) -> None:
    """Journal an op that the primary ordered (VS-8)."""
    if header.view > state.view:
        hear_of_view(state, View(header.view))
        return
    if (
        header.view < state.view
        or state.status != Status.NORMAL
        or state.primary == state.options.replica
    ):
        return
    assert state.log_view == state.view, "a backup extends the log of its view"
    body = frame[HEADER_BYTES:]
    if not state.machine.admits(header, body):
        state.probes.hit("frame.refused")
        return
    _forward(state, header, frame)
    if header.op > state.commit_min and not has_room(state, header, body):
        state.probes.hit("normal.backup_without_room")  # The primary resends it (O2.3).
        return
    if header.op == state.log.head + 1 and header.parent == state.log.checksum(state.log.head):
        accept(state, header, frame[:HEADER_BYTES], body)
    elif header.op > state.log.head:
        state.wanted_head = max(state.wanted_head, header.op)
        state.probes.hit("normal.prepare_refetched")
        start_repair(state, sender)
    else:
        fill(state, header, frame[:HEADER_BYTES], body)
        acknowledge(state)
    advance_commit(state, header.commit)


def _forward(state: State, header: PrepareHeader, frame: bytes) -> None:
    """Forward a prepare along the ring, before journaling it (O6.1)."""
    following = (state.options.replica + 1) % state.replicas
    assert state.primary != state.options.replica, "a primary sends and does not forward"
    if state.replicas > 3 and following != state.primary and header.op == state.log.head + 1:
        state.out.append(SendFrame(following, frame))


def accept(state: State, header: PrepareHeader, data: bytes, body: Buffer) -> None:
    """Extend the log by an op of the current view."""
    assert state.status == Status.NORMAL, "the log of a view that changes does not grow"
    assert state.primary != state.options.replica, "a primary takes no ops from others"
    entry = Entry(header, body, data)
    state.log.append(entry)
    state.timestamp = max(state.timestamp, header.timestamp)
    _journal(state, entry)


def on_prepare_durable(state: State, event: PrepareDurable) -> None:
    """Mark an op as durable; a backup then acknowledges it, a primary may commit it."""
    entries = state.log.entries
    if event.op not in entries or entries[event.op].header.checksum != event.checksum:
        return
    assert event.op <= state.log.head, "entries lie below the head"
    entries[event.op].is_durable = True
    advance_durable(state)


def advance_durable(state: State) -> None:
    """Advance the op up to which everything is durable and may be acknowledged."""
    if state.transfer is INSTALLING:
        return
    log, before = state.log, state.durable
    durable, entries = before, log.entries
    while (
        durable < log.head
        and (durable < state.commit_min or durable + 1 >= log.linked)  # as `_is_trusted`
        and durable + 1 in entries
        and entries[durable + 1].is_durable
    ):
        durable += 1
    assert before <= durable <= log.head, "durable ops are a part of the log"
    if durable == before:
        return
    state.durable = durable
    if before < state.commit_min:  # Otherwise nothing applied has become durable.
        forget_applied(state)
    replica = state.options.replica
    if state.view % state.replicas == replica and state.status is NORMAL:
        state.acknowledged[replica] = durable
        commit_by_quorum(state)
    else:
        acknowledge(state)


def _is_trusted(state: State, op: int) -> bool:
    """Return whether an op certainly belongs to this log: applied, or linked to the head."""
    return op <= state.commit_min or op >= state.log.linked


def acknowledge(state: State) -> None:
    """Acknowledge all durable ops to the primary, in one frame."""
    if state.status != Status.NORMAL or state.primary == state.options.replica:
        return
    entry = state.log.get(state.durable)
    if entry is None or not _is_trusted(state, state.durable):
        return
    header = entry.header
    assert header.op <= state.log.head, "only ops of the log are acknowledged"
    assert state.log_view == state.view, "an acknowledgement speaks for the log of its view"
    state.send(
        state.primary,
        PREPARE_OK,
        PrepareOkHeader(
            cluster=state.options.cluster,
            view=state.view,
            replica=state.options.replica,
            parent=header.parent,
            prepare_checksum=header.checksum,
            op=header.op,
            commit=min(state.commit_min, header.op),
            timestamp=header.timestamp,
            request=header.request,
            operation=header.operation,
            group=state.options.group,
        ),
    )


def on_prepare_ok(state: State, sender: int, header: PrepareOkHeader) -> None:
    """Count an acknowledgement of this op and, by the chain, of all before it (VS-9)."""
    if header.view > state.view:
        hear_of_view(state, View(header.view))
        return
    if header.view != state.view or not state.is_primary:
        return
    if header.op > state.commit_min:
        entry = state.log.get(header.op)
        if entry is None or entry.header.checksum != header.prepare_checksum:
            return
    if header.op <= state.acknowledged[sender]:
        return
    assert header.op <= state.log.head, "an acknowledged op was ordered here"
    state.acknowledged[sender] = header.op
    commit_by_quorum(state)


def commit_by_quorum(state: State) -> None:
    """Commit the ops that a replication quorum has acknowledged."""
    acknowledged, needed = state.acknowledged, state.options.quorums.replication
    reached = acknowledged[0] if state.replicas == 1 else sorted(acknowledged)[-needed]
    if reached <= state.commit_max:
        return
    assert reached <= state.log.head, "nobody acknowledges what was not ordered"
    assert state.log_view == state.view, "acknowledgements are counted for the log of the view"
    state.commit_max = reached
    apply_committed(state)
    assert state.commit_min <= state.commit_max, "only committed ops are applied"
    if state.replicas == 1:
        return
    if state.log.head == state.commit_max:
        state.stop_timer(Timer.RETRANSMIT)
    else:
        _start_retransmission(state)


def advance_commit(state: State, commit: int) -> None:
    """Raise the known commit point, and apply the committed ops that are here."""
    if commit > state.commit_max:  # noqa: PLR1730 - a call less for every send
        state.commit_max = commit
    assert commit <= state.commit_max, "a commit point is never forgotten"
    apply_committed(state)
    assert state.commit_min <= state.commit_max, "only committed ops are applied"


def apply_committed(state: State) -> None:
    """Apply committed ops in order, as far as they are here and linked."""
    if state.status is not NORMAL or state.transfer is INSTALLING or state.is_halted:
        return
    assert state.log_view == state.view, "a replica applies the log of its view"
    log, before = state.log, state.commit_min
    while state.commit_min < state.commit_max and state.commit_min < log.head:
        op = state.commit_min + 1
        entry = log.entries[op] if op in log.entries else None  # noqa: SIM401 - a call less
        if op < log.linked or entry is None or entry.body is None:
            start_repair(state, state.primary)
            return
        assert op == 1 or entry.header.parent == log.entries[op - 1].header.checksum
        try:
            _apply(state, entry.header, entry.body)
        except CorruptError:
            # A primary ordered an op that it must not. The node still serves its other groups.
            state.probes.hit("contradiction.op")
            state.is_halted = True
            return
        state.commit_min = op
    if state.commit_min != before:
        applied, durable = state.commit_min, state.durable
        log.drop_below(applied if applied < durable else durable)  # as `forget_applied`
    if state.commit_max > log.head:
        start_repair(state, state.primary)
    if state.queue or state.is_short:
        _drain_queue(state)


def forget_applied(state: State) -> None:
    """Drop entries from memory that are applied and durable.

    The entry at the commit point stays: a vote begins with it.
    """
    assert state.durable <= state.log.head, "durable ops are a part of the log"
    state.log.drop_below(min(state.commit_min, state.durable))


def _apply(state: State, header: PrepareHeader, body: Buffer) -> None:
    """Apply one committed op, keep its reply, and answer its client if it waits here."""
    assert header.op == state.commit_min + 1, "ops are applied in order, each once"
    assert header.op <= state.commit_max, "only committed ops are applied"
    table, operation = state.table, header.operation
    if operation == _REGISTER:
        payload = _register(state, header)
    else:
        if operation == _DISCONNECT:
            assert isinstance(table, ClientTable)
            table.disconnect(header.client)
        # A new primary serves no client before it has applied every adopted op (FM-15), so no
        # request is ordered twice.
        if table.is_applied(header):
            raise CorruptError(f"request {header.request} of {header.client} is ordered twice")
        payload = state.machine.apply(header, body)
    reply = encode_committed(header, payload)
    if operation != _REGISTER:
        table.record(header, body, reply)
    if operation == _LOGOUT:
        assert isinstance(table, ClientTable)
        table.logout(header.client)
    flight = (header.client, 0 if table.is_lockstep else header.request)
    if flight not in state.in_flight:
        return
    waiting = state.in_flight[flight]
    if waiting.request == header.request and waiting.operation == operation:
        assert state.status is NORMAL, "clients wait only while their primary leads"
        del state.in_flight[flight]
        state.out.append(SendReply(header.client, reply, ticket=waiting.ticket))


def _register(state: State, header: PrepareHeader) -> bytes:
    table = state.table
    assert isinstance(table, ClientTable)
    if table.is_of_another_user(header.client, header.user_id):
        return encode_rejection(Code.INVALID_SESSION)
    if not table.register(header):
        return encode_rejection(Code.TRANSIENT_NOT_ACCEPTED)
    return RESULT_OK + header.op.to_bytes(8, "little")


def _drain_queue(state: State) -> None:
    """Order the requests that waited for the pipeline, or for room in the journal."""
    state.is_short = False
    while state.queue and state.is_primary and _has_place(state):
        assert state.view_head <= state.commit_min, "requests follow all that was adopted"
        if not _propose(state, *state.queue[0]):
            return
        _forget_queued(state, state.queue.popleft()[0])


def on_room(state: State, _: RoomMade) -> None:
    """Order the requests that waited for room in the journal."""
    if state.is_short:
        _drain_queue(state)


def withdraw(state: State, client: int, request: int, ticket: int) -> bool:
    """Remove a request from the queue; return whether it was there."""
    for waiting in state.queue:
        header = waiting[0]
        if (header.client, header.request, header.ticket) == (client, request, ticket):
            assert _flight(state, header) in state.in_flight, "who is queued is in flight"
            state.queue.remove(waiting)
            _forget_queued(state, header)
            state.in_flight.pop(_flight(state, header), None)
            state.probes.hit("normal.withdrawn")
            return True
    return False


def _forget_queued(state: State, header: RequestHeader) -> None:
    key = (header.client, header.request)
    if state.shared.queued.get(key) == state.options.group:
        del state.shared.queued[key]  # Otherwise the same request waits in another group by now.


def give_up_requests(state: State) -> None:
    """Answer all waiting clients that the outcome of their requests is unknown."""
    for header in state.in_flight.values():
        answer(state, header, Code.TRANSIENT_NOT_COMMITTED)
    state.in_flight.clear()
    for header, _ in state.queue:
        _forget_queued(state, header)
    state.queue.clear()


def on_beat(state: State, event: PrimaryBeat) -> None:
    """Learn the commit point from a heartbeat of the primary's node (VS-13)."""
    if event.view > state.view:
        hear_of_view(state, View(event.view))
    elif event.view == state.view and state.status == Status.NORMAL and not event.is_declined:
        advance_commit(state, event.commit)


def answer(state: State, header: RequestHeader, code: Code) -> None:
    """Refuse a request before consensus."""
    frame = encode_reply(header, b"", status=code, commit=state.commit_min)
    state.out.append(SendReply(header.client, frame, ticket=header.ticket))


def evict(state: State, header: RequestHeader, reason: EvictionReason) -> None:
    """Evict the client of a request."""
    frame = encode_eviction(reason, header.client)
    state.out.append(SendReply(header.client, frame, request=header.request, ticket=header.ticket))
