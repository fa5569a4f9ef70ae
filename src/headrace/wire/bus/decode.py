"""Reads the frames of the bus, and refuses what is against their rules.

Frames of the replica plane travel on lanes too; `wire/replica/decode.py` reads those.

Invariants: header and body of a frame that `decode_bus` takes obey the rules of its kind, so the
            core may assert what they say.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.base.ids import METADATA_GROUP, is_group, is_member
from headrace.base.limits import HEADER_BYTES, NAME_BYTES_MAX, OP_MAX, REPLICAS_MAX, VIEW_MAX
from headrace.wire.bus.feed import (
    FEED_ASK,
    FEED_IMAGE,
    FEED_OP,
    FEED_POINT,
    GATHER,
    GATHERED,
    FeedAskHeader,
    FeedImageHeader,
    FeedOpHeader,
    FeedPointHeader,
    GatherHeader,
    Subject,
)
from headrace.wire.bus.forwarded import (
    FORWARDED_REPLY,
    FORWARDED_REQUEST,
    ForwardedReplyHeader,
    ForwardedRequestHeader,
)
from headrace.wire.bus.handover import (
    CONNECTION_GONE,
    CONNECTION_ORDER,
    CONNECTION_SETUP,
    FORWARD_REPLICA_SEND,
    REPLICA_INBOUND_DONE,
    REPLICA_INBOUND_SETUP,
    ConnectionGoneHeader,
    ConnectionOrderHeader,
    ConnectionSetupHeader,
    ForwardReplicaSendHeader,
    Order,
    SlotHeader,
)
from headrace.wire.codec import Data
from headrace.wire.errors import RemoteError
from headrace.wire.layout import KIND_OFFSET, SIZE, Layout
from headrace.wire.numbers import FrameKind, Transport, find_operation
from headrace.wire.replica.kinds import LAYOUTS

BusHeader: TypeAlias = (
    ForwardedRequestHeader
    | ForwardedReplyHeader
    | ConnectionSetupHeader
    | SlotHeader
    | ForwardReplicaSendHeader
    | ConnectionOrderHeader
    | ConnectionGoneHeader
    | FeedOpHeader
    | FeedImageHeader
    | FeedAskHeader
    | FeedPointHeader
    | GatherHeader
)

BUS_LAYOUTS: Mapping[int, Layout[Any]] = {  # Headers differ by kind.
    layout.kind: layout
    for layout in (
        FORWARDED_REQUEST,
        FORWARDED_REPLY,
        CONNECTION_SETUP,
        REPLICA_INBOUND_SETUP,
        REPLICA_INBOUND_DONE,
        FORWARD_REPLICA_SEND,
        CONNECTION_ORDER,
        CONNECTION_GONE,
        FEED_OP,
        FEED_IMAGE,
        FEED_ASK,
        FEED_POINT,
        GATHER,
        GATHERED,
    )
}
# Kinds that travel with a descriptor, beside the lanes.
DESCRIPTOR_KINDS = (FrameKind.CONNECTION_SETUP, FrameKind.REPLICA_INBOUND_SETUP)

_ANSWERS = (FrameKind.REPLY, FrameKind.EVICTION)
_BETWEEN_NODES = (*LAYOUTS, FrameKind.FORWARDED_REQUEST, FrameKind.FORWARDED_REPLY)
_SEALED = (FrameKind.FORWARDED_REQUEST, FrameKind.FORWARDED_REPLY)  # where they cross a link
_TRANSPORTS = (Transport.TCP, Transport.WEBSOCKET)
_ALL_TRANSPORTS = tuple(int(each) for each in Transport)
_ADDRESS_BYTES_MAX = NAME_BYTES_MAX


def decode_bus(frame: Data) -> tuple[FrameKind, BusHeader]:
    """Check a frame of the bus, and read its header.

    Raises:
        RemoteError: It is no frame of the bus, or header or body is against the rules of its kind.
    """
    layout = BUS_LAYOUTS.get(frame[KIND_OFFSET]) if len(frame) >= HEADER_BYTES else None
    if layout is None:
        raise RemoteError(f"{len(frame)} bytes are no frame of the bus")
    header: BusHeader = layout.decode(frame)
    kind = layout.kind
    if header.size != len(frame):
        raise RemoteError(f"{kind.name} of {len(frame)} bytes says that it has {header.size}")
    if header.release or header.view > VIEW_MAX or header.replica >= REPLICAS_MAX:
        raise RemoteError(f"{kind.name} against the rule: release, view and replica are in range")
    if (header.checksum or header.checksum_body) and kind not in _SEALED:
        raise RemoteError(f"{kind.name} against the rule: no checksum")
    broken = _RULES[kind](header, frame)
    if broken:
        raise RemoteError(f"{kind.name} against the rule: {broken}")
    return kind, header


def ticket_of(header: Data) -> int:
    """Return the ticket of a forwarded request or reply, and 0 for every other kind."""
    if header[KIND_OFFSET] not in _SEALED:
        return 0
    return int.from_bytes(header[_TICKET], "little")


def group_of(header: Data) -> int:
    """Return the group that a frame of a lane is for; the metadata group if its kind has none."""
    group = _GROUPS.get(header[KIND_OFFSET])
    return METADATA_GROUP if group is None else int.from_bytes(header[group], "little")


_GROUPS = {
    kind: layout.span("group")
    for kind, layout in (*LAYOUTS.items(), *BUS_LAYOUTS.items())
    if "group" in layout.made.__struct_fields__
}
_TICKET = FORWARDED_REQUEST.span("ticket")
assert FORWARDED_REPLY.span("ticket") == _TICKET


# Each returns the rule that is broken, in words, or nothing.


def _request_rules(header: ForwardedRequestHeader, frame: Data) -> str:
    del frame
    if not header.ticket or not header.timeout or not header.connection:
        return "ticket, timeout and connection are not 0"
    if header.transport not in _ALL_TRANSPORTS:
        return "transport is known"
    if not is_group(header.group) or not is_member(header.home):
        return "group and home can exist"
    if find_operation(header.operation) is None:
        return "operation is known"
    if header.commit > OP_MAX or header.is_anew > 1:
        return "commit is in range and anew a flag"
    return ""


def _reply_rules(header: ForwardedReplyHeader, frame: Data) -> str:
    if not header.ticket or not header.connection or not is_member(header.home):
        return "ticket, connection and home can exist"
    return "" if _is_whole(frame, _ANSWERS) else "the body is a whole frame for the client"


def _setup_rules(header: ConnectionSetupHeader, frame: Data) -> str:
    if not header.connection or header.transport not in _TRANSPORTS:
        return "connection is not 0 and its transport can be handed over"
    return _text_rules(frame)


def _slot_rules(header: SlotHeader, frame: Data) -> str:
    del header
    return _no_body(frame)


def _replica_rules(header: ForwardReplicaSendHeader, frame: Data) -> str:
    if header.to_replica >= REPLICAS_MAX:
        return "replica is below the largest cluster"
    return "" if _is_whole(frame, _BETWEEN_NODES) else "the body is a whole frame for a replica"


def _order_rules(header: ConnectionOrderHeader, frame: Data) -> str:
    if not header.connection or not header.number:
        return "connection and number are not 0"
    match header.order:
        case Order.SEND:
            return "" if _is_whole(frame, _ANSWERS) else "the body is a whole frame for the client"
        case Order.CLOSE:
            return _text_rules(frame)
        case Order.TRUST:
            is_whole = header.client > 0 and header.session > 0
            return _no_body(frame) if is_whole else "who is trusted has client and session"
        case Order.DISTRUST | Order.END:
            return _no_body(frame)
        case _:
            return "order is known"


def _gone_rules(header: ConnectionGoneHeader, frame: Data) -> str:
    if not header.connection or not header.number:
        return "connection and number are not 0"
    if header.is_open > 1:
        return "open is a flag"
    return _no_body(frame)


def _op_rules(header: FeedOpHeader, frame: Data) -> str:
    if not header.previous < header.op <= OP_MAX:
        return "previous < op, in range"
    return "" if _is_whole(frame, (FrameKind.PREPARE,)) else "the body is a whole prepare"


def _image_rules(header: FeedImageHeader, frame: Data) -> str:
    if not header.op <= header.commit <= OP_MAX:
        return "op <= commit, in range"
    piece_bytes = len(frame) - HEADER_BYTES
    is_within = piece_bytes > 0 and header.offset + piece_bytes <= header.total
    return "" if is_within else "the piece is within the image"


def _ask_rules(header: FeedAskHeader, frame: Data) -> str:
    if not header.op <= header.commit <= OP_MAX:
        return "op <= commit, in range"
    if header.has_image > 1 or header.is_lacking > 1:
        return "image and lacking are flags"
    return _no_body(frame)


def _point_rules(header: FeedPointHeader, frame: Data) -> str:
    if header.commit > OP_MAX:
        return "commit is in range"
    if header.is_current > 1:
        return "marks are 0 or 1"
    return _no_body(frame)


def _gather_rules(header: GatherHeader, frame: Data) -> str:
    del frame
    if header.subject not in _SUBJECTS:
        return "subject is known"
    if header.commit > OP_MAX:
        return "commit is in range"
    return "" if header.number else "number is not 0"


_SUBJECTS = tuple(int(subject) for subject in Subject)


def _no_body(frame: Data) -> str:
    return "" if len(frame) == HEADER_BYTES else "no body"


def _text_rules(frame: Data) -> str:
    body = frame[HEADER_BYTES:]
    if len(body) > _ADDRESS_BYTES_MAX:
        return f"text of at most {_ADDRESS_BYTES_MAX} bytes"
    try:
        str(body, "utf-8")
    except UnicodeDecodeError:
        return "text in UTF-8"
    return ""


def _is_whole(frame: Data, kinds: tuple[int, ...]) -> bool:
    """Whether the body is one whole frame of one of these kinds."""
    body_bytes = len(frame) - HEADER_BYTES
    if body_bytes < HEADER_BYTES or frame[HEADER_BYTES + KIND_OFFSET] not in kinds:
        return False
    size = frame[HEADER_BYTES + SIZE.start : HEADER_BYTES + SIZE.stop]
    return int.from_bytes(size, "little") == body_bytes


_RULES: Mapping[int, Callable[[Any, Data], str]] = {  # Headers differ by kind.
    FrameKind.FORWARDED_REQUEST: _request_rules,
    FrameKind.FORWARDED_REPLY: _reply_rules,
    FrameKind.CONNECTION_SETUP: _setup_rules,
    FrameKind.REPLICA_INBOUND_SETUP: _slot_rules,
    FrameKind.REPLICA_INBOUND_DONE: _slot_rules,
    FrameKind.FORWARD_REPLICA_SEND: _replica_rules,
    FrameKind.CONNECTION_ORDER: _order_rules,
    FrameKind.CONNECTION_GONE: _gone_rules,
    FrameKind.FEED_OP: _op_rules,
    FrameKind.FEED_IMAGE: _image_rules,
    FrameKind.FEED_ASK: _ask_rules,
    FrameKind.FEED_POINT: _point_rules,
    FrameKind.GATHER: _gather_rules,
    FrameKind.GATHERED: _gather_rules,
}
assert _RULES.keys() == BUS_LAYOUTS.keys()
