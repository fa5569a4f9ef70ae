"""The base of both clients, and how a call, declared once, becomes a method of each.

```python
class Client:
    create_stream = blocking(streams.create_stream)
```

The method takes the arguments of the function and returns the answer to its call.
"""

import inspect
import os
import secrets
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, get_args

from headrace.base.endpoints import Endpoint
from headrace.client.errors import ClientClosed
from headrace.client.produce.direct import Sender
from headrace.client.session.allocator import keep_large_blocks
from headrace.client.session.call import Call, Flow
from headrace.client.session.session import Session
from headrace.client.session.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


class BaseClient:
    """The base of both clients: a session, and its properties."""

    def __init__(self, settings: Settings) -> None:
        keep_large_blocks()
        self._session = Session(settings, secrets.randbits(127) + 1)
        self._sender = Sender()
        self._process = os.getpid()

    @property
    def address(self) -> Endpoint:
        """The address of the server."""
        return self._session.settings.endpoint

    @property
    def client_id(self) -> int:
        """The number by which servers identify this client, over all its connections."""
        return self._session.client

    @property
    def logins_count(self) -> int:
        """The number of logins; more than one means that it reconnected."""
        return self._session.logins_count

    def _check_process(self) -> None:
        """Refuse to work in a forked process: its request numbers would collide with the parent's.

        Raises:
            ClientClosed: The client was created in another process.
        """
        if os.getpid() != self._process:
            raise ClientClosed("the client was made in another process: connect in this one")

    def __repr__(self) -> str:
        return f"<client of {self.address}>"


class BlockingCaller(Protocol):
    """A client whose calls block until the answer arrives."""

    def ask(self, call: Call[R], /) -> R:
        """Send a call and return its answer."""
        ...

    def follow(self, flow: Flow[R], /) -> R:
        """Carry out all steps of a flow and return its result."""
        ...


class AsyncCaller(Protocol):
    """A client whose calls are awaited."""

    def number(self, call: Call[R], /) -> Call[R]:
        """Return the call with a request number, to repeat it after a cancellation."""
        ...

    def ask(self, call: Call[R], /) -> Coroutine[Any, Any, R]:
        """Send a call and return its answer."""
        ...

    def follow(self, flow: Flow[R], /) -> Coroutine[Any, Any, R]:
        """Carry out all steps of a flow and return its result."""
        ...


def blocking(make: Callable[P, Call[R]]) -> Callable[Concatenate[BlockingCaller, P], R]:
    """Return a method that sends the call and blocks until the answer arrives."""

    @wraps(make)
    def method(self: BlockingCaller, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.ask(make(*args, **kwargs))

    _show_as_method(method, make)
    return method


def awaiting(
    make: Callable[P, Call[R]],
) -> Callable[Concatenate[AsyncCaller, P], Coroutine[Any, Any, R]]:
    """Return a method that sends the call and whose answer is awaited."""

    @wraps(make)
    def method(self: AsyncCaller, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.ask(make(*args, **kwargs))

    _show_as_method(method, make)
    return method


def _show_as_method(method: Callable[..., object], make: Callable[..., object]) -> None:
    """Make `help` show the function's arguments after `self`, and the type of the answer."""
    shown = inspect.signature(make)
    oneself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    (answer,) = get_args(shown.return_annotation)
    signature = shown.replace(
        parameters=[oneself, *shown.parameters.values()], return_annotation=answer
    )
    method.__signature__ = signature  # type: ignore[attr-defined] # what `inspect` looks for
