"""Segment files on a real disk: every effect, and what happens when the system refuses."""

import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.gather import First, FromOffset, Polled
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.shared import PartitionsShared
from headrace.partitions.writer import header_block
from headrace.ports.machine import Artifact
from headrace.ports.probes import Probes
from headrace.ports.segments import (
    IndexRead,
    OpenSegments,
    PartitionRemoved,
    ReadIndex,
    ReadSegment,
    RemovePartition,
    RemoveSegments,
    SegmentEffect,
    SegmentEvent,
    SegmentExtent,
    SegmentFailed,
    SegmentFile,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.runtime.files import segments
from headrace.runtime.files.segment_tree import folder_names
from headrace.runtime.files.segments import SegmentFiles, SegmentFilesError
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader
from headrace.wire.segment import segment_name
from tests.partitions.stage import NAMESPACE, REVISION, START, make_options, producer_batch, rows

WAIT_SECONDS = 10
FILE = SegmentFile(NAMESPACE, REVISION, 0, 0)
OTHER = SegmentFile(NAMESPACE, REVISION, 1, 700)
WRITES = ("pwrite", "pwritev")  # one part or several
DATA = bytes(range(256)) * 40


class Bench:
    """Segment files, and a caller that waits for their events."""

    def __init__(self, folder: Path, **options: int) -> None:
        self.folder = folder
        self.woken = Event()
        self.complaints: list[str] = []
        self.files = SegmentFiles(
            folder, self.woken.set, complain=self.complaints.append, **options
        )
        self.token = 0

    def ask(self, make: Callable[[int], SegmentEffect]) -> SegmentEvent:
        """Submit one effect and wait for its answer."""
        self.token += 1
        self.files.submit(make(self.token))
        return self.wait()

    def wait(self) -> SegmentEvent:
        events = self.files.take_events()
        while not events:
            assert self.woken.wait(WAIT_SECONDS)
            self.woken.clear()
            events = self.files.take_events()
        [event] = events
        assert event.token == self.token
        return event

    def write(self, file: SegmentFile, position: int, *parts: bytes) -> SegmentEvent:
        return self.ask(lambda token: WriteSegment(token, file, position, parts))

    def make(self, file: SegmentFile = FILE, data: bytes = DATA) -> None:
        event = self.write(file, 0, header_block(file), data)
        assert event == SegmentWritten(self.token, is_done=True)

    def sync(self, *files: SegmentFile) -> SegmentEvent:
        return self.ask(lambda token: SyncSegments(token, files))

    def read(self, file: SegmentFile, position: int, length: int) -> bytes | None:
        event = self.ask(lambda token: ReadSegment(token, file, position, length))
        assert isinstance(event, SegmentRead)
        return event.data

    def index(self, file: SegmentFile = FILE) -> bytes | None:
        event = self.ask(lambda token: ReadIndex(token, file))
        assert isinstance(event, IndexRead)
        return event.data

    def open(self, *extents: SegmentExtent) -> list[str]:
        event = self.ask(lambda token: OpenSegments(token, NAMESPACE, REVISION, extents))
        assert isinstance(event, SegmentsOpened)
        return [fault.sentence for fault in event.faults]

    def path(self, file: SegmentFile = FILE) -> Path:
        return self.folder.joinpath(*folder_names(file), segment_name(file.base_offset))

    def settle(self) -> None:
        """Wait until what has no answer is done."""
        self.sync()

    def names(self) -> list[str]:
        self.settle()
        return sorted(
            str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "partitions")
    yield made
    made.files.close()


def test_a_file_lies_where_its_partition_says(bench: Bench) -> None:
    bench.make(OTHER)
    path = bench.folder / "3" / "2" / "5-77" / "1" / "00000000000000000700.log"
    assert bench.path(OTHER) == path
    assert path.read_bytes() == header_block(OTHER) + DATA
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (bench.folder, *path.parents[:4]):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_many_parts_are_written_in_their_order(bench: Bench) -> None:
    parts = [bytes([n % 256]) * (n % 7) for n in range(3000)]  # more than one call takes
    bench.make()
    bench.write(FILE, SEGMENT_HEADER_BYTES + len(DATA), *parts)
    assert bench.path().read_bytes() == header_block(FILE) + DATA + b"".join(parts)


def test_a_write_that_is_cut_short_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """DK5."""
    real = os.pwritev

    def short(fd: int, parts: list[memoryview], position: int) -> int:
        return real(fd, [parts[0][: max(1, len(parts[0]) // 2)]], position)

    monkeypatch.setattr(os, "pwritev", short)
    bench.make()
    bench.write(FILE, 4096 + len(DATA), b"abc", b"", b"defg")
    assert bench.path().read_bytes() == header_block(FILE) + DATA + b"abcdefg"


def test_a_missing_file_is_never_made_again(bench: Bench) -> None:
    """Finding 12."""
    bench.make()
    bench.files.submit(RemoveSegments((FILE,)))
    bench.settle()
    event = bench.write(FILE, 4096, b"x")
    assert isinstance(event, SegmentFailed)
    assert str(bench.path()) in event.sentence
    assert not bench.path().exists()
    event = bench.write(OTHER, 4096, b"x")
    assert isinstance(event, SegmentFailed)
    assert not bench.path(OTHER).parent.exists()


# Syncs.


class SyncSpy:
    """Notes what is synced, by name, and may fail it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.failing = ""
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, self._around(getattr(os, name)))

    def _around(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            name = Path(f"/proc/self/fd/{fd}").readlink().name
            self.synced.append(name)
            if self.failing and name.endswith(self.failing):
                raise OSError(errno.EIO, "Input/output error")
            real(fd)

        return sync


def test_a_sync_covers_files_and_the_names_of_new_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DK8: the file, its folder, and every folder above that may be new."""
    spy = SyncSpy(monkeypatch)
    bench.make(OTHER)
    assert bench.sync(OTHER) == SegmentsSynced(bench.token)
    assert spy.synced == ["00000000000000000700.log", "1", "5-77", "2", "3", "partitions"]
    spy.synced.clear()
    bench.write(OTHER, 4096 + len(DATA), b"more")
    bench.sync(OTHER)
    assert spy.synced == ["00000000000000000700.log"]
    spy.synced.clear()
    bench.sync(OTHER)
    assert spy.synced == []  # Nothing was written since.
    bench.make()
    bench.sync(FILE)
    assert spy.synced == ["00000000000000000000.log", "0", "5-77"]


@pytest.mark.parametrize("failing", [".log", "5-77", "partitions"])
def test_an_error_of_a_sync_is_told_and_no_other_is_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Findings 1 and 2, DK2."""
    spy = SyncSpy(monkeypatch)
    bench.make()
    spy.failing = failing
    event = bench.sync(FILE)
    assert isinstance(event, SegmentFailed)
    assert "Input/output error" in event.sentence
    spy.failing = ""
    spy.synced.clear()
    bench.write(FILE, 4096 + len(DATA), b"x")
    assert isinstance(bench.sync(FILE), SegmentFailed)
    assert spy.synced == []
    other = SegmentFile(NAMESPACE + 1, REVISION, 0, 0)  # Another partition is not concerned.
    bench.make(other)
    assert bench.sync(other) == SegmentsSynced(bench.token)


def test_much_is_synced_ahead_and_its_error_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O2.6: in steps; the one who asks is told all the same."""
    monkeypatch.setattr(segments, "SYNC_STEP_BYTES", 30_000)
    spy = SyncSpy(monkeypatch)
    bench.make()
    bench.settle()
    assert spy.synced == []
    bench.write(FILE, 4096 + len(DATA), bytes(30_000))
    bench.settle()
    assert spy.synced[0] == "00000000000000000000.log"
    spy.failing = ".log"
    bench.write(FILE, 4096 + len(DATA) + 30_000, bytes(30_000))
    bench.settle()
    spy.failing = ""
    assert isinstance(bench.sync(FILE), SegmentFailed)


def test_a_descriptor_that_is_closed_was_synced_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = SyncSpy(monkeypatch)
    bench = Bench(tmp_path, descriptors_max=2)
    files = [SegmentFile(NAMESPACE, REVISION, 0, offset) for offset in range(5)]
    for file in files:
        bench.make(file)
    bench.settle()
    assert [name for name in spy.synced if name.endswith(".log")] == [
        f"{offset:020}.log" for offset in range(3)
    ]
    assert len(bench.files._handles) == 2
    spy.failing = "2.log"
    bench.write(files[2], 4096 + len(DATA), b"x")
    bench.write(files[0], 4096 + len(DATA), b"x")
    bench.write(files[1], 4096 + len(DATA), b"x")
    assert bench.sync(files[0], files[1]) == SegmentsSynced(bench.token)
    assert isinstance(bench.sync(files[2]), SegmentFailed)
    bench.files.close()


# Space.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_space_is_no_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """DK4."""
    bench.make()

    def full(fd: int, data: object, position: int) -> int:
        raise OSError(number, "full")

    with monkeypatch.context() as while_full:
        for call in WRITES:
            while_full.setattr(os, call, full)
        event = bench.write(FILE, 4096 + len(DATA), b"x")
        assert event == SegmentWritten(bench.token, is_done=False)
        event = bench.write(OTHER, 0, b"x")
        assert event == SegmentWritten(bench.token, is_done=False)
    assert bench.write(OTHER, 0, b"x") == SegmentWritten(bench.token, is_done=True)


def test_a_real_limit_of_file_size(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        bench.make()
        event = bench.write(FILE, 4096 + len(DATA), bytes(30_000))
        assert event == SegmentWritten(bench.token, is_done=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    event = bench.write(FILE, 4096 + len(DATA), bytes(30_000))
    assert event == SegmentWritten(bench.token, is_done=True)
    assert bench.path().read_bytes() == header_block(FILE) + DATA + bytes(30_000)


def test_an_error_of_a_write_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """DK1."""
    bench.make()

    def broken(fd: int, data: object, position: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    for call in WRITES:
        monkeypatch.setattr(os, call, broken)
    event = bench.write(FILE, 4096 + len(DATA), b"x")
    assert isinstance(event, SegmentFailed)
    assert "Input/output error" in event.sentence


# Reads.


def test_reads(bench: Bench) -> None:
    bench.make(data=os.urandom(300_000))
    whole = bench.path().read_bytes()
    for _ in range(2):  # The second time the file is open, and what is small is read at once.
        assert bench.read(FILE, 0, 4096) == whole[:4096]
        assert bench.read(FILE, 5000, 70_000) == whole[5000:75_000]
        assert bench.read(FILE, 5000, 250_000) == whole[5000:255_000]
        assert bench.read(FILE, 300_000, 9000) == whole[300_000:]
        assert bench.read(FILE, 900_000, 10) == b""
    assert bench.read(OTHER, 0, 10) is None
    assert len(bench.complaints) == 1


def test_a_read_sees_what_was_written_before_it(bench: Bench) -> None:
    bench.make()
    for number in range(20):
        data = bytes([number]) * 500
        bench.write(FILE, 4096 + len(DATA) + 500 * number, data)
        assert bench.read(FILE, 4096 + len(DATA) + 500 * number, 500) == data


def test_an_error_of_a_read_is_no_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """DK3."""
    bench.make()
    assert bench.read(FILE, 0, 10) == header_block(FILE)[:10]

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    monkeypatch.setattr(os, "preadv", broken)
    assert bench.read(FILE, 0, 10) is None
    assert "Input/output error" in bench.complaints[0]


def test_few_descriptors_are_held_for_reads(tmp_path: Path) -> None:
    bench = Bench(tmp_path, descriptors_max=2)
    files = [SegmentFile(NAMESPACE, REVISION, 0, offset) for offset in range(5)]
    for file in files:
        bench.make(file)
    for file in files * 2:
        assert bench.read(file, 4096, 10) == DATA[:10]
    assert len(bench.files._read_handles) == 2
    before = len(list(Path("/proc/self/fd").iterdir()))
    bench.files.close()
    assert len(list(Path("/proc/self/fd").iterdir())) < before


def test_indexes(bench: Bench) -> None:
    bench.make()
    assert bench.index() is None
    assert bench.complaints == []
    bench.files.submit(WriteIndex(FILE, b"first"))
    bench.settle()
    assert bench.index() == b"first"
    bench.files.submit(WriteIndex(FILE, b"2"))
    bench.settle()
    assert bench.index() == b"2"
    assert bench.names() == [
        "3/2/5-77/0/00000000000000000000.index",
        "3/2/5-77/0/00000000000000000000.log",
    ]
    bench.files.submit(WriteIndex(OTHER, b"x"))  # of a file that is not there
    bench.settle()
    assert len(bench.complaints) == 1


# Opening.


def extent(file: SegmentFile = FILE, length: int = 4096 + len(DATA)) -> SegmentExtent:
    return SegmentExtent(file, length)


def test_opening_cuts_to_the_length_and_removes_what_is_unknown(bench: Bench) -> None:
    bench.make(data=DATA + b"not vouched for")
    bench.make(OTHER)
    bench.files.submit(WriteIndex(FILE, b"index"))
    bench.files.submit(WriteIndex(OTHER, b"index"))
    bench.settle()
    foreign = bench.path().parent / "notes.txt"
    foreign.write_text("of somebody else")
    assert bench.open(extent()) == []
    assert bench.path().read_bytes() == header_block(FILE) + DATA
    assert bench.names() == [
        "3/2/5-77/0/00000000000000000000.index",
        "3/2/5-77/0/00000000000000000000.log",
        "3/2/5-77/0/notes.txt",
    ]
    assert not bench.path(OTHER).parent.exists()
    assert bench.open(extent()) == []


def test_opening_nothing_makes_nothing(bench: Bench) -> None:
    assert bench.open() == []
    assert list(bench.folder.iterdir()) == []
    bench.make()
    assert bench.open() == []
    assert list(bench.folder.iterdir()) == []


def damaged_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[17] ^= 1
    path.write_bytes(data)


def other_header(path: Path) -> None:
    path.write_bytes(header_block(OTHER) + DATA)


def cut_file(path: Path) -> None:
    os.truncate(path, 4096 + len(DATA) - 1)


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


def linked_file(path: Path) -> None:
    real = path.parent.parent.parent / "elsewhere"
    path.rename(real)
    path.symlink_to(real)


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def linked_folder(path: Path) -> None:
    real = path.parent.parent.parent / "elsewhere"
    path.parent.rename(real)
    path.parent.symlink_to(real)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        damaged_header,
        other_header,
        cut_file,
        empty_file,
        linked_file,
        folder_instead,
        linked_folder,
    ],
)
def test_a_file_that_is_not_what_is_wanted_is_refused_and_left_alone(
    bench: Bench, damage: Callable[[Path], None]
) -> None:
    """Finding 12, DK10, DK11, DK14, DK17, P7."""
    second = SegmentFile(NAMESPACE, REVISION, 0, 700)
    stray = SegmentFile(NAMESPACE, REVISION, 0, 900)
    bench.make()
    bench.make(second, DATA + b"more")
    bench.make(stray)
    damage(bench.path())
    [sentence] = [
        sentence
        for sentence in bench.open(extent(), extent(second))
        if sentence.startswith(str(bench.path()))
    ]
    assert sentence
    # Nothing else was touched: no cut, no removal, nothing made.
    folder = bench.path().parent.resolve()
    assert (folder / bench.path(stray).name).exists()
    assert (folder / bench.path(second).name).stat().st_size == 4096 + len(DATA) + 4
    assert bench.path().exists() == (damage is not Path.unlink)


def test_a_sync_that_fails_at_opening_is_a_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings 1 and 2: propagated, not logged."""
    bench.make()
    bench.sync(FILE)
    spy = SyncSpy(monkeypatch)
    spy.failing = ".log"
    [sentence] = bench.open(extent())
    assert "Input/output error" in sentence


def test_no_link_is_followed_to_write(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    bench.make()
    bench.files.submit(RemoveSegments((FILE,)))
    bench.settle()
    path = bench.path()
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    assert isinstance(bench.write(FILE, 0, b"x"), SegmentFailed)
    assert outside.read_bytes() == b"precious"


# Removing.


def test_files_and_empty_folders_go(bench: Bench) -> None:
    bench.make()
    bench.make(OTHER)
    bench.files.submit(WriteIndex(FILE, b"index"))
    bench.read(FILE, 0, 10)
    bench.files.submit(RemoveSegments((FILE,)))
    bench.files.submit(RemoveSegments((FILE,)))  # may be repeated
    assert bench.names() == ["3/2/5-77/1/00000000000000000700.log"]
    assert not bench.path().parent.exists()
    assert bench.files._read_handles == {}
    bench.files.submit(RemoveSegments((OTHER,)))
    bench.settle()
    assert list(bench.folder.iterdir()) == []
    assert bench.complaints == []


def test_a_partition_goes_with_all_its_histories(bench: Bench) -> None:
    neighbour = SegmentFile(NAMESPACE, REVISION + 1, 0, 0)
    for file in (FILE, OTHER, neighbour):
        bench.make(file)
        bench.read(file, 0, 10)
    bench.files.submit(WriteIndex(OTHER, b"index"))
    answer = bench.ask(lambda token: RemovePartition(token, NAMESPACE, REVISION))
    assert answer == PartitionRemoved(bench.token)
    assert bench.names() == ["3/2/5-78/0/00000000000000000000.log"]
    bench.ask(lambda token: RemovePartition(token, NAMESPACE, REVISION))
    assert bench.complaints == []
    bench.make()  # The same names may come again.
    assert bench.sync(FILE) == SegmentsSynced(bench.token)


def test_a_file_that_cannot_be_removed_is_complained_about(bench: Bench) -> None:
    bench.make()
    path = bench.path()
    path.unlink()
    path.mkdir()
    bench.files.submit(RemoveSegments((FILE,)))
    bench.settle()
    assert len(bench.complaints) == 1
    assert str(path) in bench.complaints[0]


def test_a_partition_that_cannot_be_removed_is_answered_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RC-13: the answer says that files may be left, and a removal can be repeated."""
    bench.make()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(bench.files._tree, "unlink", refuse)
        answer = bench.ask(lambda token: RemovePartition(token, NAMESPACE, REVISION))
    assert isinstance(answer, PartitionRemoved)
    place = bench.folder / "3" / "2" / "5-77"
    assert answer.failure == f"{place}: cannot remove its files: [Errno 13] Permission denied"
    assert bench.path().exists()
    answer = bench.ask(lambda token: RemovePartition(token, NAMESPACE, REVISION))
    assert answer == PartitionRemoved(bench.token)
    assert not place.exists()


def test_a_bug_in_a_thread_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("threading.excepthook", seen.append)
    bench = Bench(tmp_path)
    bench.files._orders.put("what is this")
    assert bench.woken.wait(WAIT_SECONDS)
    with pytest.raises(SegmentFilesError):
        bench.files.take_events()
    bench.files._reads.put(None)
    for thread in bench.files._threads:
        thread.join(WAIT_SECONDS)
    assert len(seen) == 1


# With a partition on top.


class Node:
    """One partition on real files."""

    def __init__(self, folder: Path) -> None:
        self.options = make_options(segment_bytes=20_000, piece_bytes=5000)
        self.folder = folder
        self.ops: list[tuple[PrepareHeader, bytes]] = []
        self.begin(())

    def begin(self, saved: tuple[Artifact, ...]) -> None:
        self.woken = Event()
        self.files = SegmentFiles(self.folder, self.woken.set)
        self.shared = PartitionsShared(tail_bytes_max=0)
        self.machine = PartitionMachine(self.options, self.shared, Probes())
        if saved:
            self.machine.install(saved)

    def send(self, count: int) -> None:
        stamp = START + len(self.ops)
        request = RequestHeader(operation=Operation.SEND_MESSAGES)
        body = self.machine.prepare(request, bytearray(producer_batch(count)), stamp)
        header = PrepareHeader(op=len(self.ops) + 1, operation=160, timestamp=stamp)
        self.ops.append((header, bytes(body)))
        self.machine.apply(header, body)

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            for effect in self.machine.take_effects():
                self.files.submit(effect)
            for event in self.files.take_events():
                self.shared.step(event)
            if not self.shared.busy and not until():
                self.woken.wait(WAIT_SECONDS)
                self.woken.clear()

    def flush(self) -> None:
        token = self.machine.flush()
        self.run(lambda: token is None or self.machine.is_flushed(token))

    def poll(self, offset: int) -> Polled:
        start = FromOffset(offset) if offset else First()
        polled = self.machine.poll(1, start, count=10_000, bytes_max=1 << 30)
        if polled is not None:
            return polled
        self.run(lambda: bool(self.machine._reads.polled))
        [(_, result)] = self.machine.take_polled()
        assert isinstance(result, Polled)
        return result


def test_a_partition_lives_on_real_files(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.machine.open()
    node.run(lambda: node.machine.is_open)
    for number in range(60):
        node.send(1 + number % 5)
        if number % 7 == 0:
            node.machine.store()
    node.flush()
    saved = node.machine.checkpoint()
    covered = len(node.ops)
    before = rows(node.poll(0))
    assert [row.offset for row in before] == list(range(180))
    for _ in range(20):
        node.send(3)
    node.flush()
    node.files.close()
    # Some of it is torn; the checkpoint and the ops behind it bring all of it back.
    images = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.log"))}
    newest = list(images)[-1]
    newest.write_bytes(images[newest] + b"\xff" * 100)
    node.begin(saved)
    for header, body in node.ops[covered:]:
        node.machine.apply(header, body)
    node.machine.open()
    node.run(lambda: node.machine.is_open or node.machine.fence is not None)
    assert node.machine.fence is None
    node.flush()
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*.log"))} == images
    assert rows(node.poll(0))[:180] == before
    assert [row.offset for row in rows(node.poll(77))] == list(range(77, 240))
    node.files.close()
