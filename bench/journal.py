"""The journal on a real disk against a bare loop of writes and syncs, in one run.

Every row keeps the same number of appends in flight and makes a group commit of what one turn adds,
so that one sync runs while the next turn is written. "journal" stages sealed prepares in a store,
which writes and syncs through the real disk. "bare, thread" hands the same bytes to one thread that
writes and syncs them; "bare" does so itself, one commit after another. All files are written over
once before anything is measured.

Each round measures every row once, in turn, so a neighbour on the machine disturbs all rows alike;
figures are medians of rounds. Compare ratios within a run, never times between runs.

    python bench/journal.py [--shortest] [folder]
"""

import argparse
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import NamedTuple, TypeAlias

from headrace import kernel
from headrace.base.limits import HEADER_BYTES, KIB, MIB
from headrace.ports.recovered import GroupCheckpoint, ViewState
from headrace.runtime.files.disk import FileDisk
from headrace.storage.records import (
    ENTRY_BYTES,
    TERMINATOR,
    prepare_group,
    prepare_op,
    record_bytes,
)
from headrace.storage.store import Opened, StoreConfig, format_store, open_store
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import body_checksum, seal

GROUP_COUNTS = (1, 16, 256)
PAYLOAD_BYTES = 96  # with its batch a body of about 400 bytes
JOURNAL_BYTES = 64 * MIB
JOURNAL_FILES = 8
WARM_BYTES = 64 * KIB
WAIT_SECONDS = 10
BARE = "bare, thread"

Prepare: TypeAlias = tuple[bytes, bytes]


class Pace(NamedTuple):
    """How much is measured: all for figures, or as little as shows that the benchmark runs."""

    rounds: int
    appends: int  # of one row in one round


FULL = Pace(11, 6_400)
SHORTEST = Pace(1, 640)


class Load(NamedTuple):
    """How many appends may be on their way, and how many one turn may add."""

    in_flight: int
    turn: int


LOADS = (Load(16, 8), Load(64, 32))


class Lap(NamedTuple):
    """What one row did in one round."""

    seconds: float
    cpu_seconds: float
    commits: int
    delays: list[tuple[float, int]]  # seconds from append to durable, appends

    @property
    def appends(self) -> int:
        """How many there were."""
        return sum(count for _, count in self.delays)


class Flight:
    """Appends that are not durable yet, and how long the others took."""

    def __init__(self, total: int, load: Load) -> None:
        self.delays: list[tuple[float, int]] = []
        self._left = total
        self._room = load.in_flight
        self._turn = load.turn
        self._waiting: deque[tuple[int, int, float]] = deque()
        self._started = time.perf_counter()
        self._cpu_started = time.process_time()
        self._total = total
        self._durable = 0

    @property
    def is_done(self) -> bool:
        """Whether everything is durable."""
        return self._durable == self._total

    def allowed(self) -> int:
        """Give how many appends the next turn may add."""
        return min(self._turn, self._room, self._left)

    def add(self, commit: int, count: int, began: float) -> None:
        """Note a turn that will be durable with a commit of that number."""
        self._waiting.append((commit, count, began))
        self._room -= count
        self._left -= count

    def land(self, commit: int) -> None:
        """Note that everything up to a commit is durable."""
        now = time.perf_counter()
        while self._waiting and self._waiting[0][0] <= commit:
            _, count, began = self._waiting.popleft()
            self.delays.append((now - began, count))
            self._room += count
            self._durable += count

    def lap(self, commits: int) -> Lap:
        """Give the lap that ends now."""
        seconds = time.perf_counter() - self._started
        return Lap(seconds, time.process_time() - self._cpu_started, commits, self.delays)


