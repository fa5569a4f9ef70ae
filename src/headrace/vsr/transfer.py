"""Transfers the whole state from the primary, when its journal lacks the ops that are missing.

    behind ── RequestStateTransfer ──▶ primary
           ◀── StateTransferTarget ──  manifest: artifacts with lengths and checksums
           ── RequestStateChunk ──▶    one piece at a time
           ◀── StateChunk ──
    install, then a checkpoint; only what is durable again is acknowledged

Artifacts that the receiver already has are not fetched again (O1.3).
"""

from headrace.base.checksum import xxh3_64
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.ports.machine import Artifact, Piece
from headrace.vsr.events import PieceRead, ReadPiece, TakeCheckpoint
from headrace.vsr.log import Entry, Log
from headrace.vsr.repair import link, start_repair, stop_repair
from headrace.vsr.state import State, Status, Transfer
from headrace.vsr.timeouts import Timer
from headrace.vsr.transfer_session import (
    CLIENT_TABLE,
    COMMIT_HEADER,
    OFFERS_MAX,
    READS_MAX,
    Offer,
    Pull,
    describe,
)
from headrace.wire.errors import CorruptError, RemoteError
from headrace.wire.replica import artifacts as wire
from headrace.wire.replica.decode import decode_prepare
from headrace.wire.replica.prepares import RangeEvictedHeader
from headrace.wire.replica.transfers import (
    REQUEST_STATE_CHUNK,
    REQUEST_STATE_TRANSFER,
    STATE_CHUNK,
    STATE_TRANSFER_TARGET,
    RequestStateChunkHeader,
    RequestStateTransferHeader,
    StateChunkHeader,
    StateTransferTargetHeader,
)

_ATTEMPTS_MAX = 8


def on_range_evicted(state: State, sender: int, header: RangeEvictedHeader) -> None:
    """Pull the state, if the primary itself no longer has the missing ops."""
    if header.nonce != state.repair_nonce or state.repairing is None:
        return
    assert state.transfer != Transfer.PULLING, "a pull ends the repair"
    state.probes.hit("repair.range_evicted")
    if state.transfer == Transfer.INSTALLING:
        return  # It is repeated when the repair goes on, after the checkpoint.
    if state.status == Status.NORMAL and sender == state.primary:
        _start_pull(state)


def start_wanted(state: State) -> None:
    """Start the transfer that repair has requested, if it is still of use."""
    assert state.transfer == Transfer.WANTED, "repair has requested it"
    if state.status == Status.NORMAL and state.primary != state.options.replica:
        _start_pull(state)
    else:
        state.move_transfer(Transfer.NONE)


def _start_pull(state: State) -> None:
    assert state.status == Status.NORMAL, "only a normal replica knows its primary"
    assert state.primary != state.options.replica, "a primary pulls from nobody"
    stop_repair(state)
    state.move_transfer(Transfer.PULLING)
    state.pull = Pull(state.primary, state.prng.u64(), state.view)
    _ask(state)
    state.start_timer(Timer.TRANSFER, state.options.timeouts.transfer_retry_interval)


def abandon_pull(state: State) -> None:
    """Stop a running transfer."""
    if state.transfer == Transfer.PULLING:
        state.pull = None
        state.move_transfer(Transfer.NONE)
        state.stop_timer(Timer.TRANSFER)


def on_transfer_timer(state: State) -> None:
    """Repeat the last request; after some attempts give up and repair instead."""
    if state.pull is None:
        return
    assert state.pull.view == state.view, "a pull ends with its view"
    if state.attempts.get(Timer.TRANSFER, 0) >= _ATTEMPTS_MAX:
        state.probes.hit("transfer.given_up")
        state.pull = None
        state.move_transfer(Transfer.NONE)
        start_repair(state, state.primary)
        return
    _ask(state)
    state.restart_timer(Timer.TRANSFER, state.options.timeouts.transfer_retry_interval)


