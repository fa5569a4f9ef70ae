"""One session with a server, without I/O: login, request numbers, retries, reconnects.

```
            Open ──► Register ──► bound ──► Transmit ──► Receive ──► answer
             ▲          │58, 57     │           │           │
             │          └─ again    │           │           ├─ 57, 58, 4010: pause, the same number
             └── pause, growing ◄───┴── lost ◄──┴───────────┴─ closed, no answer, evicted
```

A request keeps its number through every retry, and the client keeps its id through every
reconnect, so the server applies it once and repeats its first answer (O4). Numbers only rise. One
connection is handled in `headrace.client.session.connection`.

Invariants: at most one `ask` runs at a time (the clients ensure it with a lock).
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

from msgspec import structs

from headrace.client.errors import (
    NO_NODE_ADVICE,
    ClientClosed,
    ProtocolBroken,
    Unavailable,
    refusal,
)
from headrace.client.session.call import Ahead, Call
from headrace.client.session.connection import RETRY_SECONDS, AgainError, Connection, LostError
from headrace.client.session.settings import Settings
from headrace.client.session.steps import Pause, Steps
from headrace.wire.commands.session import LOGOUT
from headrace.wire.commands.system import PING
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError

BACKOFF_SECONDS_MIN = 0.02
BACKOFF_SECONDS_MAX = 2.0
LOGOUT_SECONDS_MAX = 2.0

R = TypeVar("R")


def backoff(chance: Callable[[], float]) -> Iterator[float]:
    """Yield the wait before each attempt to reconnect: none at first, then longer and longer.

    A random factor shortens each wait by up to a half, so that the clients of a restarted server do
    not all reconnect at the same time.
    """
    yield 0.0
    seconds = BACKOFF_SECONDS_MIN
    while True:
        yield seconds * (1 - chance() / 2)
        seconds = min(2 * seconds, BACKOFF_SECONDS_MAX)


class Session:
    """The steps of each call; the caller that drives them does the I/O."""

    def __init__(
        self,
        settings: Settings,
        client: int,
        *,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Start without a connection; `client` is a random number of 128 bits, not 0."""
        assert 0 < client < 1 << 128
        self.settings = settings
        self.client = client
        self._now = now
        self._chance = chance
        self._request = 0  # the highest number in use
        self._connection = Connection(settings, client, now)
        self._is_asking = False
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection with a login, as far as this side knows."""
        return self._connection.is_bound

    @property
    def logins_count(self) -> int:
        """The number of logins; more than one means that it reconnected."""
        return self._connection.logins_count

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def open(self) -> Steps[None]:
        """Connect and log in, so that wrong credentials or a missing server are reported at once.

        Raises:
            Unavailable: No server could be reached within the time that the settings allow.
            Unauthenticated: The credentials are wrong.
        """
        yield from self._lockstep(self._retry("connect", self._nothing))

    def ask(self, call: Call[R]) -> Steps[R]:
        """Send a request until it is answered; return the answer.

        Raises:
            RefusedByServer: The server refused the request; a refusal is not retried.
            Unavailable: No answer came in time.
            ProtocolBroken: The bytes received are not an answer.
            ClientClosed: The session was closed before.
        """
        number = call.number
        if not number:
            self._request += call.is_replicated
            number = max(self._request, 1)
        attempt = partial(self._ask_once, call, number)
        self._begin()
        try:
            return (yield from self._retry(call.asked, attempt))
        except Unavailable as error:
            error.is_outcome_unknown &= call.is_replicated  # A repeated read does no harm.
            raise
        finally:
            self._is_asking = False

    def begin(self, ahead: Ahead) -> Steps[None]:
        """Send a read whose answer the next `ask` of its call fetches.

        Where it cannot be sent now it is not: `ask` sends it then.
        """
        connection = self._connection
        if self._is_closed or not connection.is_bound or connection.ahead is not None:
            return
        try:
            deadline = self._now() + self.settings.answer_seconds
            yield from self._lockstep(connection.begin(ahead, max(self._request, 1), deadline))
        except (LostError, OSError):
            connection.drop()

    def number(self, call: Call[R]) -> Call[R]:
        """Return the call with the number that it keeps however often it is sent."""
        if call.number or not call.is_replicated:
            return call
        self._request += 1
        return structs.replace(call, number=self._request)

    def _ask_once(self, call: Call[R], number: int, deadline: float) -> Steps[R]:
        connection = self._connection
        ahead = connection.ahead
        if ahead is not None and ahead.call is call:
            number = ahead.number
            frame = yield from connection.fetch(deadline)
        else:
            frame = yield from connection.exchange(
                call.command, call.body, number, deadline, call.batch
            )
        answer = call.read(connection.read(frame, number))
        if call.is_view:
            connection.give_away()
        return answer

    def beat(self) -> Steps[None]:
        """Send a heartbeat if the client is idle; a lost connection is noticed, not reopened."""
        quiet = self._now() - self._connection.heard
        if not self.is_connected or quiet < self.settings.heartbeat_seconds:
            return
        try:
            deadline = self._now() + self.settings.answer_seconds
            yield from self._lockstep(self._beat(deadline))
        except (LostError, OSError, RemoteError):
            self._connection.drop()

    def close(self) -> Steps[None]:
        """Log out, if there is a connection, and refuse every later call.

        A failed logout does no harm: the server keeps the request numbers of this client until it
        needs the space.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self.is_connected:
            self._request += 1
            deadline = self._now() + min(self.settings.answer_seconds, LOGOUT_SECONDS_MAX)
            with suppress(LostError, OSError, RemoteError):
                yield from self._connection.exchange(LOGOUT, b"", self._request, deadline)
            self._connection.drop()

    # Retrying.

    def _begin(self) -> None:
        assert not self._is_asking
        if self._is_closed:
            raise ClientClosed("the client is closed")
        self._is_asking = True

    def _lockstep(self, steps: Steps[R]) -> Steps[R]:
        self._begin()
        try:
            return (yield from steps)
        finally:
            self._is_asking = False

    def _retry(self, asked: str, attempt: Callable[[float], Steps[R]]) -> Steps[R]:
        connection, begun = self._connection, self._now()
        deadline = begun + self.settings.timeout_seconds
        if not connection.logins_count:
            deadline = max(deadline, begun + self.settings.wait_seconds)
        waits = backoff(self._chance)
        is_unknown = False  # whether an earlier attempt may have been carried out
        while True:
            is_trying = False
            try:
                if not connection.is_bound:
                    yield from connection.connect(deadline)
                is_trying = True
                return (yield from attempt(deadline))
            except AgainError as again:
                is_unknown |= again.code == Code.TRANSIENT_NOT_COMMITTED
                reason, seconds = str(again), RETRY_SECONDS
            except (LostError, OSError) as lost:
                self._connection.drop()
                is_unknown |= is_trying
                reason, seconds = _why_lost(lost), next(waits)
                self._check_first(begun, seconds, reason)
            except RemoteError as error:
                self._connection.drop()
                raise ProtocolBroken(f"{asked}: {self.settings.endpoint}: {error}") from None
            except DecodeError as error:
                self._connection.drop()
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

    def _check_first(self, begun: float, seconds: float, reason: str) -> None:
        """Raise when a first connection has been tried for as long as the user wants to wait.

        A client that was logged in before waits as long as a call may take: its server is expected
        to come back.
        """
        wait = self.settings.wait_seconds
        if self.logins_count or self._now() + seconds < begun + wait:
            return
        within = f" within {wait:g} s" if wait else ""
        raise Unavailable(
            f"{self.settings.endpoint} cannot be reached{within}: {reason}; {NO_NODE_ADVICE}"
        ) from None

    def _nothing(self, _deadline: float) -> Steps[None]:
        """Do nothing: an attempt that needs only the connection."""
        yield from ()

    def _beat(self, deadline: float) -> Steps[None]:
        yield from self._connection.exchange(PING, b"", max(self._request, 1), deadline)


def _why_lost(lost: LostError | OSError) -> str:
    """Return the reason in words; a timeout of asyncio has none of its own."""
    if isinstance(lost, TimeoutError):
        return str(lost) or "no answer in time"
    return str(lost) or type(lost).__name__
