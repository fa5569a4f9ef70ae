"""What the machine says of itself and of a server's processes, read from /proc."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")

# Fields of /proc/<pid>/stat behind the name, which is in parentheses and may hold anything.
_PARENT = 1
_USER_TICKS = 11
_SYSTEM_TICKS = 12


class Memory(NamedTuple):
    """What a process has in memory, and had at most, in bytes."""

    name: str
    resident: int
    peak: int


def describe() -> str:
    """Give one line on the machine, with how busy it is now."""
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    return (
        f"{os.cpu_count()} cores, {_model()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}; load average {load}"
    )


def load_average() -> float:
    """Give the load of the last minute."""
    return os.getloadavg()[0]


def family_of(pid: int) -> list[int]:
    """Give a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for each in _pids():
        if (fields := _stat(each)) is not None:
            children.setdefault(int(fields[_PARENT]), []).append(each)
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family


def cpu_seconds(pids: list[int]) -> float:
    """Give the processor time that these processes have taken; one that ended counts nothing."""
    stats = [fields for pid in pids if (fields := _stat(pid)) is not None]
    ticks = sum(int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]) for fields in stats)
    return ticks * TICK_SECONDS


def memory_of(pid: int) -> Memory | None:
    """Give the memory of a process, or None if it has ended."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return None
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in told:  # A process that has ended and not been waited for.
        return None
    return Memory(f"{told['Name'].strip()} ({command.strip()})", *map(_size, _wanted(told)))


def _wanted(told: dict[str, str]) -> tuple[str, str]:
    return told["VmRSS"], told["VmHWM"]


def _size(text: str) -> int:
    number, unit = text.split()
    assert unit == "kB"
    return int(number) << 10


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _model() -> str:
    lines = (PROC / "cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "?")
