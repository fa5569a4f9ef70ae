"""One connection with its login, without I/O: a request, then the answer to it.

It is made, and made again, by a session (`headrace.client.session.session`), which decides what
follows when it is lost (`LostError`) or the server asks for patience (`AgainError`).

Invariants: steps that are abandoned midway leave it unbound, never owing an answer.
"""

from collections.abc import Callable
from typing import Any

from headrace import __version__
from headrace.client.session.inbox import Inbox
from headrace.client.session.settings import Settings
from headrace.client.session.steps import Open, Pause, Receive, Steps, Transmit
from headrace.wire.commands.command import Command
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    LOGIN_TOKEN,
    ClientVersion,
    PasswordLogin,
    Register,
    Registered,
)
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replies import read_answer, read_echo
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED

SDK_NAME = "headrace-python"
RETRY_SECONDS = 0.05  # after a transient refusal

# The same request may be sent again on the same connection: it was not admitted (58, 4010), or
# nobody knows yet and the server will recognise its number (57).
_TRANSIENT = (
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


class LostError(Exception):
    """The connection is of no more use; the message says why."""


class AgainError(Exception):
    """The server asks for the same request again, later."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__(f"the server answers {code.name.lower().replace('_', ' ')}")


class Connection:
    """Gives the steps of logging in and of one exchange; it may be made again when it is lost."""

    def __init__(self, settings: Settings, client: int, now: Callable[[], float]) -> None:
        """Begin without a connection; every one is for the same client id."""
        self.logins_count = 0
        self.heard = now()  # when the server last answered
        self._settings = settings
        self._client = client
        self._now = now
        self._number = 0  # of the server's session; 0 when there is no connection
        self._inbox = Inbox()

    @property
    def is_bound(self) -> bool:
        """Whether there is a connection with a login, as far as anyone knows."""
        return self._number != 0

    def drop(self) -> None:
        """Count the connection as lost; the next `Open` lets go of it."""
        self._number = 0

    def give_away(self) -> None:
        """Leave the memory of the last answer to whoever has it."""
        self._inbox = Inbox()

    def connect(self, deadline: float) -> Steps[None]:
        """Make a connection and log in with the id that this client always has.

        Raises:
            LostError: There is none; others may come from the carrier of the steps.
            RefusedError, EvictedError: The server does not want this login.
        """
        settings = self._settings
        seconds_max = min(self._left(deadline), settings.answer_seconds)
        yield Open(settings.endpoint, seconds_max)
        command, register = self._make_login()
        body = command.encode_request(register)
        while True:
            try:
                frame = yield from self.exchange(command, body, 0, deadline)
                self._bind(command.decode_reply(self.read(frame, 0)))
            except AgainError as again:
                if self._now() + RETRY_SECONDS >= deadline:
                    raise LostError(str(again)) from None
            else:
                return
            yield Pause(RETRY_SECONDS)

    def exchange(
        self,
        command: Command[Any, Any],
        body: bytes,
        number: int,
        deadline: float,
        batch: bytes = b"",
    ) -> Steps[memoryview]:
        """Send one request and wait for the frame that answers it.

        Raises:
            LostError: None came; others may come from the carrier of the steps.
            RemoteError: What came is no answer to one request.
        """
        is_answered = False
        header = encode_request(
            command.operation,
            body,
            client=self._client,
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
                self.drop()
        self.heard = self._now()
        return frame

    def read(self, frame: memoryview, number: int) -> memoryview:
        """Give the payload of an answer, or raise what it says instead.

        Raises:
            LostError: A new login is needed.
            AgainError: The same request may be sent again, later.
            RefusedError, EvictedError: The server says no.
            RemoteError, DecodeError: It is no answer to that request.
        """
        if frame[KIND_OFFSET] == FrameKind.REPLY:
            client, request = read_echo(frame)
            if (client, request) != (self._client, number):
                raise RemoteError(f"an answer to request {request}, {number} was asked")
        try:
            return read_answer(frame)
        except EvictedError as evicted:
            self.drop()
            if evicted.reason in _RECONNECTING_REASONS:
                raise LostError(str(evicted)) from None
            raise
        except DecodeError:
            raise
        except RefusedError as error:
            if error.code in _TRANSIENT:
                raise AgainError(error.code) from None
            if error.code in _RECONNECTING_CODES:
                self.drop()
                raise LostError(str(error)) from None
            raise

    # Parts of these.

    def _make_login(self) -> tuple[Command[Any, Registered], Register]:
        version = ClientVersion(PROTOCOL_PACKED, SDK_NAME, __version__)
        login = self._settings.login
        if isinstance(login, PasswordLogin):
            return LOGIN_PASSWORD, Register(version, password=login)
        return LOGIN_TOKEN, Register(version, token=login)

    def _bind(self, registered: Registered) -> None:
        if registered.session == 0:
            raise RemoteError("a session numbered 0")
        self._number = registered.session
        self.logins_count += 1

    def _receive(self, deadline: float) -> Steps[memoryview]:
        give_up = min(deadline, self._now() + self._settings.answer_seconds)
        inbox = self._inbox
        inbox.clear()
        while (frame := inbox.take()) is None:
            count: int = yield Receive(inbox.space(), inbox.missing, self._left(give_up))
            if not count:
                raise LostError("the server closed the connection")
            inbox.fill(count)
        # An eviction may have come before it was asked for: whatever follows it is void.
        if inbox.is_overfull and frame[KIND_OFFSET] != FrameKind.EVICTION:
            if not inbox.is_followed_by(FrameKind.EVICTION):
                raise RemoteError("more than one answer to one request")
            self.drop()  # the answer to what ended the session, such as revoking its token
        return frame

    def _left(self, deadline: float) -> float:
        """Give how long something may take, or end the call when its time is up."""
        left = deadline - self._now()
        if left <= 0:
            raise LostError("the time is up")
        return left
