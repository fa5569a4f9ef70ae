"""A hop over the bus: a request to another process of the node and its reply, closed loop.

```
bare    a socket pair between two processes that do nothing else: blocking calls, one buffer
lane    two pumps with a bus: effect, queue, vectored write; read, cut, decode, event
narrow  the same with the send buffer that a system has by default (212,992 bytes)
slab    as lane, but the body lies in memory that both processes share, and the receiver copies
        it out; no bookkeeping of free places, so this is the best that slabs could do
```

Request and reply carry a body of the same size. Arms take turns in short laps, so that a neighbour
on the machine disturbs all alike; a ratio is that of medians of one run.

    python -m bench.bus [--shortest]
"""

import argparse
import asyncio
import mmap
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench import machine
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES, KIB, MIB
from headrace.base.memory import new_frame
from headrace.ports.bus import BusFrames, MemberLost, SendToMember
from headrace.ports.network import Buffer
from headrace.runtime.allocator import keep_large_blocks
from headrace.runtime.bus.bus import Bus
from headrace.runtime.bus.ends import BusEnds, make_bus, read_ends
from headrace.runtime.pump import Pump, hasten_threads, new_event_loop
from headrace.wire.bus.decode import decode_bus
from headrace.wire.bus.forwarded import (
    FORWARDED_REPLY,
    FORWARDED_REQUEST,
    ForwardedReplyHeader,
    ForwardedRequestHeader,
)
from headrace.wire.numbers import Operation, Transport
from headrace.wire.replies import REPLY, ReplyHeader

SIZES = (256, 64 * KIB, MIB)
NARROW_BYTES = 106_496  # the system doubles it
SLAB_BYTES = 2 * MIB
LAPS = 9
LAP_SECONDS = 0.5
ARMS = ("bare", "lane", "narrow", "slab")


class Result(NamedTuple):
    """What an arm did with one size."""

    p50_us: float
    p99_us: float
    cpu_us: float  # of both processes, per round trip


class Slab:
    """Memory that two processes share, one half per direction."""

    def __init__(self, descriptor: int, *, is_home: bool) -> None:
        self._memory = memoryview(mmap.mmap(descriptor, 2 * SLAB_BYTES))
        out = 0 if is_home else SLAB_BYTES
        self._out = self._memory[out : out + SLAB_BYTES]
        self._into = self._memory[SLAB_BYTES - out : 2 * SLAB_BYTES - out]

    def put(self, body: Buffer) -> None:
        """Lay a body where the other process reads."""
        self._out[: len(body)] = body

    def get(self, size: int) -> bytearray:
        """Copy the body of the other process: the core keeps what it gets."""
        body = new_frame(size)
        body[:] = self._into[:size]
        return body


class Owner:
    """A core that answers each request with its body; ends when its home is gone."""

    def __init__(self, pump: Pump, slab: Slab | None) -> None:
        self._pump = pump
        self._slab = slab
        self.cpu_began = 0.0

    def start(self) -> list[object]:
        """Wait for requests."""
        return []

    def step(self, event: object) -> list[object]:
        """Answer."""
        if isinstance(event, MemberLost):
            self._pump.stop()
        if not isinstance(event, BusFrames):
            return []
        if not self.cpu_began:
            self.cpu_began = time.process_time()
        return [self._answer(sender, frame) for sender, frame in event.frames]

    def _answer(self, sender: int, frame: Buffer) -> SendToMember:
        _, header = decode_bus(frame)
        assert isinstance(header, ForwardedRequestHeader)
        body: Buffer = memoryview(frame)[HEADER_BYTES:]
        if self._slab is not None:
            self._slab.put(self._slab.get(header.code))
        inner = REPLY.encode(ReplyHeader(size=HEADER_BYTES + len(body)))
        reply = ForwardedReplyHeader(
            size=2 * HEADER_BYTES + len(body),
            ticket=header.ticket,
            home=header.home,
            connection=header.connection,
        )
        return SendToMember(sender, (FORWARDED_REPLY.encode(reply), inner, body))


class Home:
    """A core that sends the next request when the reply to the last one is there."""

    def __init__(self, pump: Pump, slab: Slab | None, size: int, lap_seconds: float) -> None:
        self._pump = pump
        self._lap_seconds = lap_seconds
        self._slab = slab
        self._body = bytes(0 if slab else size)
        self._size = size
        self._ticket = 0
        self._began = 0.0
        self._until = 0.0
        self.cpu_began = 0.0
        self.seconds: list[float] = []

    def start(self) -> list[object]:
        """Send the first request."""
        return [self._ask()]

    def step(self, event: object) -> list[object]:
        """Take the reply; send the next request."""
        assert not isinstance(event, MemberLost), f"the other end is gone: {event}"
        if not isinstance(event, BusFrames):
            return []
        ((_, frame),) = event.frames
        decode_bus(frame)
        if self._slab is not None:
            self._slab.get(self._size)
        now = time.perf_counter()
        if self._ticket == 1:  # The other process has started.
            self._until = now + self._lap_seconds
            self.cpu_began = time.process_time()
        else:
            self.seconds.append(now - self._began)
        if now >= self._until:
            self._pump.stop()
            return []
        return [self._ask()]

    def _ask(self) -> SendToMember:
        self._began = time.perf_counter()
        self._ticket += 1
        if self._slab is not None:
            self._slab.put(bytes(self._size))
        header = ForwardedRequestHeader(
            size=HEADER_BYTES + len(self._body),
            ticket=self._ticket,
            timeout=10_000_000,
            connection=1,
            operation=Operation.SEND_MESSAGES,
            transport=Transport.TCP,
            code=self._size,
            group=METADATA_GROUP,
        )
        return SendToMember(1, (FORWARDED_REQUEST.encode(header), self._body))


