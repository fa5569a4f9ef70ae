"""Fetches missing prepares, and serves those that others miss.

Three kinds can be missing: ops between the commit point and the lowest linked one; bodies of
entries whose header is known; ops above the head. The chain gives the checksums of the first two,
so any replica may serve them. The third must come from a replica that is normal in the same view:
it writes that view into the frame.
"""

from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import Buffer
from headrace.vsr.events import EntryRead, JournalPrepare, ReadEntry
from headrace.vsr.fetched import FetchedOp
from headrace.vsr.log import Entry, Log
from headrace.vsr.state import State, Status, Transfer
from headrace.vsr.timeouts import Timer
from headrace.wire.layout import KIND_OFFSET, VIEW
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.prepares import (
    RANGE_EVICTED,
    REQUEST_PREPARES,
    PrepareHeader,
    RangeEvictedHeader,
    RequestPreparesHeader,
)


def target_of(state: State) -> Log:
    """Return the log under repair: that of the view to be started, or our own."""
    return state.log if state.parked is None else state.parked


def start_repair(state: State, source: int) -> None:
    """Start to fetch missing ops, unless a repair or a transfer is running."""
    if state.repairing is not None or state.replicas == 1 or state.pull is not None:
        return
    assert state.status != Status.RECOVERING, "a replica repairs a log that it knows"
    if _request_missing(state, source):
        state.start_timer(Timer.REPAIR, state.options.timeouts.repair_retry_interval)


def stop_repair(state: State) -> None:
    """Stop the repair, and drop the ops that wait."""
    if state.repairing is not None:
        state.repairing = None
        state.stop_timer(Timer.REPAIR)
    state.fetched.clear()


def on_repair_timer(state: State) -> None:
    """Ask another replica, chosen at random."""
    if state.repairing is None:
        return
    assert state.transfer != Transfer.PULLING, "a transfer ends the repair"
    if _request_missing(state, state.prng.choice(state.others)):
        state.start_timer(Timer.REPAIR, state.options.timeouts.repair_retry_interval)


def _request_missing(state: State, source: int) -> bool:
    """Request the next missing ops; return whether there are any."""
    wanted = missing_range(state)
    state.repairing = wanted
    if wanted is None:
        state.fetched.clear()
        return False
    log = target_of(state)
    if (
        state.status == Status.NORMAL
        and log.linked - state.commit_min - 1 > state.options.repair_ops_max
    ):
        # The chain is followed downwards from the head, so all of it would have to fit the journal.
        want_transfer(state)
    if source == state.options.replica:
        source = state.prng.choice(state.others)
    state.repair_nonce = state.prng.u64()
    low, high = wanted
    assert state.commit_min < low <= high, "what is applied is not missing"
    assert high - low < state.options.repair_ops_max, "a request is bounded"
    assert source != state.options.replica, "others are asked"
    state.fetched.keep(low, high)
    state.send_unscoped(
        source,
        REQUEST_PREPARES,
        RequestPreparesHeader(
            cluster=state.options.cluster,
            view=state.view,
            replica=state.options.replica,
            nonce=state.repair_nonce,
            from_op=wanted[0],
            to_op=wanted[1],
            group=state.options.group,
        ),
    )
    return True


def want_transfer(state: State) -> None:
    """Request a transfer, which starts at the end of the step, unless one is running."""
    assert state.replicas > 1, "a single replica has nobody to ask"
    if state.transfer == Transfer.NONE:
        state.move_transfer(Transfer.WANTED)


def missing_range(state: State) -> tuple[int, int] | None:
    """Return the first missing ops, at most as many as one request may name."""
    most = state.options.repair_ops_max
    log = target_of(state)
    assert state.commit_min <= log.head, "a log has all that is applied"
    if state.commit_min + 1 < log.linked:
        high = log.linked - 1
        return max(state.commit_min + 1, high - most + 1), high
    first = 0
    for op in range(state.commit_min + 1, log.head + 1):
        if log.entries[op].body is None:
            first = first or op
        elif first:
            return first, op - 1
        if first and op - first + 1 == most:
            return first, op
    if first:
        return first, log.head
    above = max(state.commit_max, state.wanted_head)
    if state.status == Status.NORMAL and above > log.head:
        return log.head + 1, min(above, log.head + most)
    return None


def link(state: State, log: Log) -> None:
    """Follow the parent checksums down from the lowest linked op, as far as entries are here.

    An op that does not follow the applied ones is not linked: the sender of this log is wrong.
    """
    while log.linked > state.commit_min + 1 and log.linked <= log.head:
        op = log.linked - 1
        parent = log.entries[log.linked].header.parent
        entry = _find(state, log, op, parent)
        if entry is None:
            return
        if op == state.commit_min + 1 and not _follows_applied(state, entry.header):
            state.probes.hit("contradiction.log")
            return
        assert entry.header.op == op, "an entry stands at its own op"
        assert entry.header.checksum == parent, "an op is linked by its checksum"
        log.put(entry)
        log.linked = op


def contradicts_applied(state: State, log: Log) -> bool:
    """Return whether a log from another replica contradicts the applied ops.

    Applied ops are committed, and have one history.
    """
    if log.head < state.commit_min:
        return True
    entry = log.get(state.commit_min + 1)
    is_linked = log.linked <= state.commit_min + 1
    return is_linked and entry is not None and not _follows_applied(state, entry.header)


