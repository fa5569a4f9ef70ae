"""Bare servers: what the loop and the loopback can do when nothing is done with the bytes.

    python -m bench.bare echo|sink|source|toy [port]

* echo cuts frames and answers each with 256 bytes: the floor under a request.
* sink counts what it receives, and tells the sender when it has ended.
* source sends pieces of 1 MiB as long as somebody receives.
* toy speaks just enough of the protocol for a load generator: logins and topics are accepted, sends
  confirmed, and polls answered with the batch that the topic got first. It checks and keeps nothing
  else. It proves the generators, and shows what the protocol costs without a log.

Each prints the port that it listens on.
"""

import asyncio
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, cast

from headrace.base.limits import HEADER_BYTES, MIB
from headrace.kernel.layout import BASE_OFFSET_AT, BATCH_HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.commands.messages import POLL_MESSAGES, SEND_MESSAGES, Confirmation
from headrace.wire.commands.session import LOGIN_PASSWORD, Registered
from headrace.wire.commands.streams import CREATE_STREAM, Stream
from headrace.wire.commands.system import PING
from headrace.wire.commands.topics import CREATE_TOPIC, Partition, Topic, TopicDetails
from headrace.wire.errors import Code
from headrace.wire.identifiers import FromOffset
from headrace.wire.layout import SIZE_OFFSET
from headrace.wire.numbers import Compression, Operation, is_result_framed
from headrace.wire.replies import REPLY, RESULT_OK, encode_reply
from headrace.wire.requests import REQUEST, RequestHeader
from headrace.wire.topic_options import UNLIMITED
from headrace.wire.versions import PROTOCOL_PACKED

try:
    import uvloop
except ImportError:
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    make_loop = uvloop.new_event_loop

BUFFER_BYTES = 4 * MIB  # more than any frame that is sent to these servers
PIECE_BYTES = MIB
_SIZE = struct.Struct("<I")
_ASKED = REQUEST.struct("client", "request")
_REPLY_CLIENT = REPLY.span("client")
_REPLY_REQUEST = REPLY.span("request")
_OPERATION_AT = REQUEST.at("operation")
_POLL_HEAD = struct.Struct("<IQI")
_BASE_OFFSET = struct.Struct("<Q")