def _ask(state: State) -> None:
    """Request the manifest, or the next chunk."""
    pull = state.pull
    assert pull is not None
    assert state.transfer == Transfer.PULLING, "a pull asks, and nobody else"
    assert pull.source == state.primary, "only the primary offers its state"
    if not pull.wanted:
        state.send_unscoped(
            pull.source,
            REQUEST_STATE_TRANSFER,
            RequestStateTransferHeader(
                cluster=state.options.cluster,
                view=state.view,
                replica=state.options.replica,
                nonce=pull.nonce,
                group=state.options.group,
            ),
        )
        return
    missing = pull.missing()
    assert missing is not None
    index, offset, left = missing
    assert left > 0, "what is whole is not asked for"
    state.send_unscoped(
        pull.source,
        REQUEST_STATE_CHUNK,
        RequestStateChunkHeader(
            cluster=state.options.cluster,
            view=state.view,
            replica=state.options.replica,
            nonce=pull.nonce,
            offset=offset,
            group=state.options.group,
            length=min(left, state.options.chunk_bytes),
            artifact=index,
        ),
    )


def on_request_state_transfer(
    state: State, sender: int, header: RequestStateTransferHeader
) -> None:
    """Offer the current state, as the primary.

    It need not be ready to serve clients: it may wait for the replica that asks.
    """
    is_ready = state.is_primary and state.commit_min > 0
    if is_ready and header.nonce not in state.offers:
        _offer(state, header.nonce)
    offer = state.offers.get(header.nonce)
    assert offer is None or offer.commit <= state.commit_min, "an offer is a state that was reached"
    if offer is None:
        _count_refusal(state)
    body = b"" if offer is None else offer.manifest
    state.send(
        sender,
        STATE_TRANSFER_TARGET,
        StateTransferTargetHeader(
            cluster=state.options.cluster,
            size=HEADER_BYTES + len(body),
            view=state.view,
            replica=state.options.replica,
            nonce=header.nonce,
            commit_op=0 if offer is None else offer.commit,
            group=state.options.group,
            available=offer is not None,
            unavailable_transient=offer is None,
            commit_max=state.commit_max,
        ),
        body,
    )


def _count_refusal(state: State) -> None:
    """Count that the state of a partition was not offered, or not taken (SH-19)."""
    assert state.pull is None or state.primary != state.options.replica, "who leads offers"
    if state.options.group != METADATA_GROUP:
        state.probes.hit("partition_transfer_refusals_total")


def _offer(state: State, nonce: int) -> None:
    """Export the state for one receiver; drop the oldest offer if there are too many."""
    assert state.primary == state.options.replica, "only a primary offers its state"
    commit_header = state.log.entries[state.commit_min].data
    state.offers[nonce] = Offer(
        state.commit_min,
        (
            Artifact(COMMIT_HEADER, state.commit_min, commit_header),
            Artifact(CLIENT_TABLE, state.commit_min, state.table.encode()),
            *state.machine.export(),
        ),
    )
    if len(state.offers) > OFFERS_MAX:
        del state.offers[next(iter(state.offers))]
    assert len(state.offers) <= OFFERS_MAX, "offers are bounded"


def on_state_transfer_target(
    state: State, sender: int, header: StateTransferTargetHeader, body: bytes
) -> None:
    """Accept an offer, and reuse the artifacts that are already here."""
    pull = state.pull
    if pull is None or header.nonce != pull.nonce or sender != pull.source or pull.wanted:
        return
    if not header.available or header.commit_op <= state.commit_min:
        return
    try:
        wanted = wire.decode_manifest(body)
    except CorruptError:
        return
    if not wanted:
        return
    pull.accept(header.commit_op, wanted)
    ours = {describe(piece): piece for piece in state.machine.export()}
    for index, line in enumerate(wanted):
        piece = ours.get(line)
        if piece is not None:
            state.probes.hit("transfer.piece_reused")
            pull.have[index] = piece
    _go_on(state)


def on_request_state_chunk(state: State, sender: int, header: RequestStateChunkHeader) -> None:
    """Send one chunk of an offered artifact."""
    offer = state.offers.get(header.nonce)
    if offer is None or header.artifact >= len(offer.artifacts) or not state.is_primary:
        return
    artifact = offer.artifacts[header.artifact]
    length = min(header.length, state.options.chunk_bytes)
    if isinstance(artifact, Artifact):
        _send_chunk(state, sender, header, artifact.data[header.offset : header.offset + length])
        return
    length = min(length, artifact.length - header.offset)
    if length > 0 and len(state.sending) < READS_MAX:
        token = state.next_token()
        assert token not in state.serving, "a token names one read"
        state.sending[token] = (sender, header)
        state.out.append(ReadPiece(token, artifact, header.offset, length))


