"""What replicas send each other: headers, seals, handshake, transfer."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.checksum import xxh3_64
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.wire.bus.decode import BUS_LAYOUTS
from headrace.wire.errors import CorruptError, RemoteError
from headrace.wire.layout import KIND_OFFSET, VIEW, Header, Layout
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.artifacts import (
    Artifact,
    ClientEntry,
    decode_client_table,
    decode_manifest,
    encode_client_table,
    encode_manifest,
)
from headrace.wire.replica.decode import decode_replica, decode_suffix, encode_suffix
from headrace.wire.replica.handshake import (
    CHALLENGE,
    FINISH,
    HELLO,
    HandshakeHeader,
    Link,
    cluster_id,
    derive_key,
    make_mac,
)
from headrace.wire.replica.heartbeats import (
    NODE_HEARTBEAT,
    GroupBeat,
    NodeHeartbeatHeader,
    encode_beats,
)
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replica.prepares import PREPARE, REPAIR_PREPARE, PrepareHeader
from headrace.wire.replica.seals import body_checksum, is_sealed, seal
from headrace.wire.replica.views import (
    DO_VIEW_CHANGE,
    START_VIEW,
    DoViewChangeHeader,
    StartViewHeader,
)

BODY = b"body"
_PREPARE = {"op": 7, "commit": 6, "operation": 128, "checksum_body": int(xxh3_64(BODY))}
# Fields that make a header of each kind one that its rules allow; the rest is drawn at random.
LAWFUL: dict[FrameKind, dict[str, int]] = {
    FrameKind.PREPARE: _PREPARE,
    FrameKind.REPAIR_PREPARE: _PREPARE,
    FrameKind.PREPARE_OK: {"op": 7, "commit": 7},
    FrameKind.DO_VIEW_CHANGE: {
        "view": 4,
        "log_view": 3,
        "op": 7,
        "commit": 7,
        "nack_bitset": 0,
        "present_bitset": 0,
    },
    FrameKind.START_VIEW: {"op": 7, "commit": 7},
    FrameKind.NODE_HEARTBEAT: {
        "checksum_body": int(
            xxh3_64(encode_beats([GroupBeat(METADATA_GROUP, 1, 2, is_declined=False)]))
        )
    },
    FrameKind.STATE_TRANSFER_TARGET: {"available": 1},
    FrameKind.STATE_CHUNK: {"checksum_body": int(xxh3_64(BODY))},
    FrameKind.REQUEST_PREPARES: {"from_op": 1, "to_op": 9},
    FrameKind.REQUEST_STATE_CHUNK: {"length": 1},
    FrameKind.FORWARD_REGISTER: {"client": 5},
    FrameKind.FORWARD_LOGOUT: {"client": 5},
    FrameKind.FORWARD_REGISTER_RESULT: {"outcome": 6},
    FrameKind.FORWARD_LOGOUT_RESULT: {"outcome": 4},
}
every_kind = pytest.mark.parametrize("kind", sorted(LAYOUTS), ids=lambda kind: FrameKind(kind).name)


def lawful(kind: int, **fields: int) -> bytes:
    layout = LAYOUTS[kind]
    body = lawful_body(FrameKind(kind))
    known = {"size": HEADER_BYTES + len(body), "replica": 1}
    known |= LAWFUL.get(FrameKind(kind), {}) | fields
    if "group" in layout.made.__struct_fields__:
        known = {"group": METADATA_GROUP} | known
    return seal(layout.encode(layout.made(**known))) + body


def suffix_of(headers: Iterable[PrepareHeader | None]) -> bytes:
    return encode_suffix(None if each is None else PREPARE.encode(each) for each in headers)


def lawful_body(kind: FrameKind) -> bytes:
    if kind in (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE, FrameKind.STATE_CHUNK):
        return BODY
    if kind in (FrameKind.DO_VIEW_CHANGE, FrameKind.START_VIEW):
        return suffix_of((sealed_prepare(7),))
    if kind == FrameKind.NODE_HEARTBEAT:
        return encode_beats([GroupBeat(METADATA_GROUP, 1, 2, is_declined=False)])
    return encode_manifest(()) if kind == FrameKind.STATE_TRANSFER_TARGET else b""


def test_every_kind_between_replicas_has_a_layout() -> None:
    handshake = [FrameKind.REPLICA_HELLO, FrameKind.REPLICA_CHALLENGE, FrameKind.REPLICA_FINISH]
    client = [FrameKind.REQUEST, FrameKind.REPLY, FrameKind.EVICTION]
    assert sorted([*LAYOUTS, *handshake, *client, *BUS_LAYOUTS]) == list(FrameKind)


@every_kind
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read(kind: int, data: st.DataObject) -> None:
    layout = LAYOUTS[kind]
    common = Header.__struct_fields__
    drawn = {
        name: data.draw(st.integers(0, 255), label=name)
        for name in layout.made.__struct_fields__
        if name not in common
    }
    header = layout.made(**drawn, view=9, cluster=2**127)
    assert layout.decode(layout.encode(header)) == header


@every_kind
def test_a_lawful_header_is_taken(kind: int) -> None:
    found, header = decode_replica(lawful(kind))
    assert found == kind
    assert header.replica == 1


@every_kind
@pytest.mark.slow
def test_one_flipped_byte_is_always_noticed(kind: int) -> None:
    """NW9: whatever is damaged on the way is dropped by its checksum.

    The view of a prepare is outside its identity, and a prepare and its repair share one.
    """
    frame = lawful(kind)
    outside = range(52, 56) if kind in (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE) else range(0)
    for position in range(HEADER_BYTES):
        if position in outside:
            continue
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(frame)
            damaged[position] ^= mask
            with pytest.raises(RemoteError):
                decode_replica(damaged)


def test_a_prepare_sent_again_is_still_the_same() -> None:
    prepare = PrepareHeader(
        op=3,
        commit=2,
        group=METADATA_GROUP,
        operation=128,
        checksum_body=xxh3_64(BODY),
        size=HEADER_BYTES + len(BODY),
    )
    sealed = seal(PREPARE.encode(prepare)) + BODY
    later = bytearray(sealed)
    later[VIEW] = (8).to_bytes(4, "little")
    repair = bytearray(sealed)
    repair[KIND_OFFSET] = FrameKind.REPAIR_PREPARE
    assert is_sealed(later)
    assert is_sealed(repair)
    assert decode_replica(repair)[0] == FrameKind.REPAIR_PREPARE
    assert REPAIR_PREPARE.decode(repair).op == 3


def test_what_covers_the_body_of_a_prepare() -> None:
    """O3.1: a batch is covered by its own checksum, every other body by XXH3-64."""
    batch = bytes(40) + (77).to_bytes(8, "little") + bytes(300)
    assert body_checksum(Operation.SEND_MESSAGES, batch) == 77
    assert body_checksum(Operation.CREATE_STREAM, batch) == xxh3_64(batch)


def test_an_unsealed_header_is_refused() -> None:
    """Two zero values that agree prove nothing."""
    with pytest.raises(RemoteError, match="wrong checksum"):
        decode_replica(PREPARE.encode(PrepareHeader(op=1)))


@pytest.mark.parametrize(
    ("kind", "fields", "rule"),
    [
        (FrameKind.RECOVERY_REPORT, {"release": 1}, "release is 0"),
        (FrameKind.RECOVERY_REPORT, {"replica": 6}, "replica is below"),
        (FrameKind.RECOVERY_REPORT, {"size": 300}, "size is that of the frame"),
        (FrameKind.RECOVERY_REPORT, {"group": 999_999 + 1}, "group exists"),
        (FrameKind.RECOVERY_REPORT, {"group": 2**63 + 1}, "group exists"),
        (FrameKind.PREPARE, {"commit": 7}, "commit < op"),
        (FrameKind.PREPARE, {"op": 0, "commit": 0}, "commit < op"),
        (FrameKind.PREPARE, {"operation": 200}, "operation is known"),
        (FrameKind.PREPARE, {"checksum_body": 0}, "body has a checksum"),
        (FrameKind.PREPARE_OK, {"op": 0, "commit": 0}, "1 <= op"),
        (FrameKind.PREPARE_OK, {"commit": 8}, "commit <= op"),
        (FrameKind.DO_VIEW_CHANGE, {"log_view": 5}, "log_view <= view"),
        (FrameKind.DO_VIEW_CHANGE, {"commit": 8}, "commit <= op"),
        (FrameKind.DO_VIEW_CHANGE, {"nack_bitset": 2}, "bits within the suffix"),
        (FrameKind.START_VIEW, {"commit": 8}, "commit <= op"),
        (FrameKind.RECOVERY_REPORT, {"view": 1 << 31}, "view is in range"),
        (FrameKind.PREPARE, {"op": 1 << 62, "commit": (1 << 62) - 1}, "op is in range"),
        (FrameKind.PREPARE, {"op": 134, "commit": 6}, "no more ops in flight"),
        (FrameKind.PREPARE, {"timestamp": 1 << 62}, "timestamp is in range"),
        (FrameKind.PREPARE, {"checksum_body": 1}, "body of a PREPARE is that of its header"),
        (FrameKind.PREPARE_OK, {"op": 1 << 62}, "op is in range"),
        (FrameKind.DO_VIEW_CHANGE, {"op": 1 << 62}, "op is in range"),
        (FrameKind.DO_VIEW_CHANGE, {"commit": 6}, "suffix from op to commit"),
        (FrameKind.DO_VIEW_CHANGE, {"op": 8}, "suffix in the order of its ops"),
        (FrameKind.DO_VIEW_CHANGE, {"group": 1}, "suffix of the same group"),
        (FrameKind.DO_VIEW_CHANGE, {"cluster": 1}, "suffix of the same cluster"),
        (FrameKind.START_VIEW, {"commit": 6}, "suffix down to commit"),
        (FrameKind.START_VIEW, {"op": 1 << 62}, "op is in range"),
        (FrameKind.REQUEST_START_VIEW, {"is_wiped": 2}, "wiped is a flag"),
        (FrameKind.REQUEST_PREPARES, {"to_op": 1 << 62}, "to_op is in range"),
        (FrameKind.STATE_TRANSFER_TARGET, {"commit_op": 1 << 62}, "commit_op is in range"),
        (FrameKind.STATE_TRANSFER_TARGET, {"available": 2}, "flags are flags"),
        (FrameKind.STATE_TRANSFER_TARGET, {"available": 0}, "a manifest if"),
        (FrameKind.STATE_CHUNK, {"checksum_body": 1}, "the body is that of the header"),
        (FrameKind.NODE_HEARTBEAT, {"checksum_body": 1}, "the body is that of the header"),
        (FrameKind.RECOVERY_REPORT, {"commit": 1 << 62}, "commit is in range"),
        (FrameKind.REQUEST_PREPARES, {"from_op": 0}, "1 <= from_op"),
        (FrameKind.REQUEST_PREPARES, {"to_op": 0}, "from_op <= to_op"),
        (FrameKind.REQUEST_STATE_CHUNK, {"length": 0}, "length is not 0"),
        (FrameKind.FORWARD_REGISTER, {"client": 0}, "client is not 0"),
        (FrameKind.FORWARD_LOGOUT, {"client": 0}, "client is not 0"),
        (FrameKind.FORWARD_REGISTER_RESULT, {"outcome": 7}, "outcome is known"),
        (FrameKind.FORWARD_LOGOUT_RESULT, {"outcome": 5}, "outcome is known"),
    ],
)
def test_what_breaks_a_rule(kind: FrameKind, fields: dict[str, int], rule: str) -> None:
    with pytest.raises(RemoteError, match=rule):
        decode_replica(lawful(kind, **fields))


def test_a_body_where_none_belongs() -> None:
    with pytest.raises(RemoteError, match="no body"):
        decode_replica(lawful(FrameKind.RECOVERY_REPORT, size=HEADER_BYTES + 1) + b"x")


@pytest.mark.parametrize(
    "body",
    [
        bytes(31),
        bytes(33),
        encode_beats([GroupBeat(METADATA_GROUP + 1, 1, 2, is_declined=False)]),
        encode_beats([GroupBeat(METADATA_GROUP, 1 << 31, 2, is_declined=False)]),
        encode_beats([GroupBeat(METADATA_GROUP, 1, 1 << 62, is_declined=False)]),
        bytes(28) + (8).to_bytes(4, "little"),
    ],
)
def test_beats_that_no_node_can_say(body: bytes) -> None:
    header = NodeHeartbeatHeader(size=HEADER_BYTES + len(body), checksum_body=xxh3_64(body))
    with pytest.raises(RemoteError):
        decode_replica(seal(NODE_HEARTBEAT.encode(header)) + body)


def test_an_announced_log_has_no_gap() -> None:
    body = suffix_of((sealed_prepare(7), None, sealed_prepare(5)))
    header = StartViewHeader(size=HEADER_BYTES + len(body), op=7, commit=5, group=METADATA_GROUP)
    with pytest.raises(RemoteError, match="without blanks"):
        decode_replica(seal(START_VIEW.encode(header)) + body)


def test_a_suffix_that_is_no_chain() -> None:
    body = suffix_of((sealed_prepare(7), sealed_prepare(6)))
    header = DoViewChangeHeader(
        size=HEADER_BYTES + len(body), view=1, op=7, commit=6, group=METADATA_GROUP
    )
    with pytest.raises(RemoteError, match="suffix is a chain"):
        decode_replica(seal(DO_VIEW_CHANGE.encode(header)) + body)


@pytest.mark.parametrize("frame", [b"", bytes(256), bytes(60) + b"\x05" + bytes(195)])
def test_what_is_no_frame_of_a_replica(frame: bytes) -> None:
    with pytest.raises(RemoteError, match="no frame of a replica"):
        decode_replica(frame)


def sealed_prepare(op: int) -> PrepareHeader:
    return PREPARE.decode(lawful(FrameKind.PREPARE, op=op, commit=op - 1))


def test_a_suffix_keeps_its_blanks() -> None:
    suffix = (sealed_prepare(9), None, sealed_prepare(7))
    body = suffix_of(suffix)
    assert len(body) == 3 * HEADER_BYTES
    assert decode_suffix(body) == suffix
    vote = DoViewChangeHeader(
        size=HEADER_BYTES + len(body),
        view=2,
        op=9,
        commit=7,
        group=METADATA_GROUP,
        nack_bitset=0b010,
        present_bitset=0b101,
    )
    frame = seal(DO_VIEW_CHANGE.encode(vote)) + body
    assert decode_replica(frame)[1].size == len(frame)


def test_what_is_no_suffix() -> None:
    body = suffix_of((sealed_prepare(9),))
    damaged = bytearray(body)
    damaged[PREPARE.at("op")] ^= 1
    for each in (body[:-1], bytes(129 * HEADER_BYTES), damaged):
        with pytest.raises(RemoteError):
            decode_suffix(each)


LINK = Link(
    cluster=cluster_id("orders"),
    dialer=0,
    acceptor=2,
    dialer_nonce=bytes(range(32)),
    acceptor_nonce=bytes(range(32, 64)),
)


def test_a_mac_binds_all_that_the_ends_agreed_on() -> None:
    key = derive_key(b"s" * 32)
    others = [
        make_mac(derive_key(b"t" * 32), LINK, by_dialer=True),
        make_mac(key, LINK, by_dialer=False),
    ]
    for name, value in {
        "cluster": 1,
        "dialer": 1,
        "acceptor": 1,
        "dialer_nonce": bytes(32),
        "acceptor_nonce": bytes(32),
        "exporter": bytes(32),
    }.items():
        fields = {field: getattr(LINK, field) for field in LINK.__struct_fields__}
        others.append(make_mac(key, Link(**fields | {name: value}), by_dialer=True))
    mac = make_mac(key, LINK, by_dialer=True)
    assert len(mac) == 32
    assert mac not in others
    assert len(dict.fromkeys(others)) == len(others)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32"):
        derive_key(b"short")


@pytest.mark.parametrize("layout", [HELLO, CHALLENGE, FINISH])
def test_handshake_frames(layout: Layout[HandshakeHeader]) -> None:
    header = HandshakeHeader(replica=3, nonce=b"n" * 32, mac=b"m" * 32, status=2)
    data = bytearray(layout.encode(header))
    assert data[128:160] == b"n" * 32
    assert data[160:192] == b"m" * 32
    assert data[192] == 2
    assert layout.decode(data) == header
    data[200] = 1
    with pytest.raises(RemoteError, match="reserved"):
        layout.decode(data)


ARTIFACTS = st.lists(
    st.builds(
        Artifact,
        st.integers(0, 255),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
    ),
    max_size=4,
).map(tuple)
CLIENTS = st.lists(
    st.builds(
        ClientEntry,
        client=st.integers(0, 2**128 - 1),
        epoch=st.integers(0, 2**64 - 1),
        user_id=st.integers(0, 2**32 - 1),
        watermark=st.integers(0, 2**64 - 1),
        watermark_checksum=st.integers(0, 2**128 - 1),
        is_connected=st.booleans(),
        replies=st.lists(st.binary(max_size=20), max_size=5).map(tuple),
    ),
    max_size=3,
).map(tuple)


@given(ARTIFACTS)
def test_manifests(artifacts: tuple[Artifact, ...]) -> None:
    assert decode_manifest(encode_manifest(artifacts)) == artifacts


@given(CLIENTS)
def test_client_tables(entries: tuple[ClientEntry, ...]) -> None:
    assert decode_client_table(encode_client_table(entries)) == entries


@settings(max_examples=30)
@given(ARTIFACTS, CLIENTS, st.data())
def test_one_flipped_byte_of_a_transfer_is_always_noticed(
    artifacts: tuple[Artifact, ...], entries: tuple[ClientEntry, ...], data: st.DataObject
) -> None:
    """DK10 for what travels between replicas."""
    for whole, decode in (
        (encode_manifest(artifacts), decode_manifest),
        (encode_client_table(entries), decode_client_table),
    ):
        damaged = bytearray(whole)
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises(CorruptError):
            decode(damaged)
        with pytest.raises(CorruptError):
            decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_a_manifest_of_a_newer_peer_has_longer_entries() -> None:
    artifact = Artifact(2, 3, 4, 5)
    ours = encode_manifest((artifact,))
    longer = ours[:8] + bytes([30]) + ours[9:34] + b"extra"
    assert decode_manifest(longer + checksum(longer)) == (artifact,)


def checksum(data: bytes) -> bytes:
    return xxh3_64(data).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("count", "entry_bytes"), [(2, 25), (1, 24), (1, 0), (65_537, 25), (2**32 - 1, 25)]
)
def test_a_manifest_whose_numbers_do_not_fit(count: int, entry_bytes: int) -> None:
    body = b"HSM1" + count.to_bytes(4, "little") + bytes([entry_bytes]) + bytes(25)
    with pytest.raises(CorruptError, match="manifest of"):
        decode_manifest(body + checksum(body))


def test_a_client_table_whose_numbers_do_not_fit() -> None:
    def table(count: int, rest: bytes) -> bytes:
        body = b"HCT1" + count.to_bytes(4, "little") + rest
        return body + checksum(body)

    for damaged in (table(2**32 - 1, b""), table(1, bytes(53) + b"\x06"), table(0, b"x")):
        with pytest.raises(CorruptError):
            decode_client_table(damaged)
    entry = ClientEntry(
        client=1, epoch=1, user_id=1, watermark=1, watermark_checksum=1, replies=(b"",) * 6
    )
    with pytest.raises(ValueError, match="limit 5"):
        encode_client_table((entry,))
    with pytest.raises(ValueError, match="limit 65536"):
        encode_manifest((Artifact(0, 0, 0, 0),) * 65_537)
