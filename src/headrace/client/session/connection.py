"""One connection with its login, without I/O: one request, then its answer.

A session (`headrace.client.session.session`) opens and reopens it, and decides what to do when it
is lost (`LostError`) or when the server asks for a retry (`AgainError`).

A read may be sent ahead, and its answer fetched later.

Invariants: steps that are abandoned midway leave it unbound, with no answer outstanding;
            at most one answer is outstanding, and the next exchange begins by receiving it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headrace import __version__
from headrace.client.session.call import Ahead
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

# The same request may be sent again on the same connection: it was not admitted (58, 4010), or its
# outcome is not known yet and the server will recognise its number (57).
_TRANSIENT = (
    Code.TRANSIENT_NOT_COMMITTED,
    Code.TRANSIENT_NOT_ACCEPTED,
    Code.CANNOT_APPEND_MESSAGE,
)
# A new connection with a new login may succeed.
_RECONNECTING_CODES = (
    Code.DISCONNECTED,
    Code.CANNOT_ESTABLISH_CONNECTION,
    Code.STALE_CLIENT,
    Code.UNAUTHENTICATED,
)
_RECONNECTING_REASONS = (
    None,  # a reason that this client does not know
    EvictionReason.NO_SESSION,
    EvictionReason.SESSION_TOO_LOW,
    EvictionReason.SESSION_RELEASE_MISMATCH,
    EvictionReason.STALE_CLIENT,
)


class LostError(Exception):
    """The connection cannot be used any more; the message says why."""


class AgainError(Exception):
    """The server asks to send the same request again later."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__(f"the server answers {code.name.lower().replace('_', ' ')}")


class Connection:
    """The steps of a login and of one exchange; it can be opened again after it is lost."""

    def __init__(self, settings: Settings, client: int, now: Callable[[], float]) -> None:
        """Start without a connection; every connection uses the same client id."""
        self.logins_count = 0
        self.heard = now()  # time of the last answer
        self._settings = settings
        self._client = client
        self._now = now
        self._number = 0  # number of the server's session; 0 without a connection
        self._inbox = Inbox()
        self.ahead: Ahead | None = None  # whose answer is outstanding

    @property
    def is_bound(self) -> bool:
        """Whether there is a connection with a login, as far as this side knows."""
        return self._number != 0

    def drop(self) -> None:
        """Treat the connection as lost; the next `Open` closes it."""
        self._number = 0
        if self.ahead is not None:
            self.ahead.is_discarded = True
            self.ahead = None

    def give_away(self) -> None:
        """Leave the memory of the last answer to the caller that holds it."""
        self._inbox = Inbox()

    def connect(self, deadline: float) -> Steps[None]:
        """Open a connection and log in with the id that this client always has.

        Raises:
            LostError: No connection could be made; carrying out the steps may raise others.
            RefusedError, EvictedError: The server refused the login.
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
            LostError: No answer came; carrying out the steps may raise others.
            RemoteError: The bytes received are not one answer to one request.
        """
        is_answered = False
        if self.ahead is not None:
            yield from self._discard_ahead(self.ahead, deadline)
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

    def begin(self, ahead: Ahead, number: int, deadline: float) -> Steps[None]:
        """Send a read, and leave its answer to `fetch`; no other may be outstanding.

        Raises:
            LostError: There is no time left; carrying out the steps may raise others.
        """
        assert self.ahead is None
        call, is_sent = ahead.call, False
        header = encode_request(
            call.command.operation,
            call.body,
            client=self._client,
            session=self._number,
            request=number,
            code=call.command.code,
        )
        try:
            yield Transmit(header + call.body, b"", self._left(deadline))
            is_sent = True
        finally:
            if not is_sent:
                self.drop()
        ahead.number = number
        self.ahead = ahead

    def fetch(self, deadline: float) -> Steps[memoryview]:
        """Wait for the frame that answers what was sent ahead; raises as `exchange`."""
        assert self.ahead is not None
        is_answered = False
        try:
            frame = yield from self._receive(deadline)
            is_answered = True
        finally:
            if not is_answered:
                self.drop()
        self.ahead = None
        self.heard = self._now()
        return frame

    def _discard_ahead(self, ahead: Ahead, deadline: float) -> Steps[None]:
        """Receive the outstanding answer, which nobody needs; an eviction is not passed over."""
        ahead.is_discarded = True
        frame = yield from self.fetch(deadline)
        with suppress(AgainError, RefusedError):
            self.read(frame, ahead.number)

    def read(self, frame: memoryview, number: int) -> memoryview:
        """Return the payload of an answer, or raise the error that it reports.

        Raises:
            LostError: A new login is needed.
            AgainError: The same request may be sent again later.
            RefusedError, EvictedError: The server refused the request.
            RemoteError, DecodeError: It does not answer that request.
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
        frame = None
        while frame is None:
            count: int = yield Receive(inbox.space(), inbox.missing, self._left(give_up))
            if not count:
                raise LostError("the server closed the connection")
            inbox.fill(count)
            frame = inbox.take()
        # An eviction may have arrived before the request was sent: what follows it is void.
        if inbox.is_overfull and frame[KIND_OFFSET] != FrameKind.EVICTION:
            if not inbox.is_followed_by(FrameKind.EVICTION):
                raise RemoteError("more than one answer to one request")
            self.drop()  # this request ended the session, for example by revoking its token
        return frame

    def _left(self, deadline: float) -> float:
        """Return the time left for a step, or raise when the deadline has passed."""
        left = deadline - self._now()
        if left <= 0:
            raise LostError("the time is up")
        return left
