"""A server made of a script, and a clock that only moves when somebody waits: no sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.base.endpoints import Endpoint
from headrace.base.limits import HEADER_BYTES
from headrace.client.session.session import Session
from headrace.client.session.settings import Settings
from headrace.client.session.steps import Effect, Open, Pause, Steps, Transmit, drive
from headrace.wire.commands.session import LOGIN_PASSWORD, PasswordLogin, Registered
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.numbers import Operation
from headrace.wire.replies import RESULT_OK, encode_rejection, encode_reply
from headrace.wire.requests import REQUEST, RequestHeader
from headrace.wire.versions import PROTOCOL_PACKED

R = TypeVar("R")
CLIENT = 0xC0FFEE
ENDPOINT = Endpoint("127.0.0.1", 8090)


@dataclass(frozen=True)
class Asked:
    """A request that reached the server."""

    header: RequestHeader
    body: bytes


# What the server does with a request: bytes are its answer, b"" closes, None says nothing.
Answer = Callable[[Asked], bytes | None]


def reply(payload: bytes = b"", *, framed: bool = False) -> Answer:
    return lambda asked: encode_reply(asked.header, RESULT_OK + payload if framed else payload)


def status(code: Code) -> Answer:
    return lambda asked: encode_reply(asked.header, b"", status=code)


def rejection(code: Code) -> Answer:
    return lambda asked: encode_reply(asked.header, encode_rejection(code))


def eviction(reason: EvictionReason) -> Answer:
    return lambda asked: encode_eviction(reason, asked.header.client)


def raw(data: bytes) -> Answer:
    return lambda _: data


def close() -> Answer:
    return lambda _: b""


def silence() -> Answer:
    return lambda _: None


@dataclass
class ScriptedServer:
    """Answers logins by itself, and everything else by the script, in order."""

    script: list[Answer] = field(default_factory=list)
    logins: list[Answer] = field(default_factory=list)  # instead of a welcome, in order
    refused_opens: int = 0
    piece_bytes: int = 0  # answers come in pieces of this size, if not 0

    now: float = 100.0
    opens: int = 0
    pauses: list[float] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)  # what was no login
    registers: list[Asked] = field(default_factory=list)
    _answer: bytes | None = b""
    _session: int = 10

    def session(self, **settings: Any) -> Session:
        login = PasswordLogin("iggy", b"iggy")
        # A script may begin with lost connections: they are tried again.
        patient = {"wait_seconds": settings.get("timeout_seconds", 30.0)}
        made = Settings(ENDPOINT, login, **(patient | settings))
        return Session(made, CLIENT, now=lambda: self.now, chance=lambda: 0.0)

    def run(self, steps: Steps[R]) -> R:
        return drive(steps, self.carry_out)

    def carry_out(self, effect: Effect) -> int:
        if isinstance(effect, Pause):
            self.pauses.append(effect.seconds)
            self.now += effect.seconds
        elif isinstance(effect, Open):
            self._open()
        elif isinstance(effect, Transmit):
            self._take(effect)
        else:
            piece = self._give(len(effect.into), effect.seconds_max)
            effect.into[: len(piece)] = piece
            return len(piece)
        return 0

    def _open(self) -> None:
        self.opens += 1
        self._answer = b""
        if self.refused_opens:
            self.refused_opens -= 1
            raise ConnectionRefusedError("nobody listens")

    def _take(self, effect: Transmit) -> None:
        frame = effect.head + effect.batch
        header = REQUEST.decode(frame)
        assert header.size == len(frame)
        asked = Asked(header, frame[HEADER_BYTES:])
        if header.operation == Operation.REGISTER:
            self.registers.append(asked)
            answer = self.logins.pop(0) if self.logins else self._welcome
        else:
            self.asked.append(asked)
            answer = self.script.pop(0)
        self._answer = answer(asked)

    def _welcome(self, asked: Asked) -> bytes:
        self._session += 1
        registered = Registered(0, self._session, PROTOCOL_PACKED, "0.1.0")
        return encode_reply(asked.header, RESULT_OK + LOGIN_PASSWORD.encode_reply(registered))

    def _give(self, bytes_max: int, seconds_max: float) -> bytes:
        if self._answer is None:
            self.now += seconds_max
            raise TimeoutError("timed out")
        size = min(self.piece_bytes or len(self._answer), bytes_max)
        piece, self._answer = self._answer[:size], self._answer[size:]
        return piece

    @property
    def numbers(self) -> list[int]:
        """The numbers of the requests, in the order in which they came."""
        return [each.header.request for each in self.asked]
