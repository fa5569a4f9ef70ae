"""Simulated clients: one request in flight, sent again with the same number until it is answered.

A client holds one session per group. After an eviction it registers again and never learns what
became of the request that was out; after a logout it takes a new client id, so that the numbers of
one id only rise (O4.1).
"""

from collections.abc import Callable

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.sim.agenda import Agenda, draw_delay
from headrace.sim.groups.checkers import Checkers
from headrace.sim.machine import encode_append
from headrace.sim.network import Network
from headrace.sim.violation import SimViolationError
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import Operation
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import REQUEST, RequestHeader

CLIENT_ENDPOINT_MIN = 1_000  # endpoints below are replicas

_RETRIED = (Code.TRANSIENT_NOT_COMMITTED, Code.TRANSIENT_NOT_ACCEPTED, Code.CANNOT_APPEND_MESSAGE)
_REUSED_MAX = 8  # some with their reply still in the table, some without
_RELOGIN = (EvictionReason.NO_SESSION, EvictionReason.SESSION_TOO_LOW)


class WorkloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What clients do; times in microseconds."""

    client_count: int = 2
    requests: int = 100  # of all clients together
    value_bytes_max: int = 300
    keys: int = 8
    think_mean: int = 5_000
    timeout: int = 300_000
    logout: int = 1  # percent
    malformed: int = 1  # percent
    replay: int = 0  # percent: an old request of the session is sent once more (CL4)
    reuse: int = 0  # percent: an answered number is sent again, with another content (CL4)


class _Session:
    """A client in one group."""

    __slots__ = ("answered", "client", "number", "request", "sent")

    def __init__(self, client: int) -> None:
        self.client = client
        self.sent: list[bytes] = []  # what was asked since the last login
        self.answered: list[int] = []  # the latest numbers whose requests were applied
        self.number = 0  # 0: not registered
        self.request = 0


class _Outstanding:
    """What a client waits for."""

    __slots__ = ("frame", "group", "operation", "request", "session", "tries")

    def __init__(self, group: int, session: _Session, operation: Operation, frame: bytes) -> None:
        self.group = group
        self.session = session
        self.operation = operation
        self.request = session.request if operation != Operation.REGISTER else 0
        self.frame = frame
        self.tries = 0


class Client:
    """One client; see the module."""

    def __init__(
        self,
        index: int,
        options: WorkloadOptions,
        prng: Prng,
        groups: tuple[int, ...],
        joined: "Joined",
    ) -> None:
        self.endpoint = CLIENT_ENDPOINT_MIN + index
        self.remaining = options.requests // options.client_count + 1
        self.outstanding: _Outstanding | None = None
        self.events: dict[str, int] = {}
        self.targets: tuple[int, ...] = joined.targets
        self.timeout = options.timeout
        self._index = index
        self._options = options
        self._prng = prng
        self._joined = joined
        self._groups = groups
        self._sessions: dict[int, _Session] = {}
        self._hints: dict[int, int] = {}  # who answered last, by group
        self._ids = 0
        joined.network.attach(self.endpoint, self._receive)
        joined.agenda.after(draw_delay(prng, options.think_mean), self._think, None)

    @property
    def is_done(self) -> bool:
        """Whether everything asked for was answered."""
        return self.outstanding is None and self.remaining == 0

    @property
    def waits_for(self) -> str:
        """What it waits for, in a few words."""
        asked = self.outstanding
        return "its turn" if asked is None else f"group {asked.group} {asked.operation.name}"

    def grant(self, requests: int) -> None:
        """Let the client ask so often from now on, whatever it still meant to do."""
        if self.is_done:
            self._joined.agenda.after(1, self._think, None)
        self.remaining = requests

    def _think(self, _: None) -> None:
        if self.outstanding is not None or self.remaining == 0:
            return
        group = self._prng.choice(self._groups)
        session = self._sessions.get(group)
        if session is None:
            session = self._sessions[group] = _Session(self._draw_id())
        if session.number == 0:
            session.sent.clear()
            self._ask(group, session, Operation.REGISTER, b"sim")
            return
        self.remaining -= 1
        session.request += 1
        if session.sent and self._prng.below(100) < self._options.replay:
            self._count("client.replayed")
            old = self._prng.choice(session.sent)
            self._joined.network.send(self.endpoint, self._prng.choice(self.targets), old)
        if session.answered and self._joined.reuses.below(100) < self._options.reuse:
            self._reuse(group, session)
        if self._prng.below(100) < self._options.logout:
            self._joined.checkers.leaving(session.client)
            self._ask(group, session, Operation.LOGOUT, b"")
        else:
            body = self._draw_body(session)
            self._joined.checkers.invoked(group, session.client, session.request, body)
            self._ask(group, session, Operation.CREATE_STREAM, body)

    def _draw_id(self) -> int:
        self._ids += 1
        client = (self._index + 1) << 64 | self._ids
        self._joined.registered(client, self)
        return client

    def _draw_body(self, session: _Session) -> bytes:
        if self._prng.below(100) < self._options.malformed:
            return b"\xff\xff" + session.request.to_bytes(8, "little")
        key = b"key-%d" % self._prng.below(self._options.keys)
        mark = b"%d.%d.%d." % (self._index, session.client & 0xFFFF, session.request)
        return encode_append(key, mark + bytes(self._prng.below(self._options.value_bytes_max)))

    def _ask(self, group: int, session: _Session, operation: Operation, body: bytes) -> None:
        is_register = operation == Operation.REGISTER
        number = 0 if is_register else session.request
        frame = self._frame(group, session, operation, number, body)
        if not is_register:
            session.sent.append(frame)
        self.outstanding = _Outstanding(group, session, operation, frame)
        self._send(self.outstanding)

    def _frame(
        self, group: int, session: _Session, operation: Operation, number: int, body: bytes
    ) -> bytes:
        header = RequestHeader(
            cluster=self._joined.cluster,
            size=HEADER_BYTES + len(body),
            client=session.client,
            request_checksum=xxh3_64(body),
            request=number,
            operation=operation,
            session=0 if operation == Operation.REGISTER else session.number,
            user_id=1,
            group=group,
        )
        return REQUEST.encode(header) + body

    def _reuse(self, group: int, session: _Session) -> None:
        """Send something else under a number that was answered; nobody waits for what comes."""
        self._count("client.reused")
        draws = self._joined.reuses
        number = draws.choice(session.answered)
        body = encode_append(b"key-0", b"another content under number %d" % number)
        self._joined.checkers.reused(session.client, number, xxh3_64(body))
        frame = self._frame(group, session, Operation.CREATE_STREAM, number, body)
        hint = self._hints.get(group)
        target = hint if hint in self.targets else draws.choice(self.targets)
        self._joined.network.send(self.endpoint, target, frame)

    def _send(self, asked: _Outstanding) -> None:
        asked.tries += 1
        hint = self._hints.get(asked.group)
        if (
            hint is None
            or hint not in self.targets
            or (asked.tries > 1 or self._prng.chance(1, 16))
        ):
            hint = self._prng.choice(self.targets)
        self._joined.network.send(self.endpoint, hint, asked.frame)
        self._joined.agenda.after(self.timeout, self._time_out, (asked, asked.tries))

    def _time_out(self, argument: tuple[_Outstanding, int]) -> None:
        asked, tries = argument
        if self.outstanding is asked and asked.tries == tries:
            self._count("client.timed_out")
            self._send(asked)

    def _retry(self, argument: tuple[_Outstanding, int]) -> None:
        asked, tries = argument
        if self.outstanding is asked and asked.tries == tries:
            self._send(asked)

    def _receive(self, source: int, frame: bytes, part: int) -> None:
        asked = self.outstanding
        try:
            payload = read_answer(frame)
        except EvictedError as evicted:
            self._joined.checkers.evicted(evicted.client, evicted.reason)
            if asked is not None and evicted.client == asked.session.client:
                self._evicted(asked, evicted)
            return
        except RefusedError as refused:
            if asked is not None and self._is_answer(asked, frame):
                self._refused(asked, frame, refused)
            return
        if asked is None or not self._is_answer(asked, frame):
            self._count("client.stale_answer")
            return
        self._hints[asked.group] = source
        if asked.operation == Operation.REGISTER:
            asked.session.number = int.from_bytes(payload[:8], "little")
            self._end(asked)
        elif asked.operation == Operation.LOGOUT:
            self._leave(asked)
        else:
            self._applied(asked, frame)

    @staticmethod
    def _is_answer(asked: _Outstanding, frame: bytes) -> bool:
        header = REPLY.decode(frame)
        return (
            header.client == asked.session.client
            and header.request == asked.request
            and header.operation == asked.operation
        )

    def _applied(self, asked: _Outstanding, frame: bytes) -> None:
        op = REPLY.decode(frame).op
        client = asked.session.client
        body = frame[HEADER_BYTES:]
        self._joined.checkers.answered(asked.group, client, asked.request, op, body)
        asked.session.answered = [*asked.session.answered[1 - _REUSED_MAX :], asked.request]
        self._count("client.acknowledged")
        self._end(asked)

    def _refused(self, asked: _Outstanding, frame: bytes, refused: RefusedError) -> None:
        if refused.code in _RETRIED:
            self._count(f"client.refused_{int(refused.code)}")
            delay = draw_delay(self._prng, 20_000)
            self._joined.agenda.after(delay, self._retry, (asked, asked.tries))
        elif refused.code == Code.INVALID_FORMAT and asked.operation == Operation.CREATE_STREAM:
            self._applied(asked, frame)
        elif refused.code == Code.REQUEST_ALREADY_APPLIED:
            self._count("client.already_applied")
            self._end(asked)
        else:
            raise SimViolationError(
                "R6",
                why="an answer that nobody may get",
                status=refused.code,
                operation=asked.operation.name,
                group=asked.group,
                request=asked.request,
            )

    def _evicted(self, asked: _Outstanding, evicted: EvictedError) -> None:
        if evicted.reason not in _RELOGIN:
            raise SimViolationError("R6", why="evicted", reason=evicted.reason, group=asked.group)
        self._count("client.evicted")
        if asked.operation == Operation.REGISTER:
            return  # It speaks of the session before.
        if asked.operation == Operation.LOGOUT:
            self._leave(asked)
            return
        asked.session.number = 0
        self._end(asked)

    def _leave(self, asked: _Outstanding) -> None:
        self._count("client.left")
        del self._sessions[asked.group]
        self._end(asked)

    def _end(self, asked: _Outstanding) -> None:
        assert self.outstanding is asked
        self.outstanding = None
        self._joined.agenda.after(
            draw_delay(self._prng, self._options.think_mean), self._think, None
        )

    def _count(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """What clients share: the world as they see it."""

    cluster: int
    targets: tuple[int, ...]
    agenda: Agenda
    network: Network
    checkers: Checkers
    reuses: Prng  # of its own, so that the other draws stay what they are
    registered: Callable[[int, Client], None]
