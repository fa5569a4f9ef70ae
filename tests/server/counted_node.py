"""A node in this process whose calls are counted, from a readable socket to the written reply.

It is not idle: an op of another partition waits for its sync all the time, a reader polls between
the requests, and the audit log is on. A tick or another thread may fall into a request, so a count
is the smallest of many: what the request itself takes.
"""

import asyncio
import dis
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from enum import EnumType
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from bench.frames import PERSISTED, REPLICATED, STREAM, Account, Connection, Shape, make_batch
from headrace.base.secret import Secret
from headrace.runtime.pump import new_event_loop
from headrace.server.audit_log import audit_log
from headrace.server.config.load import load_config
from headrace.server.folders import hold_folder
from headrace.server.node import Node
from headrace.wire.commands.messages import POLL_MESSAGES, SEND_MESSAGES, PollMessages, SendMessages
from headrace.wire.identifiers import Consumer, FromOffset, ToPartition
from headrace.wire.numbers import ConsumerKind

WAIT_SECONDS = 20
TRIES = 60
_ROOT = Account("iggy", "iggy")

Profiler = Callable[[FrameType, str, object], None]


class Counter:
    """Counts Python and C calls of the loop's thread, from one function to the end of another."""

    def __init__(self) -> None:
        self.calls = 0
        self.watch: Profiler | None = None  # sees what is counted
        self.done = threading.Event()
        self._first = self._last = ""
        self._is_armed = self.is_counting = False
        self._ends = 0

    def arm(self, first: str, last: str, ends: int = 1) -> None:
        """Count from the next call of a function to so many returns of another one."""
        self.done.clear()
        self._first, self._last, self._ends = first, last, ends
        self._is_armed = True

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.is_counting:
            if not (self._is_armed and event == "call" and _name(frame) == self._first):
                return
            self._is_armed, self.is_counting, self.calls = False, True, 0
        if event in ("call", "c_call"):
            self.calls += 1
        if self.watch is not None:
            self.watch(frame, event, argument)
        if event == "return" and _name(frame) == self._last:
            self._ends -= 1
            if self._ends == 0:
                self.is_counting = False
                self.done.set()


def _name(frame: FrameType) -> str:
    return frame.f_code.co_qualname


def _is_lookup(frame: FrameType) -> bool:
    """Whether the next instruction finds an attribute of an enumeration that is a global name."""
    owner = _owners(frame.f_code).get(frame.f_lasti)
    return owner is not None and isinstance(frame.f_globals.get(owner), EnumType)


@cache
def _owners(code: CodeType) -> dict[int, str]:
    """Return the global names whose attributes a function loads, by the place of that."""
    owners, before = {}, None
    for each in dis.get_instructions(code):
        is_global = before is not None and before.opname == "LOAD_GLOBAL"
        if each.opname == "LOAD_ATTR" and before is not None and is_global:
            owners[each.offset] = str(before.argval)
        before = each
    return owners


