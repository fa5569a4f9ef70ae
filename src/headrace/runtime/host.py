"""The state of the machine and of this process, read from the system."""

import os
import platform
import shutil
import socket
import threading
import time
from pathlib import Path

from headrace.ports.host import HostFacts

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HostSampler:
    """Samples the facts, and remembers the last values, from which rates are computed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start_time = time.time_ns() // 1000
        self._cpu_before = (time.monotonic(), time.process_time())
        self._busy_before = _read_busy()
        release = _read_release()
        self._hostname = socket.gethostname()
        self._os_name = release.get("NAME", platform.system())
        self._os_version = release.get("VERSION_ID", "")
        self._kernel = platform.release()

    def sample(self) -> HostFacts:
        """Return the current facts; rates are since the last call."""
        memory = _read_fields(_PROC / "meminfo")
        io = _read_fields(_PROC / "self" / "io")
        disk = shutil.disk_usage(self._folder)
        return HostFacts(
            process_id=os.getpid(),
            cpu_usage=self._own_cpu(),
            total_cpu_usage=self._total_cpu(),
            memory_usage=_resident_bytes(),
            total_memory=memory.get("MemTotal", 0) * 1024,
            available_memory=memory.get("MemAvailable", 0) * 1024,
            start_time=self._start_time,
            read_bytes=io.get("read_bytes", 0),
            written_bytes=io.get("write_bytes", 0),
            hostname=self._hostname,
            os_name=self._os_name,
            os_version=self._os_version,
            kernel_version=self._kernel,
            threads_count=threading.active_count(),
            free_disk_space=disk.free,
            total_disk_space=disk.total,
        )

    def _own_cpu(self) -> float:
        """Return the share of one core that this process used, in percent."""
        now, used = time.monotonic(), time.process_time()
        before, used_before = self._cpu_before
        self._cpu_before = (now, used)
        return 100.0 * (used - used_before) / (now - before) if now > before else 0.0

    def _total_cpu(self) -> float:
        """Return the share of the whole machine that was busy, in percent."""
        busy, total = _read_busy()
        busy_before, total_before = self._busy_before
        self._busy_before = (busy, total)
        passed = total - total_before
        return 100.0 * (busy - busy_before) / passed if passed > 0 else 0.0


def boot_identity() -> int:
    """Return a number that differs with every boot of the operating system (FM-7).

    Zero where the system has none: then every unclean stop counts as a loss of power.
    """
    try:
        text = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return 0
    return int(text.replace("-", ""), 16) & (1 << 63) - 1


def _resident_bytes() -> int:
    try:
        return int((_PROC / "self" / "statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _read_fields(path: Path) -> dict[str, int]:
    """Read lines of a name, a colon and a number."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    fields = [line.split(":", 1) for line in lines if ":" in line]
    return {name: int(value.split()[0]) for name, value in fields if value.split()}


def _read_busy() -> tuple[int, int]:
    """Return the busy time and the whole time of all cores, in the system's ticks."""
    try:
        first = (_PROC / "stat").read_text().splitlines()[0]
    except OSError:
        return 0, 0
    ticks = [int(each) for each in first.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def _read_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
