"""Remembers the time for the next start, as long as the machine stays up (CK1, decision 0019).

The monotonic clock of the system continues while a node is down, until the machine reboots. One
pair of monotonic and steady time gives the time to every later start of the same boot, whatever
the wall clock says by then. Any pair of this boot is as good as any other, so it is written once,
and again only if the steady time moved against the monotonic clock.

```
<data>/clock   magic 8 | boot identity u64 | monotonic clock u64 | steady time u64 | XXH3-64 u64
```

Times are in microseconds. The file is not synced: a power failure ends the boot that it belongs to.
"""

import logging
import os
import struct
import time
from pathlib import Path

from headrace.base.checksum import xxh3_64
from headrace.runtime.files.whole import read_file

CLOCK_NAME = "clock"

_MAGIC = b"HRCLOCK1"
_FIELDS = struct.Struct("<8s3Q")
_CHECKSUM_BYTES = 8
_FILE_MODE = 0o600
_MOVED_MICROS = 1_000_000

_log = logging.getLogger(__name__)


def monotonic_micros() -> int:
    """Return the time since the machine started, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def supported_time(folder: Path, boot_identity: int) -> int:
    """Return the time by the monotonic clock of this boot; 0 if no mark of this boot is there."""
    try:
        data = read_file(folder / CLOCK_NAME)
    except OSError:
        return 0  # It is missing or cannot be read: timestamps of the log support the time.
    if len(data) != _FIELDS.size + _CHECKSUM_BYTES:
        return 0
    covered = data[: _FIELDS.size]
    magic, boot, monotonic, steady = _FIELDS.unpack(covered)
    passed = monotonic_micros() - monotonic
    is_whole = magic == _MAGIC and xxh3_64(covered) == int.from_bytes(data[-8:], "little")
    if not is_whole or not boot_identity or boot != boot_identity or passed < 0:
        return 0
    return int(steady + passed)


class ClockMark:
    """The mark of one node."""

    def __init__(self, folder: Path, boot_identity: int) -> None:
        self._folder = folder
        self._boot_identity = boot_identity
        self._ahead: int | None = None  # the steady time less the monotonic clock, as written

    def keep(self, steady: int) -> None:
        """Write the mark for the next start; if that fails, an older mark of this boot serves."""
        monotonic = monotonic_micros()
        ahead = steady - monotonic
        if not self._boot_identity or (
            self._ahead is not None and abs(ahead - self._ahead) < _MOVED_MICROS
        ):
            return
        self._ahead = ahead
        covered = _FIELDS.pack(_MAGIC, self._boot_identity, monotonic, steady)
        try:
            self._write(covered + xxh3_64(covered).to_bytes(_CHECKSUM_BYTES, "little"))
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._folder / CLOCK_NAME, error)

    def _write(self, data: bytes) -> None:
        temporary = self._folder / f"{CLOCK_NAME}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        temporary.replace(self._folder / CLOCK_NAME)