class Gate:
    """Stands before the system's sync: those behind it wait while it is shut."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self._is_open.set()
        self._sync = os.fdatasync

    def sync(self, fd: int) -> None:
        assert self._is_open.wait(WAIT_SECONDS)
        self._sync(fd)

    def shut(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()


class CountedNode:
    """Two clients and a reader of a node, and the counter of its calls."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.counter = Counter()
        self._loop = loop
        self._clients = [Connection(port, _ROOT) for _ in range(2)]
        self._reader = Connection(port, _ROOT)
        self._waiting = Connection(port, _ROOT)
        self._clients[0].create_stream()
        for name, durability in (("counted", REPLICATED), ("pending", PERSISTED)):
            self._clients[0].create_topic(name, durability)
        for client in (*self._clients, *self._clients):
            client.call(SEND_MESSAGES, _send("counted", Shape(1, 100)))

    def leave_pending(self) -> None:
        """Send to the other partition what gets no answer: its sync does not return."""
        self._waiting.post(SEND_MESSAGES, _send("pending", Shape(1, 100)))

    def count_send(self, shape: Shape, *, sends: int = 1, tries: int = TRIES) -> int:
        """Return how many calls it takes to answer sends that come in one turn."""
        request = _send("counted", shape)
        clients = self._clients[:sends]

        def ask() -> None:
            with self._held():
                for client in clients:
                    client.post(SEND_MESSAGES, request)
            for client in clients:
                client.take(SEND_MESSAGES)

        return self._count(ask, tries, sends)

    def find_lookups(self, shape: Shape) -> list[str]:
        """Return the functions that look up a member of an enumeration to answer a send."""
        runs: list[list[str]] = []

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode" and self.counter.is_counting and _is_lookup(frame):
                runs[-1].append(_name(frame))
            return trace

        self._loop.call_soon_threadsafe(sys.settrace, trace)
        for _ in range(TRIES):
            runs.append([])
            self.count_send(shape, tries=1)
        self._loop.call_soon_threadsafe(sys.settrace, None)
        return min(runs, key=len)  # where no tick fell into it

    def count_poll(self) -> int:
        """Return how many calls it takes to answer a poll of one message in memory."""
        return self._count(lambda: self._poll(self._clients[0]), TRIES)

    def count_tick(self) -> int:
        """Return how many calls a tick takes; a timer that comes early delivers none."""
        return sorted(self._counts("Pump._on_tick", "Pump._on_tick", lambda: None, TRIES))[
            TRIES // 2
        ]

    def close(self) -> None:
        for client in (*self._clients, self._reader, self._waiting):
            client.close()

    def _count(self, ask: Callable[[], None], tries: int, replies: int = 1) -> int:
        def ask_beside_a_reader() -> None:
            self._poll(self._reader)
            self.counter.arm("Connection.get_buffer", "Connection.flush", replies)
            ask()

        return min(self._counts("", "", ask_beside_a_reader, tries))

    def _counts(self, first: str, last: str, ask: Callable[[], None], tries: int) -> list[int]:
        counts = []
        for _ in range(tries):
            if first:
                self.counter.arm(first, last)
            ask()
            assert self.counter.done.wait(WAIT_SECONDS)
            counts.append(self.counter.calls)
        return counts

    def _poll(self, client: Connection) -> None:
        request = PollMessages(
            consumer=Consumer(ConsumerKind.CONSUMER, 1),
            stream=STREAM,
            topic="counted",
            partition_id=0,
            strategy=FromOffset(0),
            count=1,
            auto_commit=False,
        )
        client.call(POLL_MESSAGES, request)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep the loop from reading until all is written that one turn is to take."""
        begun, may_go_on = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            assert may_go_on.wait(WAIT_SECONDS)

        self._loop.call_soon_threadsafe(hold)
        assert begun.wait(WAIT_SECONDS)
        yield
        may_go_on.set()


def _send(topic: str, shape: Shape) -> SendMessages:
    batch = memoryview(make_batch(shape))
    return SendMessages(STREAM, topic, ToPartition(0), shape.messages, batch)


@contextmanager
def counted_node(folder: Path) -> Iterator[CountedNode]:
    """Run a node in a thread of its own; it is busy as the module says."""
    overrides = {
        "server.data_dir": str(folder / "data"),
        "tcp.address": "127.0.0.1:0",
        "http.enabled": "false",
        "audit.file": str(folder / "audit.log"),
    }
    config = load_config(None, {}, overrides, "dev")
    loop, gate = new_event_loop(), Gate()
    ready: Future[int] = Future()

    async def serve() -> None:
        node = Node(
            config,
            version="0.1.0",
            boot_identity=1,
            root_password_hash=lambda hasher: hasher.hash_now(Secret(b"iggy")),
        )
        running = loop.create_task(node.run())
        listening = await node.listen()
        assert listening.tcp is not None
        ready.set_result(listening.tcp.port)
        await stop.wait()
        await node.drain()
        await running
        node.close()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    with (
        hold_folder(config.server.data_dir),
        pytest.MonkeyPatch.context() as patch,
        audit_log(config.audit.file),
    ):
        patch.setattr(os, "fdatasync", gate.sync)
        thread.start()
        node = CountedNode(ready.result(WAIT_SECONDS), loop)
        try:
            gate.shut()
            node.leave_pending()
            loop.call_soon_threadsafe(sys.setprofile, node.counter)
            yield node
        finally:
            loop.call_soon_threadsafe(sys.setprofile, None)
            gate.open()
            node.close()
            loop.call_soon_threadsafe(stop.set)
            thread.join(WAIT_SECONDS)
            loop.close()
