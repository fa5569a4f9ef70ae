import pytest

from headrace.base.limits import HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.commands.streams import CREATE_STREAM, Stream
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import (
    EVICTION,
    EvictedError,
    EvictionHeader,
    EvictionReason,
    decode_eviction,
    encode_eviction,
)
from headrace.wire.numbers import Operation, is_metadata, is_partition, is_result_framed
from headrace.wire.replies import (
    REPLY,
    RESULT_OK,
    ReplyHeader,
    encode_rejection,
    encode_reply,
    read_answer,
)
from headrace.wire.requests import RequestHeader
from headrace.wire.versions import PROTOCOL_PACKED, PROTOCOL_PACKED_MIN

CLIENT = 77
REQUEST = RequestHeader(client=CLIENT, request=1, operation=128, request_checksum=5)


def refusal(frame: Data) -> Code:
    with pytest.raises(RefusedError) as caught:
        read_answer(frame)
    return caught.value.code


def test_create_stream_as_the_released_sdk_takes_it() -> None:
    """The golden exchange of docs/formats/wire.md."""
    stream = Stream(id=0, created_at=9, topics_count=0, size_bytes=0, messages_count=0, name="s1")
    frame = encode_reply(REQUEST, RESULT_OK + CREATE_STREAM.encode_reply(stream), op=3, commit=3)
    wanted = bytearray(299)
    wanted[48:52] = bytes.fromhex("2b010000")
    wanted[60] = 8
    wanted[128] = 5
    wanted[160] = CLIENT
    wanted[176] = wanted[184] = 3
    wanted[200] = 1
    wanted[208] = 0x80
    wanted[264] = 9
    wanted[292:295] = bytes.fromhex("027331")
    assert frame == wanted
    assert CREATE_STREAM.decode_reply(read_answer(frame)) == stream


def test_a_duplicate_stream_is_rejected_in_twelve_bytes() -> None:
    frame = encode_reply(REQUEST, encode_rejection(Code.STREAM_NAME_ALREADY_EXISTS))
    assert len(frame) == 268
    assert frame[HEADER_BYTES:] == bytes.fromhex("0100000000000000f4030000")
    assert refusal(frame) == Code.STREAM_NAME_ALREADY_EXISTS


def test_a_status_comes_before_any_body() -> None:
    assert refusal(encode_reply(REQUEST, b"", status=Code.UNAUTHENTICATED)) == Code.UNAUTHENTICATED


@pytest.mark.parametrize("number", [17, 99999, 2**32 - 1])
def test_an_unknown_code_reads_as_the_generic_error(number: int) -> None:
    assert refusal(encode_reply(REQUEST, b"", status=number)) == Code.ERROR


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0", b"\1\0\0\0", b"\1" + bytes(10)])
def test_a_result_section_that_is_missing_or_cut(body: bytes) -> None:
    with pytest.raises(DecodeError):
        read_answer(encode_reply(REQUEST, body))


def test_who_orders_which_operations() -> None:
    """Segments are deleted by their partition, though the number lies among those of metadata."""
    assert [int(each) for each in Operation if is_partition(each)] == [138, 160, 161, 162]
    ordered = [int(each) for each in Operation if is_metadata(each)]
    assert ordered == [*range(64, 69), *range(128, 138), *range(139, 150), 230, 231]


def test_which_operations_are_result_framed() -> None:
    framed = [int(operation) for operation in Operation if is_result_framed(operation)]
    assert framed == [1, *range(64, 69), *range(128, 138), *range(139, 150), 161, 162, 230, 231]


@pytest.mark.parametrize("operation", [0, 2, 3, 138, 160])
def test_the_others_give_their_body_as_it_is(operation: int) -> None:
    frame = encode_reply(REQUEST, b"body", operation=Operation(operation))
    assert bytes(read_answer(frame)) == b"body"


def test_what_is_no_answer() -> None:
    whole = encode_reply(REQUEST, b"body")
    for frame in (
        b"",
        whole[:200],
        whole + b"x",
        REPLY.encode(ReplyHeader(operation=200)),
        bytes(HEADER_BYTES),
    ):
        with pytest.raises(RemoteError):
            read_answer(frame)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (0, Code.INVALID_COMMAND),
        (1, Code.UNAUTHENTICATED),
        (2, Code.INVALID_COMMAND),
        (3, Code.INVALID_COMMAND),
        (4, Code.INVALID_COMMAND),
        (5, Code.INVALID_COMMAND),
        (6, Code.INVALID_COMMAND),
        (7, Code.UNAUTHENTICATED),
        (8, Code.UNAUTHENTICATED),
        (9, Code.INVALID_CREDENTIALS),
        (10, Code.INVALID_PERSONAL_ACCESS_TOKEN),
        (11, Code.UNAUTHENTICATED),
        (12, Code.UNAUTHENTICATED),
        (13, Code.STALE_CLIENT),
        (14, Code.INCOMPATIBLE_PROTOCOL_VERSION),
        (15, Code.INVALID_FORMAT),
    ],
)
def test_evictions_as_the_released_sdk_reads_them(reason: int, code: Code) -> None:
    frame = encode_eviction(EvictionReason(reason), CLIENT)
    assert len(frame) == HEADER_BYTES
    assert (frame[60], frame[255], frame[128]) == (13, reason, CLIENT)
    with pytest.raises(EvictedError) as caught:
        read_answer(frame)
    assert (caught.value.reason, caught.value.code) == (reason, code)
    assert caught.value.client == CLIENT


def test_a_version_refused_names_what_is_served() -> None:
    evicted = decode_eviction(encode_eviction(EvictionReason.INCOMPATIBLE_PROTOCOL, CLIENT))
    assert evicted.served == (PROTOCOL_PACKED_MIN, PROTOCOL_PACKED)
    assert "0.11.0 to 0.11.0" in str(evicted)


def test_an_unknown_reason_asks_for_a_new_login() -> None:
    evicted = decode_eviction(EVICTION.encode(EvictionHeader(client=CLIENT, reason=200)))
    assert (evicted.reason, evicted.code) == (None, Code.UNAUTHENTICATED)


def test_evictions_against_the_rules() -> None:
    good = bytearray(encode_eviction(EvictionReason.NO_SESSION, CLIENT))
    reserved = bytearray(good)
    reserved[200] = 1
    for frame in (
        reserved,
        bytes(good) + b"x",
        EVICTION.encode(EvictionHeader(client=0, reason=1)),
        EVICTION.encode(EvictionHeader(client=1, reason=14)),
        EVICTION.encode(
            EvictionHeader(
                client=1,
                reason=14,
                server_protocol_version=1,
                server_protocol_version_min=2,
            )
        ),
    ):
        with pytest.raises(RemoteError):
            decode_eviction(frame)
