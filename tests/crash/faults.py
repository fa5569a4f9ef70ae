"""Failing calls inside a running node: orders to the library that is preloaded into it (lane X)."""

import atexit
import ctypes
import errno
import mmap
import os
import shutil
import subprocess
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

_TRACE_MAX = 65536


class Call(IntEnum):
    """A kind of call; the numbers are those of faults.c."""

    WRITE = 0
    SYNC = 1
    RENAME = 2
    TRUNCATE = 3
    UNLINK = 4
    ALLOCATE = 5
    CREATE = 6
    READ = 7
    MAKE_FOLDER = 8


# What a durable sequence is made of: everything but reads.
DURABLE = tuple(call for call in Call if call != Call.READ)


class Action(IntEnum):
    """What happens at a chosen call: the process dies before it, or in the middle of it."""

    NOTHING = 0
    KILL = 1
    TEAR = 2
    FAIL = 3


class _Step(ctypes.Structure):
    _fields_ = (("call", ctypes.c_uint64), ("name", ctypes.c_char * 56))


class _Control(ctypes.Structure):
    _fields_ = (
        ("counter", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
        ("action", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("error", ctypes.c_uint64),
        ("hits", ctypes.c_uint64),
        ("traced", ctypes.c_uint64),
        ("pattern", ctypes.c_char * 128),
        ("trace", _Step * _TRACE_MAX),
    )


class Step(NamedTuple):
    """One call that was counted: what it did to which kind of file."""

    call: Call
    name: str

    @property
    def kind(self) -> tuple[Call, str]:
        """The call with the type of its file, numbers left out."""
        name = self.name.rsplit("/", 1)[-1]
        is_plain_number = name.replace("-", "").isdecimal()
        if is_plain_number or "/" not in self.name:
            return self.call, "folder"
        if name.endswith((".log", ".index", ".index.tmp")):
            return self.call, name.partition(".")[2]
        stem, _, rest = name.partition(".")
        return self.call, stem + (".tmp" if rest.endswith("tmp") else "")


@cache
def build_library() -> Path | None:
    """Compile the library once; nothing where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    folder = Path(mkdtemp(prefix="headrace-faults-"))
    atexit.register(shutil.rmtree, folder)
    path = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    command = [compiler, "-shared", "-fPIC", "-o", str(path), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return path


class Faults:
    """The orders for one node, also while it runs."""

    def __init__(self, folder: Path, library: Path) -> None:
        """Make the control file in a folder that is not the node's data."""
        self._library = library
        self._path = folder / "faults.control"
        self._path.write_bytes(bytes(ctypes.sizeof(_Control)))
        self._file = os.open(self._path, os.O_RDWR)
        self._map = mmap.mmap(self._file, ctypes.sizeof(_Control))
        self._control = _Control.from_buffer(self._map)

    def close(self) -> None:
        """Let the control file go."""
        del self._control
        self._map.close()
        os.close(self._file)

    def environment(self, data: Path) -> Mapping[str, str]:
        """Give what a node must be started with."""
        return {
            "LD_PRELOAD": str(self._library),
            "CRASH_CONTROL": str(self._path),
            "CRASH_FOLDER": str(data),
        }

    def order(
        self,
        action: Action,
        calls: tuple[Call, ...] = DURABLE,
        *,
        pattern: str = "",
        first: int = 1,
        count: int = 1 << 40,
        error: int = errno.EIO,
    ) -> None:
        """Choose the calls from now on: the first-th of these kinds, and so many after it."""
        control = self._control
        control.first = 0
        control.mask = sum(1 << call for call in calls)
        control.pattern = pattern.encode()
        control.action = action
        control.error = error
        control.counter = 0
        control.hits = 0
        control.last = first + count - 1
        control.first = first  # The last one: now it holds.

    def count(self, calls: tuple[Call, ...] = DURABLE) -> None:
        """Choose none, but count these."""
        self.order(Action.NOTHING, calls)

    def clear(self) -> None:
        """Have all calls succeed again."""
        self._control.first = 0

    @property
    def counted(self) -> int:
        """How many calls were counted since the last order."""
        return int(self._control.counter)

    @property
    def hits(self) -> int:
        """How often the order struck."""
        return int(self._control.hits)

    def forget_steps(self) -> None:
        """Begin a new trace."""
        self._control.traced = 0

    def steps(self) -> list[Step]:
        """Give all calls that were counted since the trace began."""
        found = self._control.trace[: self._control.traced]
        return [Step(Call(step.call), step.name.decode()) for step in found]