def _follows_applied(state: State, header: PrepareHeader) -> bool:
    return header.parent == state.log.checksum(state.commit_min)


def _find(state: State, log: Log, op: int, checksum: int) -> Entry | None:
    """Return the entry with this checksum from this log, our own, or the fetched ops."""
    for entry in (log.get(op), state.log.get(op)):
        if entry is not None and entry.header.checksum == checksum:
            return entry
    assert op < log.linked, "what is linked is not searched for"
    fetched = state.fetched.pop(op)
    if fetched is None or fetched.header.checksum != checksum:
        return None
    state.probes.hit("repair.op_fetched")
    header, data, body = fetched
    entry = Entry(header, body, data=data)
    if log is state.log:
        state.out.append(JournalPrepare(op, checksum, data, body))
    return entry


def fill(state: State, header: PrepareHeader, data: bytes, body: bytes) -> None:
    """Put a verified prepare where it is missing; drop it if it is not."""
    log = target_of(state)
    op = header.op
    if op <= state.commit_min:
        return
    if log.linked <= op <= log.head:
        entry = log.entries[op]
        if entry.body is None and entry.header.checksum == header.checksum:
            assert log is not state.log or state.durable < op, "a lost body is not durable"
            state.probes.hit("repair.body_fetched")
            # A new entry: the old one may be part of our own log too, while a view is decided.
            log.put(Entry(entry.header, body, data=entry.data))
            if log is state.log:
                state.out.append(JournalPrepare(op, header.checksum, entry.data, body))
    elif op < log.linked and _is_wanted(state, op):
        state.fetched.put(header, data, body)
        link(state, log)


def _is_wanted(state: State, op: int) -> bool:
    """Return whether an op was requested: this bounds the waiting ops by one request."""
    return state.repairing is not None and state.repairing[0] <= op <= state.repairing[1]


def has_room(state: State, header: PrepareHeader, body: Buffer) -> bool:
    """Return whether the journal has room for an op; a waiting op has its room already."""
    return header.op in state.fetched or state.shared.admits(header.operation, body)


def keep_above(state: State, header: PrepareHeader, data: bytes, body: bytes) -> None:
    """Keep an op above the head until its predecessors arrive; journal reads have no order."""
    assert state.status == Status.NORMAL, "the log of a view that changes does not grow"
    if header.op > state.log.head and _is_wanted(state, header.op):
        state.fetched.put(header, data, body)


def take_next(state: State) -> FetchedOp | None:
    """Remove and return the waiting op that follows the head, if it is linked to it."""
    following = state.fetched.pop(state.log.head + 1)
    if following is None or following.header.parent != state.log.checksum(state.log.head):
        return None
    assert following.header.op == state.log.head + 1, "ops wait under their own numbers"
    return following


def after_fill(state: State) -> None:
    """Request more when all requested ops have arrived, or stop the repair."""
    if state.repairing is None:
        return
    wanted = missing_range(state)
    if wanted is None:
        stop_repair(state)
        return
    assert state.commit_min < wanted[0] <= wanted[1], "what is applied is not missing"
    if wanted[1] < state.repairing[0] or wanted[0] > state.repairing[1]:
        _request_missing(state, state.primary)


def on_request_prepares(state: State, sender: int, header: RequestPreparesHeader) -> None:
    """Send the requested ops: from memory at once, from the journal after a read."""
    last = min(header.to_op, header.from_op + state.options.repair_ops_max - 1)
    for op in range(header.from_op, last + 1):
        entry = state.log.get(op)
        if entry is not None and entry.body is not None:
            _serve(state, sender, entry.data, entry.body)
        elif op <= state.commit_min and len(state.serving) < 4 * state.options.repair_ops_max:
            token = state.next_token()
            assert token not in state.sending, "a token names one read"
            state.serving[token] = (sender, header.nonce, op)
            state.out.append(ReadEntry(token, op))


def on_entry_read(state: State, event: EntryRead) -> None:
    """Send an op that the journal has read, or answer that it is no longer there."""
    served = state.serving.pop(event.token, None)
    if served is None:
        return
    sender, nonce, op = served
    assert op <= state.commit_min, "the journal is asked for committed ops"
    if event.header:
        _serve(state, sender, event.header, event.body)
    else:
        _send_evicted(state, sender, nonce, op)


def _serve(state: State, replica: int, data: bytes, body: Buffer) -> None:
    """Send a prepare as repair; with our view only while this replica is normal in it."""
    frame = bytearray(data)
    frame[KIND_OFFSET] = FrameKind.REPAIR_PREPARE
    view = state.view if state.status == Status.NORMAL else 0
    frame[VIEW] = view.to_bytes(4, "little")
    state.send_sealed(replica, bytes(frame + body))


def _send_evicted(state: State, replica: int, nonce: int, op: int) -> None:
    state.send_unscoped(
        replica,
        RANGE_EVICTED,
        RangeEvictedHeader(
            cluster=state.options.cluster,
            view=state.view,
            replica=state.options.replica,
            nonce=nonce,
            op=op,
            group=state.options.group,
        ),
    )


def header_of(data: bytes) -> bytes:
    """Return the header of a repair frame as the prepare that it repeats."""
    prepare = bytearray(data[:HEADER_BYTES])
    prepare[KIND_OFFSET] = FrameKind.PREPARE
    return bytes(prepare)
