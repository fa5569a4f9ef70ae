"""Frames of the bus that obey the rules of their kinds."""

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.wire.bus.decode import BUS_LAYOUTS
from headrace.wire.bus.feed import Subject
from headrace.wire.bus.handover import Order
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.numbers import FrameKind, Operation, Transport
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import seal

CONNECTION = 3 << 112 | 9
ANSWER = encode_eviction(EvictionReason.NO_SESSION, client=7)
PREPARED = seal(PREPARE.encode(PrepareHeader(op=7, size=HEADER_BYTES)))

# Fields and body that each kind asks for.
LAWFUL: dict[int, tuple[dict[str, int], bytes]] = {
    FrameKind.FORWARDED_REQUEST: (
        {
            "ticket": 5,
            "timeout": 10_000_000,
            "connection": CONNECTION,
            "group": METADATA_GROUP,
            "operation": Operation.SEND_MESSAGES,
            "home": 3,
            "transport": Transport.TCP,
        },
        b"body",
    ),
    FrameKind.FORWARDED_REPLY: ({"ticket": 5, "connection": CONNECTION, "home": 3}, ANSWER),
    FrameKind.CONNECTION_SETUP: (
        {"connection": CONNECTION, "transport": Transport.TCP},
        b"127.0.0.1:8090",
    ),
    FrameKind.REPLICA_INBOUND_SETUP: ({"slot": 255}, b""),
    FrameKind.REPLICA_INBOUND_DONE: ({"slot": 255}, b""),
    FrameKind.FORWARD_REPLICA_SEND: ({"to_replica": 2}, PREPARED),
    FrameKind.CONNECTION_ORDER: (
        {"connection": CONNECTION, "number": 1, "order": Order.SEND},
        ANSWER,
    ),
    FrameKind.CONNECTION_GONE: ({"connection": CONNECTION, "number": 1}, b""),
    FrameKind.FEED_OP: ({"op": 7, "previous": 5}, PREPARED),
    FrameKind.FEED_IMAGE: ({"op": 7, "commit": 9, "offset": 10, "total": 15}, b"piece"),
    FrameKind.FEED_ASK: ({"op": 6, "commit": 7, "number": 1, "has_image": 1, "is_lacking": 1}, b""),
    FrameKind.FEED_POINT: ({"commit": 7, "number": 1}, b""),
    FrameKind.GATHER: ({"number": 4, "subject": Subject.SIZES, "commit": 7}, b""),
    FrameKind.GATHERED: ({"number": 4, "subject": Subject.SIZES}, b"answer"),
}


def bus_frame(kind: int, body: bytes | None = None, **fields: int) -> bytes:
    """Return a whole frame, lawful unless the given fields or the body say otherwise."""
    own, own_body = LAWFUL[kind]
    body = own_body if body is None else body
    layout = BUS_LAYOUTS[kind]
    return layout.encode(layout.made(**{"size": HEADER_BYTES + len(body), **own, **fields})) + body
