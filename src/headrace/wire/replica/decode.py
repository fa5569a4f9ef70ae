"""Reads the frames that replicas send each other, and refuses what is against their rules.

No SDK sees this plane. `docs/formats/wire.md` says where it departs from the protocol's origin.

Invariants: a frame that `decode_replica` takes was sealed by its sender, and header and body obey
            the rules of its kind, so the core may assert what they say.
"""

from collections.abc import Iterable, Iterator

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES, VIEW_CHANGE_HEADERS_MAX
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError, RemoteError
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.artifacts import decode_manifest
from headrace.wire.replica.heartbeats import NodeHeartbeatHeader, decode_beats
from headrace.wire.replica.kinds import LAYOUTS, WITH_BODY, ReplicaHeader
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.rules import check, common_rules, header_rules, prepare_rules
from headrace.wire.replica.seals import is_body, is_sealed
from headrace.wire.replica.transfers import StateChunkHeader, StateTransferTargetHeader
from headrace.wire.replica.views import DoViewChangeHeader, StartViewHeader

_BLANK = bytes(HEADER_BYTES)  # for an op whose header is not known


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
    check(layout.kind, header_rules(layout.kind, header, len(frame)))
    if layout.kind in WITH_BODY:
        check(layout.kind, _body_rules(layout.kind, header, frame[HEADER_BYTES:]))
    return layout.kind, header


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
    check(FrameKind.PREPARE, common_rules(header))
    check(FrameKind.PREPARE, prepare_rules(header))
    return header


def encode_suffix(headers: Iterable[bytes | None]) -> bytes:
    """Write the body of a view change from sealed prepare headers, newest first."""
    return b"".join([_BLANK if header is None else header for header in headers])


def _body_rules(kind: FrameKind, header: ReplicaHeader, body: Data) -> Iterator[tuple[str, bool]]:
    """Yield what must hold of a body, in words, and whether it does.

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
