"""The headers that replicas send each other, and what makes a replica refuse one.

No SDK sees this plane. `docs/formats/wire.md` says where it departs from the protocol's origin.

Invariants: a frame that `decode_replica` takes was sealed by its sender, and header and body obey
            the rules of its kind, so the core may assert what they say.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.ids import METADATA_GROUP, is_partition_group
from headrace.base.limits import (
    HEADER_BYTES,
    OP_MAX,
    PIPELINE_OPS_MAX,
    REPLICAS_MAX,
    STAMP_MAX,
    VIEW_CHANGE_HEADERS_MAX,
    VIEW_MAX,
)
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError, RemoteError
from headrace.wire.layout import CHECKSUM, KIND_OFFSET, VIEW, Header, Layout
from headrace.wire.numbers import (
    FrameKind,
    LogoutOutcome,
    Operation,
    RegisterOutcome,
    find_operation,
)
from headrace.wire.seals import is_body, is_sealed
from headrace.wire.transfer import decode_manifest


class PrepareHeader(Header, frozen=True):
    """One op of a group's log; its body is the operation's."""

    client: int = 0
    parent: int = 0
    request_checksum: int = 0
    op: int = 0
    commit: int = 0
    timestamp: int = 0
    request: int = 0
    operation: int = 0
    group: int = 0
    user_id: int = 0
    is_anew: int = 0  # a new request, though its number may be used (O4.2)


class PrepareOkHeader(Header, frozen=True):
    """Acknowledges one op."""

    parent: int = 0
    prepare_checksum: int = 0
    op: int = 0
    commit: int = 0
    timestamp: int = 0
    request: int = 0
    operation: int = 0
    group: int = 0


class CommitHeader(Header, frozen=True):
    """The primary's heartbeat: how far it has committed."""

    commit_checksum: int = 0
    timestamp_monotonic: int = 0
    commit: int = 0
    checkpoint_op: int = 0
    group: int = 0


class StartViewChangeHeader(Header, frozen=True):
    """Suspects the primary."""

    group: int = 0


class DoViewChangeHeader(Header, frozen=True):
    """A vote for a view; its body is the suffix of prepare headers, newest first."""

    op: int = 0
    commit: int = 0
    group: int = 0
    log_view: int = 0
    is_suspect: int = 0  # its log may have lost acknowledged ops, so its shortness proves nothing
    nack_bitset: int = 0
    present_bitset: int = 0


class StartViewHeader(Header, frozen=True):
    """Announces a view; body as in a vote, maybe empty."""

    op: int = 0
    commit: int = 0
    group: int = 0
    incarnation: int = 0


class RequestStartViewHeader(Header, frozen=True):
    """A restarted replica asks for the current view; a wiped one, for reports of all."""

    group: int = 0
    is_wiped: int = 0
    incarnation: int = 0


class RequestPreparesHeader(Header, frozen=True):
    """Asks for a range of the log."""

    nonce: int = 0
    from_op: int = 0
    to_op: int = 0
    group: int = 0


class RepairEndHeader(Header, frozen=True):
    """Ends a repair: the last op served, or the oldest one still held."""

    nonce: int = 0
    op: int = 0
    group: int = 0


class RequestStateTransferHeader(Header, frozen=True):
    """Asks for a description of the state."""

    nonce: int = 0
    group: int = 0


class StateTransferTargetHeader(Header, frozen=True):
    """Offers the state; its body is the manifest, if the state is available."""

    nonce: int = 0
    commit_op: int = 0
    group: int = 0
    available: int = 0
    unavailable_transient: int = 0
    commit_max: int = 0


class RequestStateChunkHeader(Header, frozen=True):
    """Pulls one piece of one artifact."""

    nonce: int = 0
    offset: int = 0
    group: int = 0
    length: int = 0
    artifact: int = 0


class StateChunkHeader(Header, frozen=True):
    """One piece of one artifact; its body is the bytes."""

    nonce: int = 0
    offset: int = 0
    group: int = 0
    artifact: int = 0


class ForwardRegisterHeader(Header, frozen=True):
    """A backup verified a login and asks the primary to propose it."""

    client: int = 0
    nonce: int = 0
    user_id: int = 0


