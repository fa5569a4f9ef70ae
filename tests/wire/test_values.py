"""Identifiers, typed fields, options, permissions, versions."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.codec import Codec, decode, decode_exactly, encode
from headrace.wire.errors import Code, DecodeError, RefusedError
from headrace.wire.fields import (
    FIELD,
    Field,
    FieldKind,
    FieldValue,
    decode_user_headers,
    encode_user_headers,
    make_field,
)
from headrace.wire.identifiers import (
    IDENTIFIER,
    PARTITIONING,
    STRATEGY,
    ByKey,
    Identifier,
    ToPartition,
)
from headrace.wire.options import OPTIONS, Option, make_options
from headrace.wire.permissions import (
    ANSWERED_PERMISSIONS,
    OPTIONAL_PERMISSIONS,
    PERMISSIONS,
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from headrace.wire.topic_options import TOPIC_OPTIONS, UNLIMITED, canonical_option
from headrace.wire.versions import (
    PROTOCOL,
    Version,
    is_compatible,
    pack_version,
    unpack_version,
)
from tests.wire.values import FIELDS


@pytest.mark.parametrize(
    ("identifier", "data"), [(0, "010400000000"), (7, "010407000000"), ("s1", "02027331")]
)
def test_identifiers(identifier: Identifier, data: str) -> None:
    assert encode(IDENTIFIER, identifier).hex() == data
    assert decode_exactly(IDENTIFIER, bytes.fromhex(data)) == identifier


@pytest.mark.parametrize("data", ["", "01", "0103000000", "0200", "0302aabb", "0202ff", "0201ff"])
def test_what_is_no_identifier(data: str) -> None:
    with pytest.raises(DecodeError):
        decode(IDENTIFIER, bytes.fromhex(data))


@pytest.mark.parametrize("identifier", [-1, 2**32, "", "x" * 256, "ä" * 128])
def test_what_cannot_be_an_identifier(identifier: Identifier) -> None:
    with pytest.raises(ValueError, match=r"allowed|within"):
        encode(IDENTIFIER, identifier)


@pytest.mark.parametrize("data", ["0101aa", "0203aabbcc", "0300", "0400"])
def test_what_is_no_partitioning(data: str) -> None:
    with pytest.raises(DecodeError):
        decode(PARTITIONING, bytes.fromhex(data))


def test_partitionings() -> None:
    assert encode(PARTITIONING, ToPartition(5)).hex() == "020405000000"
    with pytest.raises(ValueError, match="key"):
        encode(PARTITIONING, ByKey(b""))


@pytest.mark.parametrize("kind", [0, 6])
def test_what_is_no_strategy(kind: int) -> None:
    with pytest.raises(DecodeError):
        decode(STRATEGY, bytes([kind]) + bytes(8))


@pytest.mark.parametrize(
    ("value", "kind", "data"),
    [
        (b"\0", FieldKind.RAW, "00"),
        ("ä", FieldKind.STRING, "c3a4"),
        (True, FieldKind.BOOL, "01"),
        (1, FieldKind.UINT8, "01"),
        (256, FieldKind.UINT16, "0001"),
        (2**32 - 1, FieldKind.UINT32, "ffffffff"),
        (2**64 - 1, FieldKind.UINT64, "ff" * 8),
        (2**128 - 1, FieldKind.UINT128, "ff" * 16),
        (-1, FieldKind.INT8, "ff"),
        (-128, FieldKind.INT8, "80"),
        (-129, FieldKind.INT16, "7fff"),
        (-(2**127), FieldKind.INT128, "00" * 15 + "80"),
        (1.5, FieldKind.FLOAT32, struct.pack("<f", 1.5).hex()),
        (0.1, FieldKind.FLOAT64, struct.pack("<d", 0.1).hex()),
        (1e300, FieldKind.FLOAT64, struct.pack("<d", 1e300).hex()),
    ],
)
def test_a_plain_value_takes_the_smallest_kind(
    value: FieldValue, kind: FieldKind, data: str
) -> None:
    field = make_field(value)
    assert field == Field(kind, bytes.fromhex(data))
    assert field.value == value


def test_an_explicit_kind_is_kept() -> None:
    assert make_field(1, FieldKind.INT64).data == b"\1" + bytes(7)
    assert make_field(2.5, FieldKind.FLOAT64).value == 2.5


@pytest.mark.parametrize(
    ("value", "kind"),
    [(300, FieldKind.UINT8), (-1, FieldKind.UINT8), (1e300, FieldKind.FLOAT32), (2**128, None)],
)
def test_a_value_that_does_not_fit(value: FieldValue, kind: FieldKind | None) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        make_field(value, kind)


@pytest.mark.parametrize(
    ("value", "kind"), [("1", FieldKind.UINT8), (True, FieldKind.UINT8), (1, FieldKind.STRING)]
)
def test_a_value_of_another_type(value: FieldValue, kind: FieldKind) -> None:
    with pytest.raises(TypeError):
        make_field(value, kind)


@pytest.mark.parametrize("value", ["", b"", "x" * 256])
def test_a_value_out_of_bounds(value: FieldValue) -> None:
    with pytest.raises(ValueError, match="allowed 1 to 255"):
        make_field(value)


@pytest.mark.parametrize("kind", [3, 4, 8, 9, 13, 14, 15])
def test_bytes_that_do_not_fit_their_kind(kind: int) -> None:
    with pytest.raises(DecodeError, match="wanted"):
        _ = Field(kind, b"abc").value


def test_a_kind_we_do_not_know_passes() -> None:
    field = Field(200, b"abc")
    assert field.value == b"abc"
    assert decode(FIELD, encode(FIELD, field)) == field


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=5))
def test_user_headers(headers: list[tuple[Field, Field]]) -> None:
    data = encode_user_headers(headers)
    assert decode_user_headers(data) == tuple(headers)
    if headers:
        with pytest.raises(DecodeError):
            decode_user_headers(data[:-1])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("000100000061", Code.INVALID_HEADER_KIND),
        ("0200000000", Code.INVALID_KEY_VALUE_LENGTH),
        ("0200010000" + "61" * 256, Code.INVALID_KEY_VALUE_LENGTH),
        ("02ffffffff", Code.INVALID_KEY_VALUE_LENGTH),
        ("0202000000", Code.INVALID_COMMAND),
        ("020100000061", Code.INVALID_COMMAND),
    ],
)
def test_what_are_no_user_headers(data: str, code: Code) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_user_headers(bytes.fromhex(data))
    assert caught.value.code == code


def test_options_are_sent_in_ascending_order() -> None:
    options = make_options({"durability": "replicated", "consumer_offset_durability": "replicated"})
    assert [option.key for option in options] == ["consumer_offset_durability", "durability"]


def test_an_option_stands_once() -> None:
    data = encode(OPTIONS, (Option("a", make_field(1)),))
    with pytest.raises(DecodeError) as caught:
        decode(OPTIONS, data + data)
    assert caught.value.code == Code.INVALID_OPTION_VALUE
    with pytest.raises(ValueError, match="keys of their own"):
        encode(OPTIONS, (Option("a", make_field(1)), Option("a", make_field(2))))


def test_options_have_bounds() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(OPTIONS, bytes(100_001))
    assert caught.value.code == Code.OPTIONS_BLOCK_TOO_LARGE
    many = tuple(Option(str(number), make_field(1)) for number in range(1025))
    with pytest.raises(ValueError, match="at most 1024"):
        encode(OPTIONS, many)
    block = b"".join(encode(OPTIONS, (option,)) for option in many)
    with pytest.raises(DecodeError) as caught:
        decode(OPTIONS, block)
    assert caught.value.code == Code.OPTIONS_BLOCK_TOO_LARGE
    large = tuple(Option(str(number), make_field("x" * 255)) for number in range(400))
    with pytest.raises(ValueError, match="limit 100000"):
        encode(OPTIONS, large)


def test_an_option_key_is_text() -> None:
    block = encode(FIELD, make_field(7)) + encode(FIELD, make_field(1))
    with pytest.raises(DecodeError) as caught:
        decode(OPTIONS, block)
    assert caught.value.code == Code.UNSUPPORTED_OPTION_KEY


@pytest.mark.parametrize(
    ("key", "sent", "kept"),
    [
        ("message_expiry", make_field("7 days"), make_field(604_800_000_000, FieldKind.UINT64)),
        ("message_expiry", make_field("never"), make_field(UNLIMITED, FieldKind.UINT64)),
        ("max_topic_size", make_field("1 GiB"), make_field(1 << 30, FieldKind.UINT64)),
        ("max_topic_size", make_field("unlimited"), make_field(UNLIMITED, FieldKind.UINT64)),
        ("segment_size", make_field(1 << 20, FieldKind.UINT64), None),
        ("messages_required_to_save", make_field("10"), make_field(10, FieldKind.UINT32)),
        ("preallocate_segments", make_field("true"), make_field(True)),
        ("preallocate_segments", make_field(False), None),
        ("durability", make_field("persisted"), None),
        ("consumer_offset_durability", make_field("replicated"), None),
        ("compression_algorithm", make_field("gzip"), None),
    ],
)
def test_topic_options_become_canonical(key: str, sent: Field, kept: Field | None) -> None:
    assert canonical_option(Option(key, sent)).value == (sent if kept is None else kept)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message_expiry", make_field("soon")),
        ("message_expiry", make_field(5)),
        ("message_expiry", Field(FieldKind.UINT64, b"abc")),
        ("segment_size", make_field("1 KiB")),
        ("segment_size", make_field((1 << 20) + 1, FieldKind.UINT64)),
        ("segment_size", make_field("2 GiB")),
        ("messages_required_to_save", make_field(0, FieldKind.UINT32)),
        ("preallocate_segments", make_field("yes")),
        ("durability", make_field("eventual")),
        ("compression_algorithm", make_field("lz4")),
    ],
)
def test_topic_options_with_values_they_cannot_have(key: str, value: Field) -> None:
    with pytest.raises(RefusedError) as caught:
        canonical_option(Option(key, value))
    assert caught.value.code == Code.INVALID_OPTION_VALUE
    assert caught.value.facts["key"] == key


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        canonical_option(Option("zone", make_field("eu")))
    assert caught.value.code == Code.UNSUPPORTED_OPTION_KEY


def test_every_default_is_one_that_its_option_allows() -> None:
    for option in TOPIC_OPTIONS.values():
        field = make_field(option.default, option.kind)
        assert canonical_option(Option(option.key, field)).value == field


GOLDEN_PERMISSIONS = Permissions(
    everywhere=GlobalPermissions(read_servers=True, send_messages=True),
    streams=(
        StreamPermissions(
            stream_id=1,
            manage_stream=True,
            topics=(
                TopicPermissions(topic_id=2, read_topic=True),
                TopicPermissions(topic_id=3, poll_messages=True),
            ),
        ),
        StreamPermissions(stream_id=5, send_messages=True),
    ),
)
GOLDEN_PERMISSIONS_BYTES = bytes.fromhex(
    "00010000000000000001 01 01000000 010000000000 01 02000000 00010000 01"
    "03000000 00000100 00 01 05000000 000000000001 00 00"
)


def test_permissions_as_the_released_sdk_sends_them() -> None:
    assert len(GOLDEN_PERMISSIONS_BYTES) == 53
    assert encode(PERMISSIONS, GOLDEN_PERMISSIONS) == GOLDEN_PERMISSIONS_BYTES
    assert decode_exactly(PERMISSIONS, GOLDEN_PERMISSIONS_BYTES) == GOLDEN_PERMISSIONS


@pytest.mark.parametrize(
    ("codec", "absent"), [(OPTIONAL_PERMISSIONS, "00"), (ANSWERED_PERMISSIONS, "00000000")]
)
def test_permissions_that_may_be_absent(codec: Codec[Permissions | None], absent: str) -> None:
    assert encode(codec, None).hex() == absent
    assert decode_exactly(codec, bytes.fromhex(absent)) is None
    present = encode(codec, GOLDEN_PERMISSIONS)
    assert present == b"\1" + (53).to_bytes(4, "little") + GOLDEN_PERMISSIONS_BYTES
    assert decode_exactly(codec, present) == GOLDEN_PERMISSIONS


def test_a_length_of_permissions_must_match() -> None:
    data = b"\1" + (54).to_bytes(4, "little") + GOLDEN_PERMISSIONS_BYTES + b"\0"
    with pytest.raises(DecodeError, match="left over"):
        decode(OPTIONAL_PERMISSIONS, data)


def test_permissions_of_one_stream_stand_once_and_in_order() -> None:
    stream = bytes.fromhex("01000000 000000000000 00")
    other = bytes.fromhex("00000000 000000000000 00")
    head = bytes(10)
    with pytest.raises(DecodeError, match="stand twice"):
        decode(PERMISSIONS, head + b"\1" + stream + b"\1" + stream + b"\0")
    read = decode(PERMISSIONS, head + b"\1" + stream + b"\1" + other + b"\0")
    assert [each.stream_id for each in read.streams] == [0, 1]
    with pytest.raises(ValueError, match="ascending"):
        encode(PERMISSIONS, Permissions(streams=tuple(reversed(read.streams))))


def test_versions() -> None:
    assert pack_version(PROTOCOL) == 11264
    assert unpack_version(11264) == Version(0, 11, 0)
    assert str(PROTOCOL) == "0.11.0"
    with pytest.raises(ValueError, match="1024"):
        pack_version(Version(0, 1024, 0))


@pytest.mark.parametrize(
    ("version", "served"),
    [
        (Version(0, 11, 0), True),
        (Version(0, 11, 1), False),
        (Version(0, 11, 999), False),
        (Version(0, 10, 999), False),
        (Version(0, 12, 0), False),
        (Version(1, 11, 0), False),
    ],
)
def test_the_version_gate(version: Version, served: bool) -> None:
    assert is_compatible(pack_version(version)) is served
