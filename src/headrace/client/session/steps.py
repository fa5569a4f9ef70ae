"""How code without I/O requests it: a generator yields an effect and receives its result.

The session yields the effects of this module, carried out over a socket. The logic above the
session yields calls and pauses, carried out by the session. Both clients drive the same generators,
so a retry or a rebalance is written and tested once.

```
steps = session.ask(call)      Open, Transmit, Receive, Pause   -> carried out by a client's link
flow  = reader.work()          Call, Pause                      -> carried out by the client
```
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.base.limits import KIB
from headrace.client.errors import HeadraceError

R = TypeVar("R")
W = TypeVar("W")

JOIN_BYTES_MAX = 64 * KIB  # a link copies a batch up to this size, to write it with its head

# Errors that carrying out an effect may raise into the generator, which then decides what to do.
FAILURES = (OSError, HeadraceError)


class Open(msgspec.Struct, frozen=True):
    """Close the current connection, if there is one, and open a new one."""

    endpoint: Endpoint
    seconds_max: float


class Transmit(msgspec.Struct, frozen=True):
    """Send the parts of one frame: its header and body, then a batch that may be large.

    They are separate to avoid copying a large batch.
    """

    head: bytes
    batch: bytes
    seconds_max: float


class Receive(msgspec.Struct, frozen=True):
    """Wait for bytes; the result is the number received, 0 if the peer closed the connection.

    Nothing can be done with fewer than `bytes_min` bytes, so the link may wait for that many.
    """

    into: memoryview
    bytes_min: int
    seconds_max: float


class Pause(msgspec.Struct, frozen=True):
    """Wait."""

    seconds: float


Effect: TypeAlias = Open | Transmit | Receive | Pause
# The type of a result depends on its effect, which no type checker can express.
Steps: TypeAlias = Generator[Effect, Any, R]


def drive(steps: Generator[W, Any, R], carry_out: Callable[[W], Any]) -> R:
    """Run steps to their end, calling `carry_out` for each, and return their result.

    If it is interrupted, the steps are closed so that they can clean up.
    """
    try:
        wanted = next(steps)
        while True:
            try:
                answer = carry_out(wanted)
            except FAILURES as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(answer)
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        steps.close()


async def drive_async(steps: Generator[W, Any, R], carry_out: Callable[[W], Awaitable[Any]]) -> R:
    """Do the same as `drive` with an awaited `carry_out`; a cancelled task interrupts it."""
    try:
        wanted = next(steps)
        while True:
            try:
                answer = await carry_out(wanted)
            except FAILURES as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(answer)
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        steps.close()