class ForwardRegisterResultHeader(Header, frozen=True):
    """What became of a forwarded login."""

    nonce: int = 0
    client: int = 0
    epoch: int = 0
    watermark: int = 0
    outcome: int = 0


class ForwardLogoutHeader(Header, frozen=True):
    """A backup asks the primary to propose a logout."""

    client: int = 0
    nonce: int = 0
    session: int = 0
    request: int = 0


class ForwardLogoutResultHeader(Header, frozen=True):
    """What became of a forwarded logout."""

    nonce: int = 0
    client: int = 0
    commit: int = 0
    outcome: int = 0


class NodeHeartbeatHeader(Header, frozen=True):
    """One node is alive, for all its groups (O1.4); its body lists the groups that changed.

    A group is listed until the other node has acknowledged the number of a frame that told it.
    """

    number: int = 0
    acknowledged: int = 0
    counter: int = 0
    journal: int = 0  # which store of the node the groups are on


class RecoveryReportHeader(Header, frozen=True):
    """A replica in normal status tells a wiped one how far its group is."""

    group: int = 0
    commit: int = 0
    incarnation: int = 0


def _prepare_layout(kind: FrameKind) -> Layout[PrepareHeader]:
    return Layout(
        kind,
        PrepareHeader,
        reserved_zero=True,
        client=(128, 16),
        parent=(144, 16),
        request_checksum=(160, 16),
        op=(176, 8),
        commit=(184, 8),
        timestamp=(192, 8),
        request=(200, 8),
        operation=(208, 1),
        group=(216, 8),
        user_id=(224, 4),
        is_anew=(228, 1),
    )


PREPARE = _prepare_layout(FrameKind.PREPARE)
REPAIR_PREPARE = _prepare_layout(FrameKind.REPAIR_PREPARE)

# The same bytes as `PREPARE` writes, in one call: a primary makes one for every request.
_ZERO_CHECKSUM = bytes(CHECKSUM.stop)
_IDENTITY = PREPARE.struct(
    "checksum_body",
    "cluster",
    "size",
    "release",
    "kind",
    "replica",
    "life",
    "origin",
    "client",
    "parent",
    "request_checksum",
    "op",
    "commit",
    "timestamp",
    "request",
    "operation",
    "group",
    "user_id",
    "is_anew",
    start=CHECKSUM.stop,
    end=HEADER_BYTES,
)
_TO_VIEW = slice(CHECKSUM.stop, VIEW.start)
_FROM_VIEW = slice(VIEW.stop, HEADER_BYTES)


def seal_prepare(header: PrepareHeader) -> tuple[PrepareHeader, bytes]:
    """Give a prepare with its checksum, and its bytes.

    The checksum leaves out itself and the view, as `seals.seal` has it.
    """
    covered = _ZERO_CHECKSUM + _IDENTITY.pack(
        header.checksum_body.to_bytes(16, "little"),
        header.cluster.to_bytes(16, "little"),
        header.size,
        header.release,
        FrameKind.PREPARE,
        header.replica,
        header.life,
        header.origin,
        header.client.to_bytes(16, "little"),
        header.parent.to_bytes(16, "little"),
        header.request_checksum.to_bytes(16, "little"),
        header.op,
        header.commit,
        header.timestamp,
        header.request,
        header.operation,
        header.group,
        header.user_id,
        header.is_anew,
    )
    checksum = xxh3_64(covered)
    data = b"".join(
        (
            checksum.to_bytes(16, "little"),
            covered[_TO_VIEW],
            header.view.to_bytes(4, "little"),
            covered[_FROM_VIEW],
        )
    )
    return msgspec.structs.replace(header, checksum=checksum), data


def _repair_end_layout(kind: FrameKind) -> Layout[RepairEndHeader]:
    return Layout(kind, RepairEndHeader, nonce=(128, 16), op=(144, 8), group=(152, 8))


