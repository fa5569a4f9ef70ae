"""The real disk: every effect on real files, and what happens when the system refuses."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Event, current_thread

import pytest

from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    DiskEffect,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    JournalRead,
    ReadJournal,
    RemoveFile,
    ReplaceFile,
    Synced,
    WriteBlock,
    WriteJournal,
    Written,
)
from headrace.ports.machine import Artifact
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup, ViewState
from headrace.runtime.files.disk import (
    QUICK_COUNT,
    QUICK_SECONDS,
    DiskFailedError,
    FileDisk,
    FolderInUseError,
)
from headrace.storage.store import Cut, Store, format_store
from tests.storage.samples import INCARNATION, config, opened, prepare

WAIT_SECONDS = 10
FILE_BYTES = 8192


class Bench:
    """A disk, and a caller that waits for its events."""

    def __init__(self, folder: Path) -> None:
        self.woken = Event()
        self.now = 0.0  # by which syncs are timed
        self.disk = FileDisk(folder, self.woken.set, clock=lambda: self.now)
        self.folder = folder
        self._answers: list[DiskEvent] = []

    def submit(self, effect: DiskEffect) -> None:
        answer = self.disk.submit(effect)
        if answer is not None:
            self._answers.append(answer)

    def events(self) -> list[DiskEvent]:
        """Return the events so far, those that answer an effect at once first."""
        answers, self._answers = self._answers, []
        return answers + self.disk.take_events()

    def wait(self, *wanted: DiskEvent) -> list[DiskEvent]:
        """Give all events up to the last of those that are wanted."""
        events: list[DiskEvent] = []
        while not all(each in events for each in wanted):
            events += self.take()
        return events

    def take(self) -> list[DiskEvent]:
        assert self.woken.wait(WAIT_SECONDS)
        self.woken.clear()
        return self.events()

    def allocate(self, file: int = 0) -> None:
        self.disk.submit(AllocateJournal(file, FILE_BYTES))
        self.wait(JournalAllocated(file, is_done=True))

    def write(
        self,
        sequence: int,
        *,
        sync: bool = True,
        file: int = 0,
        is_awaited: bool = True,
        is_lone: bool = False,
    ) -> None:
        data = bytes([sequence]) * 64
        place = (sequence, file, sequence * 64)
        self.submit(WriteJournal(*place, (data,), len(data), sync, is_awaited, is_lone))

    def ask_alone(self, sequence: int) -> None:
        """Write what one op waits for."""
        self.write(sequence, is_awaited=False, is_lone=True)

    def be_quick(self) -> int:
        """Make so many quick syncs that the next may be the caller's own; return its sequence."""
        self.allocate()
        for sequence in range(1, QUICK_COUNT + 1):
            self.ask_alone(sequence)
            self.wait(Synced(sequence))
        return QUICK_COUNT + 1

    def fail(self) -> DiskFailedError:
        """Wait for the disk to fail."""
        assert self.woken.wait(WAIT_SECONDS)
        with pytest.raises(DiskFailedError) as caught:
            self.disk.take_events()
        return caught.value

    def settle(self, store: Store) -> None:
        """Carry out everything that a store wants, until it wants nothing more."""
        waiting = 0  # effects whose answer has not come
        while True:
            effects = store.take_effects()
            for effect in effects:
                self.submit(effect)
                waiting += not isinstance(effect, WriteJournal | RemoveFile)
            events = self.events()
            for event in events:
                store.step(event)
                waiting -= not isinstance(event, Written | Synced)
            if effects or events:
                continue
            if not waiting and store.synced == store.issued:
                return
            assert self.woken.wait(WAIT_SECONDS)
            self.woken.clear()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "store")
    yield made
    made.disk.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refuse(*_: object) -> int:
    raise OSError(errno.EIO, "Input/output error")


def no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


# Each effect.


def test_written_comes_at_once_and_synced_after_it(bench: Bench) -> None:
    bench.allocate()
    bench.write(1)
    events = bench.events() + bench.wait(Synced(1))
    assert events[:1] == [Written(1)]
    assert events[-1:] == [Synced(1)]
    assert (bench.folder / "journal.0").read_bytes()[64:128] == bytes([1]) * 64


def test_a_write_that_nobody_awaits_is_told_by_its_sync_alone(bench: Bench) -> None:
    bench.allocate()
    bench.write(1, sync=False, is_awaited=False)
    assert bench.events() == []
    bench.write(2, is_awaited=False)
    assert bench.wait(Synced(2)) == [Synced(2)]
    assert (bench.folder / "journal.0").read_bytes()[64:192] == bytes([1]) * 64 + bytes([2]) * 64


