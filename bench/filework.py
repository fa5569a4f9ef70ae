"""The file work of a node alone: the same bytes, written as the design writes them, no network.

```
append   header and batch over a ring of pre-written files, of the journal's default size
sync     persisted: a thread syncs the ring, the next sync begins when the last one ended;
         replicated: only 16 MiB or 50 ms after the last
copy     what is acknowledged goes to a segment that grows, in one write once 64 KiB wait
store    another thread syncs the segment in steps of 16 MiB; what is not stored keeps its place in
         the ring, so a full ring waits
```

This is the limit beside which a node is measured: it checks nothing, keeps no index and answers
nobody. `python -m bench.filework [--shortest] [folder]` prints it for itself.
"""

import argparse
import os
import statistics
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

from bench import machine
from bench.frames import CLASSES, PERSISTED, Shape, make_batch
from bench.load import Limits
from headrace.base.limits import GIB, HEADER_BYTES, KIB, MIB, SEGMENT_HEADER_BYTES
from headrace.server.config.sections import JournalSection
from headrace.storage.records import (
    ENTRY_BYTES,
    RECORD_HEADER_BYTES,
    TERMINATOR,
    record_bytes,
)

RING_FILES = JournalSection().files
FILE_BYTES = JournalSection().file_bytes
FILES_TO_FILL = RING_FILES - 2  # the rest is never given to messages
COPY_BYTES_MIN = 64 * KIB
STORE_STEP_BYTES = 16 * MIB
LAZY_SYNC_BYTES = 16 * MIB
LAZY_SYNC_SECONDS = 0.050
SEGMENT_BYTES = GIB
SYNC_FILE_BYTES = 64 * MIB
WAIT_SECONDS_MAX = 30


class FileLap(NamedTuple):
    """What one lap of file work did."""

    batches: int
    seconds: float
    p50_us: float  # from append to acknowledgement
    p99_us: float

    @property
    def rate(self) -> float:
        """Batches per second."""
        return self.batches / self.seconds


