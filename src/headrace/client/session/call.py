"""A call: one request to the server, and how its answer is read."""

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
    """What is sent and how the payload of the answer becomes a value.

    It has no state: the session gives it a number when it is asked, or before if it may have to be
    asked again. The payload is a view that is
    void when `read` has returned, so `read` copies what it keeps; or the call says that its answer
    `is_view`, and the memory of the payload is that of the answer.
    """

    command: Command[Any, Any]  # `read` has the type of the answer.
    body: bytes
    read: Callable[[memoryview], R_co]
    asked: str
    batch: bytes = b""  # the end of the body, where that may be large
    is_view: bool = False
    number: int = 0  # of the request, once it has one

    @property
    def is_replicated(self) -> bool:
        """Whether it changes something, so that the server must apply it once."""
        return self.command.operation != Operation.NON_REPLICATED

    def __repr__(self) -> str:
        # A body may hold a password.
        return f"<call: {self.asked}>"


# What logic above the session is made of; see `headrace.client.session.steps`.
Flow: TypeAlias = Generator[Call[Any] | Pause, Any, R]


NOTHING = object()  # what the calls of a command without an object are about


def make_call(command: Command[Q, R], request: Q, about: object = NOTHING) -> Call[R]:
    """Give the call of a command; `about` names its object in errors.

    Raises:
        ValueError: A value does not fit its field; the sentence names the request.
    """
    asked = f"{command.name} {about!r}" if about is not NOTHING else command.name
    try:
        body = command.encode_request(request)
    except ValueError as error:
        raise ValueError(f"{asked}: {error}") from None
    return Call(command, body, command.decode_reply, asked)


def make_get(command: Command[Q, R | None], request: Q, about: object, missing: Code) -> Call[R]:
    """Give the call of a command that answers with nothing when there is no such object."""
    maybe = make_call(command, request, about)

    def read(payload: memoryview) -> R:
        found = maybe.read(payload)
        if found is None:
            raise refused(missing, maybe.asked)
        return found

    return Call(command, maybe.body, read, maybe.asked)


def ask(call: Call[R]) -> Flow[R]:
    """Have a call carried out from within a flow; give its typed answer."""
    answer: R = yield call
    return answer


def pause(seconds: float) -> Flow[None]:
    """Let time pass from within a flow."""
    yield Pause(seconds)