PREPARE_OK = Layout(
    FrameKind.PREPARE_OK,
    PrepareOkHeader,
    parent=(128, 16),
    prepare_checksum=(144, 16),
    op=(160, 8),
    commit=(168, 8),
    timestamp=(176, 8),
    request=(184, 8),
    operation=(192, 1),
    group=(200, 8),
)
COMMIT = Layout(
    FrameKind.COMMIT,
    CommitHeader,
    commit_checksum=(128, 16),
    timestamp_monotonic=(144, 8),
    commit=(152, 8),
    checkpoint_op=(160, 8),
    group=(168, 8),
)
START_VIEW_CHANGE = Layout(FrameKind.START_VIEW_CHANGE, StartViewChangeHeader, group=(128, 8))
DO_VIEW_CHANGE = Layout(
    FrameKind.DO_VIEW_CHANGE,
    DoViewChangeHeader,
    op=(128, 8),
    commit=(136, 8),
    group=(144, 8),
    log_view=(152, 4),
    is_suspect=(156, 1),
    nack_bitset=(224, 16),
    present_bitset=(240, 16),
)
START_VIEW = Layout(
    FrameKind.START_VIEW,
    StartViewHeader,
    op=(128, 8),
    commit=(136, 8),
    group=(144, 8),
    incarnation=(240, 16),
)
REQUEST_START_VIEW = Layout(
    FrameKind.REQUEST_START_VIEW,
    RequestStartViewHeader,
    group=(128, 8),
    is_wiped=(136, 1),
    incarnation=(240, 16),
)
REQUEST_PREPARES = Layout(
    FrameKind.REQUEST_PREPARES,
    RequestPreparesHeader,
    nonce=(128, 16),
    from_op=(144, 8),
    to_op=(152, 8),
    group=(160, 8),
)
REPAIR_DONE = _repair_end_layout(FrameKind.REPAIR_DONE)
RANGE_EVICTED = _repair_end_layout(FrameKind.RANGE_EVICTED)
REQUEST_STATE_TRANSFER = Layout(
    FrameKind.REQUEST_STATE_TRANSFER,
    RequestStateTransferHeader,
    nonce=(128, 16),
    group=(144, 8),
)
STATE_TRANSFER_TARGET = Layout(
    FrameKind.STATE_TRANSFER_TARGET,
    StateTransferTargetHeader,
    nonce=(128, 16),
    commit_op=(144, 8),
    group=(152, 8),
    available=(160, 1),
    unavailable_transient=(161, 1),
    commit_max=(168, 8),
)
REQUEST_STATE_CHUNK = Layout(
    FrameKind.REQUEST_STATE_CHUNK,
    RequestStateChunkHeader,
    nonce=(128, 16),
    offset=(144, 8),
    group=(152, 8),
    length=(160, 4),
    artifact=(164, 4),
)
STATE_CHUNK = Layout(
    FrameKind.STATE_CHUNK,
    StateChunkHeader,
    nonce=(128, 16),
    offset=(144, 8),
    group=(152, 8),
    artifact=(160, 4),
)
FORWARD_REGISTER = Layout(
    FrameKind.FORWARD_REGISTER,
    ForwardRegisterHeader,
    reserved_zero=True,
    client=(128, 16),
    nonce=(144, 16),
    user_id=(160, 4),
)
FORWARD_REGISTER_RESULT = Layout(
    FrameKind.FORWARD_REGISTER_RESULT,
    ForwardRegisterResultHeader,
    reserved_zero=True,
    nonce=(128, 16),
    client=(144, 16),
    epoch=(160, 8),
    watermark=(168, 8),
    outcome=(255, 1),
)
FORWARD_LOGOUT = Layout(
    FrameKind.FORWARD_LOGOUT,
    ForwardLogoutHeader,
    reserved_zero=True,
    client=(128, 16),
    nonce=(144, 16),
    session=(160, 8),
    request=(168, 8),
)
FORWARD_LOGOUT_RESULT = Layout(
    FrameKind.FORWARD_LOGOUT_RESULT,
    ForwardLogoutResultHeader,
    reserved_zero=True,
    nonce=(128, 16),
    client=(144, 16),
    commit=(160, 8),
    outcome=(255, 1),
)