def test_nothing_is_synced_before_it_is_asked_for(bench: Bench) -> None:
    bench.allocate()
    bench.write(1, sync=False)
    bench.write(2, sync=False)
    assert bench.events() == [Written(1), Written(2)]
    assert bench.disk.sync_count == 0
    bench.write(3)
    assert bench.wait(Synced(3)) == [Written(3), Synced(3)]
    assert bench.disk.sync_count == 1


def test_the_next_sync_begins_when_the_last_ended_and_covers_all_written_by_then(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.allocate(0)
    bench.allocate(1)
    begun, may_end = Event(), Event()
    synced: list[int] = []

    def slow(fd: int) -> None:
        synced.append(fd)
        begun.set()
        assert may_end.wait(WAIT_SECONDS)

    monkeypatch.setattr(os, "fdatasync", slow)
    bench.write(1)
    assert begun.wait(WAIT_SECONDS)
    for sequence in (2, 3, 4):
        bench.write(sequence, file=sequence % 2, sync=sequence != 4)
    assert bench.events() == [Written(each) for each in (1, 2, 3, 4)]
    may_end.set()
    assert bench.wait(Synced(1), Synced(4)) == [Synced(1), Synced(4)]
    assert len(synced) == 3, "file 0, then both files"
    assert synced[0] in synced[1:]
    bench.write(5, file=1)
    bench.wait(Synced(5))
    assert len(synced) == 4, "only files that are dirty"
    assert bench.disk.sync_count == 3


def test_a_short_write_is_completed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data[:10]), at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole(fd, bytes(parts[0][:10]), at))
    bench.allocate()
    bench.write(7)
    assert (bench.folder / "journal.0").read_bytes()[7 * 64 : 8 * 64] == bytes([7]) * 64


def test_reads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.allocate()
    bench.write(1)
    bench.disk.submit(ReadJournal(5, 0, 64, 64))
    bench.wait(JournalRead(5, bytes([1]) * 64))
    bench.disk.submit(ReadJournal(6, 0, FILE_BYTES - 1, 64))
    bench.wait(JournalRead(6, b"\0"))
    bench.disk.submit(ReadJournal(7, 3, 0, 64))
    bench.wait(JournalRead(7, None))
    monkeypatch.setattr(os, "pread", refuse)
    bench.disk.submit(ReadJournal(8, 0, 0, 64))
    bench.wait(JournalRead(8, None))


