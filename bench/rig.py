"""What every case needs: the generator, the server, and what is measured beside it."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from bench.filework import FileWork, SyncFile, single_record_bytes
from bench.frames import Shape, make_batch
from bench.load import Generator, Lap, Limits, Traffic
from bench.nats import Nats, find_nats
from bench.rows import Row, head, line, make_row
from bench.server import Server, make_account
from headrace.base.limits import GIB, KIB, MIB

GATHERED_BYTES_MAX = 64 * KIB  # smaller batches come several in one turn of a loop

Lapping = Callable[[], Lap]
Beside = Callable[[], dict[str, float]]


class Pace(NamedTuple):
    """How long a run takes: full for figures, quick for a look, shortest to see that it runs."""

    laps: int
    lap: Limits
    beside: Limits  # of what is measured beside a lap
    sustained_seconds: float
    pause_seconds: float = 0.1  # between laps: what one left to write is not the next one's
    settle_seconds: float = 1.0  # before the memory of an idle server is looked at
    ahead_bytes_max: int = GIB  # of what is sent once, to warm files or to have what to poll


FULL = Pace(3, Limits(0.6, GIB), Limits(0.4, GIB), 5.0)
QUICK = Pace(1, Limits(0.25, GIB // 2), Limits(0.2, GIB // 2), 1.0)
SHORTEST = Pace(1, Limits(0.01, 16 * MIB), Limits(0.01, 16 * MIB), 0.05, 0.0, 0.0, 4 * MIB)


class BareServers:
    """Bare servers, each started when it is first needed."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ports: dict[str, int] = {}

    def port(self, kind: str) -> int:
        """Give the port of a server of this kind."""
        if kind not in self._ports:
            process = subprocess.Popen(  # noqa: S603  # our own server
                [sys.executable, "-m", "bench.bare", kind], stdout=subprocess.PIPE, text=True
            )
            self._processes[kind] = process
            assert process.stdout is not None
            self._ports[kind] = int(process.stdout.readline())
        return self._ports[kind]

    def close(self) -> None:
        """End them all."""
        for process in self._processes.values():
            process.terminate()
            process.communicate()


