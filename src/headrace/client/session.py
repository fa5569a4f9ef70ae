"""One session with a server, without I/O: login, request numbers, retries, reconnects.

```
            Open ──► Register ──► bound ──► Transmit ──► Receive ──► answer
             ▲          │58, 57     │           │           │
             │          └─ again    │           │           ├─ 57, 58, 4010: pause, the same number
             └── pause, growing ◄───┴── lost ◄──┴───────────┴─ closed, no answer, evicted
```

A request keeps its number through every retry, and the client keeps its id through every
reconnect, so the server applies it once and answers with what it answered first (O4). Numbers only
rise. A connection is lockstep: one request, then its answer.

Invariants: at most one `ask` runs at a time (the faces see to it); steps that are abandoned midway
            leave the session without a connection, never with one that owes an answer.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from headrace import __version__
from headrace.client.call import Call
from headrace.client.connecting import Settings
from headrace.client.errors import (
    ClientClosed,
    ProtocolBroken,
    Unavailable,
    refusal,
)
from headrace.client.inbox import Inbox
from headrace.client.steps import Open, Pause, Receive, Steps, Transmit
from headrace.wire.commands.command import Command
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    LOGIN_TOKEN,
    LOGOUT,
    ClientVersion,
    PasswordLogin,
    Register,
    Registered,
)
from headrace.wire.commands.system import PING
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replies import read_answer, read_echo
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED

SDK_NAME = "headrace-python"
RETRY_SECONDS = 0.05  # after a transient refusal
BACKOFF_SECONDS_MIN = 0.02
BACKOFF_SECONDS_MAX = 2.0
LOGOUT_SECONDS_MAX = 2.0

R = TypeVar("R")

# The same request may be sent again on the same connection: it was not admitted (58, 4010), or
# nobody knows yet and the server will recognise its number (57).
TRANSIENT = (
    Code.TRANSIENT_NOT_COMMITTED,
    Code.TRANSIENT_NOT_ACCEPTED,
    Code.CANNOT_APPEND_MESSAGE,
)
# A new connection with a new login helps.
_RECONNECTING_CODES = (
    Code.DISCONNECTED,
    Code.CANNOT_ESTABLISH_CONNECTION,
    Code.STALE_CLIENT,
    Code.UNAUTHENTICATED,
)
_RECONNECTING_REASONS = (
    None,  # one that we do not know
    EvictionReason.NO_SESSION,
    EvictionReason.SESSION_TOO_LOW,
    EvictionReason.SESSION_RELEASE_MISMATCH,
    EvictionReason.STALE_CLIENT,
)


def backoff(chance: Callable[[], float]) -> Iterator[float]:
    """Give how long to wait before each attempt to reconnect: at once, then longer and longer.

    The waits differ by chance up to a half, so that the clients of a server that comes back do
    not all come at once.
    """
    yield 0.0
    seconds = BACKOFF_SECONDS_MIN
    while True:
        yield seconds * (1 - chance() / 2)
        seconds = min(2 * seconds, BACKOFF_SECONDS_MAX)


class _LostError(Exception):
    """The connection is of no more use; the message says why."""


class _AgainError(Exception):
    """The server asks for the same request again, later."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__(f"the server answers {code.name.lower().replace('_', ' ')}")