NODE_HEARTBEAT = Layout(
    FrameKind.NODE_HEARTBEAT,
    NodeHeartbeatHeader,
    reserved_zero=True,
    number=(128, 8),
    acknowledged=(136, 8),
    counter=(144, 8),
    journal=(152, 4),
)
RECOVERY_REPORT = Layout(
    FrameKind.RECOVERY_REPORT,
    RecoveryReportHeader,
    reserved_zero=True,
    group=(128, 8),
    commit=(136, 8),
    incarnation=(240, 16),
)

ReplicaHeader: TypeAlias = (
    PrepareHeader
    | PrepareOkHeader
    | CommitHeader
    | StartViewChangeHeader
    | DoViewChangeHeader
    | StartViewHeader
    | RequestStartViewHeader
    | RequestPreparesHeader
    | RepairEndHeader
    | RequestStateTransferHeader
    | StateTransferTargetHeader
    | RequestStateChunkHeader
    | StateChunkHeader
    | ForwardRegisterHeader
    | ForwardRegisterResultHeader
    | ForwardLogoutHeader
    | ForwardLogoutResultHeader
    | NodeHeartbeatHeader
    | RecoveryReportHeader
)

LAYOUTS: dict[int, Layout[Any]] = {  # Each kind has a header type of its own.
    layout.kind: layout
    for layout in (
        PREPARE,
        REPAIR_PREPARE,
        PREPARE_OK,
        COMMIT,
        START_VIEW_CHANGE,
        DO_VIEW_CHANGE,
        START_VIEW,
        REQUEST_START_VIEW,
        REQUEST_PREPARES,
        REPAIR_DONE,
        RANGE_EVICTED,
        REQUEST_STATE_TRANSFER,
        STATE_TRANSFER_TARGET,
        REQUEST_STATE_CHUNK,
        STATE_CHUNK,
        FORWARD_REGISTER,
        FORWARD_REGISTER_RESULT,
        FORWARD_LOGOUT,
        FORWARD_LOGOUT_RESULT,
        NODE_HEARTBEAT,
        RECOVERY_REPORT,
    )
}
_WITH_BODY = (
    FrameKind.PREPARE,
    FrameKind.REPAIR_PREPARE,
    FrameKind.DO_VIEW_CHANGE,
    FrameKind.START_VIEW,
    FrameKind.STATE_TRANSFER_TARGET,
    FrameKind.STATE_CHUNK,
    FrameKind.NODE_HEARTBEAT,
)


def decode_replica(frame: Data) -> tuple[FrameKind, ReplicaHeader]:
    """Check a frame from another replica, and read its header.

    Raises:
        RemoteError: It is no frame between replicas, not sealed, or its header or body is against
            the rules of its kind.
    """
    layout = LAYOUTS.get(frame[KIND_OFFSET]) if len(frame) >= HEADER_BYTES else None
    if layout is None:
        raise RemoteError(f"{len(frame)} bytes are no frame of a replica")
    if not is_sealed(frame):
        raise RemoteError(f"{layout.kind.name} with a wrong checksum")
    header: ReplicaHeader = layout.decode(frame)
    _check(layout.kind, _rules(layout.kind, header, len(frame)))
    if layout.kind in _WITH_BODY:
        _check(layout.kind, _body_rules(layout.kind, header, frame[HEADER_BYTES:]))
    return layout.kind, header


def _check(kind: FrameKind, rules: Iterator[tuple[str, bool]]) -> None:
    for rule, holds in rules:
        if not holds:
            raise RemoteError(f"{kind.name} against the rule: {rule}")


def decode_suffix(body: Data) -> tuple[PrepareHeader | None, ...]:
    """Read the prepare headers in a view change's body, newest first; a blank one is none.

    Raises:
        RemoteError: The body is cut, too long, or holds a header that was never sealed.
    """
    if len(body) % HEADER_BYTES or len(body) > VIEW_CHANGE_HEADERS_MAX * HEADER_BYTES:
        raise RemoteError(f"suffix of {len(body)} bytes")
    headers: list[PrepareHeader | None] = []
    for start in range(0, len(body), HEADER_BYTES):
        header = body[start : start + HEADER_BYTES]
        if header == _BLANK:
            headers.append(None)
        else:
            headers.append(decode_prepare(header))
    return tuple(headers)