class Journal:
    """A store on a real disk, and prepares of its groups."""

    def __init__(self, folder: Path, groups: int) -> None:
        self._woken = Event()
        self._groups = groups
        self._headers: dict[int, bytes] = {}  # the newest made of each group
        self._staged: dict[int, bytes] = {}  # the newest staged of each group
        self._ops = 0
        self.disk = FileDisk(folder, self._woken.set)
        config = StoreConfig(
            cluster=1,
            replica=0,
            replica_count=1,
            journal_bytes_max=JOURNAL_BYTES,
            journal_files=JOURNAL_FILES,
            record_bytes_max=4 * MIB,
            boot_identity=1,
        )
        self.disk.write_files(format_store(config, 1))
        opened = open_store(config, self.disk.read_files())
        assert isinstance(opened, Opened)
        self.store = opened.store
        while not self.store.has_room(WARM_BYTES):
            self._turn()

    def make(self, count: int, body: bytes) -> list[Prepare]:
        """Give prepares, group after group, each the next of its group."""
        made = []
        for _ in range(count):
            group, op = self._ops % self._groups + 1, self._ops // self._groups + 1
            self._ops += 1
            before = self._headers.get(group, bytes(16))
            header = PrepareHeader(
                checksum_body=body_checksum(Operation.SEND_MESSAGES, body),
                cluster=1,
                size=HEADER_BYTES + len(body),
                client=group << 64 | 1,
                parent=int.from_bytes(before[:16], "little"),
                op=op,
                commit=op - 1,
                timestamp=1_700_000_000_000_000 + self._ops,
                request=op,
                operation=Operation.SEND_MESSAGES,
                group=group,
                user_id=1,
            )
            self._headers[group] = seal(PREPARE.encode(header))
            made.append((self._headers[group], body))
        return made

    def run(self, prepares: Sequence[Prepare], load: Load) -> Lap:
        """Append them all, and wait until they are durable."""
        store, disk = self.store, self.disk
        syncs_before = disk.sync_count
        flight = Flight(len(prepares), load)
        position = seen = 0
        while not flight.is_done:
            if store.wants_checkpoint():
                self._begin_checkpoint(prepares[seen:position])
                seen = position
            began = time.perf_counter()
            count = 0
            allowed = flight.allowed()
            while count < allowed and store.has_room(len(prepares[position][1])):
                store.stage_prepare(*prepares[position])
                position += 1
                count += 1
            if count:
                flight.add(store.flush(sync=True), count, began)
            is_waiting = not flight.allowed() or count < allowed
            self._turn(is_waiting=is_waiting)
            flight.land(store.synced)
        lap = flight.lap(disk.sync_count - syncs_before)
        self._note(prepares[seen:])
        return lap

    def _turn(self, *, is_waiting: bool = True) -> None:
        store, disk = self.store, self.disk
        for effect in store.take_effects():
            disk.submit(effect)
        if is_waiting:
            assert self._woken.wait(WAIT_SECONDS)
            self._woken.clear()
        for event in disk.take_events():
            store.step(event)

    def _begin_checkpoint(self, prepares: Sequence[Prepare]) -> None:
        """Take all that was staged as committed: none of it is live any more."""
        self._note(prepares)
        made = [
            GroupCheckpoint(
                ViewState(group, 0, 0, prepare_op(header), is_suspect=False), header, b"", ()
            )
            for group, header in self._staged.items()
        ]
        self.store.begin_checkpoint(made, lambda *_: None)

    def _note(self, prepares: Sequence[Prepare]) -> None:
        self._staged.update((prepare_group(header), header) for header, _ in prepares)


class BareFile:
    """A file that is written over and over."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        for position in range(0, JOURNAL_BYTES, MIB):
            os.pwrite(self._fd, b"\1" * MIB, position)
        os.fsync(self._fd)
        self._position = 0

    def commit(self, data: bytes) -> None:
        """Write behind the last write, and sync."""
        if self._position + len(data) > JOURNAL_BYTES:
            self._position = 0
        os.pwrite(self._fd, data, self._position)
        self._position += len(data)
        os.fdatasync(self._fd)

    def run(self, prepares: Sequence[Prepare], load: Load) -> Lap:
        """Commit them all, turn by turn, on the caller's thread."""
        flight = Flight(len(prepares), load)
        position = commits = 0
        while not flight.is_done:
            began = time.perf_counter()
            count = flight.allowed()
            commits += 1
            flight.add(commits, count, began)
            self.commit(bytes_of(prepares[position : position + count]))
            position += count
            flight.land(commits)
        return flight.lap(commits)


class BareThread:
    """A bare file behind one thread."""

    def __init__(self, path: Path) -> None:
        self._file = BareFile(path)
        self._orders: SimpleQueue[bytes] = SimpleQueue()  # empty ends the thread
        self._woken = Event()
        self._landed = 0
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def run(self, prepares: Sequence[Prepare], load: Load) -> Lap:
        """Commit them all, turn by turn, on the other thread."""
        landed_before = commits = self._landed
        flight = Flight(len(prepares), load)
        position = 0
        while not flight.is_done:
            began = time.perf_counter()
            count = flight.allowed()
            if count:
                commits += 1
                flight.add(commits, count, began)
                self._orders.put(bytes_of(prepares[position : position + count]))
                position += count
            if not flight.allowed():
                assert self._woken.wait(WAIT_SECONDS)
                self._woken.clear()
            flight.land(self._landed)
        return flight.lap(commits - landed_before)

    def close(self) -> None:
        """End the thread."""
        self._orders.put(b"")
        self._thread.join()

    def _work(self) -> None:
        while data := self._orders.get():
            self._file.commit(data)
            self._landed += 1
            self._woken.set()


def bytes_of(prepares: Sequence[Prepare]) -> bytes:
    """Give as many bytes as the journal writes for one turn, made in the shortest way."""
    parts = [part for prepare in prepares for part in prepare]
    size = sum(map(len, parts))
    rest = record_bytes(size + len(prepares) * ENTRY_BYTES) - size + len(TERMINATOR)
    return b"".join([*parts, bytes(rest)])


