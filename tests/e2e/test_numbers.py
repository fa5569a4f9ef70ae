"""A thousand equal sends under one number are a thousand messages, on a real node (O4.2).

Once by a client of raw frames, and once by an SDK that numbers so: its wheel is in a folder of its
own and runs in a process of its own, as two versions of one package cannot be loaded together.
"""

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.wire.commands.messages import SEND_MESSAGES, encode_routing
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    ClientVersion,
    PasswordLogin,
    Register,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.frames import FrameCutter
from headrace.wire.identifiers import ToPartition
from headrace.wire.numbers import Operation
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED
from tests.node import Node, running_node
from tests.shard.whole import make_batch

OLDER_SDK = Path(__file__).parents[2] / ".venv-older-sdk"
SENDS = 1000
CLIENT = 0x0DDBA11

_PROGRAM = """
import asyncio, importlib.metadata, sys
from apache_iggy import IggyClient, SendMessage

async def main(address, stream, count):
    client = IggyClient(address)
    await client.connect()
    await client.login_user("iggy", "iggy")
    await client.create_stream(stream)
    await client.create_topic(stream, "ticks", 1)
    message = SendMessage("tick", id=1)
    for _ in range(count):
        await client.send_messages(stream, "ticks", 0, [message])
    await client.create_topic(stream, "after", 1)
    await client.send_messages(stream, "ticks", 0, [message])
    print(importlib.metadata.version("apache-iggy"))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


_numbers = itertools.count()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as made:
        yield made


@pytest.fixture
def stream() -> str:
    return f"stream-{next(_numbers)}"


def count(node: Node, topic: str) -> int:
    with headrace.connect(str(node.tcp)) as client:
        return sum(each.messages_count for each in client.get_topic(topic).partitions)


class Raw:
    """A client that says itself under which number it sends."""

    def __init__(self, node: Node) -> None:
        self._link = socket.create_connection(node.tcp)
        self._cutter = FrameCutter()
        version = ClientVersion(PROTOCOL_PACKED, "tests", "0.1.0")
        login = Register(version, password=PasswordLogin("iggy", b"iggy"))
        body = LOGIN_PASSWORD.encode_request(login)
        self._session = 0
        answer = self._ask(Operation.REGISTER, body, 0)
        self._session = LOGIN_PASSWORD.decode_reply(answer).session

    def _ask(self, operation: Operation, body: bytes, number: int) -> memoryview:
        self.post(operation, body, number)
        frames: list[bytearray | memoryview] = []
        while not frames:
            piece = self._link.recv(1 << 16)
            assert piece, "the node closed the connection"
            frames += self._cutter.feed(piece)
        return read_answer(bytes(frames[0]))

    def post(self, operation: Operation, body: bytes, number: int) -> None:
        header = encode_request(
            operation, body, client=CLIENT, session=self._session, request=number, code=0
        )
        self._link.sendall(header + body)

    def send(self, body: bytes, number: int) -> int:
        answer = self._ask(Operation.SEND_MESSAGES, body, number)
        (told,) = SEND_MESSAGES.decode_reply(answer)
        return told.base_offset

    def send_until_done(self, body: bytes, number: int) -> int:
        """Send, and ask again while the node says that the same request is not committed yet."""
        while True:
            try:
                return self.send(body, number)
            except RefusedError as refusal:
                if refusal.code != Code.TRANSIENT_NOT_COMMITTED:
                    raise

    def close(self) -> None:
        self._link.close()


def make_send(stream: str) -> bytes:
    routing = encode_routing(stream, "ticks", ToPartition(0), messages_count=1)
    return routing + make_batch([b"tick"])


def make_topic(node: Node, stream: str) -> str:
    with headrace.connect(str(node.tcp)) as client:
        client.create_stream(stream)
        client.create_topic(f"{stream}/ticks", partitions=1)
    return f"{stream}/ticks"


def test_a_thousand_equal_sends_under_one_number(node: Node, stream: str) -> None:
    topic = make_topic(node, stream)
    body = make_send(stream)
    client = Raw(node)
    assert [client.send(body, 3) for _ in range(SENDS)] == list(range(SENDS))
    client.close()
    assert count(node, topic) == SENDS


def test_a_cut_between_write_and_answer_and_the_same_again(node: Node, stream: str) -> None:
    """Each request is cut off before its answer is read, and repeated on the next connection."""
    topic = make_topic(node, stream)
    body = make_send(stream)
    for number in range(1, 21):
        client = Raw(node)
        client.post(Operation.SEND_MESSAGES, body, number)
        client.close()
        client = Raw(node)
        assert client.send_until_done(body, number) == number - 1
        client.close()
    assert count(node, topic) == 20


@pytest.mark.skipif(
    not (OLDER_SDK / "apache_iggy").is_dir(),
    reason="this lane needs the wheel apache-iggy 0.9.0.dev6 in .venv-older-sdk",
)
def test_an_sdk_that_does_not_number_sends_equal_messages(node: Node, stream: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(node.tcp), stream, str(SENDS)],
        env=os.environ | {"PYTHONPATH": str(OLDER_SDK)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.9.0.dev6"]
    assert count(node, f"{stream}/ticks") == SENDS + 1
