"""The pump: joins a shard with the world around it, in one event loop.

```
put, tell   from connections    -+
ask         from other shards   -+
wake        from other threads  -+-> one turn: gather, step, carry out; again as long as
tick        every 10 ms         -+   effects are answered at once; then the turn ends
```

The first thing that a loop iteration brings asks for a turn, and the loop runs it when all readable
connections have been read: one turn takes the frames of all of them.

Flow:       receive, reply.
Invariants: the shard is stepped by this loop alone, and never within a step;
            effects are carried out in their order, those of one event before the next event;
            after a failure the shard is not stepped again (PR7).
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from headrace.ports.bus import ReleaseReply, SendToMember
from headrace.ports.disk import OnStore
from headrace.ports.network import (
    CloseConnection,
    ConnectionClosed,
    ReadConnections,
    RequestsArrived,
    SendFrame,
    SendReply,
    SendToConnection,
    Ticked,
)

TICK_SECONDS = 0.01
# A thread that comes back from a sync waits at most so long for the interpreter; Python's default
# is ten times that, and a turn full of large frames would delay the next sync by it.
SWITCH_SECONDS = 0.0005
# The shortest sleep of a loop that counts milliseconds.
_SLEEP_SECONDS_MIN = 0.001
# Effects answered at once may lead to more of them; after so many rounds sockets get their turn.
_ROUNDS_MAX = 64
# Requests that came while the process stood still wait until the shard knows how long that was:
# what a primary may say rests on its clock (O6.2).
_STALL_TICKS = 2
_STALL_SECONDS = _STALL_TICKS * TICK_SECONDS
# No world has an event for these when they are carried out: what answers them at once is returned
# by their handler, so that a turn that only journals and replies asks no world.
_UNASKED = frozenset(
    (
        *(OnStore, SendToConnection, SendReply, SendFrame, CloseConnection, ReadConnections),
        *(SendToMember, ReleaseReply),
    )
)

_log = logging.getLogger(__name__)


class Core(Protocol):
    """A whole shard: takes events, returns effects."""

    def start(self) -> Sequence[object]:
        """Return the effects of the start."""

    def step(self, event: Any) -> Sequence[object]:  # noqa: ANN401 - each core has its own union
        """Take one event; return its effects, in order."""


class World(Protocol):
    """A part of the world that has events; it calls `Pump.wake` or `Pump.ask` for new ones."""

    def take_events(self) -> Sequence[object]:
        """Return the events since the last call, in order."""


class PumpFailedError(Exception):
    """The shard or a handler of its effects raised: the process must end."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the fastest event loop that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def hasten_threads() -> None:
    """Shorten the switch interval of threads; call it once in a process with a pump."""
    sys.setswitchinterval(SWITCH_SECONDS)


