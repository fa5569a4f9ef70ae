"""The pump: one turn for what a loop iteration brings, and an end at the first failure."""

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from headrace.ports.disk import Synced, WriteJournal, Written
from headrace.ports.network import (
    ConnectionClosed,
    ConnectionOpened,
    RequestsArrived,
    SendToConnection,
    Ticked,
)
from headrace.runtime.pump import (
    SWITCH_SECONDS,
    Pump,
    PumpFailedError,
    hasten_threads,
    new_event_loop,
)
from headrace.transports.limits import TcpLimits
from headrace.transports.tcp import TcpListener
from headrace.wire.numbers import Transport
from tests.transports.stage import LOOPS, frame_of, mark_of, receive, run, send

WAIT_SECONDS = 10
RECORD = WriteJournal(1, 0, 0, (), 0, sync=True)


class Note(msgspec.Struct, frozen=True):
    """An effect that nobody answers."""

    text: str


class Script:
    """A core that remembers its events and answers each as told."""

    def __init__(self, answer: Callable[[Any], list[object]] = lambda _: []) -> None:
        self.events: list[object] = []
        self.answer = answer

    def start(self) -> list[object]:
        return [Note("start")]

    def step(self, event: Any) -> list[object]:
        self.events.append(event)
        return self.answer(event)

    def without_time(self) -> list[object]:
        return [
            RequestsArrived(event.frames) if isinstance(event, RequestsArrived) else event
            for event in self.events
            if type(event) is not Ticked
        ]