class Rig:
    """One run: its servers, its files, and the rows that it has measured."""

    def __init__(self, folder: Path, command: str, pace: Pace, *, only: str) -> None:
        """Start the server and prepare what is measured beside it.

        Raises:
            NoCompilerError: The generator could not be compiled.
            ServerError: The server did not start.
            NatsError: NATS is installed and did not start.
        """
        self.pace = pace
        self.account = make_account()
        self.rows: dict[str, Row] = {}
        self.nats_laps: dict[Shape, list[Lap]] = {}
        self.refusals: dict[str, dict[str, int]] = {}  # of requests that belong to no case
        self._title = ""
        self._only = only
        self._command = command
        self._folder = folder
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.generator = Generator(folder, self.account)
            self.bare = BareServers()
            stack.callback(self.bare.close)
            self.files = stack.enter_context(FileWork(folder / "files"))
            self.sync_file = SyncFile(folder / "files", single_record_bytes(Shape(1, 100)))
            stack.callback(self.sync_file.close)
            program = find_nats()
            self.nats = None if program is None else stack.enter_context(Nats(program, folder))
            self._server: Server | None = Server(command, folder, self.account)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stack.close()
        if self._server is not None:
            self._server.end(is_asked=kind is None)

    @property
    def server(self) -> Server:
        """The server that runs now."""
        assert self._server is not None
        return self._server

    def restart_server(self) -> float:
        """Stop the server and start it again on its data; give the seconds until a login."""
        server, self._server = self.server, None
        server.stop()
        began = time.monotonic()
        self._server = Server(self._command, self._folder, self.account)
        return time.monotonic() - began

    def is_wanted(self, name: str) -> bool:
        """Whether a case was asked for."""
        return self._only in name

    def measure(
        self, name: str, shape: Shape, lapping: Lapping, besides: Sequence[Beside] = ()
    ) -> Row:
        """Run the laps of a case, each followed by what is measured beside it; print the row."""
        laps: list[Lap] = []
        beside: dict[str, list[float]] = {}
        cpu = CpuWatch(self.server)
        for _ in range(self.pace.laps):
            self.generator.on_ready = cpu.begin
            laps.append(lapping())
            self.generator.on_ready = None
            time.sleep(self.pace.pause_seconds)
            cpu.end()
            for each in besides:
                for key, value in each().items():
                    beside.setdefault(key, []).append(value)
        row = make_row(name, shape, laps, cpu.seconds)
        medians = {key: statistics.median(values) for key, values in beside.items()}
        return self.keep(replace(row, beside=medians))

    def note_refusals(self, name: str, lap: Lap) -> None:
        """Remember what was refused outside a case, so that no failure goes unseen."""
        if lap.errors:
            self.refusals[name] = lap.statuses or {"wrong": lap.wrong}

    def begin_table(self, text: str, beside: Sequence[str]) -> None:
        """Name the table of the rows that follow; it is printed if there are any."""
        self._title = f"\n{text}\n{head(beside)}\n"

    def show(self, row: Row) -> None:
        """Print a row."""
        print(f"{self._title}{line(row)}", flush=True)
        self._title = ""

    def keep(self, row: Row) -> Row:
        """Print a row and keep it."""
        self.show(row)
        self.rows[row.name] = row
        return row

    # What is measured beside a case.

    def beside_files(self, shape: Shape, traffic: Traffic, durability: str) -> Beside:
        """Give the file work alone, with as many batches on their way."""
        batch = make_batch(shape)
        in_flight = traffic.connections * traffic.depth
        turn = 1 if len(batch) > GATHERED_BYTES_MAX else max(in_flight // 2, 1)

        def measure() -> dict[str, float]:
            lap = self.files.run(
                batch, self.pace.beside, in_flight=in_flight, turn=turn, durability=durability
            )
            return {"files MB/s": lap.rate * shape.bytes / 1e6}

        return measure

    def beside_bare(self, frame: bytes, shape: Shape, traffic: Traffic) -> Beside:
        """Give the same frames to a bare server."""

        def measure() -> dict[str, float]:
            lap = self.generator.echo(self.bare.port("echo"), frame, traffic, self.pace.beside)
            return {"bare MB/s": lap.rate * shape.bytes / 1e6, "bare p50": lap.p50_us}

        return measure

    def beside_bare_latency(self, frame: bytes, traffic: Traffic) -> Beside:
        """Give the latency of the same frames at a bare server."""

        def measure() -> dict[str, float]:
            lap = self.generator.echo(self.bare.port("echo"), frame, traffic, self.pace.beside)
            return {"bare p50": lap.p50_us}

        return measure

    def beside_copy(self) -> dict[str, float]:
        """Give the raw copy from a bare server."""
        port = self.bare.port("source")
        lap = self.generator.copy(port, self.pace.beside, is_sending=False)
        return {"copy MB/s": lap.copied_rate / 1e6}

    def beside_sync(self) -> dict[str, float]:
        """Give the latency of a bare write and sync."""
        return {"sync p50": self.sync_file.run(self.pace.beside.seconds).p50_us}

    def beside_send(self, name: str, frame: bytes, traffic: Traffic) -> Beside:
        """Give another send to the same server: its latency and its rate under this name."""

        def measure() -> dict[str, float]:
            lap = self.generator.send(self.server.port, frame, traffic, self.pace.beside)
            self.note_refusals(f"beside: {name}", lap)
            return {f"{name} p50": lap.p50_us, f"{name} req/s": lap.rate}

        return measure

    def beside_nats(self, shape: Shape) -> Beside:
        """Give NATS with the same batches in lockstep."""

        def measure() -> dict[str, float]:
            assert self.nats is not None
            lap = self.nats.publish(shape, self.pace.beside)
            self.nats_laps.setdefault(shape, []).append(lap)
            return {"nats MB/s": lap.rate * shape.bytes / 1e6}

        return measure


class CpuWatch:
    """Sums up the processor time of a server over some spans."""

    def __init__(self, server: Server) -> None:
        self.seconds = 0.0
        self._server = server
        self._before: float | None = None

    def begin(self) -> None:
        """Begin a span."""
        assert self._before is None
        self._before = self._server.cpu_seconds()

    def end(self) -> None:
        """End the span."""
        assert self._before is not None
        self.seconds += self._server.cpu_seconds() - self._before
        self._before = None
