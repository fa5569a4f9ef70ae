"""Runs one shard of several in this process, as its supervisor says.

```
Setup -> open stores -> Opened -> Go -> run -> StoresOpen -> Begin -> Loaded -> (Listen) -> serve
the flag of the node: FINISH -> answer what is in flight -> Finished;  END -> stop, exit
```

The watchdog looks at the flag all the time, in every wait of the start too, and the process ends
only after it (SH-32, SH-34). If the supervisor is gone the shard ends at once, as if it was killed.
A shard whose lanes to a sibling are closed, and whom nobody tells to end, ends by itself: that
sibling lives, so the lanes broke, and half of the node would go on without the other.

Flow: recover.
"""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from headrace.base.placement import METADATA_SHARD
from headrace.runtime.allocator import give_back, keep_large_blocks
from headrace.runtime.bus.bus import Bus
from headrace.runtime.control import Line
from headrace.runtime.pump import hasten_threads, new_event_loop
from headrace.runtime.stop_flag import StopFlag, Wish
from headrace.server.audit_log import audit_log
from headrace.server.joined import Joined
from headrace.server.messages import (
    Begin,
    Failed,
    Finished,
    FromSupervisor,
    Go,
    Listen,
    Loaded,
    Opened,
    Setup,
    StoresOpen,
)
from headrace.server.node import Node
from headrace.server.root_password import make_root_password_hash
from headrace.server.why import REASONS, sentence_of

_LOOK_SECONDS = 0.05  # at the flag
_LOST_LOOKS_MAX = 40  # after which a sibling whose lanes are closed is alive: the lanes broke
_PR_SET_PDEATHSIG = 1

_log = logging.getLogger(__name__)


class _StoppedError(Exception):
    """The flag was raised while the shard started."""


class _LanesLostError(Exception):
    """The lanes to a sibling that lives are closed."""


def run_member(descriptor: int) -> int:
    """Run the shard that the supervisor at the other end of a line describes; return 0 or 1."""
    _end_with_supervisor()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # They are for the supervisor, which has them too.
    keep_large_blocks()
    hasten_threads()
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_run(socket.socket(fileno=descriptor)))
    finally:
        loop.close()


def _end_with_supervisor() -> None:
    """Have this process killed when its supervisor ends, whatever it does then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _run(end: socket.socket) -> int:
    line = Line(end, FromSupervisor)
    told: asyncio.Queue[Any] = asyncio.Queue()
    line.attach(lambda message: _take(told, message))
    setup: Setup = await told.get()
    shard = setup.placement.shard
    logging.basicConfig(format=f"shard {shard}: %(message)s", level=logging.WARNING)
    try:
        with ExitStack() as stack:
            flag = StopFlag(setup.flag)
            stack.callback(flag.close)
            if shard == METADATA_SHARD:
                stack.enter_context(audit_log(setup.config.audit.file))
            member = _Member(setup, line, told, flag)
            stack.callback(member.close)
            await member.live()
    except _StoppedError:
        return 0
    except _LanesLostError as error:
        line.tell(Failed(str(error)))
        return 1
    except REASONS as error:
        line.tell(Failed(sentence_of(error, setup.config)))
        return 1
    finally:
        line.close()
    return 0


def _take(told: asyncio.Queue[Any], message: object) -> None:
    if message is None:
        os._exit(1)  # The supervisor is gone: nobody is left who could report or wait.
    told.put_nowait(message)


class _Member:
    def __init__(self, setup: Setup, line: Line, told: asyncio.Queue[Any], flag: StopFlag) -> None:
        self._setup = setup
        self._line = line
        self._told = told
        self._flag = flag
        self._bus = Bus(setup.ends)
        self._node: Node | None = None

    def close(self) -> None:
        if self._node is not None:
            self._node.close()
        self._bus.close()

    async def live(self) -> None:
        """Open, serve, and end when the flag says so.

        Raises:
            Exception: One of `REASONS`.
        """
        setup = self._setup
        joined = Joined(setup.placement, setup.prepared, self._bus, setup.cpus)
        node = self._node = Node(
            setup.config,
            version=version("headrace"),
            boot_identity=setup.boot_identity,
            root_password_hash=make_root_password_hash(setup.config),
            joined=joined,
        )
        self._line.tell(Opened(node.moments))
        await self._unless_stopped(self._hear(Go))
        node.take_up()
        running = asyncio.get_running_loop().create_task(node.run())
        helpers: list[asyncio.Task[Any]] = []
        try:
            await self._serve(node, running, helpers)
        finally:
            for helper in helpers:
                helper.cancel()
            running.cancel()
            await asyncio.gather(running, *helpers, return_exceptions=True)

    async def _serve(
        self, node: Node, running: asyncio.Task[None], helpers: list[asyncio.Task[Any]]
    ) -> None:
        loop = asyncio.get_running_loop()
        starting = loop.create_task(self._start(node))
        watchdog = loop.create_task(self._watch(node))
        helpers += [starting, watchdog, loop.create_task(node.sample())]
        await asyncio.wait([running, starting, watchdog], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            give_back()
            await asyncio.wait([running, watchdog], return_when=asyncio.FIRST_COMPLETED)
        if not watchdog.done():
            await running  # It has failed: the supervisor ends the others.
        starting.cancel()
        await watchdog
        await running

    async def _start(self, node: Node) -> None:
        line = self._line
        await node.wait_open()
        line.tell(StoresOpen())
        await self._hear(Begin)
        await node.begin()
        line.tell(Loaded())
        if self._setup.placement.shard == METADATA_SHARD:
            asked: Listen = await self._hear(Listen)
            line.tell(await node.listen(tcp=asked.tcp, http=asked.http))

    async def _hear(self, kind: type[Any]) -> Any:  # noqa: ANN401 - an instance of `kind`
        """Wait for the next message of the supervisor, which is of this kind."""
        message = await self._told.get()
        assert isinstance(message, kind), f"{type(message).__name__} instead of {kind.__name__}"
        return message

    async def _watch(self, node: Node) -> None:
        """Shut this shard down when the flag is raised; wherever it is in its life."""
        await self._until(Wish.FINISH)
        loop = asyncio.get_running_loop()
        ending = loop.create_task(self._until(Wish.END))
        finishing = loop.create_task(node.finish())
        await asyncio.wait([finishing, ending], return_when=asyncio.FIRST_COMPLETED)
        if finishing.done():
            self._line.tell(Finished())
        await ending
        finishing.cancel()
        await node.end()

    async def _until(self, wish: Wish) -> None:
        """Look at the flag until this is wanted, or more.

        Raises:
            _LanesLostError: The lanes to a sibling broke.
        """
        looks = 0
        while self._flag.wish < wish:
            looks += bool(self._bus.lost) and self._flag.wish == Wish.RUN
            if looks > _LOST_LOOKS_MAX:
                lost = "; ".join(f"{shard}: {why}" for shard, why in self._bus.lost.items())
                raise _LanesLostError(f"its lanes are closed to shard {lost}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _unless_stopped(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait for something of the start, and look at the flag meanwhile (SH-32).

        Raises:
            _StoppedError: The flag was raised.
        """
        task = asyncio.get_running_loop().create_task(work)
        while not task.done():
            if self._flag.wish != Wish.RUN:
                task.cancel()
                raise _StoppedError
            await asyncio.wait([task], timeout=_LOOK_SECONDS)
        await task
