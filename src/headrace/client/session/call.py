"""A call: one request to the server, and how its answer is decoded."""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from headrace.client.errors import refused
from headrace.client.session.steps import Pause
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code
from headrace.wire.numbers import Operation

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Q = TypeVar("Q")


class Call(msgspec.Struct, Generic[R_co], frozen=True):
    """A request, and the function that turns the payload of its answer into a value.

    A call has no state. The session numbers it when it is sent, or earlier if it may have to be
    repeated. The payload is a view that is invalid once `read` has returned, so `read` copies what
    it keeps. With `is_view` the answer itself is a view of the payload and keeps that memory.
    """

    command: Command[Any, Any]  # `read` has the type of the answer.
    body: bytes
    read: Callable[[memoryview], R_co]
    asked: str
    batch: bytes = b""  # the last part of the body, if it may be large
    is_view: bool = False
    number: int = 0  # the request number; 0 until it is assigned

    @property
    def is_replicated(self) -> bool:
        """Whether it changes state, so that the server must apply it exactly once."""
        return self.command.operation != Operation.NON_REPLICATED

    def __repr__(self) -> str:
        # A body may hold a password.
        return f"<call: {self.asked}>"


class Ahead:
    """A read to be sent before its answer is needed: the next `ask` of the same call fetches it.

    Another call in between discards the answer, and the read is then sent again.
    """

    __slots__ = ("call", "is_discarded", "number")

    def __init__(self, call: Call[Any]) -> None:
        assert not call.is_replicated
        self.call = call
        self.number = 0  # its request number, once it is sent
        self.is_discarded = False


# Logic above the session is written as flows; see `headrace.client.session.steps`.
Flow: TypeAlias = Generator[Call[Any] | Pause | Ahead, Any, R]


NOTHING = object()  # the command has no object to name


def make_call(command: Command[Q, R], request: Q, about: object = NOTHING) -> Call[R]:
    """Return the call of a command; `about` names its object in errors.

    Raises:
        ValueError: A value does not fit its field; the message names the request.
    """
    asked = f"{command.name} {about!r}" if about is not NOTHING else command.name
    try:
        body = command.encode_request(request)
    except ValueError as error:
        raise ValueError(f"{asked}: {error}") from None
    return Call(command, body, command.decode_reply, asked)


def make_get(command: Command[Q, R | None], request: Q, about: object, missing: Code) -> Call[R]:
    """Return the call of a command whose answer is empty if the object does not exist."""
    maybe = make_call(command, request, about)

    def read(payload: memoryview) -> R:
        found = maybe.read(payload)
        if found is None:
            raise refused(missing, maybe.asked)
        return found

    return Call(command, maybe.body, read, maybe.asked)


def ask(call: Call[R]) -> Flow[R]:
    """Send a call from within a flow and return its typed answer."""
    answer: R = yield call
    return answer


def pause(seconds: float) -> Flow[None]:
    """Wait from within a flow."""
    yield Pause(seconds)