def decode_prepare(data: Data) -> PrepareHeader:
    """Read and check the header of a prepare that came without its body.

    Raises:
        RemoteError: It is cut, was never sealed, or is against the rules of its kind.
    """
    header = PREPARE.decode(data)
    if not is_sealed(data):
        raise RemoteError("PREPARE with a wrong checksum")
    _check(FrameKind.PREPARE, _common_rules(header))
    _check(FrameKind.PREPARE, _prepare_rules(header))
    return header


def encode_suffix(headers: Iterable[PrepareHeader | None]) -> bytes:
    """Write the body of a view change, newest first."""
    return b"".join(_BLANK if header is None else PREPARE.encode(header) for header in headers)


_BLANK = bytes(HEADER_BYTES)


def _rules(kind: FrameKind, header: ReplicaHeader, frame_bytes: int) -> Iterator[tuple[str, bool]]:
    """Give what must hold, in words, and whether it does."""
    yield "size is that of the frame", header.size == frame_bytes
    yield "no body", kind in _WITH_BODY or frame_bytes == HEADER_BYTES
    yield from _common_rules(header)
    match header:
        case PrepareHeader():
            yield from _prepare_rules(header)
        case PrepareOkHeader():
            yield "op is in range", header.op <= OP_MAX
            yield "1 <= op, commit <= op", header.op >= 1 and header.commit <= header.op
        case DoViewChangeHeader():
            yield "op is in range", header.op <= OP_MAX
            yield "log_view <= view", header.log_view <= header.view
            yield "commit <= op", header.commit <= header.op
            bits = (1 << (frame_bytes - HEADER_BYTES) // HEADER_BYTES) - 1
            yield "bits within the suffix", (header.nack_bitset | header.present_bitset) <= bits
            yield "suspect is a flag", header.is_suspect <= 1
        case StartViewHeader():
            yield "op is in range", header.op <= OP_MAX
            yield "commit <= op", header.commit <= header.op
        case CommitHeader() | RecoveryReportHeader():
            yield "commit is in range", header.commit <= OP_MAX
        case RequestStartViewHeader():
            yield "wiped is a flag", header.is_wiped <= 1
        case StateTransferTargetHeader():
            yield "commit_op is in range", header.commit_op <= OP_MAX
            yield "flags are flags", header.available | header.unavailable_transient <= 1
        case RequestPreparesHeader():
            yield "to_op is in range", header.to_op <= OP_MAX
            yield "1 <= from_op <= to_op", 1 <= header.from_op <= header.to_op
        case _:
            yield from _request_rules(header)


def _request_rules(header: ReplicaHeader) -> Iterator[tuple[str, bool]]:
    match header:
        case RepairEndHeader():
            yield "op is in range", header.op <= OP_MAX
        case RequestStateChunkHeader():
            yield "length is not 0", header.length > 0
        case ForwardRegisterHeader() | ForwardLogoutHeader():
            yield "client is not 0", header.client != 0
        case ForwardRegisterResultHeader():
            yield "outcome is known", header.outcome <= max(RegisterOutcome)
        case ForwardLogoutResultHeader():
            yield "outcome is known", header.outcome <= max(LogoutOutcome)
            yield "commit is in range", header.commit <= OP_MAX
        case _:
            pass


def _common_rules(header: ReplicaHeader) -> Iterator[tuple[str, bool]]:
    yield "release is 0", header.release == 0
    yield "view is in range", header.view <= VIEW_MAX
    yield "replica is below the largest cluster", header.replica < REPLICAS_MAX
    yield "group exists", _is_group(getattr(header, "group", METADATA_GROUP))


def _is_group(group: int) -> bool:
    return group == METADATA_GROUP or is_partition_group(group)


def _prepare_rules(header: PrepareHeader) -> Iterator[tuple[str, bool]]:
    yield "operation is known", find_operation(header.operation) is not None
    yield "1 <= op, commit < op", header.commit < header.op
    yield "op is in range", header.op <= OP_MAX
    yield "no more ops in flight than a vote names", header.op - header.commit <= PIPELINE_OPS_MAX
    yield "timestamp is in range", header.timestamp <= STAMP_MAX
    yield "size is that of a frame", header.size >= HEADER_BYTES
    yield "body has a checksum", header.checksum_body != 0
    is_of_partition = header.group != METADATA_GROUP
    yield "anew is a flag of partitions", header.is_anew <= is_of_partition


def _body_rules(kind: FrameKind, header: ReplicaHeader, body: Data) -> Iterator[tuple[str, bool]]:
    """Give what must hold of a body, in words, and whether it does.

    Raises:
        RemoteError: It is none of its kind.
    """
    match header:
        case PrepareHeader():
            operation = Operation(header.operation)
            is_own = is_body(operation, header.checksum_body, body)
            yield f"the body of a {kind.name} is that of its header", is_own
        case DoViewChangeHeader():
            yield from _suffix_rules(header, decode_suffix(body))
            wanted = header.op - max(header.commit, 1) + 1 if header.op else 0
            yield "suffix from op to commit", len(body) == wanted * HEADER_BYTES
        case StartViewHeader():
            suffix = decode_suffix(body)
            yield from _suffix_rules(header, suffix)
            yield "suffix without blanks", None not in suffix
            low = max(header.commit, 1)
            yield "suffix down to commit", header.op - len(suffix) < low or not header.op
        case StateTransferTargetHeader():
            yield "a manifest if the state is available", bool(header.available) == bool(body)
            _check_manifest(body)
        case StateChunkHeader() | NodeHeartbeatHeader():
            yield "the body is that of the header", header.checksum_body == xxh3_64(body)
            if isinstance(header, NodeHeartbeatHeader):
                decode_beats(body)
        case _:
            pass


def _suffix_rules(
    header: DoViewChangeHeader | StartViewHeader, suffix: tuple[PrepareHeader | None, ...]
) -> Iterator[tuple[str, bool]]:
    above: PrepareHeader | None = None
    for position, each in enumerate(suffix):
        if each is not None:
            yield "suffix in the order of its ops", each.op == header.op - position
            yield "suffix of the same group", each.group == header.group
            yield "suffix of the same cluster", each.cluster == header.cluster
            yield "suffix is a chain", above is None or above.parent == each.checksum
        above = each


def _check_manifest(body: Data) -> None:
    try:
        if body:
            decode_manifest(body)
    except CorruptError as error:
        raise RemoteError(str(error)) from None


class GroupBeat(msgspec.Struct, frozen=True):
    """What a heartbeat says of one group that its node leads, or declines to lead (VS-14a).

    Who leads may ask the other node to stay in the view; a promise is the answer (O6.2).
    """

    group: int
    view: int
    commit: int
    is_declined: bool
    origin: int = 0
    is_asking: bool = False
    is_promise: bool = False

    @property
    def flags(self) -> int:
        """The marks as they travel."""
        return self.is_declined | self.is_asking << 1 | self.is_promise << 2


_BEAT = struct.Struct("<QQQII")
_BEAT_FLAGS = 0b111


def encode_beats(beats: Iterable[GroupBeat]) -> bytes:
    """Write the body of a heartbeat."""
    return b"".join(
        _BEAT.pack(beat.group, beat.commit, beat.origin, beat.view, beat.flags) for beat in beats
    )


def decode_beats(body: Data) -> tuple[GroupBeat, ...]:
    """Read the body of a heartbeat.

    Raises:
        RemoteError: The body is cut, or says of a group what no node can say.
    """
    if len(body) % _BEAT.size:
        raise RemoteError(f"heartbeat body of {len(body)} bytes")
    for group, commit, _, view, flags in _BEAT.iter_unpack(body):
        if not _is_group(group) or commit > OP_MAX or view > VIEW_MAX or flags > _BEAT_FLAGS:
            raise RemoteError(f"beat of group {group}, view {view}, commit {commit}, flags {flags}")
    return tuple(
        [
            GroupBeat(
                group,
                view,
                commit,
                is_declined=flags & 1 != 0,
                origin=origin,
                is_asking=flags & 2 != 0,
                is_promise=flags & 4 != 0,
            )
            for group, commit, origin, view, flags in _BEAT.iter_unpack(body)
        ]
    )
