"""How logic without I/O asks for it: a generator yields what is to be done and gets the answer.

The session yields the effects of this module and is driven over a socket; what is above it yields
calls and pauses, and is driven over the session. Both faces of the client drive the same
generators, so a retry or a rebalance is written, and tested, once.

```
steps = session.ask(call)      Open, Transmit, Receive, Pause   -> carried out by a face's link
flow  = reader.work()          Call, Pause                      -> carried out by a face's client
```
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.client.errors import HeadraceError

R = TypeVar("R")
W = TypeVar("W")

# What the carrier of an effect may raise into the generator, which then decides what follows.
FAILURES = (OSError, HeadraceError)


class Open(msgspec.Struct, frozen=True):
    """Drop the connection that there may be and make a new one."""

    endpoint: Endpoint
    seconds_max: float


class Transmit(msgspec.Struct, frozen=True):
    """Send the parts of one frame: its header and body, and behind them a batch that may be large.

    They are apart so that a large batch is not copied once more.
    """

    head: bytes
    batch: bytes
    seconds_max: float


class Receive(msgspec.Struct, frozen=True):
    """Wait for bytes; the answer is how many came, 0 when the other side closed.

    Nothing can be done before `bytes_min` have come, so a carrier may wait for that many.
    """

    into: memoryview
    bytes_min: int
    seconds_max: float


class Pause(msgspec.Struct, frozen=True):
    """Let time pass."""

    seconds: float


Effect: TypeAlias = Open | Transmit | Receive | Pause
# The answer to an effect has the type that the effect implies, which no checker can follow.
Steps: TypeAlias = Generator[Effect, Any, R]


def drive(steps: Generator[W, Any, R], carry_out: Callable[[W], Any]) -> R:
    """Run steps to their end with somebody who carries out what they ask for, blocking.

    If it is interrupted the steps are closed, and put in order what they left half done.
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
    """Do what `drive` does with somebody who is awaited; a cancelled task interrupts it."""
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