def on_piece_read(state: State, event: PieceRead) -> None:
    """Send a chunk that was read from a file; a failed read is requested again."""
    sender, header = state.sending.pop(event.token)
    if event.data and state.is_primary and header.nonce in state.offers:
        _send_chunk(state, sender, header, event.data)


def _send_chunk(state: State, replica: int, header: RequestStateChunkHeader, piece: bytes) -> None:
    state.send(
        replica,
        STATE_CHUNK,
        StateChunkHeader(
            cluster=state.options.cluster,
            size=HEADER_BYTES + len(piece),
            view=state.view,
            replica=state.options.replica,
            nonce=header.nonce,
            offset=header.offset,
            group=state.options.group,
            artifact=header.artifact,
            checksum_body=xxh3_64(piece),
        ),
        piece,
    )


def on_state_chunk(state: State, sender: int, header: StateChunkHeader, piece: bytes) -> None:
    """Take the chunk that was requested."""
    pull = state.pull
    if pull is None or header.nonce != pull.nonce or sender != pull.source or not pull.wanted:
        return
    missing = pull.missing()
    if missing is None or (header.artifact, header.offset) != missing[:2]:
        return
    if not piece or len(piece) > missing[2] or xxh3_64(piece) != header.checksum_body:
        return
    pull.data[header.artifact] += piece
    assert len(pull.data[header.artifact]) <= missing[1] + missing[2], "no more than is missing"
    state.attempts[Timer.TRANSFER] = 0
    _go_on(state)


def _go_on(state: State) -> None:
    pull = state.pull
    assert pull is not None
    if pull.missing() is not None:
        _ask(state)
        return
    assert len(pull.data) == len(pull.wanted), "every artifact of the manifest has its place"
    state.pull = None
    state.stop_timer(Timer.TRANSFER)
    try:
        _install(state, pull.commit, pull.artifacts() or ())
    except (CorruptError, RemoteError):
        state.probes.hit("transfer.refused")
        _count_refusal(state)
        state.move_transfer(Transfer.NONE)
        start_repair(state, state.primary)


def _install(state: State, commit: int, artifacts: tuple[Piece, ...]) -> None:
    """Replace machine and table by those of the primary, and request a checkpoint.

    Raises:
        CorruptError: The state is not valid; nothing has changed.
        RemoteError: The header of its commit point is not valid; nothing has changed.
    """
    if [each.kind for each in artifacts[:2]] != [COMMIT_HEADER, CLIENT_TABLE]:
        raise CorruptError("a state that does not match its manifest, or lacks its own two parts")
    if commit <= state.commit_min:
        raise CorruptError(f"a state of op {commit} that is no longer wanted")
    header_piece, table_piece, *machine_pieces = artifacts
    assert isinstance(header_piece, Artifact)
    assert isinstance(table_piece, Artifact)
    header = decode_prepare(header_piece.data)
    if header.op != commit or header.group != state.options.group:
        raise CorruptError(f"a state of op {header.op} of {header.group} offered as {commit}")
    following = state.log.get(commit + 1) if state.log.linked <= commit + 1 else None
    if following is not None and following.header.parent != header.checksum:
        state.probes.hit("contradiction.state")
        raise CorruptError(f"a state of op {commit} that is not of the history of this log")
    before = state.table.encode()
    state.table.install(table_piece.data, commit)
    try:
        state.machine.install(machine_pieces)
    except CorruptError:
        state.table.install(before, state.commit_min)
        raise
    state.probes.hit("transfer.completed")
    _move_commit(state, Entry(header, None, data=header_piece.data))
    state.move_transfer(Transfer.INSTALLING)
    state.out.append(TakeCheckpoint())


def _move_commit(state: State, entry: Entry) -> None:
    """Set the commit point to the op of the installed state; the log above it stays."""
    commit = entry.header.op
    assert commit > state.commit_min, "an installed state is ahead of what was applied"
    log = state.log
    state.commit_min = commit
    state.commit_max = max(state.commit_max, commit)
    state.timestamp = max(state.timestamp, entry.header.timestamp)
    if commit >= log.head:
        state.log = log = Log(commit)
    log.put(entry)
    log.drop_below(commit)
    log.linked = max(log.linked, commit + 1)
    assert log.linked <= log.head + 1, "at most nothing is linked"
    assert state.durable <= log.head, "durable ops are a part of the log"
    link(state, log)