class GroupSync:
    """Syncs files on a thread of its own; whoever asks meanwhile is served by the next sync."""

    def __init__(self, woken: Event) -> None:
        self.synced = 0  # how far everything is durable, in the caller's own count
        self._woken = woken
        self._lock = Lock()
        self._dirty: dict[int, None] = {}
        self._written = 0
        self._is_wanted = False
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._failure: OSError | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def note(self, fd: int, written: int, *, is_wanted: bool) -> None:
        """Note what was written, and whether it is to be synced now."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            self._dirty[fd] = None
            self._written = written
            is_first = is_wanted and not self._is_wanted
            self._is_wanted |= is_wanted
        if is_first:
            self._orders.put(True)  # noqa: FBT003  # False would end the thread

    def close(self) -> None:
        """End the thread when it has done what it was asked for."""
        self._orders.put(False)  # noqa: FBT003  # see above
        self._thread.join()

    def _run(self) -> None:
        while self._orders.get():
            with self._lock:
                dirty, self._dirty = self._dirty, {}
                written = self._written
                self._is_wanted = False
            try:
                for fd in dirty:
                    os.fdatasync(fd)
            except OSError as error:
                self._failure = error
            else:
                self.synced = written
            self._woken.set()


class Ring:
    """Pre-written files that are written over and over."""

    def __init__(self, folder: Path, woken: Event) -> None:
        self._fds = [open_file(folder / f"journal.{index}") for index in range(RING_FILES)]
        for fd in self._fds:
            prewrite(fd, FILE_BYTES)
        self.sync = GroupSync(woken)
        self.position = 0  # counts on for ever; the files are this modulo their sizes
        self._lazy_position = 0
        self._lazy_time = 0.0

    def append(self, batch: bytes, count: int, *, is_durable: bool) -> int:
        """Write one record of some batches; give the position that is durable with it."""
        extras = (ENTRY_BYTES + HEADER_BYTES) * count
        record = record_bytes(extras + len(batch) * count)
        assert record + len(TERMINATOR) <= FILE_BYTES
        place = self.position % FILE_BYTES
        if place + record + len(TERMINATOR) > FILE_BYTES:
            self.position += FILE_BYTES - place
            place = 0
        head = bytes(RECORD_HEADER_BYTES + extras)
        padding = bytes(record - len(head) - len(batch) * count) + TERMINATOR
        fd = self._fds[self.position // FILE_BYTES % RING_FILES]
        write_all(fd, [head, *[batch] * count, padding], place)
        self.position += record
        self.sync.note(fd, self.position, is_wanted=is_durable or self._is_lazy_due())
        return self.position

    def settle(self) -> None:
        """Sync everything."""
        for fd in self._fds:
            os.fdatasync(fd)

    def close(self) -> None:
        """End the thread and close the files."""
        self.sync.close()
        for fd in self._fds:
            os.close(fd)

    def _is_lazy_due(self) -> bool:
        now = time.perf_counter()
        is_due = (
            self.position - self._lazy_position >= LAZY_SYNC_BYTES
            or now - self._lazy_time >= LAZY_SYNC_SECONDS
        )
        if is_due:
            self._lazy_position, self._lazy_time = self.position, now
        return is_due


class Segments:
    """Files that grow, one after another."""

    def __init__(self, folder: Path, woken: Event) -> None:
        self._folder = folder
        self.sync = GroupSync(woken)
        self._fds: list[int] = []
        self._length = SEGMENT_BYTES
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._unstored = 0

    def copy(self, batch: bytes, count: int, ring_position: int) -> None:
        """Take batches, and the position in the ring that is free when they are stored."""
        self._waiting += [batch] * count
        self._waiting_bytes += len(batch) * count
        if self._waiting_bytes < COPY_BYTES_MIN:
            return
        if self._length >= SEGMENT_BYTES:
            self._roll()
        write_all(self._fds[-1], self._waiting, self._length)
        self._length += self._waiting_bytes
        self._unstored += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        is_due = self._unstored >= STORE_STEP_BYTES
        if is_due:
            self._unstored = 0
        self.sync.note(self._fds[-1], ring_position, is_wanted=is_due)

    def settle(self) -> None:
        """Sync everything."""
        for fd in self._fds[-1:]:
            os.fdatasync(fd)

    def close(self) -> None:
        """End the thread and close the files."""
        self.sync.close()
        for fd in self._fds:
            os.close(fd)

    def _roll(self) -> None:
        self._fds.append(open_file(self._folder / f"segment.{len(self._fds)}"))
        os.pwrite(self._fds[-1], bytes(SEGMENT_HEADER_BYTES), 0)
        self._length = SEGMENT_HEADER_BYTES


class FileWork:
    """Ring and segments of one shard with one partition."""

    def __init__(self, folder: Path) -> None:
        """Write the ring's files full."""
        folder.mkdir(parents=True, exist_ok=True)
        self._woken = Event()
        self._ring = Ring(folder, self._woken)
        self._segments = Segments(folder, self._woken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ring.close()
        self._segments.close()

    def run(
        self, batch: bytes, limits: Limits, *, in_flight: int, turn: int, durability: str
    ) -> FileLap:
        """Keep some appends on their way, so many in one record, until time or bytes are over."""
        assert durability in CLASSES
        assert 1 <= turn <= in_flight
        is_durable = durability == PERSISTED
        waiting: deque[tuple[int, int, float]] = deque()  # position, batches, when appended
        delays: list[float] = []
        room, done = in_flight, 0
        began = time.perf_counter()
        deadline = began + limits.seconds
        left = max(limits.sent_bytes // len(batch), 1)
        # At least one append, however short the lap is.
        while waiting or not done or (left > 0 and time.perf_counter() < deadline):
            is_over = done and time.perf_counter() >= deadline
            count = min(turn, room, 0 if is_over else left)
            if count and self._has_room():
                appended = time.perf_counter()
                position = self._ring.append(batch, count, is_durable=is_durable)
                waiting.append((position, count, appended))
                room -= count
                left -= count
            elif waiting:
                self._wait()
            acknowledged = self._ring.sync.synced if is_durable else self._ring.position
            while waiting and waiting[0][0] <= acknowledged:
                position, count, appended = waiting.popleft()
                delays.append(time.perf_counter() - appended)
                self._segments.copy(batch, count, position)
                room += count
                done += count
        seconds = time.perf_counter() - began
        # What the lap left to write is not to disturb the next one.
        self._ring.settle()
        self._segments.settle()
        cuts = statistics.quantiles(delays, n=100) if len(delays) > 1 else delays * 99
        return FileLap(done, seconds, cuts[49] * 1e6, cuts[98] * 1e6)

    def _has_room(self) -> bool:
        used = self._ring.position - self._segments.sync.synced
        if used <= FILES_TO_FILL * FILE_BYTES:
            return True
        self._wait()
        return False

    def _wait(self) -> None:
        if not self._woken.wait(WAIT_SECONDS_MAX):
            raise TimeoutError(f"no sync ended in {WAIT_SECONDS_MAX} s")
        self._woken.clear()


class SyncFile:
    """A pre-written file, for a bare write and sync on one thread."""

    def __init__(self, folder: Path, length: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = open_file(folder / "sync")
        prewrite(self._fd, SYNC_FILE_BYTES)
        self._data = os.urandom(length)
        self._position = 0

    def run(self, seconds: float) -> FileLap:
        """Write and sync, again and again."""
        delays: list[float] = []
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or len(delays) < 2:
            started = time.perf_counter()
            os.pwrite(self._fd, self._data, self._position)
            os.fdatasync(self._fd)
            delays.append(time.perf_counter() - started)
            self._position += len(self._data)
            if self._position + len(self._data) > SYNC_FILE_BYTES:
                self._position = 0
        cuts = statistics.quantiles(delays, n=100)
        return FileLap(len(delays), time.perf_counter() - began, cuts[49] * 1e6, cuts[98] * 1e6)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def single_record_bytes(shape: Shape) -> int:
    """Give the bytes that the journal writes for one batch alone."""
    extras = ENTRY_BYTES + HEADER_BYTES
    return record_bytes(extras + len(make_batch(shape))) + len(TERMINATOR)


def open_file(path: Path) -> int:
    """Open a file for reading and writing, made if it is not there."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def prewrite(fd: int, length: int) -> None:
    """Write a file full, so that later writes neither grow it nor take new pages."""
    piece = b"\1" * MIB
    for position in range(0, length, MIB):
        write_all(fd, [piece], position)
    os.fsync(fd)


def write_all(fd: int, parts: list[bytes], position: int) -> None:
    """Write all parts, also when the system takes only some of them at a time."""
    parts_max = os.sysconf("SC_IOV_MAX")
    for start in range(0, len(parts), parts_max):
        some = parts[start : start + parts_max]
        length = sum(map(len, some))
        written = os.pwritev(fd, some, position)
        while written < length:
            written += os.pwrite(fd, b"".join(some)[written:], position + written)
        position += length


def main() -> None:
    """Print the file work of a few shapes in both classes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shortest", action="store_true", help="tiny laps: whether it runs")
    parser.add_argument("folder", type=Path, nargs="?", help="on the disk to be measured")
    given = parser.parse_args()
    laps_count, seconds = (1, 0.01) if given.shortest else (3, 0.5)
    print(machine.describe())
    shapes = (Shape(1, 100), Shape(100, 1024), Shape(1000, 1024))
    with TemporaryDirectory(dir=given.folder) as made, FileWork(Path(made)) as work:
        for shape in shapes:
            batch = make_batch(shape)
            for durability in CLASSES:
                in_flight = 4 if shape.messages == 1000 else 16
                laps = [
                    work.run(
                        batch,
                        Limits(seconds),
                        in_flight=in_flight,
                        turn=max(in_flight // 2, 1),
                        durability=durability,
                    )
                    for _ in range(laps_count)
                ]
                rate = statistics.median(lap.rate for lap in laps)
                print(
                    f"{shape!s:14} {durability:11} {rate:10,.0f} batches/s "
                    f"{rate * shape.bytes / 1e6:8,.0f} MB/s "
                    f"p50 {statistics.median(lap.p50_us for lap in laps):8,.0f} us"
                )
        length = single_record_bytes(Shape(1, 100))
        bare = SyncFile(Path(made), length)
        lap = bare.run(seconds)
        bare.close()
        print(
            f"write + fdatasync of {length} bytes: p50 {lap.p50_us:.0f} us, p99 {lap.p99_us:.0f} us"
        )


if __name__ == "__main__":
    main()
