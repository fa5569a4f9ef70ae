"""Headers of the ops of a group's log: to order, acknowledge and repair them."""

import struct

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.wire.layout import CHECKSUM, VIEW, Header, Layout
from headrace.wire.numbers import FrameKind


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


class RequestPreparesHeader(Header, frozen=True):
    """Asks for a range of the log."""

    nonce: int = 0
    from_op: int = 0
    to_op: int = 0
    group: int = 0


class RangeEvictedHeader(Header, frozen=True):
    """Ends a repair: the op is no longer held."""

    nonce: int = 0
    op: int = 0
    group: int = 0


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
REQUEST_PREPARES = Layout(
    FrameKind.REQUEST_PREPARES,
    RequestPreparesHeader,
    nonce=(128, 16),
    from_op=(144, 8),
    to_op=(152, 8),
    group=(160, 8),
)
RANGE_EVICTED = Layout(
    FrameKind.RANGE_EVICTED,
    RangeEvictedHeader,
    nonce=(128, 16),
    op=(144, 8),
    group=(152, 8),
)

# The same bytes as `PREPARE` writes, in one call: a primary makes one for every request. Numbers of
# 128 bits are packed as their halves.
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
    end=HEADER_BYTES,
    are_halved=True,
)
_TO_VIEW = slice(CHECKSUM.stop, VIEW.start)
_FROM_VIEW = slice(VIEW.stop, HEADER_BYTES)
# The checksum, the bytes up to the view, the view, and the rest.
_SEALED = struct.Struct(
    f"<Q{CHECKSUM.stop - 8}x{VIEW.start - CHECKSUM.stop}sI{HEADER_BYTES - VIEW.stop}s"
)
_KIND = int(FrameKind.PREPARE)
_LOW = (1 << 64) - 1


def seal_prepare(*fields: int) -> tuple[PrepareHeader, bytes]:
    """Return the prepare of all its fields but the checksum, in their order, and its bytes.

    The checksum excludes itself and the view, as in `seals.seal`.
    """
    (
        checksum_body,
        cluster,
        size,
        view,
        release,
        replica,
        life,
        origin,
        client,
        parent,
        request_checksum,
        *rest,  # They are packed as they are.
    ) = fields
    covered = _IDENTITY.pack(
        checksum_body & _LOW,
        checksum_body >> 64,
        cluster & _LOW,
        cluster >> 64,
        size,
        release,
        _KIND,
        replica,
        life,
        origin,
        client & _LOW,
        client >> 64,
        parent & _LOW,
        parent >> 64,
        request_checksum & _LOW,
        request_checksum >> 64,
        *rest,
    )
    checksum = xxh3_64(covered)
    data = _SEALED.pack(checksum, covered[_TO_VIEW], view, covered[_FROM_VIEW])
    return PrepareHeader(checksum, *fields), data