def run_pump(bus: Bus, make: Callable[[Pump], Any]) -> None:
    """Run a core on a bus until it stops its pump."""

    async def main() -> None:
        pump = Pump()
        bus.attach(asyncio.get_running_loop(), pump.ask)
        try:
            await pump.run(
                make(pump),
                carry_out={SendToMember: bus.send},
                worlds=[bus],
                ends_turn=bus.flush,
            )
        finally:
            bus.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def lap_of_lane(arm: str, size: int, seconds: float) -> tuple[list[float], float]:
    """Run one lap over the bus; return the round trips, and the processor time of both ends."""
    made = make_bus(2)
    if arm == "narrow":
        _narrow(made.ends(0))
        _narrow(made.ends(1))
    slab = os.memfd_create("bench-bus")
    os.ftruncate(slab, 2 * SLAB_BYTES)
    child = _spawn(arm, (*made.descriptors(1), slab), made.ends(1).to_text(), str(slab))
    made.release(1)
    homes: list[Home] = []

    def make(pump: Pump) -> Home:
        shared = Slab(slab, is_home=True) if arm == "slab" else None
        homes.append(Home(pump, shared, size, seconds))
        return homes[0]

    run_pump(Bus(made.keep(0)), make)
    cpu = time.process_time() - homes[0].cpu_began
    os.close(slab)
    return homes[0].seconds, cpu + _end(child)


def _narrow(ends: BusEnds) -> None:
    for descriptor in ends.descriptors():
        with socket.socket(fileno=os.dup(descriptor)) as end:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NARROW_BYTES)


def lap_of_bare(size: int, seconds: float) -> tuple[list[float], float]:
    """Run one lap over a bare socket pair."""
    own, given = socket.socketpair()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
    given.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
    child = _spawn("bare", (given.fileno(),), str(given.fileno()), str(size))
    given.close()
    trips: list[float] = []
    body, into = bytes(size), memoryview(bytearray(size))
    with own:
        _trip(own, body, into)
        before = time.process_time()
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            _trip(own, body, into)
            trips.append(time.perf_counter() - began)
        cpu = time.process_time() - before
    return trips, cpu + _end(child)


def _trip(own: socket.socket, body: bytes, into: memoryview) -> None:
    own.sendall(body)
    _receive(own, into)


def _receive(own: socket.socket, into: memoryview) -> bool:
    filled = 0
    while filled < len(into):
        count = own.recv_into(into[filled:])
        if count == 0:
            return False
        filled += count
    return True


def _spawn(arm: str, descriptors: tuple[int, ...], *rest: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.bus", "--child", arm, *rest]
    return subprocess.Popen(  # noqa: S603 - this program itself
        command, pass_fds=descriptors, stdout=subprocess.PIPE, text=True
    )


def _end(child: subprocess.Popen[str]) -> float:
    """Return the processor time that a child has spent on its lap."""
    told, _ = child.communicate(timeout=30)
    return float(told)


def serve(arm: str, given: str, rest: str) -> None:
    """Be the other end of a lap; print the processor time of it."""
    began = time.process_time()
    if arm == "bare":
        with socket.socket(fileno=int(given)) as own:
            into = memoryview(bytearray(int(rest)))
            while _receive(own, into):
                own.sendall(into)
    else:
        slab = Slab(int(rest), is_home=False) if arm == "slab" else None
        owners: list[Owner] = []

        def make(pump: Pump) -> Owner:
            owners.append(Owner(pump, slab))
            return owners[0]

        run_pump(Bus(read_ends(given)), make)
        began = owners[0].cpu_began
    print(time.process_time() - began)


def measure(size: int, laps: int, seconds: float) -> dict[str, Result]:
    """Run all arms in turn."""
    trips: dict[str, list[float]] = {arm: [] for arm in ARMS}
    cpu = dict.fromkeys(ARMS, 0.0)
    for _ in range(laps):
        for arm in ARMS:
            lap, spent = (
                lap_of_bare(size, seconds) if arm == "bare" else lap_of_lane(arm, size, seconds)
            )
            trips[arm] += lap
            cpu[arm] += spent
    return {
        arm: Result(
            statistics.median(trips[arm]) * 1e6,
            statistics.quantiles(trips[arm], n=100)[-1] * 1e6,
            cpu[arm] / len(trips[arm]) * 1e6,
        )
        for arm in ARMS
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shortest", action="store_true", help="one short lap: whether it runs")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    keep_large_blocks()
    hasten_threads()
    if options.child:
        serve(*options.child)
        return
    laps, seconds = (1, 0.05) if options.shortest else (LAPS, LAP_SECONDS)
    print(machine.describe())
    print("body      arm      p50 us   p99 us   CPU us   p50 of bare   CPU of bare")
    for size in SIZES:
        results = measure(size, laps, seconds)
        bare = results["bare"]
        for arm, result in results.items():
            print(
                f"{size:>8}  {arm:<7} {result.p50_us:>7.0f}  {result.p99_us:>7.0f}"
                f"  {result.cpu_us:>7.0f}   {result.p50_us / bare.p50_us:>11.2f}"
                f"   {result.cpu_us / bare.cpu_us:>11.2f}"
            )


if __name__ == "__main__":
    main()
