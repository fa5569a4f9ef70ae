"""A blocking client that knows what it asked: every send has its row, whatever became of it.

After a lost connection it comes back with the same client id and sends again, under the same
number, what was never answered: that must be applied once (O4).
"""

import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.base.endpoints import Endpoint
from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands.command import Command
from headrace.wire.commands.messages import (
    GET_OFFSET,
    POLL_MESSAGES,
    SEND_MESSAGES,
    STORE_OFFSET,
    GetOffset,
    PolledMessages,
    PollMessages,
    StoreOffset,
    encode_routing,
)
from headrace.wire.commands.session import LOGIN_PASSWORD, ClientVersion, PasswordLogin, Register
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, FromOffset, Strategy, ToPartition
from headrace.wire.layout import SIZE
from headrace.wire.numbers import ConsumerKind, Operation
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED
from tests.crash.payloads import Key, Seen, make_batch, read_batches

ANSWER_SECONDS_MAX = 20.0
REFUSED_NANOS_MAX = 15_000_000_000  # a request that was refused so long is given up
# What may be asked again under the same number: it was not accepted, or nobody knows.
TRANSIENT = (
    Code.TRANSIENT_NOT_ACCEPTED,
    Code.TRANSIENT_NOT_COMMITTED,
    Code.CANNOT_APPEND_MESSAGE,
)

Outcome = Literal["ok", "fail", "info"]


@dataclass
class Send:
    """One send request, over all its attempts; times are monotonic nanoseconds."""

    place: tuple[str, str, int]
    keys: list[Key]
    invoked: int
    returned: int = 0
    outcome: Outcome = "info"
    base_offset: int = -1
    attempts: int = 0
    refusals: list[Code] = field(default_factory=list)

    @property
    def request(self) -> int:
        return self.keys[0].request

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.keys)


