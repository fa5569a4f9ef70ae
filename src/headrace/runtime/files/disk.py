"""The real disk behind the port: one folder, its lock, and two threads that wait for it.

```
caller    WriteJournal -> pwritev -> Written, if that is awaited; or a quick fdatasync -> Synced
syncer    fdatasync of what is dirty -> Synced; the next one begins when the last one ended (D5)
worker    all other effects, one after another, in their order
```

The worker writes checkpoints, so one never delays a sync of the journal. An error that is not a
lack of space ends the node: nothing is delivered after it and no sync is tried again, because
nobody knows what a failed one has left (O2.4).

Flow:       replicate, recover.
Invariants: Written comes before the Synced that covers it; a Synced names what had been written
            when its sync began; no other process has the folder open.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NoReturn, Self

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
from headrace.runtime.files.folders import FOLDER_MODE, make_folder
from headrace.runtime.files.whole import PARTS_MAX, read_readable, write_parts
from headrace.storage.config import JOURNAL_PREFIX, MARKER_NAME, journal_name
from headrace.storage.store import Cut

LOCK_NAME = "lock"
QUARANTINE_PREFIX = "quarantine."
TEMPORARY_SUFFIX = ".tmp"

_FILE_MODE = 0o600
# A sync of the caller's own is allowed after so many quick ones in a row. A disk that is slow now
# and then so delays the other connections at most once in so many syncs (D5, DK18).
QUICK_COUNT = 64
QUICK_SECONDS = 0.001
_SYNC, _END = True, False  # the orders of the syncer
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFailedError(Exception):
    """The disk failed a write or a sync: the node must end, and restart is the recovery."""


class FolderInUseError(Exception):
    """Another process has the folder open."""


def evidence_of(cut: Cut) -> bytes:
    """Return the contents of the file that keeps a cut; its first line says where it was."""
    return f"{cut.file} {cut.position} {len(cut.data)}\n".encode() + cut.data


class FileDisk:
    """Carries out disk effects on the files of one folder; one thread calls it.

    What the caller's thread does is answered by `submit`; `wake` is called, from another thread,
    when `take_events` has more.
    """

    def __init__(
        self,
        folder: Path,
        wake: Callable[[], None],
        *,
        is_preallocating: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a folder; create it if it does not exist.

        Without `is_preallocating`, new journal files have their length and take space as they are
        written; a write that finds the disk full then fails, and the node with it.

        Raises:
            FolderInUseError: Another process has it open.
        """
        self.folder = folder
        self.sync_count = 0
        self._wake = wake
        self._clock = clock  # by which syncs are timed
        self._is_preallocating = is_preallocating
        make_folder(folder)
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fchmod(self._folder_fd, FOLDER_MODE)
        self._lock_fd = self._take_folder()
        # The lock guards the state that threads share: these fields, and the journal files.
        self._lock = Lock()
        self._events: list[DiskEvent] = []
        self._failure: BaseException | None = None
        self._dirty: dict[int, None] = {}  # descriptors of files written since the last sync
        self._written = 0
        self._is_sync_wanted = False
        self._is_syncing = False  # whether the syncer is at it
        self._quick_count = 0  # how many of the last syncs in a row were quick
        self._journals: dict[int, int] = {}  # file -> descriptor
        self._is_closed = False
        self._work: dict[type, Callable[[Any], DiskEvent | None]] = {
            AllocateJournal: self._allocate_journal,
            ReadJournal: self._read_journal,
            ReplaceFile: self._replace_file,
            WriteBlock: self._write_block,
            RemoveFile: self._remove_file,
        }
        self._syncs: SimpleQueue[bool] = SimpleQueue()
        self._orders: SimpleQueue[DiskEffect | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._run_syncer, name=f"syncer {folder.name}", daemon=True),
            Thread(target=self._run_worker, name=f"worker {folder.name}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Complete the submitted effects, end the threads, and release the folder."""
        if self._is_closed:
            return
        self._is_closed = True
        self._syncs.put(_END)
        self._orders.put(None)
        for thread in self._threads:
            thread.join()
        for fd in (*self._journals.values(), self._folder_fd, self._lock_fd):
            os.close(fd)

    # Effects and events.

    def submit(self, effect: DiskEffect) -> DiskEvent | None:
        """Start one effect; a journal record is written when this returns.

        Return the event that answers it, if that is known now.

        Raises:
            DiskFailedError: This write failed, or anything before it.
        """
        assert not self._is_closed
        if self._failure is not None:
            self._raise_failure()
        if type(effect) is not WriteJournal:
            assert type(effect) in self._work
            self._orders.put(effect)
            return None
        assert effect.sequence == self._written + 1 or self._written == 0
        try:
            journals = self._journals
            if effect.file in journals:
                fd = journals[effect.file]
            else:
                fd = self._open_journal(effect.file, os.O_RDWR)
            parts, position = effect.parts, effect.position
            if os.pwritev(fd, parts[:PARTS_MAX], position) != effect.length:
                write_parts(fd, parts, position)
        except OSError as error:
            self._fail(error)
            self._raise_failure()
        with self._lock:
            self._written = effect.sequence
            self._dirty[fd] = None
            is_first = effect.sync and not self._is_sync_wanted
            is_own = is_first and effect.is_lone and self._may_sync_now()
            if is_own:
                self._dirty = {}
            else:
                self._is_sync_wanted |= effect.sync
        if is_own:
            return self._sync_now(fd, effect.sequence)
        if is_first:
            self._syncs.put(_SYNC)
        return Written(effect.sequence) if effect.is_awaited else None

    def _may_sync_now(self) -> bool:
        """Whether the caller may sync by itself: nothing else is to be synced, and it is quick."""
        return self._quick_count >= QUICK_COUNT and not self._is_syncing and len(self._dirty) == 1

    def _sync_now(self, fd: int, sequence: int) -> Synced:
        """Sync in the caller's thread, which saves the way through another one and back.

        The caller stands still meanwhile: so only after many quick syncs, and not after a slow one.

        Raises:
            DiskFailedError: The sync failed.
        """
        began = self._clock()
        try:
            os.fdatasync(fd)
        except OSError as error:
            self._fail(error)
            self._raise_failure()
        self.sync_count += 1
        self._count_quick(self._clock() - began)
        return Synced(sequence)

    def _count_quick(self, seconds: float) -> None:
        self._quick_count = self._quick_count + 1 if seconds <= QUICK_SECONDS else 0

    def take_events(self) -> list[DiskEvent]:
        """Return the events since the last call, in order.

        Raises:
            DiskFailedError: A write or a sync failed; nothing that came after is delivered.
        """
        if not self._events and self._failure is None:
            return []  # The usual answer, without taking the lock of the threads.
        with self._lock:
            if self._failure is not None:
                self._raise_failure()
            events, self._events = self._events, []
        return events

    def _answer(self, event: DiskEvent) -> None:
        with self._lock:
            self._events.append(event)
        self._wake()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error

    def _raise_failure(self) -> NoReturn:
        raise DiskFailedError(f"{self.folder}: {self._failure}") from self._failure

    # The threads.

    def _run_syncer(self) -> None:
        while self._syncs.get():
            with self._lock:
                is_failed = self._failure is not None
                dirty, self._dirty = self._dirty, {}
                sequence = self._written
                self._is_sync_wanted = False
                self._is_syncing = True
            if not is_failed:
                self._guard(self._sync, dirty, sequence)

    def _sync(self, dirty: Iterable[int], sequence: int) -> None:
        began = self._clock()
        for fd in dirty:
            os.fdatasync(fd)
        with self._lock:
            self.sync_count += 1
            self._count_quick(self._clock() - began)
            self._is_syncing = False
            self._events.append(Synced(sequence))
        self._wake()

    def _run_worker(self) -> None:
        while (effect := self._orders.get()) is not None:
            if self._failure is None:
                self._guard(self._carry_out, effect)

    def _carry_out(self, effect: DiskEffect) -> None:
        event = self._work[type(effect)](effect)
        if event is not None:
            self._answer(event)

    def _guard(self, work: Callable[..., None], *arguments: object) -> None:
        """Run a thread's work; an error in it ends the node."""
        try:
            work(*arguments)
        except BaseException as error:
            self._fail(error)
            self._wake()
            if not isinstance(error, OSError):
                raise  # A bug of ours: its trace must be seen.

    # What the worker does.

    def _allocate_journal(self, effect: AllocateJournal) -> JournalAllocated:
        fd = self._open_journal(effect.file, os.O_RDWR | os.O_CREAT)
        size_before = os.fstat(fd).st_size
        try:
            self._lengthen(fd, effect.size)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            os.ftruncate(fd, size_before)  # Release the space that was allocated.
            return JournalAllocated(effect.file, is_done=False)
        os.fsync(fd)
        os.fsync(self._folder_fd)
        return JournalAllocated(effect.file, is_done=True)

    def _lengthen(self, fd: int, size: int) -> None:
        """Give a file its length, and its space if that is taken in advance."""
        if self._is_preallocating:
            os.posix_fallocate(fd, 0, size)
        elif os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)

    def _read_journal(self, effect: ReadJournal) -> JournalRead:
        try:
            fd = self._open_journal(effect.file, os.O_RDWR)
            return JournalRead(effect.token, os.pread(fd, effect.length, effect.position))
        except OSError:
            return JournalRead(effect.token, None)

    def _replace_file(self, effect: ReplaceFile) -> FileReplaced:
        try:
            self._write_temporary(effect.name, effect.data)
        except OSError as error:
            self._remove(effect.name + TEMPORARY_SUFFIX)
            if error.errno not in _NO_SPACE:
                raise
            return FileReplaced(effect.token, is_done=False)
        self._rename_temporary(effect.name)
        return FileReplaced(effect.token, is_done=True)

    def _write_block(self, effect: WriteBlock) -> BlockWritten:
        fd = self._open(effect.name, os.O_WRONLY)
        try:
            write_parts(fd, (effect.data,), effect.position)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        return BlockWritten(effect.token)

    def _remove_file(self, effect: RemoveFile) -> None:
        self._remove(effect.name)

    # Before the store is open.

    def read_files(self) -> dict[str, bytes]:
        """Return all files of the store, durable, as the medium has them.

        Each is synced and dropped from the page cache first: a killed process may have left bytes
        there that were never durable, and after a failed sync the cache holds bytes that the medium
        does not. A sector that cannot be read comes as bytes that no checksum fits.

        Raises:
            DiskFailedError: A file could not be synced.
        """
        names = [name for name in self._names() if not name.startswith(QUARANTINE_PREFIX)]
        try:
            for name in names:
                self._sync_and_drop(name)
            os.fsync(self._folder_fd)
        except OSError as error:
            self._fail(error)
            self._raise_failure()
        return {name: self._read(name) for name in names}

    def write_files(self, files: Mapping[str, bytes], *, journal_bytes: int = 0) -> None:
        """Replace the store's files: remove the old ones first, write the marker last.

        Journal files become as long as `journal_bytes`.

        Raises:
            OSError: A file could not be written; the marker is missing.
        """
        assert MARKER_NAME in files
        assert not self._journals, "nothing was submitted yet"
        self._remove(MARKER_NAME)
        os.fsync(self._folder_fd)
        for name in self._names():
            if not name.startswith(QUARANTINE_PREFIX):
                self._remove(name)
        for name in sorted(files, key=lambda name: (name == MARKER_NAME, name)):
            is_journal = name.startswith(JOURNAL_PREFIX)
            self._write_temporary(name, files[name], journal_bytes if is_journal else 0)
            self._rename_temporary(name)

    def keep_cuts(self, cuts: Iterable[Cut]) -> list[str]:
        """Write each cut to a file of its own, durable; return their names.

        The first line of a file says where the bytes were. A full disk does not end the node: then
        fewer names than cuts are returned.
        """
        numbers = [name.removeprefix(QUARANTINE_PREFIX) for name in self._names()]
        number = max((int(each) for each in numbers if each.isdecimal()), default=0)
        names = []
        for cut in cuts:
            number += 1
            name = f"{QUARANTINE_PREFIX}{number}"
            event = self._replace_file(ReplaceFile(0, name, evidence_of(cut)))
            if event.is_done:
                names.append(name)
        return names

    # Files.

    def _take_folder(self) -> int:
        fd = self._open(LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            os.close(self._folder_fd)
            raise FolderInUseError(f"{self.folder} is in use by another process") from None
        return fd

    def _names(self) -> list[str]:
        return sorted(
            entry.name
            for entry in self.folder.iterdir()
            if entry.name != LOCK_NAME and entry.is_file() and not entry.is_symlink()
        )

    def _open(self, name: str, flags: int) -> int:
        assert os.sep not in name
        return os.open(name, flags, _FILE_MODE, dir_fd=self._folder_fd)

    def _open_journal(self, file: int, flags: int) -> int:
        with self._lock:
            fd = self._journals.get(file)
            if fd is None:
                fd = self._journals[file] = self._open(journal_name(file), flags)
        return fd

    def _remove(self, name: str) -> None:
        assert os.sep not in name
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder_fd)

    def _write_temporary(self, name: str, data: bytes, length_min: int = 0) -> None:
        fd = self._open(name + TEMPORARY_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_parts(fd, (data,), 0)
            if len(data) < length_min:
                self._lengthen(fd, length_min)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _rename_temporary(self, name: str) -> None:
        folder = self._folder_fd
        os.rename(name + TEMPORARY_SUFFIX, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)

    def _sync_and_drop(self, name: str) -> None:
        fd = self._open(name, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def _read(self, name: str) -> bytes:
        fd = self._open(name, os.O_RDONLY)
        try:
            return read_readable(fd)
        finally:
            os.close(fd)
