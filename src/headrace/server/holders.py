"""Finds the process that holds a port or a lock, on Linux.

It only improves an error message: a holder that cannot be found is none.
"""

import os
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from headrace.base.endpoints import Endpoint
from headrace.server.lines import Holder

PROC = Path("/proc")

_LISTENS = "0A"  # a socket's state in /proc/net/tcp
_WORD = struct.Struct("=I")  # an address is printed as words in the machine's own order


def find_port_holder(endpoint: Endpoint, proc: Path = PROC) -> Holder | None:
    """Return the process that listens on our port, if it is visible."""
    inodes = [
        inode
        for host, port, inode in _listeners(proc)
        if port == endpoint.port and _collide(endpoint.host, host)
    ]
    names = dict.fromkeys(f"socket:[{inode}]" for inode in inodes)
    if not names:
        return None
    for pid in _pids(proc):
        if any(target in names for target in _open_files(proc / str(pid) / "fd")):
            return _holder(pid, proc)
    return None


def find_lock_holder(file: Path, proc: Path = PROC) -> Holder | None:
    """Return the process that has a file locked, if it is visible."""
    try:
        status = file.stat()
        locks = (proc / "locks").read_text()
    except OSError:
        return None
    wanted = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    for line in locks.splitlines():
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[4].isdecimal():
            major, minor, inode = fields[5].split(":")
            if (int(major, 16), int(minor, 16), int(inode)) == wanted:
                return _holder(int(fields[4]), proc)
    return None


def _listeners(proc: Path) -> Iterator[tuple[IPv4Address | IPv6Address, int, str]]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # 0: 0100007F:1F9A 00000000:0000 0A ... the inode is the tenth field
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS:
                host, port = fields[1].split(":")
                yield _read_host(host), int(port, 16), fields[9]


def _read_host(text: str) -> IPv4Address | IPv6Address:
    packed = b"".join(
        _WORD.pack(int(text[start : start + 8], 16)) for start in range(0, len(text), 8)
    )
    return ip_address(packed)


def _collide(host: str, other: IPv4Address | IPv6Address) -> bool:
    """Whether two listeners on one port exclude each other, as far as numbers tell."""
    try:
        ours = ip_address(host)
    except ValueError:
        return True  # a name: the process that has the port is a fair guess
    return ours == other or ours.is_unspecified or other.is_unspecified


def _pids(proc: Path) -> list[int]:
    try:
        return sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal())
    except OSError:
        return []


def _open_files(folder: Path) -> Iterator[str]:
    try:
        for each in folder.iterdir():
            yield str(each.readlink())
    except OSError:
        return  # it has ended, or may not be inspected


def _holder(pid: int, proc: Path) -> Holder | None:
    try:
        return Holder(pid, (proc / str(pid) / "comm").read_text().strip())
    except OSError:
        return None
