"""The segment files of a shard's partitions, behind the port: writes here, the rest on two threads.

```
caller    WriteSegment -> pwritev -> SegmentWritten
keeper    syncs, openings, indexes, removals, one after another, in their order
reader    reads; the caller itself makes small ones that the page cache can answer
```

A file whose unsynced bytes reach 16 MiB is synced ahead of time, because one large sync at the end
is what others would wait for (O2.6). An error of a write or sync is told to the partition and to
nobody else (O2.4); errors of what has no answer go to `complain`.

Flow:       store, checkpoint, recover.
Invariants: a file is made by a write at position 0 and by nothing else; a descriptor that wrote
            stays open until a sync of it has returned, or its error could be lost; no symbolic link
            below the folder is followed.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Self, TypeAlias

from headrace.base.limits import KIB, MIB, SEGMENT_HEADER_BYTES
from headrace.ports.segments import (
    IndexRead,
    OpenSegments,
    ReadIndex,
    ReadSegment,
    RemovePartition,
    RemoveSegments,
    SegmentEffect,
    SegmentEvent,
    SegmentExtent,
    SegmentFailed,
    SegmentFault,
    SegmentFile,
    SegmentRead,
    SegmentsOpened,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.runtime.whole import read_all, write_parts
from headrace.wire.errors import CorruptError
from headrace.wire.segment import (
    SegmentHeader,
    decode_segment_header,
    partition_names,
    segment_name,
)

SYNC_STEP_BYTES = 16 * MIB
DESCRIPTORS_MAX = 256
INDEX_BYTES_MAX = 16 * MIB
# A small read from the page cache costs the caller what handing it over would; of a large one the
# copy is better made elsewhere (measured: 10 against 11 us for 64 KiB, 73 against 14 for 1 MiB).
QUICK_READ_BYTES_MAX = 128 * KIB

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_TEMPORARY_SUFFIX = ".tmp"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OURS = re.compile(r"\d{20}\.(log|index|index\.tmp)")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

Names: TypeAlias = tuple[str, ...]  # of a folder, from the root down


class SegmentFilesError(Exception):
    """A thread ended by a bug of ours: nothing can be relied on any more."""


class _Handle:
    """An open file; closed when the last who uses it lets go."""

    __slots__ = ("fd", "file", "is_new", "unsynced_bytes", "users")

    def __init__(self, file: SegmentFile, fd: int) -> None:
        self.file = file
        self.fd = fd
        self.is_new = False  # its name is not durable
        self.unsynced_bytes = 0
        self.users = 1  # the cache, and whoever works with it now


class SegmentFiles:
    """Carries out segment effects on the files below one folder; one thread calls it.

    What the caller's own thread did is in `take_events` when `submit` returns; `wake` is called,
    from another thread, when there is more.
    """

    def __init__(
        self,
        folder: Path,
        wake: Callable[[], None],
        *,
        complain: Callable[[str], None] = lambda _: None,
        descriptors_max: int = DESCRIPTORS_MAX,
    ) -> None:
        assert descriptors_max > 0
        self.folder = folder
        self._wake = wake
        self._complain = complain
        self._descriptors_max = descriptors_max
        _make_folder(folder)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fchmod(self._root, _FOLDER_MODE)
        # The lock guards what the threads share: events, failures, users of handles, and the
        # handles for reading.
        self._lock = Lock()
        self._events: list[SegmentEvent] = []
        self._failures: dict[SegmentFile, str] = {}  # of syncs that nobody has asked for yet
        self._failure: BaseException | None = None
        # A folder that is empty may be removed; not while a file is being made in it.
        self._folders_lock = Lock()
        self._durable_folders: dict[Names, None] = {}  # the keeper's
        self._handles: dict[SegmentFile, _Handle] = {}  # the caller's; longest unused first
        self._read_handles: dict[SegmentFile, _Handle] = {}
        self._is_closed = False
        self._kept: dict[type, Callable[[Any], SegmentEvent | None]] = {
            SyncSegments: self._sync_segments,
            OpenSegments: self._open_segments,
            WriteIndex: self._write_index,
            RemoveSegments: self._remove_segments,
            RemovePartition: self._remove_partition,
            _Handle: self._sync_ahead,
        }
        self._read: dict[type, Callable[[Any], SegmentEvent | None]] = {
            ReadSegment: self._read_segment,
            ReadIndex: self._read_index,
        }
        self._orders: SimpleQueue[object] = SimpleQueue()
        self._reads: SimpleQueue[object] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, args=(self._orders, self._kept), name="segment keeper"),
            Thread(target=self._run, args=(self._reads, self._read), name="segment reader"),
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Carry out what was submitted, and end the threads."""
        if self._is_closed:
            return
        self._is_closed = True
        self._orders.put(None)
        self._reads.put(None)
        for thread in self._threads:
            thread.join()
        for handle in (*self._handles.values(), *self._read_handles.values()):
            os.close(handle.fd)
        os.close(self._root)

    # Effects and events.

    def submit(self, effect: SegmentEffect) -> None:
        """Begin to carry out one effect; bytes are written when this returns."""
        assert not self._is_closed
        match effect:
            case WriteSegment():
                self._answer(self._write_segment(effect))
            case ReadSegment():
                if not self._read_at_once(effect):
                    self._reads.put(effect)
            case ReadIndex():
                self._reads.put(effect)
            case SyncSegments():
                self._orders.put((effect, self._take_for_sync(effect.files)))
            case RemoveSegments() | RemovePartition():
                self._let_go(effect)
                self._orders.put(effect)
            case OpenSegments() | WriteIndex():
                self._orders.put(effect)

    def take_events(self) -> list[SegmentEvent]:
        """Give what has happened, in order, once.

        Raises:
            SegmentFilesError: A thread has ended.
        """
        if not self._events and self._failure is None:
            return []  # The usual answer, without a look at what the threads do.
        with self._lock:
            if self._failure is not None:
                raise SegmentFilesError(f"{self.folder}: {self._failure!r}") from self._failure
            events, self._events = self._events, []
        return events

    def _answer(self, event: SegmentEvent) -> None:
        with self._lock:
            self._events.append(event)

    def _run(self, orders: SimpleQueue[Any], work: dict[type, Callable[[Any], Any]]) -> None:
        """Carry out orders until there is the last one; a bug of ours must be seen."""
        try:
            while (order := orders.get()) is not None:
                key = order[0] if isinstance(order, tuple) else order
                event = work[type(key)](order)
                if event is not None:
                    self._answer(event)
                    self._wake()
        except BaseException as error:
            with self._lock:
                self._failure = error
            self._wake()
            raise

    # Writing.

    def _write_segment(self, effect: WriteSegment) -> SegmentEvent:
        try:
            handle = self._open_to_write(effect.file, is_new=effect.position == 0)
            written = write_parts(handle.fd, effect.parts, effect.position)
        except OSError as error:
            if error.errno in _NO_SPACE:
                return SegmentWritten(effect.token, is_done=False)
            return SegmentFailed(effect.token, self._sentence(effect.file, "write", error))
        with self._lock:
            handle.unsynced_bytes += written
            is_much = handle.unsynced_bytes >= SYNC_STEP_BYTES
        if is_much:
            self._order_sync(handle)
        return SegmentWritten(effect.token, is_done=True)

    def _open_to_write(self, file: SegmentFile, *, is_new: bool) -> _Handle:
        handle = self._handles.pop(file, None)
        if handle is None:
            flags = os.O_WRONLY | (os.O_CREAT if is_new else 0)
            with self._folders_lock, self._opened_folder(folder_names(file), make=is_new) as folder:
                handle = _Handle(file, _open_file(segment_name(file.base_offset), flags, folder))
        handle.is_new |= is_new
        self._handles[file] = handle
        if len(self._handles) > self._descriptors_max:
            unused = self._handles.pop(next(iter(self._handles)))
            if unused.unsynced_bytes or unused.is_new:
                self._order_sync(unused)
            self._release(unused)
        return handle

    def _order_sync(self, handle: _Handle) -> None:
        """Have the keeper sync a file before anybody asks for it."""
        with self._lock:
            handle.users += 1
        self._orders.put(handle)

    def _take_for_sync(self, files: Sequence[SegmentFile]) -> list[_Handle]:
        """Give the open ones of some files, so that none is closed before its sync."""
        with self._lock:
            handles = [self._handles[file] for file in files if file in self._handles]
            for handle in handles:
                handle.users += 1
        return handles

    def _release(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            is_unused = handle.users == 0
        if is_unused:
            os.close(handle.fd)

    def _let_go(self, effect: RemoveSegments | RemovePartition) -> None:
        """Close files that will be removed, or they would keep their space."""
        for handles in (self._handles, self._read_handles):
            with self._lock:
                meant = [file for file in handles if _is_meant(effect, file)]
                found = [handles.pop(file) for file in meant]
            for handle in found:
                self._release(handle)

    # Syncing.

    def _sync_segments(self, order: tuple[SyncSegments, list[_Handle]]) -> SegmentEvent:
        effect, handles = order
        for handle in handles:
            self._sync_ahead(handle)
        with self._lock:
            sentences = [self._failures[file] for file in effect.files if file in self._failures]
        if sentences:
            return SegmentFailed(effect.token, sentences[0])
        return SegmentsSynced(effect.token)

    def _sync_ahead(self, handle: _Handle) -> None:
        """Sync one file and its name; an error is kept for whoever asks for that file."""
        with self._lock:
            unsynced, handle.unsynced_bytes = handle.unsynced_bytes, 0
            is_new, handle.is_new = handle.is_new, False
            is_failed = handle.file in self._failures
        try:
            # After a failed sync nobody knows what the file holds: no other is tried (O2.4).
            if unsynced and not is_failed:
                os.fdatasync(handle.fd)
            if is_new and not is_failed:
                self._sync_names(folder_names(handle.file))
        except OSError as error:
            sentence = self._sentence(handle.file, "sync", error)
            with self._lock:
                self._failures[handle.file] = sentence
        self._release(handle)

    def _sync_names(self, names: Names) -> None:
        """Make a new file durable in its folder, and folders that may be new in theirs."""
        with self._opened_folder(names) as folder:
            os.fsync(folder)
        for depth in range(len(names), 0, -1):
            if names[:depth] in self._durable_folders:
                return
            with self._opened_folder(names[: depth - 1]) as folder:
                os.fsync(folder)
        for depth in range(len(names), 0, -1):
            self._durable_folders[names[:depth]] = None

    # Reading.

    def _read_at_once(self, effect: ReadSegment) -> bool:
        """Read what the page cache holds, if little is asked for; return whether that was all."""
        if effect.length > QUICK_READ_BYTES_MAX:
            return False
        handle = self._use_to_read(effect.file)
        if handle is None:
            return False  # To open it may need the disk.
        data = bytearray(effect.length)
        try:
            count = os.preadv(handle.fd, [data], effect.position, os.RWF_NOWAIT)
        except OSError:
            return False  # Not in the cache, or an error: the reader finds out which.
        finally:
            self._release(handle)
        if count < effect.length:
            return False
        self._answer(SegmentRead(effect.token, bytes(data)))
        return True

    def _read_segment(self, effect: ReadSegment) -> SegmentRead:
        try:
            handle = self._use_to_read(effect.file) or self._open_to_read(effect.file)
        except OSError as error:
            self._complain(self._sentence(effect.file, "open", error))
            return SegmentRead(effect.token, None)
        try:
            return SegmentRead(effect.token, read_all(handle.fd, effect.length, effect.position))
        except OSError as error:
            self._complain(self._sentence(effect.file, "read", error))
            return SegmentRead(effect.token, None)
        finally:
            self._release(handle)

    def _use_to_read(self, file: SegmentFile) -> _Handle | None:
        with self._lock:
            handle = self._read_handles.pop(file, None)
            if handle is not None:
                self._read_handles[file] = handle
                handle.users += 1
        return handle

    def _open_to_read(self, file: SegmentFile) -> _Handle:
        with self._opened_folder(folder_names(file)) as folder:
            fd = _open_file(segment_name(file.base_offset), os.O_RDONLY, folder)
        handle = _Handle(file, fd)
        handle.users += 1
        unused = None
        with self._lock:
            self._read_handles[file] = handle
            if len(self._read_handles) > self._descriptors_max:
                unused = self._read_handles.pop(next(iter(self._read_handles)))
        if unused is not None:
            self._release(unused)
        return handle

    # Indexes.

    def _read_index(self, effect: ReadIndex) -> IndexRead:
        try:
            with self._opened_folder(folder_names(effect.file)) as folder:
                fd = _open_file(index_name(effect.file.base_offset), os.O_RDONLY, folder)
            try:
                size = os.fstat(fd).st_size
                if size > INDEX_BYTES_MAX:
                    return IndexRead(effect.token, None)
                return IndexRead(effect.token, read_all(fd, size, 0))
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._complain(self._sentence(effect.file, "read the index of", error))
            return IndexRead(effect.token, None)

    def _write_index(self, effect: WriteIndex) -> None:
        """Replace an index file; one that a crash tears is found out and built again."""
        name = index_name(effect.file.base_offset)
        temporary = name + _TEMPORARY_SUFFIX
        try:
            with self._opened_folder(folder_names(effect.file)) as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                fd = _open_file(temporary, flags, folder)
                try:
                    write_parts(fd, [effect.data], 0)
                finally:
                    os.close(fd)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            self._complain(self._sentence(effect.file, "write the index of", error))

    # Opening.

    def _open_segments(self, effect: OpenSegments) -> SegmentsOpened:
        """Check all files first: where one is wrong, nothing is cut or removed."""
        faults = []
        for extent in effect.extents:
            sentence = self._check(extent)
            if sentence is not None:
                faults.append(SegmentFault(extent.file, sentence))
        if not faults:
            faults = self._cut(effect)
        if not faults:
            self._remove_unknown(effect)
        return SegmentsOpened(effect.token, tuple(faults))

    def _check(self, extent: SegmentExtent) -> str | None:
        """Say what is wrong with a file, if anything is."""
        file = extent.file
        path = self.path_of(file)
        try:
            with self._opened_file(file, os.O_RDONLY) as fd:
                size = os.fstat(fd).st_size
                header = decode_segment_header(read_all(fd, SEGMENT_HEADER_BYTES, 0))
        except CorruptError as error:
            return f"{path}: {error}; restore the file from a copy"
        except OSError as error:
            return self._sentence(file, "open", error)
        wanted = SegmentHeader(
            namespace=file.namespace,
            created_revision=file.created_revision,
            history_epoch=file.history_epoch,
            base_offset=file.base_offset,
        )
        if header != wanted:
            return f"{path}: its header is that of {header}; put the right file there"
        if size < extent.length:
            return f"{path}: {size} bytes, the checkpoint vouches for {extent.length}"
        return None

    def _cut(self, effect: OpenSegments) -> list[SegmentFault]:
        """Cut files to what the checkpoint vouches for, and sync them and their names.

        What is cut is in the journal and will be written again.
        """
        faults = []
        for extent in effect.extents:
            try:
                with self._opened_file(extent.file, os.O_RDWR) as fd:
                    if os.fstat(fd).st_size > extent.length:
                        os.ftruncate(fd, extent.length)
                    os.fsync(fd)
                    os.fchmod(fd, _FILE_MODE)
                self._sync_names(folder_names(extent.file))
            except OSError as error:
                sentence = self._sentence(extent.file, "sync", error)
                faults.append(SegmentFault(extent.file, sentence))
        return faults

    def _remove_unknown(self, effect: OpenSegments) -> None:
        """Remove the segments and indexes of a partition that no checkpoint names.

        Whatever has no name of ours is left alone, and so is a symbolic link.
        """
        kept = {
            (*folder_names(file), name(file.base_offset))
            for file in (extent.file for extent in effect.extents)
            for name in (segment_name, index_name)
        }
        partition = partition_names(effect.namespace, effect.created_revision)
        for names, name in list(self._files_of(partition)):
            if (*names, name) not in kept:
                self._remove_file(names, name)
        self._remove_empty_folders(partition)

    # Removing.

    def _remove_segments(self, effect: RemoveSegments) -> None:
        for file in effect.files:
            names = folder_names(file)
            self._remove_file(names, segment_name(file.base_offset))
            self._remove_file(names, index_name(file.base_offset))
            self._remove_empty(names)

    def _remove_partition(self, effect: RemovePartition) -> None:
        partition = partition_names(effect.namespace, effect.created_revision)
        for names, name in list(self._files_of(partition)):
            self._remove_file(names, name)
        self._remove_empty_folders(partition)

    def _files_of(self, partition: Names) -> Iterator[tuple[Names, str]]:
        """Give the files with names of ours of all histories of a partition."""
        for names in self._folders_of(partition):
            with self._opened_folder(names) as folder, os.scandir(folder) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
                ]
            for name in sorted(found):
                yield names, name

    def _folders_of(self, partition: Names) -> list[Names]:
        try:
            with self._opened_folder(partition) as folder, os.scandir(folder) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if entry.name.isdecimal() and entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []
        return [(*partition, name) for name in sorted(found)]

    def _remove_file(self, names: Names, name: str) -> None:
        try:
            with self._opened_folder(names) as folder:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass  # An index need not be there, and a removal may be repeated.
        except OSError as error:
            self._complain(f"{self.folder.joinpath(*names, name)}: cannot remove it: {error}")

    def _remove_empty_folders(self, partition: Names) -> None:
        for names in self._folders_of(partition):
            self._remove_empty(names)
        self._remove_empty(partition)

    def _remove_empty(self, names: Names) -> None:
        """Remove a folder and those above it, as far as they are empty."""
        with self._folders_lock:
            for depth in range(len(names), 0, -1):
                try:
                    with self._opened_folder(names[: depth - 1]) as folder:
                        os.rmdir(names[depth - 1], dir_fd=folder)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        self._complain(f"{self.folder.joinpath(*names[:depth])}: {error}")
                    return
                self._durable_folders.pop(names[:depth], None)

    # Places.

    def path_of(self, file: SegmentFile) -> Path:
        """Give where a segment lies, for words about it."""
        return self.folder.joinpath(*folder_names(file), segment_name(file.base_offset))

    def _sentence(self, file: SegmentFile, verb: str, error: OSError) -> str:
        return (
            f"{self.path_of(file)}: cannot {verb} it: {error.strerror}; "
            "the partition is fenced and its files are left as they are"
        )

    @contextmanager
    def _opened_folder(self, names: Names, *, make: bool = False) -> Iterator[int]:
        """Open a folder step by step, so that no symbolic link is followed on the way."""
        folder = os.dup(self._root)
        try:
            for name in names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
                below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _opened_file(self, file: SegmentFile, flags: int) -> Iterator[int]:
        with self._opened_folder(folder_names(file)) as folder:
            fd = _open_file(segment_name(file.base_offset), flags, folder)
        try:
            yield fd
        finally:
            os.close(fd)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each durable in its parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def folder_names(file: SegmentFile) -> Names:
    """Give the folder of a segment: that of one history of its partition."""
    names = partition_names(file.namespace, file.created_revision)
    return (*names, str(file.history_epoch))


def index_name(base_offset: int) -> str:
    """Give the name of the index of the segment that begins at an offset."""
    return segment_name(base_offset).removesuffix(".log") + ".index"


def _is_meant(effect: RemoveSegments | RemovePartition, file: SegmentFile) -> bool:
    if isinstance(effect, RemoveSegments):
        return file in effect.files
    return (file.namespace, file.created_revision) == (effect.namespace, effect.created_revision)


def _open_file(name: str, flags: int, folder: int) -> int:
    """Open a regular file of a folder; anything else of that name is an error."""
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, _FILE_MODE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd
