"""What both faces share, and how a call, declared once, becomes a method of each.

```python
class Client:
    create_stream = blocking(streams.create_stream)
```

The method takes the arguments that the function takes, and gives what its call is answered with.
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


class Face:
    """What both faces are: a session, and how it shows."""

    def __init__(self, settings: Settings) -> None:
        keep_large_blocks()
        self._session = Session(settings, secrets.randbits(127) + 1)
        self._sender = Sender()
        self._process = os.getpid()

    @property
    def address(self) -> Endpoint:
        """The server that it talks to."""
        return self._session.settings.endpoint

    @property
    def client_id(self) -> int:
        """The number by which servers know this client, over all its connections."""
        return self._session.client

    @property
    def logins_count(self) -> int:
        """How often it has logged in; more than once says that it was reconnected."""
        return self._session.logins_count

    def _check_process(self) -> None:
        """Refuse to work in a forked process: its requests would bear the numbers of its parent's.

        Raises:
            ClientClosed: It was made in another process.
        """
        if os.getpid() != self._process:
            raise ClientClosed("the client was made in another process: connect in this one")

    def __repr__(self) -> str:
        return f"<client of {self.address}>"


class Blocks(Protocol):
    """A face that waits for the answer."""

    def ask(self, call: Call[R], /) -> R:
        """Send a call and give its answer."""
        ...

    def follow(self, flow: Flow[R], /) -> R:
        """Carry out what a flow asks for, to its end."""
        ...


class Awaits(Protocol):
    """A face whose answers are awaited."""

    def number(self, call: Call[R], /) -> Call[R]:
        """Give the call with its number, to be asked again under it if asking is cancelled."""
        ...

    def ask(self, call: Call[R], /) -> Coroutine[Any, Any, R]:
        """Send a call and give its answer."""
        ...

    def follow(self, flow: Flow[R], /) -> Coroutine[Any, Any, R]:
        """Carry out what a flow asks for, to its end."""
        ...


def blocking(make: Callable[P, Call[R]]) -> Callable[Concatenate[Blocks, P], R]:
    """Give the method that makes a call and waits for its answer."""

    @wraps(make)
    def method(self: Blocks, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.ask(make(*args, **kwargs))

    _show_as_method(method, make)
    return method


def awaiting(
    make: Callable[P, Call[R]],
) -> Callable[Concatenate[Awaits, P], Coroutine[Any, Any, R]]:
    """Give the method that makes a call and whose answer is awaited."""

    @wraps(make)
    def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.ask(make(*args, **kwargs))

    _show_as_method(method, make)
    return method


def _show_as_method(method: Callable[..., object], make: Callable[..., object]) -> None:
    """Have `help` show the arguments of the function, behind `self`, and what is answered."""
    shown = inspect.signature(make)
    oneself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    (answer,) = get_args(shown.return_annotation)
    signature = shown.replace(
        parameters=[oneself, *shown.parameters.values()], return_annotation=answer
    )
    method.__signature__ = signature  # type: ignore[attr-defined] # what `inspect` looks for
