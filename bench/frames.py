"""Frames as a client sends them, for the load generator and for what is set up before a run.

A batch is made once for each shape and sent again and again: the producer's checksum is taken with
the server's stamps zero, so the same bytes are valid every time.
"""

import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple, Self, TypeVar

from headrace import kernel
from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands.command import Command
from headrace.wire.commands.messages import POLL_MESSAGES, SEND_MESSAGES, PollMessages, SendMessages
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    ClientVersion,
    PasswordLogin,
    Register,
)
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.topics import CREATE_TOPIC, CreateTopic
from headrace.wire.identifiers import Consumer, FromOffset, ToPartition
from headrace.wire.layout import SIZE
from headrace.wire.numbers import ConsumerKind
from headrace.wire.options import make_options
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED

STREAM = "bench"
REPLICATED = "replicated"  # acknowledged when it is in the page cache of a quorum
PERSISTED = "persisted"  # acknowledged when it is synced
CLASSES = (REPLICATED, PERSISTED)
REPLY_SECONDS_MAX = 30

# Strategy value, count and the flag for auto commit end a poll's body.
_BEHIND_OFFSET_BYTES = 8 + 4 + 1

_Q = TypeVar("_Q")
_R = TypeVar("_R")


class Shape(NamedTuple):
    """How many messages a batch has, and of how many bytes."""

    messages: int
    payload_bytes: int

    def __str__(self) -> str:
        size = "1 KiB" if self.payload_bytes == 1024 else f"{self.payload_bytes} B"
        return f"{self.messages} x {size}"

    @property
    def bytes(self) -> int:
        """Bytes of payload in one batch: what throughput counts."""
        return self.messages * self.payload_bytes


class Account(NamedTuple):
    """Who logs in."""

    username: str
    password: str


def make_batch(shape: Shape) -> bytes:
    """Give a batch as a producer sends it; payloads and ids differ from message to message."""
    count = shape.messages
    ids = b"".join((index + 1).to_bytes(16, "little") for index in range(count))
    timestamps = struct.pack(f"<{count}Q", *[1_700_000_000_000_000] * count)
    payloads = os.urandom(shape.bytes)
    ends = struct.pack(f"<{count + 1}i", *range(0, shape.bytes + 1, shape.payload_bytes))
    return kernel.build(ids, timestamps, payloads, ends, None, None)


def make_login(account: Account) -> bytes:
    """Give a login; the generator puts each connection's own client id into it."""
    return _make_frame(LOGIN_PASSWORD, _make_register(account), session=0, number=0)


def _make_register(account: Account) -> Register:
    return Register(
        ClientVersion(PROTOCOL_PACKED, "headrace-bench", "1"),
        PasswordLogin(account.username, account.password.encode()),
    )


def make_send(topic: str, shape: Shape) -> bytes:
    """Give a send of one batch to partition 0."""
    return make_sends(topic, shape, (0,))[0]


def make_sends(topic: str, shape: Shape, partitions: Sequence[int]) -> list[bytes]:
    """Return a send of the same batch to each of some partitions."""
    batch = memoryview(make_batch(shape))
    sends = [
        SendMessages(STREAM, topic, ToPartition(partition), shape.messages, batch)
        for partition in partitions
    ]
    return [_make_frame(SEND_MESSAGES, send, session=1, number=1) for send in sends]


class Poll(NamedTuple):
    """A poll by offset, and where in it the offset stands."""

    frame: bytes
    offset_at: int


def make_poll(topic: str, shape: Shape, partition: int = 0) -> Poll:
    """Return a poll of as many messages as a batch has, from one partition."""
    poll = PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 1),
        stream=STREAM,
        topic=topic,
        partition_id=partition,
        strategy=FromOffset(0),
        count=shape.messages,
        auto_commit=False,
    )
    frame = _make_frame(POLL_MESSAGES, poll, session=1, number=1)
    return Poll(frame, len(frame) - _BEHIND_OFFSET_BYTES)


def _make_frame(
    command: Command[_Q, _R], request: _Q, *, session: int, number: int, client: int = 1
) -> bytes:
    body = command.encode_request(request)
    header = encode_request(
        command.operation,
        body,
        client=client,
        session=session,
        request=number,
        code=command.code,
    )
    return header + body


class Connection:
    """A client in lockstep for what is set up before a run."""

    def __init__(self, port: int, account: Account) -> None:
        """Connect and log in.

        Raises:
            OSError: Nobody listens there.
            RefusedError: The account may not log in.
        """
        self._socket = socket.create_connection(("127.0.0.1", port), REPLY_SECONDS_MAX)
        self._client = int.from_bytes(os.urandom(16), "little") | 1
        self._session = 0
        self._request = 0
        self._session = self.call(LOGIN_PASSWORD, _make_register(account)).session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def call(self, command: Command[_Q, _R], request: _Q) -> _R:
        """Send one request; give its reply.

        Raises:
            RefusedError: The server refused it.
        """
        self.post(command, request)
        return self.take(command)

    def post(self, command: Command[_Q, _R], request: _Q) -> None:
        """Send one request, whose reply is taken later."""
        frame = _make_frame(
            command,
            request,
            session=self._session,
            number=self._request,
            client=self._client,
        )
        self._request += 1
        self._socket.sendall(frame)

    def take(self, command: Command[_Q, _R]) -> _R:
        """Return the next reply.

        Raises:
            RefusedError: The server refused the request.
        """
        header = self._receive(HEADER_BYTES)
        size = int.from_bytes(header[SIZE], "little")
        return command.decode_reply(read_answer(header + self._receive(size - HEADER_BYTES)))

    def create_stream(self) -> int:
        """Create the stream that all topics are in; give its id."""
        return self.call(CREATE_STREAM, CreateStream(STREAM)).id

    def create_topic(self, name: str, durability: str, partitions: int = 1) -> int:
        """Create a topic, and check that its class is the one asked for; give its id."""
        options = make_options({"durability": durability})
        details = self.call(CREATE_TOPIC, CreateTopic(STREAM, partitions, name, options))
        told = (*details.topic.explicit, *details.topic.derived)
        classes = [option.value.value for option in told if option.key == "durability"]
        if classes != [durability]:
            raise ValueError(f"topic {name} has class {classes}, {durability} was asked for")
        return details.topic.id

    def _receive(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(length - len(parts))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts += part
        return bytes(parts)
