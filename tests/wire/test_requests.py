import pytest

from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.table import COMMANDS, find_command
from headrace.wire.errors import Code, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import Operation, is_stamped
from headrace.wire.requests import (
    REQUEST,
    RequestHeader,
    check_body,
    check_request,
    encode_request,
)

CLIENT = 0x1122_3344_5566_7788_99AA_BBCC_DDEE_FF00


def test_create_stream_as_the_released_sdk_sends_it() -> None:
    """The golden exchange of docs/formats/wire.md."""
    body = CREATE_STREAM.encode_request(CreateStream("s1"))
    header = encode_request(
        CREATE_STREAM.operation, body, client=CLIENT, session=1, request=1, code=CREATE_STREAM.code
    )
    wanted = bytearray(HEADER_BYTES)
    wanted[48:52] = bytes.fromhex("03010000")
    wanted[60] = 5
    wanted[128:144] = CLIENT.to_bytes(16, "little")
    wanted[144:152] = bytes.fromhex("c2be205aa2b4812f")
    wanted[168] = 1
    wanted[176] = 0x80
    wanted[184] = 1
    assert header == wanted
    assert body == bytes.fromhex("027331")


def test_a_read_carries_its_code_and_no_checksum() -> None:
    header = encode_request(
        Operation.NON_REPLICATED, b"", client=CLIENT, session=0, request=1, code=10
    )
    decoded = REQUEST.decode(header)
    assert (decoded.code, decoded.request_checksum) == (10, 0)
    assert find_command(decoded).name == "get stats"


def header(**fields: int) -> RequestHeader:
    return RequestHeader(
        **{"client": CLIENT, "operation": 128, "session": 1, "request": 1} | fields
    )


@pytest.mark.parametrize("code", sorted(COMMANDS))
def test_every_command_is_found_by_what_travels(code: int) -> None:
    command = COMMANDS[code]
    is_register = command.operation == Operation.REGISTER
    session = 0 if is_register else 1
    data = encode_request(
        command.operation, b"", client=CLIENT, session=session, request=session, code=code
    )
    found = find_command(REQUEST.decode(data))
    assert found.operation == command.operation
    assert found is command or (is_register and found.request is command.request)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"operation": 0}, EvictionReason.INVALID_REQUEST_OPERATION),
        ({"operation": 64}, EvictionReason.INVALID_REQUEST_OPERATION),
        ({"operation": 68}, EvictionReason.INVALID_REQUEST_OPERATION),
        ({"operation": 150}, EvictionReason.INVALID_REQUEST_OPERATION),
        ({"operation": 255}, EvictionReason.INVALID_REQUEST_OPERATION),
        ({"operation": 1}, EvictionReason.MALFORMED_LOGIN),
        ({"operation": 1, "session": 0}, EvictionReason.MALFORMED_LOGIN),
        ({"session": 0}, EvictionReason.NO_SESSION),
        ({"operation": 160, "session": 0}, EvictionReason.NO_SESSION),
    ],
)
def test_what_ends_the_session(fields: dict[str, int], reason: EvictionReason) -> None:
    """CL3: a frame in the wrong state is answered."""
    with pytest.raises(EvictedError) as caught:
        check_request(header(**fields))
    assert (caught.value.reason, caught.value.client) == (reason, CLIENT)


@pytest.mark.parametrize("operation", [224, 239])
def test_operations_of_our_own_are_refused_where_unknown(operation: int) -> None:
    """O8."""
    with pytest.raises(RefusedError) as caught:
        check_request(header(operation=operation))
    assert caught.value.code == Code.FEATURE_UNAVAILABLE


def test_a_request_without_client_cannot_be_answered() -> None:
    with pytest.raises(RemoteError):
        check_request(header(client=0))


def test_a_replicated_request_is_numbered() -> None:
    with pytest.raises(RefusedError) as caught:
        check_request(header(request=0))
    assert caught.value.code == Code.INVALID_COMMAND


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (9999, Code.INVALID_COMMAND),
        (0, Code.INVALID_COMMAND),
        (202, Code.FEATURE_UNAVAILABLE),
        (101, Code.FEATURE_UNAVAILABLE),
        (99_999, Code.FEATURE_UNAVAILABLE),
    ],
)
def test_codes_that_no_read_has(code: int, answer: Code) -> None:
    with pytest.raises(RefusedError) as caught:
        find_command(header(operation=2, code=code))
    assert caught.value.code == answer


@pytest.mark.parametrize("code", [38, 44])
def test_logins_of_an_older_protocol_end_the_session(code: int) -> None:
    with pytest.raises(EvictedError) as caught:
        find_command(header(operation=2, code=code))
    assert caught.value.reason == EvictionReason.MALFORMED_LOGIN


def test_a_stamped_body_must_match() -> None:
    body = b"\x02s1"
    data = encode_request(
        Operation.CREATE_STREAM, body, client=CLIENT, session=1, request=1, code=0
    )
    check_body(REQUEST.decode(data), body)
    check_body(header(request_checksum=0), b"anything")
    with pytest.raises(RefusedError) as caught:
        check_body(REQUEST.decode(data), b"\x02s2")
    assert caught.value.code == Code.INVALID_FORMAT


def test_which_operations_are_stamped() -> None:
    stamped = [int(operation) for operation in Operation if is_stamped(operation)]
    assert stamped == [1, 3, *range(128, 150), 231]


def test_a_frame_of_another_kind_is_no_request() -> None:
    with pytest.raises(RemoteError, match="no REQUEST header"):
        REQUEST.decode(bytes(HEADER_BYTES))
    with pytest.raises(RemoteError, match="255 bytes"):
        REQUEST.decode(bytes(255))