class Client:
    """One connection at a time; raises `OSError` when it breaks."""

    def __init__(self, client: int, username: str = "iggy", password: bytes = b"iggy") -> None:
        self.client = client
        self.number = 0
        self._login = PasswordLogin(username, password)
        self._session = 0
        self._socket: socket.socket | None = None
        self._received = bytearray()

    def connect(self, address: Endpoint) -> None:
        """Connect and log in; with the same client id as before, if there was a before."""
        self.close()
        self._socket = socket.create_connection((address.host, address.port), ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received.clear()
        version = ClientVersion(PROTOCOL_PACKED, "crash", "0.1.0")
        self._session = 0
        self._session = self.ask(LOGIN_PASSWORD, Register(version, password=self._login)).session

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this for an answer on the connection that there is."""
        assert self._socket is not None
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Let the connection go."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(
        self, command: Command[Any, Any], request: Any = None, number: int | None = None
    ) -> Any:
        """Ask, and give the reply.

        Raises:
            RefusedError: The node says no.
            OSError: The connection broke.
        """
        body = command.encode_request(request)
        if number is None:
            number = self.next_number() if command.operation > Operation.NON_REPLICATED else 0
        self.post(command, body, number)
        return command.decode_reply(read_answer(self.take()))

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def post(self, command: Command[Any, Any], body: bytes, number: int) -> None:
        """Send a request without waiting for its answer."""
        header = encode_request(
            command.operation,
            body,
            client=self.client,
            session=self._session,
            request=number,
            code=command.code,
        )
        if self._socket is None:
            raise ConnectionError("not connected")
        self._socket.sendall(header + body)

    def take(self) -> bytes:
        """Give the next frame.

        Raises:
            OSError: The connection broke.
        """
        while len(self._received) < HEADER_BYTES or len(self._received) < self._frame_bytes():
            if self._socket is None:
                raise ConnectionError("not connected")
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("closed by the node")
            self._received += data
        size = self._frame_bytes()
        frame = bytes(self._received[:size])
        del self._received[:size]
        return frame

    def _frame_bytes(self) -> int:
        return int.from_bytes(self._received[SIZE], "little")

    # Messages.

    def poll(
        self,
        place: tuple[str, str, int],
        strategy: Strategy,
        *,
        count: int = 1000,
        consumer: int = 1,
        auto_commit: bool = False,
    ) -> PolledMessages:
        """Poll once."""
        request = PollMessages(
            consumer=Consumer(ConsumerKind.CONSUMER, consumer),
            stream=place[0],
            topic=place[1],
            partition_id=place[2],
            strategy=strategy,
            count=count,
            auto_commit=auto_commit,
        )
        polled = self.ask(POLL_MESSAGES, request)
        assert isinstance(polled, PolledMessages)
        return polled

    def read_all(self, place: tuple[str, str, int]) -> list[Seen]:
        """Read a partition from its oldest message to its end."""
        seen: list[Seen] = []
        offset = 0
        while True:
            polled = self.poll(place, FromOffset(offset))
            if not polled.messages_count:
                return seen
            seen += read_batches(polled.batches)
            assert seen[-1].offset >= offset
            offset = seen[-1].offset + 1

    def store_offset(
        self,
        place: tuple[str, str, int],
        offset: int,
        *,
        consumer: int = 1,
        number: int | None = None,
    ) -> None:
        """Store a consumer's offset."""
        request = StoreOffset(
            consumer=Consumer(ConsumerKind.CONSUMER, consumer),
            stream=place[0],
            topic=place[1],
            partition_id=place[2],
            offset=offset,
        )
        self.ask(STORE_OFFSET, request, number)

    def stored_offset(self, place: tuple[str, str, int], *, consumer: int = 1) -> int | None:
        """Give the offset that is stored for a consumer."""
        asked = Consumer(ConsumerKind.CONSUMER, consumer)
        found = self.ask(GET_OFFSET, GetOffset(asked, place[0], place[1], place[2]))
        return None if found is None else found.stored_offset


class Producer(Client):
    """Sends batches to one partition, several in flight, and keeps a row of each."""

    def __init__(
        self,
        client: int,
        place: tuple[str, str, int],
        *,
        messages: int = 8,
        payload_bytes: int = 2000,
        window: int = 4,
    ) -> None:
        super().__init__(client)
        self.place = place
        self.history: list[Send] = []
        self._messages = messages
        self._payload_bytes = payload_bytes
        self._window = window
        self._flying: deque[Send] = deque()

    @property
    def unanswered(self) -> list[Send]:
        """The sends of which nobody knows yet what became."""
        return list(self._flying)

    def send(self) -> Send:
        """Send one batch and wait for its answer, whatever that is."""
        send = self._begin()
        while self._flying:
            self._take_answer()
        return send

    def try_send(self) -> Code | None:
        """Send one batch and take its first answer; give the code if that was a refusal.

        What was refused is not sent again before `resume`.
        """
        assert not self._flying
        send = self._begin()
        try:
            self._take_answer(is_retrying=False)
        except RefusedError as refusal:
            send.refusals.append(refusal.code)
            return refusal.code
        return None

    def forget_refused(self) -> None:
        """Give up what `try_send` was refused."""
        self._flying.clear()

    def fill(self) -> None:
        """Begin sends until the window is full, then take one answer."""
        while len(self._flying) < self._window:
            self._begin()
        self._take_answer()

    def finish(self) -> None:
        """Take the answers of all that is in flight."""
        while self._flying:
            self._take_answer()

    def resume(self, address: Endpoint) -> None:
        """Come back with the same client id, and send again what was never answered."""
        self.connect(address)
        for send in self._flying:
            self._post(send)

    def confirm_again(self, send: Send) -> int:
        """Send once more what was confirmed; give the offset that is confirmed this time.

        Nothing may be in flight.
        """
        assert not self._flying
        self._post(send)
        send.attempts -= 1  # Its place was decided before.
        (confirmed,) = SEND_MESSAGES.decode_reply(read_answer(self.take()))
        assert isinstance(confirmed.base_offset, int)
        return confirmed.base_offset

    def _begin(self) -> Send:
        number = self.next_number()
        size = self._payload_bytes
        keys = [Key(self.client, number, index, size + index) for index in range(self._messages)]
        send = Send(self.place, keys, time.monotonic_ns())
        self.history.append(send)
        self._flying.append(send)
        self._post(send)
        return send

    def _post(self, send: Send) -> None:
        send.attempts += 1
        stream, topic, partition = send.place
        routing = encode_routing(
            stream, topic, ToPartition(partition), messages_count=len(send.keys)
        )
        self.post(SEND_MESSAGES, routing + make_batch(send.keys), send.request)

    def _take_answer(self, *, is_retrying: bool = True) -> None:
        frame = self.take()
        number = REPLY.decode(frame).request
        (send,) = (each for each in self._flying if each.request == number)
        try:
            (confirmed,) = SEND_MESSAGES.decode_reply(read_answer(frame))
        except RefusedError as refusal:
            if not is_retrying:
                raise
            self._on_refusal(send, refusal.code)
            return
        send.returned = time.monotonic_ns()
        send.outcome = "ok"
        send.base_offset = confirmed.base_offset
        self._flying.remove(send)

    def _on_refusal(self, send: Send, code: Code) -> None:
        send.refusals.append(code)
        if code in TRANSIENT and time.monotonic_ns() - send.invoked < REFUSED_NANOS_MAX:
            time.sleep(0.01)
            self._post(send)
            return
        send.returned = time.monotonic_ns()
        send.outcome = "fail"
        self._flying.remove(send)