class Session:
    """Gives the steps of each call; whoever drives them does the I/O."""

    def __init__(
        self,
        settings: Settings,
        client: int,
        *,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Begin without a connection; `client` is a random number of 128 bits, not 0."""
        assert 0 < client < 1 << 128
        self.settings = settings
        self.client = client
        self.logins_count = 0  # more than one says that there was a reconnect
        self._now = now
        self._chance = chance
        self._request = 0  # the highest number given out
        self._number = 0  # of the server's session; 0 when there is no connection
        self._heard = now()
        self._inbox = Inbox()
        self._is_asking = False
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection with a login, as far as anyone knows."""
        return self._number != 0

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def open(self) -> Steps[None]:
        """Connect and log in, so that wrong credentials show at once.

        Raises:
            Unavailable: No server could be reached in time.
            Unauthenticated: The credentials are wrong.
        """
        yield from self._lockstep(self._retry("connect", self._nothing))

    def ask(self, call: Call[R]) -> Steps[R]:
        """Send a request until it is answered; give the answer.

        Raises:
            RefusedByServer: The server says no; nothing is retried then.
            Unavailable: There was no answer in time.
            ProtocolBroken: What came is no answer.
            ClientClosed: The session was closed before.
        """
        is_replicated = call.command.operation != Operation.NON_REPLICATED
        if is_replicated:
            self._request += 1
        number = max(self._request, 1)

        attempt = partial(self._ask_once, call, number)
        try:
            return (yield from self._lockstep(self._retry(call.asked, attempt)))
        except Unavailable as error:
            error.is_outcome_unknown &= is_replicated  # Reading twice does no harm.
            raise

    def _ask_once(self, call: Call[R], number: int, deadline: float) -> Steps[R]:
        frame = yield from self._exchange(call.command, call.body, number, deadline, call.batch)
        answer = call.read(self._read(frame, number))
        if call.is_view:
            self._inbox = Inbox()
        return answer

    def beat(self) -> Steps[None]:
        """Let the server hear from an idle client; a lost connection is noticed, not renewed."""
        quiet = self._now() - self._heard
        if not self.is_connected or quiet < self.settings.heartbeat_seconds:
            return
        try:
            deadline = self._now() + self.settings.answer_seconds
            yield from self._lockstep(self._beat(deadline))
        except (_LostError, OSError, RemoteError):
            self._drop()

    def close(self) -> Steps[None]:
        """Log out, if there is a connection, and refuse every later call.

        A logout that does not get through changes nothing: the server keeps the numbers of a
        client that nobody will be again, until it needs the room.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self.is_connected:
            self._request += 1
            deadline = self._now() + min(self.settings.answer_seconds, LOGOUT_SECONDS_MAX)
            with suppress(_LostError, OSError, RemoteError):
                yield from self._exchange(LOGOUT, b"", self._request, deadline)
            self._drop()

    # Retrying.

    def _lockstep(self, steps: Steps[R]) -> Steps[R]:
        assert not self._is_asking
        if self._is_closed:
            raise ClientClosed("the client is closed")
        self._is_asking = True
        try:
            return (yield from steps)
        finally:
            self._is_asking = False

    def _retry(self, asked: str, attempt: Callable[[float], Steps[R]]) -> Steps[R]:
        deadline = self._now() + self.settings.timeout_seconds
        waits = backoff(self._chance)
        is_unknown = False  # whether an earlier attempt may have been carried out
        while True:
            is_trying = False
            try:
                if not self.is_connected:
                    yield from self._connect(deadline)
                is_trying = True
                return (yield from attempt(deadline))
            except _AgainError as again:
                is_unknown |= again.code == Code.TRANSIENT_NOT_COMMITTED
                reason, seconds = str(again), RETRY_SECONDS
            except (_LostError, OSError) as lost:
                self._drop()
                is_unknown |= is_trying
                reason, seconds = str(lost) or type(lost).__name__, next(waits)
                if not self.logins_count and not self.settings.is_patient:
                    raise Unavailable(
                        f"{self.settings.endpoint} cannot be reached: {reason}"
                    ) from None
            except RemoteError as error:
                self._drop()
                raise ProtocolBroken(f"{asked}: {self.settings.endpoint}: {error}") from None
            except DecodeError as error:
                self._drop()
                raise ProtocolBroken(f"{asked}: an answer that cannot be read: {error}") from None
            except (RefusedError, EvictedError) as error:
                raise refusal(error, asked) from None
            if self._now() + seconds >= deadline:
                raise Unavailable(
                    f"{asked}: no answer from {self.settings.endpoint} within"
                    f" {self.settings.timeout_seconds:g} s: {reason}",
                    is_outcome_unknown=is_unknown,
                )
            yield Pause(seconds)

    def _nothing(self, _deadline: float) -> Steps[None]:
        """An attempt that needs no more than the connection."""
        yield from ()

    def _beat(self, deadline: float) -> Steps[None]:
        yield from self._exchange(PING, b"", max(self._request, 1), deadline)

    # One connection.

    def _connect(self, deadline: float) -> Steps[None]:
        """Make a connection and log in with the id that this client always has."""
        settings = self.settings
        seconds_max = min(self._left(deadline), settings.answer_seconds)
        yield Open(settings.endpoint, seconds_max)
        login = settings.login
        version = ClientVersion(PROTOCOL_PACKED, SDK_NAME, __version__)
        if isinstance(login, PasswordLogin):
            command, register = LOGIN_PASSWORD, Register(version, password=login)
        else:
            command, register = LOGIN_TOKEN, Register(version, token=login)
        body = command.encode_request(register)
        while True:
            try:
                frame = yield from self._exchange(command, body, 0, deadline)
                self._bind(command.decode_reply(self._read(frame, 0)))
            except _AgainError as again:
                if self._now() + RETRY_SECONDS >= deadline:
                    raise _LostError(str(again)) from None
            else:
                return
            yield Pause(RETRY_SECONDS)

    def _bind(self, registered: Registered) -> None:
        if registered.session == 0:
            raise RemoteError("a session numbered 0")
        self._number = registered.session
        self.logins_count += 1

    def _exchange(
        self,
        command: Command[Any, Any],
        body: bytes,
        number: int,
        deadline: float,
        batch: bytes = b"",
    ) -> Steps[memoryview]:
        """Send one request and wait for the frame that answers it."""
        is_answered = False
        header = encode_request(
            command.operation,
            body,
            client=self.client,
            session=self._number,
            request=number,
            code=command.code,
            batch_bytes=len(batch),
        )
        try:
            yield Transmit(header + body, batch, self._left(deadline))
            frame = yield from self._receive(deadline)
            is_answered = True
        finally:
            if not is_answered:
                self._drop()
        self._heard = self._now()
        return frame

    def _receive(self, deadline: float) -> Steps[memoryview]:
        give_up = min(deadline, self._now() + self.settings.answer_seconds)
        inbox = self._inbox
        inbox.clear()
        while (frame := inbox.take()) is None:
            count: int = yield Receive(inbox.space(), inbox.missing, self._left(give_up))
            if not count:
                raise _LostError("the server closed the connection")
            inbox.fill(count)
        # An eviction may have come before it was asked for: whatever follows it is void.
        if inbox.is_overfull and frame[KIND_OFFSET] != FrameKind.EVICTION:
            if not inbox.is_followed_by(FrameKind.EVICTION):
                raise RemoteError("more than one answer to one request")
            self._drop()  # the answer to what ended the session, such as revoking its token
        return frame

    def _read(self, frame: memoryview, number: int) -> memoryview:
        """Give the payload of an answer, or raise what it says instead."""
        if frame[KIND_OFFSET] == FrameKind.REPLY:
            client, request = read_echo(frame)
            if (client, request) != (self.client, number):
                raise RemoteError(f"an answer to request {request}, {number} was asked")
        try:
            return read_answer(frame)
        except EvictedError as evicted:
            self._drop()
            if evicted.reason in _RECONNECTING_REASONS:
                raise _LostError(str(evicted)) from None
            raise
        except DecodeError:
            raise
        except RefusedError as error:
            if error.code in TRANSIENT:
                raise _AgainError(error.code) from None
            if error.code in _RECONNECTING_CODES:
                self._drop()
                raise _LostError(str(error)) from None
            raise

    def _drop(self) -> None:
        """Count the connection as lost; the next `Open` lets go of it."""
        self._number = 0

    def _left(self, deadline: float) -> float:
        """Give how long something may take, or end the call when its time is up."""
        left = deadline - self._now()
        if left <= 0:
            raise _LostError("the time is up")
        return left