class Pump:
    """Runs one core; everything but `wake` is called from its event loop.

    It exists before its core: transports put into it and worlds wake it from the start, and it
    queues what arrives until it runs.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._now = 0
        self._told_at = 0.0  # when the shard was told the time
        self._step: Callable[[Any], Sequence[object]] = _refuse_step
        self._handlers: dict[type, Callable[[Any], object | None]] = {}
        self._worlds: tuple[World, ...] = ()
        self._ends_turn: Callable[[], None] = _do_nothing
        # What the next turn takes, in this order; worlds come before the frames.
        self._time: Ticked | None = None
        self._early: list[object] = []
        self._frames: list[tuple[int, bytearray]] = []
        self._late: list[object] = []
        self._is_scheduled = False
        self._is_woken = False
        self._is_asking = True  # whether worlds may have events that nobody woke us for
        self._is_running = False

    # Beginning and end.

    async def run(
        self,
        core: Core,
        *,
        carry_out: Mapping[type, Callable[[Any], object | None]],
        worlds: Sequence[World] = (),
        ends_turn: Callable[[], None] | None = None,
    ) -> None:
        """Start the core and run it until `stop`.

        `carry_out` has a handler for the type of every effect, which may return the event that
        answers it at once; `ends_turn` is called when all effects of a turn have been carried out.

        Raises:
            PumpFailedError: The core, a handler or a world raised; its cause says what.
        """
        assert self._loop is None, "a pump runs once"
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._step = core.step
        self._handlers = dict(carry_out)
        self._worlds = tuple(worlds)
        self._ends_turn = ends_turn or _do_nothing
        self._is_running = True
        self._began = self._told_at = time.monotonic()
        self._time = Ticked(0, _wall())
        self._guard(lambda: self._start(core))
        try:
            await self._ended
        finally:
            self._halt()

    def stop(self) -> None:
        """Stop after the queued events; `run` returns."""
        self._halt()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _start(self, core: Core) -> None:
        for effect in core.start():
            answer = self._handlers[type(effect)](effect)
            if answer is not None:
                self._early.append(answer)
        self._is_asking = True
        self._arm()
        self._turn()

    def _halt(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Input.

    def put(self, connection: int, frame: bytearray) -> None:
        """Take a whole frame of a connection into this turn."""
        self._frames.append((connection, frame))
        if not self._is_scheduled and self._is_running:
            assert self._loop is not None
            self._is_scheduled = True
            self._loop.call_soon(self._guard, self._turn)

    def tell(self, event: object) -> None:
        """Take news into this turn: of a connection, or of the host."""
        (self._late if type(event) is ConnectionClosed else self._early).append(event)
        if not self._is_scheduled:
            self._schedule()

    def wake(self) -> None:
        """Announce events of a world; callable from any thread, free until they are taken."""
        if self._is_woken or not self._is_running:
            return
        self._is_woken = True
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_woken)

    def ask(self) -> None:
        """Announce events of a world that lives in this loop; a turn takes them."""
        self._is_asking = True
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if self._is_running:
            assert self._loop is not None
            self._is_scheduled = True
            self._loop.call_soon(self._guard, self._turn)

    def _on_woken(self) -> None:
        # Cleared before the events are taken: one that comes later wakes again.
        self._is_woken = False
        self._is_asking = True
        self._guard(self._turn)

    def _on_tick(self) -> None:
        """Deliver the time; after a stall once, with all the ticks that have passed (SH-21)."""
        self._tell_time(ticks_min=1)
        self._arm()
        self._guard(self._turn)

    def _tell_time(self, *, ticks_min: int) -> None:
        now = int((time.monotonic() - self._began) / TICK_SECONDS)
        if now - self._now >= ticks_min:
            self._now = now
            self._told_at = self._began + now * TICK_SECONDS
            # In place of one that waits: it may have been delivered in this very turn, before the
            # process was stopped, and time must not fall.
            self._time = Ticked(now, _wall())

    def _arm(self) -> None:
        assert self._loop is not None
        due = self._began + (self._now + 1) * TICK_SECONDS
        delay = max(_SLEEP_SECONDS_MIN, due - time.monotonic())
        self._timer = self._loop.call_later(delay, self._on_tick)

    # One turn.

    def _guard(self, work: Callable[[], None]) -> None:
        """Run a part of the pump: the one place where a failure of the core is caught."""
        if not self._is_running:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the crash boundary
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._halt()
        _log.critical("the shard has failed: %s: %s", type(error).__name__, error)
        assert self._ended is not None
        if not self._ended.done():
            failure = PumpFailedError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            self._ended.set_exception(failure)

    def _turn(self) -> None:
        """Step through all queued events, and those that answer their effects at once."""
        self._is_scheduled = False
        step, handlers = self._step, self._handlers
        events = self._gather()
        for _ in range(_ROUNDS_MAX):
            answers: list[object] = []
            for event in events:
                for effect in step(event):
                    kind = type(effect)
                    answer = handlers[kind](effect)
                    if answer is not None:
                        answers.append(answer)
                    elif kind not in _UNASKED:
                        self._is_asking = True
            if not self._is_running:
                break
            if self._is_asking:
                answers += self._gather()
            elif not answers:
                break
            events = answers
        else:
            self._early += events
            self._schedule()
        self._ends_turn()

    def _gather(self) -> list[object]:
        """Return the events of one round: time, arrivals, worlds, requests, departures."""
        if self._frames and time.monotonic() - self._told_at >= _STALL_SECONDS:
            self._tell_time(ticks_min=_STALL_TICKS)
        events, self._early = self._early, []
        if self._time is not None:
            events.insert(0, self._time)
            self._time = None
        if self._is_asking or self._is_woken:
            self._is_asking = False
            for world in self._worlds:
                events += world.take_events()
        if self._frames:
            frames, self._frames = self._frames, []
            events.append(RequestsArrived(tuple(frames), time.time_ns() // 1000))
        if self._late:
            events += self._late
            self._late = []
        return events


def _refuse_step(event: object) -> Sequence[object]:
    raise AssertionError(f"{type(event).__name__} before the pump runs")


def _do_nothing() -> None:
    """Do nothing at the end of a turn."""


def _wall() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1000