class Disk:
    """A world that answers a write at once, and syncs from a thread."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.asked = 0
        self.wake: Callable[[], None] = lambda: None

    def submit(self, effect: WriteJournal) -> None:
        self.events.append(Written(effect.sequence))

    def sync(self, sequence: int) -> None:
        self.events.append(Synced(sequence))
        self.wake()

    def take_events(self) -> list[object]:
        self.asked += 1
        events, self.events = self.events, []
        return events


class Scene:
    """A pump with its core, one world, and a list of what was carried out."""

    def __init__(self, answer: Callable[[Any], list[object]] = lambda _: []) -> None:
        self.core = Script(answer)
        self.disk = Disk()
        self.done: list[object] = []
        self.turns = 0
        self.handlers: dict[type, Callable[[Any], None]] = {
            Note: self.done.append,
            SendToConnection: self.done.append,
            WriteJournal: self.disk.submit,
        }
        self.pump = Pump()
        self.disk.wake = self.pump.wake

    async def run(self) -> None:
        await self.pump.run(
            self.core, carry_out=self.handlers, worlds=(self.disk,), ends_turn=self.end_turn
        )

    def end_turn(self) -> None:
        self.turns += 1

    async def play(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the pump while something is done to it."""
        running = asyncio.ensure_future(self.run())
        await asyncio.sleep(0)
        try:
            await act()
        finally:
            self.pump.stop()
            await running

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - not all of it is told
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("loop", LOOPS)
class TestPump:
    def test_it_starts_the_core_and_tells_the_time(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()

            async def act() -> None:
                await scene.until(lambda: len(scene.core.events) >= 4)

            await scene.play(act)
            assert scene.done == [Note("start")]
            ticks = [event for event in scene.core.events if isinstance(event, Ticked)]
            assert ticks == scene.core.events
            assert ticks[0].now == 0
            assert all(one.now < two.now for one, two in pairwise(ticks))
            assert all(tick.wall > 1_700_000_000_000_000 for tick in ticks)

        run(loop, main())

    def test_what_comes_before_it_runs_is_kept(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()
            scene.pump.put(1, bytearray(b"x"))
            scene.disk.sync(7)

            async def act() -> None:
                await scene.until(lambda: len(scene.core.without_time()) == 2)

            await scene.play(act)
            assert scene.core.events[0] == Ticked(0, scene.core.events[0].wall)  # type: ignore[attr-defined]
            assert scene.core.without_time() == [
                Synced(7),
                RequestsArrived(((1, bytearray(b"x")),)),
            ]

        run(loop, main())

    def test_a_turn_is_one_event_with_the_frames_of_all(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()

            async def act() -> None:
                frames = [bytearray([each]) for each in range(3)]
                scene.pump.put(1, frames[0])
                scene.pump.put(2, frames[1])
                scene.pump.put(1, frames[2])
                await scene.until(lambda: bool(scene.core.without_time()))
                (arrived,) = scene.core.without_time()
                assert isinstance(arrived, RequestsArrived)
                assert arrived.frames == ((1, frames[0]), (2, frames[1]), (1, frames[2]))
                assert arrived.frames[0][1] is frames[0]  # It was handed over, not copied.

            await scene.play(act)

        run(loop, main())

    def test_a_connection_opens_before_and_closes_after_its_frames(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()
            opened = ConnectionOpened(1, Transport.TCP, "here")

            async def act() -> None:
                scene.pump.tell(opened)
                scene.pump.put(1, bytearray(b"x"))
                scene.pump.tell(ConnectionClosed(1))
                await scene.until(lambda: len(scene.core.without_time()) == 3)
                assert scene.core.without_time() == [
                    opened,
                    RequestsArrived(((1, bytearray(b"x")),)),
                    ConnectionClosed(1),
                ]

            await scene.play(act)

        run(loop, main())

    def test_what_is_answered_at_once_is_stepped_in_the_same_turn(self, loop: str) -> None:
        def answer(event: object) -> list[object]:
            if isinstance(event, RequestsArrived):
                return [RECORD, Note("written")]
            return [SendToConnection(1, (b"ok",))] if isinstance(event, Written) else []

        async def main() -> None:
            scene = Scene(answer)

            async def act() -> None:
                turns, asked = scene.turns, scene.disk.asked
                scene.pump.put(1, bytearray(b"x"))
                await scene.until(lambda: scene.turns > turns)
                assert [type(event) for event in scene.core.without_time()] == [
                    RequestsArrived,
                    Written,
                ]
                assert scene.done[1:] == [Note("written"), SendToConnection(1, (b"ok",))]
                # Not asked again after a reply, which nobody answers.
                assert scene.disk.asked == asked + 1

            await scene.play(act)

        run(loop, main())

    def test_another_thread_wakes_it_once_until_it_has_looked(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()
            calls: list[object] = []

            async def act() -> None:
                running = asyncio.get_running_loop()
                assert scene.pump._loop is running
                scene.pump._loop = _Counting(running, calls)  # type: ignore[assignment]

                def work() -> None:
                    for sequence in range(1, 101):
                        scene.disk.sync(sequence)

                thread = threading.Thread(target=work)
                thread.start()
                thread.join()  # The loop has had no turn meanwhile.
                assert len(calls) == 1
                await scene.until(lambda: len(scene.core.without_time()) == 100)
                assert scene.core.without_time() == [Synced(each) for each in range(1, 101)]
                scene.disk.sync(101)
                assert len(calls) == 2
                await scene.until(lambda: len(scene.core.without_time()) == 101)

            await scene.play(act)

        run(loop, main())

    def test_answers_without_end_leave_the_loop_its_turns(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene(lambda event: [RECORD] if type(event) in (Synced, Written) else [])

            async def act() -> None:
                scene.disk.sync(1)
                for _ in range(5):
                    await asyncio.sleep(0)  # This comes back.
                assert len(scene.core.without_time()) > 64

            await scene.play(act)

        run(loop, main())

    @pytest.mark.parametrize("where", ["step", "start", "handler", "world", "unknown effect"])
    def test_a_failure_ends_it_at_once(
        self, loop: str, where: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """PR7."""

        def fail(*_: object) -> Any:
            raise ValueError("broken")

        async def main() -> None:
            scene = Scene()
            if where == "step":
                scene.core.answer = fail
            elif where == "start":
                scene.core.start = fail  # type: ignore[method-assign]
            elif where == "handler":
                scene.handlers[Note] = fail
            elif where == "world":
                scene.disk.take_events = fail  # type: ignore[method-assign]
                scene.core.answer = lambda _: [RECORD]
            else:
                scene.core.answer = lambda event: [event]
            with pytest.raises(PumpFailedError) as caught:
                await asyncio.wait_for(scene.run(), WAIT_SECONDS)
            expected = KeyError if where == "unknown effect" else ValueError
            assert isinstance(caught.value.__cause__, expected)
            seen = len(scene.core.events)
            scene.pump.put(1, bytearray())
            scene.pump.tell(ConnectionClosed(1))
            scene.pump.wake()
            await asyncio.sleep(0.03)
            assert len(scene.core.events) == seen  # It is not stepped again.

        with caplog.at_level(logging.CRITICAL):
            run(loop, main())
        assert len(caplog.records) == 1
        assert "\n" not in caplog.records[0].getMessage()

    def test_stop_within_a_turn_ends_the_turn(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()
            scene.core.answer = lambda event: (
                [RECORD, Note("stop")] if isinstance(event, RequestsArrived) else []
            )
            scene.handlers[Note] = lambda note: scene.pump.stop() if note.text == "stop" else None

            async def act() -> None:
                scene.pump.put(1, bytearray())
                await scene.until(lambda: not scene.pump._is_running)

            await scene.play(act)
            assert [type(event) for event in scene.core.without_time()] == [RequestsArrived]

        run(loop, main())

    def test_a_turn_that_was_asked_for_does_not_come_after_stop(self, loop: str) -> None:
        async def main() -> None:
            scene = Scene()

            async def act() -> None:
                scene.pump.put(1, bytearray())
                scene.disk.sync(1)
                scene.pump.stop()
                for _ in range(5):
                    await asyncio.sleep(0)

            await scene.play(act)
            assert scene.core.without_time() == []

        run(loop, main())

    def test_after_a_stall_the_time_comes_once(
        self, loop: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SH-21."""

        async def main() -> None:
            scene = Scene()
            clock = _Clock()
            monkeypatch.setattr("headrace.runtime.pump.time", clock)

            async def act() -> None:
                clock.now += 10.0
                await scene.until(lambda: len(scene.core.events) == 2)
                await asyncio.sleep(0.05)

            await scene.play(act)
            assert scene.core.events == [Ticked(0, 5_000_000), Ticked(1000, 5_000_000)]

        run(loop, main())

    def test_after_a_stall_the_time_comes_before_requests(
        self, loop: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SH-21: whoever was stopped must not take an old promise for a good one (O6.2)."""

        async def main() -> None:
            scene = Scene()
            clock = _Clock()
            monkeypatch.setattr("headrace.runtime.pump.time", clock)

            async def act() -> None:
                clock.now += 10.0
                scene.pump.put(1, bytearray(b"x"))
                await scene.until(lambda: len(scene.core.events) == 3)

            await scene.play(act)
            kinds = [type(event) for event in scene.core.events]
            assert kinds == [Ticked, Ticked, RequestsArrived]

        run(loop, main())

    def test_a_stall_within_a_turn_does_not_turn_the_time_back(
        self, loop: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SH-21."""

        async def main() -> None:
            scene = Scene()
            monkeypatch.setattr("headrace.runtime.pump.time", _StallingClock())

            async def act() -> None:
                scene.pump.put(1, bytearray(b"x"))
                scene.pump._on_tick()  # as the loop may: it finds the frame waiting

            await scene.play(act)
            told = [event.now for event in scene.core.events if isinstance(event, Ticked)]
            assert len(told) >= 2
            assert told == sorted(told)

        run(loop, main())

    def test_requests_and_replies_over_a_socket(self, loop: str) -> None:
        def answer(event: object) -> list[object]:
            if isinstance(event, RequestsArrived):
                return [
                    SendToConnection(number, (frame_of(256, mark_of(bytes(frame))),))
                    for number, frame in event.frames
                ]
            return []

        async def main() -> None:
            core = Script(answer)
            pump = Pump()
            listener = TcpListener(TcpLimits(), pump)
            _, port = await listener.listen("127.0.0.1", 0)
            carry_out: dict[type, Callable[[Any], None]] = {
                Note: lambda _: None,
                SendToConnection: listener.send,
            }
            running = asyncio.ensure_future(
                pump.run(core, carry_out=carry_out, ends_turn=listener.flush)
            )
            with socket.socket() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
                await send(client, b"".join(frame_of(300 + mark, mark) for mark in range(50)))
                replies = await receive(client, 50 * 256)
            assert [mark_of(replies[at : at + 256]) for at in range(0, 50 * 256, 256)] == list(
                range(50)
            )
            await listener.close(grace_seconds=5)
            await asyncio.sleep(0.001)
            pump.stop()
            await running
            kinds = [type(event) for event in core.without_time()]
            assert kinds[0] is ConnectionOpened
            assert kinds[-1] is ConnectionClosed

        run(loop, main())


class _Counting:
    """A loop whose calls from threads are counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: list[object]) -> None:
        self._loop = loop
        self._calls = calls
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> asyncio.Handle:
        self._calls.append(callback)
        return self._loop.call_soon_threadsafe(callback)


class _Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return 5_000_000_000


class _StallingClock(_Clock):
    """The clock of a process that is stopped between any two looks at it."""

    def monotonic(self) -> float:
        self.now += 0.03
        return self.now


def test_threads_wait_less_for_the_interpreter() -> None:
    before = sys.getswitchinterval()
    try:
        hasten_threads()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    finally:
        sys.setswitchinterval(before)


def test_a_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_event_loop()
    loop.close()
    monkeypatch.setitem(sys.modules, "uvloop", None)
    plain = new_event_loop()
    plain.close()
    assert type(plain).__module__.startswith("asyncio")