def test_allocation(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """O2.3: without space nothing has changed; with space again it goes on."""
    kept = bench.folder / "journal.1"
    kept.write_bytes(b"old")

    def partly(fd: int, _: int, size: int) -> None:
        os.ftruncate(fd, size // 2)
        no_space()

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", partly)
        bench.disk.submit(AllocateJournal(1, FILE_BYTES))
        bench.wait(JournalAllocated(1, is_done=False))
    assert kept.read_bytes() == b"old"
    bench.allocate(1)
    assert kept.read_bytes() == b"old".ljust(FILE_BYTES, b"\0")
    assert kept.stat().st_blocks * 512 >= FILE_BYTES, "the space is taken"


def test_a_file_is_replaced_atomically(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def note(*args: object, name: str = name, real: object = real, **named: object) -> None:
            calls.append(name)
            assert callable(real)
            real(*args, **named)

        monkeypatch.setattr(os, name, note)
    bench.disk.submit(ReplaceFile(3, "checkpoint.1", b"state"))
    bench.wait(FileReplaced(3, is_done=True))
    assert calls == ["fsync", "rename", "fsync"]
    assert (bench.folder / "checkpoint.1").read_bytes() == b"state"
    assert not (bench.folder / "checkpoint.1.tmp").exists()
    assert mode(bench.folder / "checkpoint.1") == 0o600


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_file_without_space_is_not_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    bench.disk.submit(ReplaceFile(1, "checkpoint.1", b"old"))
    bench.wait(FileReplaced(1, is_done=True))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_space)
        bench.disk.submit(ReplaceFile(2, "checkpoint.1", b"new"))
        bench.wait(FileReplaced(2, is_done=False))
    assert (bench.folder / "checkpoint.1").read_bytes() == b"old"
    assert not (bench.folder / "checkpoint.1.tmp").exists()
    bench.disk.submit(ReplaceFile(3, "checkpoint.1", b"new"))
    bench.wait(FileReplaced(3, is_done=True))


def test_a_block_is_written_in_place(bench: Bench) -> None:
    (bench.folder / "superblock").write_bytes(b"a" * 16)
    bench.disk.submit(WriteBlock(9, "superblock", 4, b"bbbb"))
    bench.wait(BlockWritten(9))
    assert (bench.folder / "superblock").read_bytes() == b"aaaabbbbaaaaaaaa"


def test_removing_keeps_its_place_among_the_others(bench: Bench) -> None:
    bench.disk.submit(ReplaceFile(1, "checkpoint.2", b"torn"))
    bench.disk.submit(RemoveFile("checkpoint.2"))
    bench.disk.submit(RemoveFile("checkpoint.2"))
    bench.disk.submit(ReplaceFile(2, "checkpoint.2", b"whole"))
    bench.disk.submit(RemoveFile("checkpoint.1"))
    bench.wait(FileReplaced(2, is_done=True))
    assert (bench.folder / "checkpoint.2").read_bytes() == b"whole"


def test_a_checkpoint_delays_no_sync(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.allocate()
    may_end, real = Event(), os.fsync

    def slow(fd: int) -> None:
        assert may_end.wait(WAIT_SECONDS)
        real(fd)

    monkeypatch.setattr(os, "fsync", slow)
    bench.disk.submit(ReplaceFile(1, "checkpoint.1", b"large"))
    bench.write(1)
    assert bench.wait(Synced(1)) == [Written(1), Synced(1)]
    may_end.set()
    bench.wait(FileReplaced(1, is_done=True))


# Failures.


def test_a_failed_sync_ends_the_disk_and_is_not_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O2.4: never acknowledged, although later syncs would succeed."""
    bench.allocate()
    tried: list[int] = []

    def once(fd: int) -> None:
        tried.append(fd)
        if len(tried) == 1:
            refuse()

    monkeypatch.setattr(os, "fdatasync", once)
    bench.write(1)
    assert str(bench.folder) in str(bench.fail())
    with pytest.raises(DiskFailedError):
        bench.write(2)
    with pytest.raises(DiskFailedError):
        bench.disk.submit(ReplaceFile(1, "checkpoint.1", b""))
    with pytest.raises(DiskFailedError):
        bench.events()
    bench.disk.close()
    assert len(tried) == 1
    assert not (bench.folder / "checkpoint.1").exists()


def test_a_failed_sync_ends_those_that_wait_behind_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.allocate()
    begun, may_end = Event(), Event()
    tried: list[int] = []

    def fail(fd: int) -> None:
        tried.append(fd)
        begun.set()
        assert may_end.wait(WAIT_SECONDS)
        refuse()

    monkeypatch.setattr(os, "fdatasync", fail)
    bench.write(1)
    assert begun.wait(WAIT_SECONDS)
    bench.write(2)
    may_end.set()
    bench.fail()
    bench.disk.close()
    assert len(tried) == 1


@pytest.mark.parametrize("refused", [errno.EIO, errno.ENOSPC])
def test_a_failed_journal_write_ends_the_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    bench.allocate()
    bench.write(1, sync=False)

    def fail(*_: object) -> int:
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(DiskFailedError):
        bench.write(2)
    with pytest.raises(DiskFailedError):
        bench.events()
    assert bench.disk.sync_count == 0


@pytest.mark.parametrize(
    ("call", "effect"),
    [
        ("fdatasync", WriteBlock(1, "superblock", 0, b"a")),
        ("pwrite", ReplaceFile(1, "checkpoint.1", b"a")),
        ("rename", ReplaceFile(1, "checkpoint.1", b"a")),
        ("posix_fallocate", AllocateJournal(0, 4096)),
        ("unlink", RemoveFile("checkpoint.1")),
    ],
)
def test_other_errors_end_the_disk_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: str, effect: WriteBlock
) -> None:
    (bench.folder / "superblock").write_bytes(b"")

    def fail(*_: object, **__: object) -> None:
        refuse()

    monkeypatch.setattr(os, call, fail)
    bench.disk.submit(effect)
    assert bench.fail().__cause__ is not None


# Opening.


def test_the_folder_is_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with FileDisk(folder, lambda: None):
        with pytest.raises(FolderInUseError, match=str(folder)):
            FileDisk(folder, lambda: None)
        assert mode(folder) == 0o700
        assert mode(folder / "lock") == 0o600
    with FileDisk(folder, lambda: None) as again:
        again.close()  # twice is once


def test_closing_carries_out_what_was_submitted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.allocate()
    bench.write(1)
    bench.disk.submit(ReplaceFile(1, "checkpoint.1", b"state"))
    bench.disk.close()
    assert (tmp_path / "checkpoint.1").read_bytes() == b"state"
    assert bench.events()[-2:] in (
        [Synced(1), FileReplaced(1, is_done=True)],
        [FileReplaced(1, is_done=True), Synced(1)],
    )


def test_everything_is_synced_before_anything_is_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "superblock").write_bytes(b"s" * 3_000_000)
    (bench.folder / "journal.0").write_bytes(b"")
    (bench.folder / "quarantine.1").write_bytes(b"old")
    (bench.folder / "folder").mkdir()
    calls: list[str] = []
    for name in ("fsync", "pread"):
        real = getattr(os, name)

        def note(*args: object, name: str = name, real: object = real) -> object:
            calls.append(name)
            assert callable(real)
            return real(*args)

        monkeypatch.setattr(os, name, note)
    assert bench.disk.read_files() == {"superblock": b"s" * 3_000_000, "journal.0": b""}
    assert calls == ["fsync"] * 3 + ["pread"] * 3


def test_a_sector_that_cannot_be_read_is_neither_zero_nor_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "journal.0").write_bytes(b"j" * 10_000)
    real = os.pread

    def damaged(fd: int, length: int, position: int) -> bytes:
        if position <= 5000 < position + length:
            refuse()
        return real(fd, length, position)

    monkeypatch.setattr(os, "pread", damaged)
    data = bench.disk.read_files()["journal.0"]
    assert data == b"j" * 4096 + b"\xff" * 4096 + b"j" * (10_000 - 8192)


def test_a_store_that_cannot_be_synced_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DiskFailedError):
        bench.disk.read_files()


def test_formatting_removes_the_old_and_writes_the_marker_last(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("marker", "journal.0", "quarantine.1"):
        (bench.folder / name).write_bytes(b"old")
    real, there = os.rename, []

    def note(old: str, new: str, **named: int) -> None:
        there.append(sorted(each.name for each in bench.folder.iterdir()))
        real(old, new, **named)

    monkeypatch.setattr(os, "rename", note)
    bench.disk.write_files({"marker": b"m", "superblock": b"s"})
    assert there == [
        ["lock", "quarantine.1", "superblock.tmp"],
        ["lock", "marker.tmp", "quarantine.1", "superblock"],
    ]
    assert bench.disk.read_files() == {"marker": b"m", "superblock": b"s"}


@pytest.mark.parametrize("is_preallocating", [True, False])
def test_journal_files_get_their_length(tmp_path: Path, *, is_preallocating: bool) -> None:
    with FileDisk(tmp_path, lambda: None, is_preallocating=is_preallocating) as disk:
        disk.write_files({"journal.0": b"abc", "marker": b"m"}, journal_bytes=FILE_BYTES)
        found = disk.read_files()
    assert found == {"journal.0": b"abc".ljust(FILE_BYTES, b"\0"), "marker": b"m"}
    is_sparse = (tmp_path / "journal.0").stat().st_blocks * 512 < FILE_BYTES
    assert is_sparse != is_preallocating


def test_cuts_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = [Cut("journal.0", 128, b"torn"), Cut("journal.1", 0, b"more")]
    assert bench.disk.keep_cuts(cuts) == ["quarantine.1", "quarantine.2"]
    assert bench.disk.keep_cuts(cuts[1:]) == ["quarantine.3"]
    assert (bench.folder / "quarantine.1").read_bytes() == b"journal.0 128 4\ntorn"
    monkeypatch.setattr(os, "pwrite", no_space)
    assert bench.disk.keep_cuts(cuts) == []


# A whole store.


def grown(groups: tuple[RecoveredGroup, ...]) -> dict[int, int]:
    """Give how far each group goes."""
    return {
        group.state.group: max(
            [group.state.commit, *(entry.header.op for entry in group.entries)],
        )
        for group in groups
    }


def checkpoint(store: Store, head: int) -> None:
    """Take everything of group 1 as committed."""
    state = ViewState(1, 0, 0, head, is_suspect=False)
    made = GroupCheckpoint(state, prepare(1, head)[0], b"clients", (Artifact(0, 0, b"state"),))
    store.begin_checkpoint([made], lambda *_: None)


def test_a_store_lives_on_its_disk_through_two_restarts(tmp_path: Path) -> None:
    made = config(replica_count=1)
    head = 0
    found: list[tuple[RecoveredGroup, ...]] = []
    for life in range(3):
        bench = Bench(tmp_path)
        if life == 0:
            bench.disk.write_files(format_store(made, INCARNATION))
        result = opened(made, bench.disk.read_files())
        again = opened(made, bench.disk.read_files())
        assert again.groups == result.groups
        assert result.findings == ()
        found.append(result.groups)
        store = result.store
        bench.settle(store)
        header = body = b""
        for _ in range(100):  # several files, and so several checkpoints
            head += 1
            header, body = prepare(1, head, b"x" * 200)
            assert store.has_room(len(body))
            store.stage_prepare(header, body)
            store.flush(sync=True)
            bench.settle(store)
            if store.wants_checkpoint():
                checkpoint(store, head)
                bench.settle(store)
        assert store.checkpointed
        assert store.read(1, head, 4)
        bench.settle(store)
        assert store.take_reads() == [(4, header, body)]
        bench.disk.close()
    assert [grown(groups) for groups in found] == [{}, {1: 100}, {1: 200}]


def test_a_clean_stop_is_found_again(tmp_path: Path) -> None:
    made = config(boot_identity=1)
    bench = Bench(tmp_path)
    bench.disk.write_files(format_store(made, INCARNATION))
    store = opened(made, bench.disk.read_files()).store
    bench.settle(store)
    store.stage_prepare(*prepare(1, 1))
    store.flush(sync=False)
    store.stop_clean()
    bench.settle(store)
    assert store.is_stopped
    bench.disk.close()
    bench = Bench(tmp_path)
    after = opened(config(boot_identity=2), bench.disk.read_files())
    assert not after.is_power_loss
    assert grown(after.groups) == {1: 1}
    bench.disk.close()


def test_a_bug_in_a_thread_ends_the_disk_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("threading.excepthook", lambda args: seen.append(current_thread().name))
    bench.disk.submit(RemoveFile("a/b"))
    assert isinstance(bench.fail().__cause__, AssertionError)
    bench.disk.close()
    assert seen == ["worker store"]


# A sync in the caller's own thread.


class Syncs:
    """Stands for the system's sync: who called it, and how long it takes."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.threads: list[str] = []
        self.seconds = 0.0
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, _: int) -> None:
        self.threads.append(current_thread().name)
        self.bench.now += self.seconds

    def of_caller(self, sequence: int) -> bool:
        """Write what one op waits for; return whether the caller's thread synced it."""
        bench = self.bench
        self.threads.clear()
        bench.ask_alone(sequence)
        if events := bench.events():
            assert events == [Synced(sequence)]
        else:
            bench.wait(Synced(sequence))
        return self.threads == [current_thread().name]


def test_after_many_quick_syncs_a_lone_op_is_synced_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(bench, monkeypatch)
    sequence = bench.be_quick()
    assert current_thread().name not in syncs.threads
    assert syncs.of_caller(sequence)
    assert syncs.of_caller(sequence + 1)
    assert bench.disk.sync_count == sequence + 1


def test_after_a_slow_sync_the_caller_syncs_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DK18: one slow sync may hold the caller up, and no second one soon."""
    syncs = Syncs(bench, monkeypatch)
    sequence = bench.be_quick()
    syncs.seconds = 2 * QUICK_SECONDS
    assert syncs.of_caller(sequence)
    assert not syncs.of_caller(sequence + 1)
    syncs.seconds = 0.0
    assert not syncs.of_caller(sequence + 2)


def test_the_caller_syncs_nothing_that_others_wait_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(bench, monkeypatch)
    sequence = bench.be_quick()
    syncs.threads.clear()
    bench.write(sequence)  # not alone
    bench.wait(Synced(sequence))
    bench.allocate(1)
    bench.write(sequence + 1, file=1, sync=False, is_awaited=False)
    bench.ask_alone(sequence + 2)  # two files are to be synced
    bench.wait(Synced(sequence + 2))
    assert current_thread().name not in syncs.threads


def test_a_sync_of_the_caller_that_fails_ends_the_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = bench.be_quick()
    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(DiskFailedError):
        bench.ask_alone(sequence)
    with pytest.raises(DiskFailedError):
        bench.disk.take_events()