class FrameCutter(asyncio.BufferedProtocol):
    """Cuts what comes into frames, and sends the answers of one turn in one write."""

    # Buffers of closed connections. Left to the collector they would pile up: transport and
    # protocol hold each other, and the loop holds on to the last buffer that it was given.
    spare: list[memoryview] = []  # noqa: RUF012  # of all connections

    def __init__(self) -> None:
        self._buffer = self.spare.pop() if self.spare else memoryview(bytearray(BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio's signature
        self._transport = None
        self.spare.append(self._buffer)

    def get_buffer(self, sizehint: int) -> memoryview:  # asyncio's signature
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == BUFFER_BYTES:
            left = self._end - self._start
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end = 0, left
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        answers: list[Data] = []
        while self._end - self._start >= HEADER_BYTES:
            (size,) = _SIZE.unpack_from(self._buffer, self._start + SIZE_OFFSET)
            if not HEADER_BYTES <= size <= BUFFER_BYTES:
                self._hang_up()
                return
            if self._end - self._start < size:
                break
            self.answer(self._buffer[self._start : self._start + size], answers)
            self._start += size
        if answers and self._transport is not None:
            self._transport.writelines(answers)

    def answer(self, frame: memoryview, answers: list[Data]) -> None:
        """Add what answers a frame; the frame's bytes are valid during the call only."""
        raise NotImplementedError

    def _hang_up(self) -> None:
        assert self._transport is not None
        self._transport.abort()


class Echo(FrameCutter):
    """Answers every frame with a reply header and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._reply = make_reply_template(Operation.SEND_MESSAGES, b"")

    def answer(self, frame: memoryview, answers: list[Data]) -> None:
        answers.append(fill_reply(self._reply, frame))


class Sink(asyncio.BufferedProtocol):
    """Counts bytes, and answers with the count when the sender has ended."""

    def __init__(self) -> None:
        self._piece = memoryview(bytearray(PIECE_BYTES))
        self._count = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # asyncio's signature
        return self._piece

    def buffer_updated(self, nbytes: int) -> None:
        self._count += nbytes

    def eof_received(self) -> None:
        assert self._transport is not None
        self._transport.write(self._count.to_bytes(8, "little"))


class Source(asyncio.Protocol):
    """Sends pieces as long as the socket takes them."""

    def __init__(self) -> None:
        self._piece = b"\1" * PIECE_BYTES
        self._is_paused = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._fill()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._fill()

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio's signature
        self._is_paused = True

    def _fill(self) -> None:
        assert self._transport is not None
        while not self._is_paused and not self._transport.is_closing():
            self._transport.write(self._piece)


class Log:
    """What the toy keeps of a topic: the first batch, and how many messages came."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.batch = b""
        self.messages_count = 0


class Toy(FrameCutter):
    """One connection to the toy server."""

    logs: dict[tuple[object, object], Log] = {}  # noqa: RUF012  # of all connections
    routes: dict[bytes, Log] = {}  # noqa: RUF012  # the same by the bytes of a send's routing

    def __init__(self) -> None:
        super().__init__()
        confirmed = SEND_MESSAGES.encode_reply((Confirmation(0, 0, 0, 0),))
        self._confirmation = make_reply_template(Operation.SEND_MESSAGES, confirmed)
        self._rare: dict[int, Callable[[RequestHeader, memoryview], bytes]] = {
            Operation.REGISTER: self._register,
            Operation.CREATE_STREAM: self._create_stream,
            Operation.CREATE_TOPIC: self._create_topic,
        }

    def answer(self, frame: memoryview, answers: list[Data]) -> None:
        if frame[_OPERATION_AT] == Operation.SEND_MESSAGES:
            answers.append(self._confirm(frame))
            return
        header = REQUEST.decode(frame)
        body = frame[HEADER_BYTES:]
        if header.operation == Operation.NON_REPLICATED and header.code == POLL_MESSAGES.code:
            answers += self._poll(header, body)
        elif header.operation == Operation.NON_REPLICATED:
            answers.append(self._read(header))
        elif (rare := self._rare.get(header.operation)) is None:
            answers.append(encode_reply(header, b"", status=Code.FEATURE_UNAVAILABLE))
        else:
            assert is_result_framed(Operation(header.operation))
            answers.append(encode_reply(header, RESULT_OK + rare(header, body)))

    def _confirm(self, frame: memoryview) -> bytearray:
        (routing_bytes,) = _SIZE.unpack_from(frame, HEADER_BYTES)
        batch_at = HEADER_BYTES + 4 + routing_bytes
        routing = bytes(frame[HEADER_BYTES + 4 : batch_at])
        log = self.routes.get(routing)
        if log is None:
            send = SEND_MESSAGES.decode_request(frame[HEADER_BYTES:])
            log = self.routes[routing] = self.logs.setdefault((send.stream, send.topic), Log())
            log.batch, log.messages_count = bytes(send.batch), send.messages_count
        reply = fill_reply(self._confirmation, frame)
        _BASE_OFFSET.pack_into(reply, len(reply) - 8, log.next_offset)
        log.next_offset += int.from_bytes(routing[-4:], "little")
        return reply

    def _poll(self, header: RequestHeader, body: memoryview) -> tuple[Data, ...]:
        poll = POLL_MESSAGES.decode_request(body)
        log = self.logs.get((poll.stream, poll.topic))
        if log is None or not log.batch:
            return (encode_reply(header, _POLL_HEAD.pack(0, 0, 0)),)
        offset = poll.strategy.offset if isinstance(poll.strategy, FromOffset) else 0
        beginning = bytearray(log.batch[:BATCH_HEADER_BYTES])
        _BASE_OFFSET.pack_into(beginning, BASE_OFFSET_AT, offset)
        told = _POLL_HEAD.pack(0, max(log.next_offset - 1, 0), log.messages_count)
        head = bytearray(encode_reply(header, told + beginning))
        frames = memoryview(log.batch)[BATCH_HEADER_BYTES:]
        _SIZE.pack_into(head, SIZE_OFFSET, len(head) + len(frames))
        return head, frames

    def _read(self, header: RequestHeader) -> bytes:
        if header.code == PING.code:
            return encode_reply(header, b"")
        # The released SDK asks for the cluster's nodes too, and stays here when it is refused.
        return encode_reply(header, b"", status=Code.FEATURE_UNAVAILABLE)

    def _register(self, header: RequestHeader, body: memoryview) -> bytes:
        LOGIN_PASSWORD.decode_request(body)
        return LOGIN_PASSWORD.encode_reply(
            Registered(0, header.client & 0xFFFF | 1, PROTOCOL_PACKED, "toy")
        )

    def _create_stream(self, header: RequestHeader, body: memoryview) -> bytes:
        name = CREATE_STREAM.decode_request(body).name
        stream = Stream(
            id=0, created_at=1, topics_count=0, size_bytes=0, messages_count=0, name=name
        )
        return CREATE_STREAM.encode_reply(stream)

    def _create_topic(self, header: RequestHeader, body: memoryview) -> bytes:
        wanted = CREATE_TOPIC.decode_request(body)
        topic = Topic(
            id=0,
            created_at=1,
            partitions_count=1,
            message_expiry=UNLIMITED,
            compression=Compression.NONE,
            max_topic_size=UNLIMITED,
            size_bytes=0,
            messages_count=0,
            name=wanted.name,
            explicit=wanted.options,
        )
        partition = Partition(
            id=0, created_at=1, segments_count=1, current_offset=0, size_bytes=0, messages_count=0
        )
        return CREATE_TOPIC.encode_reply(TopicDetails(topic, (partition,)))


def make_reply_template(operation: Operation, body: bytes) -> bytearray:
    """Give a reply in which client and request number are still missing."""
    return bytearray(encode_reply(RequestHeader(operation=operation), body))


def fill_reply(template: bytearray, frame: memoryview) -> bytearray:
    """Give the reply to a frame."""
    reply = template.copy()
    client, number = _ASKED.unpack_from(frame)
    reply[_REPLY_CLIENT] = client
    reply[_REPLY_REQUEST] = number.to_bytes(8, "little")
    return reply


SERVERS: dict[str, Callable[[], Any]] = {"echo": Echo, "sink": Sink, "source": Source, "toy": Toy}


async def serve(kind: str, port: int) -> None:
    """Serve until the process is asked to end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(SERVERS[kind], "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()
    server.close()


def main() -> None:
    """Read which server, and on which port; 0 takes a free one."""
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in SERVERS:
        sys.exit(f"usage: python -m bench.bare {'|'.join(SERVERS)} [port]")
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    make_loop().run_until_complete(serve(kind, port))


if __name__ == "__main__":
    main()