def batch_of(payload_bytes: int) -> bytes:
    """Give a stamped batch of one message."""
    ends = (0).to_bytes(4, "little") + payload_bytes.to_bytes(4, "little")
    made = bytearray(kernel.build(bytes(16), bytes(8), b"m" * payload_bytes, ends, None, None))
    kernel.admit(made, 1, 7, 1_000, 1_700_000_000_000_000)
    return bytes(made)


Laps: TypeAlias = dict[str, list[Lap]]


def measure(folder: Path, pace: Pace) -> dict[Load, Laps]:
    """Run all rounds; give the laps of each row."""
    body = batch_of(PAYLOAD_BYTES)
    warm = batch_of(WARM_BYTES - 512)
    with ExitStack() as stack:
        journals = {groups: Journal(folder / f"groups-{groups}", groups) for groups in GROUP_COUNTS}
        for journal in journals.values():
            stack.callback(journal.disk.close)
            journal.run(journal.make(JOURNAL_BYTES * 5 // 4 // WARM_BYTES, warm), LOADS[-1])
        thread = BareThread(folder / "bare-thread")
        stack.callback(thread.close)
        rows: dict[str, Callable[[Sequence[Prepare], Load], Lap]] = {
            name_of(groups): journal.run for groups, journal in journals.items()
        }
        rows |= {BARE: thread.run, "bare": BareFile(folder / "bare").run}
        laps: dict[Load, Laps] = {load: {name: [] for name in rows} for load in LOADS}
        for _ in range(pace.rounds):
            for load in LOADS:
                made = {
                    name_of(each): journals[each].make(pace.appends, body) for each in GROUP_COUNTS
                }
                for name, run in rows.items():
                    prepares = made.get(name, made[name_of(GROUP_COUNTS[0])])
                    laps[load][name].append(run(prepares, load))
    return laps


def name_of(groups: int) -> str:
    """Give the name of a row."""
    return f"journal, {groups} group{'s' if groups > 1 else ''}"


class Figures(NamedTuple):
    """The medians of one row."""

    commit_seconds: float
    append_seconds: float
    append_cpu_seconds: float
    p50: float
    p99: float


def figures_of(laps: Sequence[Lap]) -> Figures:
    """Sum up the rounds of one row."""
    delays = sorted(delay for lap in laps for delay, count in lap.delays for _ in range(count))
    return Figures(
        commit_seconds=statistics.median(lap.seconds / lap.commits for lap in laps),
        append_seconds=statistics.median(lap.seconds / lap.appends for lap in laps),
        append_cpu_seconds=statistics.median(lap.cpu_seconds / lap.appends for lap in laps),
        p50=delays[len(delays) // 2],
        p99=delays[len(delays) * 99 // 100],
    )


def report(load: Load, laps: Laps) -> None:
    """Print a row for each, and how the journal compares with the bare thread."""
    rows = {name: figures_of(each) for name, each in laps.items()}
    bare = rows[BARE]
    print(f"\n{load.in_flight} appends in flight, {load.turn} a turn")
    print(
        f"{'':20}{'appends/s':>10}{'p50 us':>8}{'p99 us':>8}{'syncs/s':>9}{'per sync':>9}"
        f"{'us/sync':>9}{'x bare':>8}{'x append':>9}{'cpu us':>8}"
    )
    for name, row in rows.items():
        append_ratio = row.append_seconds / bare.append_seconds
        print(
            f"{name:20}{1 / row.append_seconds:10,.0f}{row.p50 * 1e6:8.0f}{row.p99 * 1e6:8.0f}"
            f"{1 / row.commit_seconds:9,.0f}{row.commit_seconds / row.append_seconds:9.1f}"
            f"{row.commit_seconds * 1e6:9.1f}{row.commit_seconds / bare.commit_seconds:8.2f}"
            f"{append_ratio:9.2f}{row.append_cpu_seconds * 1e6:8.2f}"
        )


@contextmanager
def folder_of(named: Path | None) -> Iterator[Path]:
    """Give the folder that was named, or one under `build` that goes away."""
    if named is not None:
        yield named
        return
    Path("build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir="build", prefix="bench-") as name:
        yield Path(name)


def main() -> None:
    """Print the conditions, then a table for each load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shortest", action="store_true", help="one short round: whether it runs")
    parser.add_argument("folder", type=Path, nargs="?", help="on the disk to be measured")
    given = parser.parse_args()
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    print(
        f"Bodies of {len(batch_of(PAYLOAD_BYTES))} bytes; load average {load}"
        "\nx bare: time of one group commit against the bare loop with a thread; x append: the same"
        "\nof one append, as commits may differ in size; cpu us: of this process for each append."
    )
    with folder_of(given.folder) as folder:
        for load_of_table, laps in measure(folder, SHORTEST if given.shortest else FULL).items():
            report(load_of_table, laps)


if __name__ == "__main__":
    main()
