"""Input that once did harm, or is meant to: each alone, against a live node."""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.base.limits import FRAME_BYTES_MAX
from headrace.wire.commands.groups import CREATE_GROUP, CreateGroup
from headrace.wire.commands.session import LOGIN_PASSWORD
from headrace.wire.commands.streams import CREATE_STREAM, GET_STREAM, CreateStream, GetStream
from headrace.wire.commands.system import PING
from headrace.wire.commands.tokens import CREATE_TOKEN, CreateToken
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.errors import Code, RefusedError
from headrace.wire.layout import SIZE_OFFSET
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import REQUEST
from tests.e2e.raw import RawClient, make_register
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

_REQUEST = REQUEST.span("request")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as made:
        yield made


def _numbered(frame: bytes, request: int) -> bytes:
    return frame[: _REQUEST.start] + struct.pack("<Q", request) + frame[_REQUEST.stop :]


def _codes(client: RawClient, count: int) -> list[tuple[int, Code | None]]:
    """Read so many answers; give the number of each, and why it was refused."""
    told: list[tuple[int, Code | None]] = []
    for _ in range(count):
        answer = client.connection.receive()
        assert answer is not None
        try:
            read_answer(answer)
        except RefusedError as error:
            told.append((REPLY.decode(answer).request, error.code))
        else:
            told.append((REPLY.decode(answer).request, None))
    return told


def test_a_number_that_is_used_twice_at_once_is_answered_twice(node: Node) -> None:
    """Ordered by one group or by two: an answer goes to who asked, and nobody is left without."""
    client = RawClient(node.tcp, client=1)
    client.login()
    client.call(CREATE_STREAM, CreateStream("twice"))
    client.call(CREATE_TOPIC, CreateTopic("twice", 1, "topic"))
    first = _numbered(client.make_frame(CREATE_STREAM, CreateStream("one")), 77)
    second = _numbered(client.make_frame(CREATE_STREAM, CreateStream("two")), 77)
    third = _numbered(client.make_frame(CREATE_GROUP, CreateGroup("twice", "topic", "g")), 77)
    client.connection.send(first + second + third)
    told = _codes(client, 3)
    assert sorted(told, key=str) == [
        (77, Code.TRANSIENT_NOT_COMMITTED),
        (77, Code.TRANSIENT_NOT_COMMITTED),
        (77, None),
    ]
    client.request = 77
    assert client.call(GET_STREAM, GetStream("one")) is not None
    assert client.call(GET_STREAM, GetStream("two")) is None
    client.close()


def test_a_secret_goes_to_who_asked_for_it(node: Node) -> None:
    client = RawClient(node.tcp, client=2)
    client.login()
    frames = [client.make_frame(CREATE_TOKEN, CreateToken(f"twin-{n}", 0)) for n in range(2)]
    client.connection.send(b"".join(_numbered(frame, 9) for frame in frames))
    answers = [client.connection.receive() for _ in range(2)]
    made = []
    for answer in answers:
        assert answer is not None
        try:
            made.append(CREATE_TOKEN.decode_reply(read_answer(answer)).token)
        except RefusedError as error:
            assert error.code == Code.TRANSIENT_NOT_COMMITTED  # noqa: PT017
    (token,) = made
    client.close()
    client = RawClient(node.tcp, client=3)
    client.login(token=token)
    client.close()


def test_two_connections_log_in_as_one_client(node: Node) -> None:
    """Both are answered, and one of them at least is in."""
    clients = [RawClient(node.tcp, client=4) for _ in range(2)]
    for client in clients:
        client.connection.send(client.make_frame(LOGIN_PASSWORD, make_register()))
    outcomes = [outcome for client in clients for outcome in _codes(client, 1)]
    assert (0, None) in outcomes
    assert {code for _, code in outcomes} <= {None, Code.TRANSIENT_NOT_COMMITTED}
    for client in clients:
        client.close()


def test_large_frames_that_never_come_do_not_stop_others(node: Node) -> None:
    """Memory is promised to frames that do not arrive; who needs it gets it soon."""
    calm = RawClient(node.tcp, client=100)
    calm.login()
    idle = [RawClient(node.tcp, client=101 + number) for number in range(8)]
    for client in idle:
        client.login()
    for client in idle:
        frame = bytearray(client.make_frame(PING, None))
        struct.pack_into("<I", frame, SIZE_OFFSET, FRAME_BYTES_MAX)
        client.connection.send(bytes(frame))
    for _ in range(20):
        calm.call(PING, None)
    calm.call(CREATE_STREAM, CreateStream("calm"))
    assert node.resident_bytes() < 256 << 20
    for client in [*idle, calm]:
        client.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),  # a TLS handshake
        b"\xff" * 1000,
        bytes(1000),
    ],
    ids=["http", "tls", "ones", "zeros"],
)
def test_other_protocols_are_hung_up_on(node: Node, data: bytes) -> None:
    with socket.create_connection(node.tcp, timeout=10) as connection:
        connection.sendall(data)
        with suppress(ConnectionResetError):
            assert connection.recv(1000) == b""
    node.check_alive()


def test_a_byte_at_a_time(node: Node) -> None:
    client = RawClient(node.tcp, client=5)
    client.login()
    frame = client.make_frame(GET_STREAM, GetStream("nowhere"))
    for position in range(len(frame)):
        client.connection.send(frame[position : position + 1])
    answer = client.connection.receive()
    assert answer is not None
    assert bytes(read_answer(answer)) == b""
    client.close()
