"""Reads and writes that are whole, also where the system does only a part at a time (DK5)."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.ports.network import Buffer

PARTS_MAX = 512  # below the system's IOV_MAX
_READ_BYTES = 1 << 20
_SECTOR_BYTES = 4096
_UNREADABLE = b"\xff"  # not zero: zero would say that nothing was ever written there


def write_parts(fd: int, parts: Sequence[Buffer], position: int) -> int:
    """Write all parts one after another; return their size in bytes.

    Raises:
        OSError: Not all of it could be written.
    """
    if len(parts) == 1:
        size = len(parts[0])
        if os.pwrite(fd, parts[0], position) == size:
            return size  # The usual case: a small record, written whole.
    left = [memoryview(part) for part in parts if len(part)]
    start = position
    first = 0
    while first < len(left):
        count = _write_some(fd, left[first : first + PARTS_MAX], position)
        if count == 0:
            raise OSError(errno.EIO, "write of no bytes")
        position += count
        while first < len(left) and count >= len(left[first]):
            count -= len(left[first])
            first += 1
        if count:
            left[first] = left[first][count:]
    return position - start


def _write_some(fd: int, parts: list[memoryview], position: int) -> int:
    if len(parts) == 1:
        return os.pwrite(fd, parts[0], position)
    return os.pwritev(fd, parts, position)


def read_all(fd: int, length: int, position: int) -> bytes:
    """Read `length` bytes, or up to the end of the file.

    Raises:
        OSError: They could not be read.
    """
    data = os.pread(fd, length, position)
    while 0 < len(data) < length:
        more = os.pread(fd, length - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def read_file(path: Path) -> bytes:
    """Read a whole file, not through a symbolic link; bad sectors as in `read_readable`.

    Raises:
        OSError: It cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return read_readable(fd)
    finally:
        os.close(fd)


def read_readable(fd: int) -> bytes:
    """Read a whole file; a sector that cannot be read comes as bytes that fit no checksum."""
    size = os.fstat(fd).st_size
    return b"".join(
        _read_chunk(fd, min(_READ_BYTES, size - position), position)
        for position in range(0, size, _READ_BYTES)
    )


def _read_chunk(fd: int, length: int, position: int) -> bytes:
    try:
        return read_all(fd, length, position)
    except OSError:
        if length <= _SECTOR_BYTES:
            return _UNREADABLE * length
    return b"".join(
        _read_chunk(fd, min(_SECTOR_BYTES, length - start), position + start)
        for start in range(0, length, _SECTOR_BYTES)
    )
