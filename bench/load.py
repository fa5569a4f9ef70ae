"""The load generators in C: compiled into a temporary folder, run as processes of their own.

They are cheap enough to show the server and not themselves: one thread, no allocation and no
parsing of messages while they run. How they are told what to do stands at the head of `load.c`.
"""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.frames import Account, Poll, Shape, make_login
from headrace.base.limits import GIB, MIB

FOLDER = Path(__file__).parent
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
RUN_SECONDS_MAX = 120
READY = "ready\n"


class NoCompilerError(Exception):
    """Nothing here can compile the generator; the message says what is missing."""


class GeneratorError(Exception):
    """A generator ended with a sentence instead of figures."""


class Lap(NamedTuple):
    """What one run of a generator saw."""

    requests: int
    seconds: float
    sent_bytes: int
    received_bytes: int
    wrong: int  # replies that were no errors but not what was asked for either
    statuses: dict[str, int]  # requests refused, by code
    cpu_seconds: float  # of the generator
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float

    @property
    def errors(self) -> int:
        """How many requests did not get what they asked for."""
        return self.wrong + sum(self.statuses.values())

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def copied_rate(self) -> float:
        """Bytes per second of a raw copy."""
        return (self.sent_bytes + self.received_bytes) / self.seconds


class Traffic(NamedTuple):
    """How requests are offered: on how many connections, how many on their way on each."""

    connections: int
    depth: int

    def __str__(self) -> str:
        return (
            f"{self.connections} c" if self.depth == 1 else f"{self.connections} c x {self.depth}"
        )


class Limits(NamedTuple):
    """When a lap ends: whichever comes first."""

    seconds: float
    sent_bytes: int = 4 * GIB


class Window(NamedTuple):
    """The offsets that polls go through, round and round."""

    first: int
    last: int


class Generator:
    """The compiled generator for the binary protocol, and the files that it reads."""

    def __init__(self, folder: Path, account: Account) -> None:
        """Compile it into a folder.

        Raises:
            NoCompilerError: There is no compiler, or it failed.
        """
        self._folder = folder
        self._program = compile_program("load.c", folder)
        self._login = folder / "login.frame"
        self._login.write_bytes(make_login(account))
        self._frame = folder / "request.frame"
        # Called in each run when all connections have logged in, before the first request.
        self.on_ready: Callable[[], None] | None = None

    def send(self, port: int, frame: bytes, traffic: Traffic, limits: Limits) -> Lap:
        """Log in on each connection and send a frame again and again."""
        return self._run(port, frame, traffic, limits, *self._identity())

    def send_each(
        self, port: int, frames: Sequence[bytes | bytearray], traffic: Traffic, limits: Limits
    ) -> Lap:
        """Log in on each connection; each sends its own frame, in the order of their opening."""
        assert len(frames) == traffic.connections
        whole = b"".join(frames)
        return self._run(port, whole, traffic, limits, *self._identity(), f"frames={len(frames)}")

    def poll(
        self,
        port: int,
        poll: Poll,
        shape: Shape,
        window: Window,
        traffic: Traffic,
        limits: Limits,
    ) -> Lap:
        """Log in on each connection and poll one batch after another."""
        return self._run(
            port,
            poll.frame,
            traffic,
            limits,
            *self._identity(),
            f"offset_at={poll.offset_at}",
            f"first={window.first}",
            f"last={window.last}",
            f"step={shape.messages}",
            f"messages={shape.messages}",
        )

    def echo(self, port: int, frame: bytes, traffic: Traffic, limits: Limits) -> Lap:
        """Send a frame again and again to a server that knows no login."""
        return self._run(port, frame, traffic, limits)

    def copy(self, port: int, limits: Limits, *, is_sending: bool) -> Lap:
        """Send pieces of 1 MiB to a sink, or receive from a source."""
        mode = "send" if is_sending else "receive"
        return read_lap(self._program, f"mode={mode}", f"port={port}", *_arguments(limits))

    def _run(self, port: int, frame: bytes, traffic: Traffic, limits: Limits, *more: str) -> Lap:
        self._frame.write_bytes(frame)
        return read_lap(
            self._program,
            "mode=requests",
            f"port={port}",
            f"frame={self._frame}",
            f"connections={traffic.connections}",
            f"depth={traffic.depth}",
            *_arguments(limits),
            *more,
            on_ready=self.on_ready,
        )

    def _identity(self) -> tuple[str, str]:
        # Client ids are never used twice: request numbers begin at 1 again in every lap.
        return f"register={self._login}", f"client={random.getrandbits(63) | 1}"


def _arguments(limits: Limits) -> tuple[str, str]:
    return f"seconds_ms={round(limits.seconds * 1000)}", f"bytes_max={limits.sent_bytes}"


def compile_program(source: str, folder: Path) -> Path:
    """Compile one of the C files beside this one.

    Raises:
        NoCompilerError: There is no compiler, or it failed.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("no C compiler (gcc or cc) on PATH")
    program = folder / Path(source).stem
    done = subprocess.run(  # noqa: S603  # our own source
        [compiler, *FLAGS, "-o", program, FOLDER / source],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoCompilerError(f"{compiler} failed on {source}: {done.stderr.strip()}")
    return program


def read_lap(program: Path, *arguments: str, on_ready: Callable[[], None] | None = None) -> Lap:
    """Run a generator; give what it saw.

    With `on_ready` it is held between its logins and its first request, and this is called then.

    Raises:
        GeneratorError: It ended without figures, or took too long.
    """
    held = () if on_ready is None else ("hold=1",)
    with subprocess.Popen(  # noqa: S603  # compiled from our own source
        [program, *arguments, *held],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        # A generator that fails before it is ready closes its output, and its sentence follows.
        is_ready = on_ready is not None and process.stdout.readline() == READY
        if on_ready is not None and is_ready:
            on_ready()
        try:
            told, sentence = process.communicate("\n" if is_ready else "", RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise GeneratorError(f"{program.name}: no end in {RUN_SECONDS_MAX} s") from None
    if process.returncode:
        raise GeneratorError(f"{program.name}: {sentence.strip() or process.returncode}")
    return Lap(**json.loads(told))


assert RUN_SECONDS_MAX > 2 * 30, "a generator gives up by itself after 30 s without an answer"
assert Limits(1).sent_bytes > 64 * MIB
