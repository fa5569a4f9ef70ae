"""Frames between the shards of a node: what is written is read, all else is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.ids import GATEWAY, METADATA_GROUP, NOBODY, is_member
from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES, NAME_BYTES_MAX, OP_MAX
from headrace.wire.bus.decode import BUS_LAYOUTS, decode_bus, ticket_of
from headrace.wire.bus.handover import Order
from headrace.wire.bus.prefix import PREFIX_BYTES, decode_prefix, encode_prefix
from headrace.wire.errors import RemoteError
from headrace.wire.layout import KIND_OFFSET, Header, Layout
from headrace.wire.numbers import FrameKind, Operation, Transport
from headrace.wire.replica.decode import decode_replica
from headrace.wire.requests import REQUEST
from tests.wire.bus_frames import ANSWER, CONNECTION, LAWFUL, PREPARED, bus_frame

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "bus.md").read_text()
every_kind = pytest.mark.parametrize(
    "kind", sorted(BUS_LAYOUTS), ids=lambda kind: FrameKind(kind).name
)


def test_every_kind_has_lawful_fields() -> None:
    assert LAWFUL.keys() == BUS_LAYOUTS.keys()


@every_kind
def test_what_is_written_is_read(kind: int) -> None:
    fields, body = LAWFUL[kind]
    read, header = decode_bus(bytearray(bus_frame(kind)))
    assert read == kind
    assert header.size == HEADER_BYTES + len(body)
    assert {name: getattr(header, name) for name in fields} == fields
    assert ticket_of(bus_frame(kind)) == fields.get("ticket", 0)


@settings(max_examples=60)
@given(data=st.data())
def test_an_envelope_carries_every_field(data: st.DataObject) -> None:
    layout = BUS_LAYOUTS[FrameKind.FORWARDED_REQUEST]
    widths = {name: place[1] for name, place in own_places(layout).items()}
    drawn = {
        name: data.draw(st.integers(1, (1 << 8 * width) - 1), label=name)
        for name, width in widths.items()
        if name not in ("operation", "is_anew", "home", "transport", "commit", "group")
    }
    drawn["commit"] = data.draw(st.integers(0, OP_MAX))
    drawn["home"] = data.draw(st.integers(0, GATEWAY))
    frame = bus_frame(FrameKind.FORWARDED_REQUEST, None, **drawn)
    _, header = decode_bus(frame)
    assert {name: getattr(header, name) for name in drawn} == drawn


@every_kind
def test_every_cut_is_refused(kind: int) -> None:
    frame = bus_frame(kind)
    for end in range(len(frame)):
        with pytest.raises(RemoteError, match=r"[a-z]"):
            decode_bus(frame[:end])
    with pytest.raises(RemoteError, match="says that it has"):
        decode_bus(frame + b"x")


@every_kind
def test_a_flipped_bit_is_refused_or_another_valid_frame(kind: int) -> None:
    frame = bytearray(bus_frame(kind))
    for position in range(len(frame)):
        for bit in (0, 3, 7):
            frame[position] ^= 1 << bit
            try:
                read, header = decode_bus(frame)
            except RemoteError:
                pass
            else:
                assert BUS_LAYOUTS[read].encode(header) == frame[:HEADER_BYTES]
            frame[position] ^= 1 << bit


@settings(max_examples=300)
@given(st.binary(max_size=3 * HEADER_BYTES), st.sampled_from(sorted(BUS_LAYOUTS)))
def test_any_bytes_are_refused_or_valid(data: bytes, kind: int) -> None:
    frame = bytearray(data)
    if len(frame) > KIND_OFFSET:
        frame[KIND_OFFSET] = kind
    try:
        read, header = decode_bus(frame)
    except RemoteError:
        return
    assert BUS_LAYOUTS[read].encode(header) == frame[:HEADER_BYTES]


@pytest.mark.parametrize(
    ("kind", "changed", "text"),
    [
        (FrameKind.FORWARDED_REQUEST, {"ticket": 0}, "ticket"),
        (FrameKind.FORWARDED_REQUEST, {"timeout": 0}, "timeout"),
        (FrameKind.FORWARDED_REQUEST, {"connection": 0}, "connection"),
        (FrameKind.FORWARDED_REQUEST, {"group": METADATA_GROUP + 1}, "group"),
        (FrameKind.FORWARDED_REQUEST, {"home": NOBODY}, "home"),
        (FrameKind.FORWARDED_REQUEST, {"operation": 255}, "operation"),
        (FrameKind.FORWARDED_REQUEST, {"is_anew": 2}, "anew"),
        (FrameKind.FORWARDED_REQUEST, {"transport": 0}, "transport"),
        (FrameKind.FORWARDED_REQUEST, {"commit": OP_MAX + 1}, "commit"),
        (FrameKind.FORWARDED_REPLY, {"ticket": 0}, "ticket"),
        (FrameKind.FORWARDED_REPLY, {"body": PREPARED}, "frame for the client"),
        (FrameKind.FORWARDED_REPLY, {"body": ANSWER + b"x"}, "whole frame"),
        (FrameKind.FORWARDED_REPLY, {"body": b""}, "whole frame"),
        (FrameKind.CONNECTION_SETUP, {"connection": 0}, "connection"),
        (FrameKind.CONNECTION_SETUP, {"transport": Transport.QUIC}, "handed over"),
        (FrameKind.CONNECTION_SETUP, {"body": b"\xff"}, "UTF-8"),
        (FrameKind.CONNECTION_SETUP, {"body": bytes(NAME_BYTES_MAX + 1)}, "at most"),
        (FrameKind.REPLICA_INBOUND_DONE, {"body": b"x"}, "no body"),
        (FrameKind.FORWARD_REPLICA_SEND, {"to_replica": 6}, "largest cluster"),
        (FrameKind.FORWARD_REPLICA_SEND, {"body": ANSWER}, "frame for a replica"),
        (FrameKind.CONNECTION_ORDER, {"number": 0}, "number"),
        (FrameKind.CONNECTION_ORDER, {"order": 6}, "order is known"),
        (FrameKind.CONNECTION_ORDER, {"order": Order.DISTRUST}, "no body"),
        (FrameKind.CONNECTION_ORDER, {"order": Order.TRUST}, "client and session"),
        (FrameKind.CONNECTION_ORDER, {"order": Order.SEND, "body": b""}, "whole frame"),
        (FrameKind.CONNECTION_ORDER, {"order": Order.CLOSE, "body": b"\xff"}, "UTF-8"),
        (FrameKind.CONNECTION_GONE, {"number": 0}, "number"),
        (FrameKind.FEED_OP, {"op": 5}, "previous < op"),
        (FrameKind.FEED_OP, {"op": OP_MAX + 1}, "in range"),
        (FrameKind.FEED_OP, {"body": ANSWER}, "whole prepare"),
        (FrameKind.FEED_IMAGE, {"op": 10}, "op <= commit"),
        (FrameKind.FEED_IMAGE, {"commit": OP_MAX + 1}, "in range"),
        (FrameKind.FEED_IMAGE, {"total": 14}, "within the image"),
        (FrameKind.FEED_IMAGE, {"body": b""}, "within the image"),
        (FrameKind.FEED_ASK, {"is_lacking": 2}, "flag"),
        (FrameKind.FEED_ASK, {"has_image": 2}, "flag"),
        (FrameKind.FEED_ASK, {"op": 8}, "op <= commit"),
        (FrameKind.FEED_POINT, {"commit": OP_MAX + 1}, "in range"),
        (FrameKind.GATHER, {"subject": 0}, "subject"),
        (FrameKind.GATHER, {"subject": 1}, "subject"),
        (FrameKind.GATHER, {"commit": OP_MAX + 1}, "in range"),
        (FrameKind.GATHERED, {"number": 0}, "number"),
        (FrameKind.FEED_POINT, {"checksum": 1}, "no checksum"),
        (FrameKind.FEED_POINT, {"release": 1}, "release"),
        (FrameKind.FEED_POINT, {"replica": 6}, "replica"),
    ],
)
def test_a_broken_rule_is_named(kind: int, changed: dict[str, Any], text: str) -> None:
    with pytest.raises(RemoteError, match=text):
        decode_bus(bus_frame(kind, **changed))


@pytest.mark.parametrize("order", [Order.TRUST, Order.DISTRUST, Order.END])
def test_an_order_without_a_body(order: Order) -> None:
    who = {"client": 7, "session": 9} if order == Order.TRUST else {}
    kind, header = decode_bus(bus_frame(FrameKind.CONNECTION_ORDER, b"", order=order, **who))
    assert kind == FrameKind.CONNECTION_ORDER
    assert getattr(header, "connection", 0) == CONNECTION


def test_an_order_to_close_names_the_reason() -> None:
    frame = bus_frame(FrameKind.CONNECTION_ORDER, b"the user is gone", order=Order.CLOSE)
    assert decode_bus(frame)[0] == FrameKind.CONNECTION_ORDER


@every_kind
def test_neither_clients_nor_replicas_may_send_it(kind: int) -> None:
    """The plane of the bus is closed to both."""
    frame = bus_frame(kind)
    with pytest.raises(RemoteError):
        REQUEST.decode(frame)
    with pytest.raises(RemoteError, match="no frame of a replica"):
        decode_replica(frame)


def test_frames_of_other_planes_are_none_of_the_bus() -> None:
    for frame in (PREPARED, ANSWER):
        with pytest.raises(RemoteError, match="no frame of the bus"):
            decode_bus(frame)
        assert ticket_of(frame) == 0


# The prefix.


@given(
    st.integers(HEADER_BYTES, FRAME_BYTES_MAX),
    st.integers(0, GATEWAY),
    st.integers(0, GATEWAY),
)
def test_a_prefix_is_read_as_it_was_written(size: int, target: int, sender: int) -> None:
    """SH-15: a frame names the member that it was sent to."""
    if target == sender:
        return
    data = b"before" + encode_prefix(size, target=target, sender=sender)
    read = decode_prefix(data, 6, sender=sender, frame_bytes_max=FRAME_BYTES_MAX)
    assert read == (size, target)


@given(st.binary(max_size=PREFIX_BYTES + 2))
def test_a_prefix_of_any_bytes_is_refused_or_within_the_bounds(data: bytes) -> None:
    try:
        size, target = decode_prefix(data, 0, sender=0, frame_bytes_max=1000)
    except RemoteError:
        return
    assert HEADER_BYTES <= size <= 1000
    assert is_member(target) or target == NOBODY


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        (b"1234567", "prefix of 7 bytes"),
        (encode_prefix(1001, target=1, sender=2), "frame of 1001 bytes, allowed 256 to 1000"),
        (bytes(8), "frame of 0 bytes"),
        (encode_prefix(1000, target=1, sender=3), "member 3 on the lane of member 2"),
    ],
)
def test_a_wrong_prefix_says_what_is_wrong(prefix: bytes, text: str) -> None:
    with pytest.raises(RemoteError, match=text):
        decode_prefix(prefix, 0, sender=2, frame_bytes_max=1000)


# The page.


def own_places(layout: Layout[Any]) -> dict[str, tuple[int, int]]:
    names = [each for each in layout.made.__struct_fields__ if each not in Header.__struct_fields__]
    spans = {name: layout.span(name) for name in names}
    return {name: (span.start, span.stop - span.start) for name, span in spans.items()}


def test_the_page_names_every_kind() -> None:
    told = {
        int(kind): name for kind, name in re.findall(r"^\| ([0-9]+) \| `([A-Z_]+)` \|", PAGE, re.M)
    }
    assert told == {kind: FrameKind(kind).name for kind in BUS_LAYOUTS}


def test_the_page_says_where_fields_are() -> None:
    told: dict[int, dict[str, tuple[int, int]]] = {}
    for kind, fields in re.findall(r"^\| ([0-9]+) \| ([0-9]+ \w+ u[^|]*) \|", PAGE, re.M):
        found = re.findall(r"([0-9]+) (\w+) u([0-9]+)", fields)
        told[int(kind)] = {name: (int(at), int(bits) // 8) for at, name, bits in found}
    for title, kind in (("The envelope", 32), ("The reply", 33)):
        _, _, section = PAGE.partition(f"### {title} ({kind})")
        rows = re.findall(
            r"^\| ([0-9]+) \| ([0-9]+) \| (\w+) \|", section.partition("###")[0], re.M
        )
        told[kind] = {name: (int(at), int(width)) for at, width, name in rows}
    assert told == {kind: own_places(layout) for kind, layout in BUS_LAYOUTS.items()}


def test_operations_of_the_envelope_are_those_of_requests() -> None:
    for operation in Operation:
        decode_bus(bus_frame(FrameKind.FORWARDED_REQUEST, operation=operation))
