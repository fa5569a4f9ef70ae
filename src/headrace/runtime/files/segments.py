"""The segment files of a shard's partitions, behind the port: writes here, the rest on two threads.

```
caller    WriteSegment -> pwritev -> SegmentWritten
worker    syncs, openings, indexes, removals, one after another, in their order
reader    reads; the caller itself makes small ones that the page cache can answer
```

A file whose unsynced bytes reach 16 MiB is synced ahead of time, because one large sync at the end
is what others would wait for (O2.6). An error of a write or sync is reported to the partition
alone (O2.4); errors of effects without an answer go to `complain`.

Flow:       store, checkpoint, recover.
Invariants: a file is made by a write at position 0 and by nothing else; a descriptor that wrote
            stays open until a sync of it has returned, or its error could be lost; bytes that the
            journal does not have are never overwritten, but kept in quarantine first.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Self

from headrace.base.limits import KIB, MIB
from headrace.partitions.beyond import is_left_of_write
from headrace.ports.segments import (
    IndexRead,
    ListPartitions,
    OpenSegments,
    PartitionRemoved,
    PartitionsListed,
    QuarantinePartition,
    ReadIndex,
    ReadSegment,
    RemovePartition,
    RemoveSegments,
    SegmentEffect,
    SegmentEvent,
    SegmentFailed,
    SegmentFile,
    SegmentRead,
    SegmentsSynced,
    SegmentWritten,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.runtime.files.quarantine import QUARANTINE_NAME, Quarantine
from headrace.runtime.files.segment_opening import SegmentOpener
from headrace.runtime.files.segment_tree import SegmentTree, folder_names, index_name, open_file
from headrace.runtime.files.whole import read_all, write_parts
from headrace.wire.segment import partition_names, segment_name

SYNC_STEP_BYTES = 16 * MIB
DESCRIPTORS_MAX = 256
INDEX_BYTES_MAX = 16 * MIB
# A small read from the page cache costs the caller what handing it over would; of a large one the
# copy is better made elsewhere (measured: 10 against 11 us for 64 KiB, 73 against 14 for 1 MiB).
QUICK_READ_BYTES_MAX = 128 * KIB

_TEMPORARY_SUFFIX = ".tmp"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OTHERS = "other bytes than the journal has for this place"
_MADE = "the index is made again when it is needed"


class SegmentFilesError(Exception):
    """A thread ended by a bug: the state of the files is unknown."""


class _Handle:
    """An open file; closed when its last user releases it."""

    __slots__ = ("fd", "file", "is_new", "size", "unsynced_bytes", "users")

    def __init__(self, file: SegmentFile, fd: int) -> None:
        self.file = file
        self.fd = fd
        self.size = 0  # of the file, if it is open for writing
        self.is_new = False  # its name is not durable
        self.unsynced_bytes = 0
        self.users = 1  # the cache, and the current users


class SegmentFiles:
    """Carries out segment effects on the files below one folder; one thread calls it.

    Effects done in the caller's thread are answered in `take_events` when `submit` returns; `wake`
    is called, from another thread, when there is more.
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
        self._tree = SegmentTree(folder, complain)
        self.quarantine = Quarantine(folder.parent / QUARANTINE_NAME)
        self._opener = SegmentOpener(self._tree, self.quarantine, complain)
        # The lock guards the state that threads share: events, failures, users of handles, and the
        # handles for reading.
        self._lock = Lock()
        self._events: list[SegmentEvent] = []
        self._failures: dict[SegmentFile, str] = {}  # of syncs that nobody has asked for yet
        self._failure: BaseException | None = None
        self._handles: dict[SegmentFile, _Handle] = {}  # the caller's; longest unused first
        self._read_handles: dict[SegmentFile, _Handle] = {}
        self._is_closed = False
        self._work: dict[type, Callable[[Any], SegmentEvent | None]] = {
            SyncSegments: self._sync_segments,
            OpenSegments: self._opener.open,
            WriteIndex: self._write_index,
            RemoveSegments: self._remove_segments,
            RemovePartition: self._remove_partition,
            QuarantinePartition: self._opener.quarantine_partition,
            ListPartitions: self._list_partitions,
            _Handle: self._sync_ahead,
        }
        self._read: dict[type, Callable[[Any], SegmentEvent | None]] = {
            ReadSegment: self._read_segment,
            ReadIndex: self._read_index,
        }
        self._orders: SimpleQueue[object] = SimpleQueue()
        self._reads: SimpleQueue[object] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, args=(self._orders, self._work), name="segment worker"),
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
        """Complete the submitted effects, and end the threads."""
        if self._is_closed:
            return
        self._is_closed = True
        self._orders.put(None)
        self._reads.put(None)
        for thread in self._threads:
            thread.join()
        for handle in (*self._handles.values(), *self._read_handles.values()):
            os.close(handle.fd)
        self._tree.close()

    # Effects and events.

    def submit(self, effect: SegmentEffect) -> None:
        """Start one effect; bytes are written when this returns."""
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
            case OpenSegments() | WriteIndex() | QuarantinePartition() | ListPartitions():
                self._orders.put(effect)

    def take_events(self) -> list[SegmentEvent]:
        """Return the events since the last call, in order.

        Raises:
            SegmentFilesError: A thread has ended.
        """
        if not self._events and self._failure is None:
            return []  # The usual answer, without taking the lock of the threads.
        with self._lock:
            if self._failure is not None:
                raise SegmentFilesError(f"{self.folder}: {self._failure!r}") from self._failure
            events, self._events = self._events, []
        return events

    def _answer(self, event: SegmentEvent) -> None:
        with self._lock:
            self._events.append(event)

    def _run(self, orders: SimpleQueue[Any], work: dict[type, Callable[[Any], Any]]) -> None:
        """Carry out orders until the last one; the trace of a bug must be seen."""
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
            if effect.position < handle.size:
                self._keep_others(handle, effect)
            written = write_parts(handle.fd, effect.parts, effect.position)
        except OSError as error:
            if error.errno in _NO_SPACE:
                return SegmentWritten(effect.token, is_done=False)
            return SegmentFailed(effect.token, self._tree.sentence(effect.file, "write", error))
        handle.size = max(handle.size, effect.position + written)
        with self._lock:
            handle.unsynced_bytes += written
            is_much = handle.unsynced_bytes >= SYNC_STEP_BYTES
        if is_much:
            self._order_sync(handle)
        return SegmentWritten(effect.token, is_done=True)

    def _keep_others(self, handle: _Handle, effect: WriteSegment) -> None:
        """Keep the bytes that a write overwrites, unless a crash of the same write left them."""
        new = b"".join(effect.parts)
        length = min(len(new), handle.size - effect.position)
        old = read_all(handle.fd, length, effect.position)
        if not is_left_of_write(old, new):
            path = self._tree.path_of(effect.file)
            self._complain(self.quarantine.copy(path, effect.position, [old], _OTHERS))

    def _open_to_write(self, file: SegmentFile, *, is_new: bool) -> _Handle:
        handle = self._handles.pop(file, None)
        if handle is None:
            flags = os.O_RDWR | (os.O_CREAT if is_new else 0)
            with (
                self._tree.making,
                self._tree.opened_folder(folder_names(file), make=is_new) as folder,
            ):
                handle = _Handle(file, open_file(segment_name(file.base_offset), flags, folder))
            handle.size = os.fstat(handle.fd).st_size
        handle.is_new |= is_new
        self._handles[file] = handle
        if len(self._handles) > self._descriptors_max:
            unused = self._handles.pop(next(iter(self._handles)))
            if unused.unsynced_bytes or unused.is_new:
                self._order_sync(unused)
            self._release(unused)
        return handle

    def _order_sync(self, handle: _Handle) -> None:
        """Let the worker sync a file ahead of time."""
        with self._lock:
            handle.users += 1
        self._orders.put(handle)

    def _take_for_sync(self, files: Sequence[SegmentFile]) -> list[_Handle]:
        """Return the open handles of some files, so that none is closed before its sync."""
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
        """Close files that will be removed: an open one keeps its space."""
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
        """Sync one file and its name; an error is kept for the next sync of that file."""
        with self._lock:
            unsynced, handle.unsynced_bytes = handle.unsynced_bytes, 0
            is_new, handle.is_new = handle.is_new, False
            is_failed = handle.file in self._failures
        try:
            # After a failed sync nobody knows what the file holds: no other is tried (O2.4).
            if unsynced and not is_failed:
                os.fdatasync(handle.fd)
            if is_new and not is_failed:
                self._tree.sync_names(folder_names(handle.file))
        except OSError as error:
            sentence = self._tree.sentence(handle.file, "sync", error)
            with self._lock:
                self._failures[handle.file] = sentence
        self._release(handle)

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
            self._complain(self._tree.sentence(effect.file, "open", error))
            return SegmentRead(effect.token, None)
        try:
            return SegmentRead(effect.token, read_all(handle.fd, effect.length, effect.position))
        except OSError as error:
            self._complain(self._tree.sentence(effect.file, "read", error))
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
        with self._tree.opened_folder(folder_names(file)) as folder:
            fd = open_file(segment_name(file.base_offset), os.O_RDONLY, folder)
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
            with self._tree.opened_folder(folder_names(effect.file)) as folder:
                fd = open_file(index_name(effect.file.base_offset), os.O_RDONLY, folder)
            try:
                size = os.fstat(fd).st_size
                if size > INDEX_BYTES_MAX:
                    return IndexRead(effect.token, None)
                return IndexRead(effect.token, read_all(fd, size, 0))
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._complain(self._tree.sentence(effect.file, "read the index of", error, _MADE))
            return IndexRead(effect.token, None)

    def _write_index(self, effect: WriteIndex) -> None:
        """Replace an index file; one that a crash tears is detected and rebuilt."""
        name = index_name(effect.file.base_offset)
        temporary = name + _TEMPORARY_SUFFIX
        try:
            with self._tree.opened_folder(folder_names(effect.file)) as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                fd = open_file(temporary, flags, folder)
                try:
                    write_parts(fd, [effect.data], 0)
                finally:
                    os.close(fd)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            self._complain(self._tree.sentence(effect.file, "write the index of", error, _MADE))

    # Removing.

    def _remove_segments(self, effect: RemoveSegments) -> None:
        for file in effect.files:
            names = folder_names(file)
            self._tree.remove_file(names, segment_name(file.base_offset))
            self._tree.remove_file(names, index_name(file.base_offset))
            self._tree.remove_empty(names)

    def _remove_partition(self, effect: RemovePartition) -> PartitionRemoved:
        partition = partition_names(effect.namespace, effect.created_revision)
        try:
            for names, name in list(self._tree.files_of(partition)):
                self._tree.unlink(names, name)
        except OSError as error:
            place = self.folder.joinpath(*partition)
            return PartitionRemoved(effect.token, f"{place}: cannot remove its files: {error}")
        self._tree.remove_empty_folders(partition)
        return PartitionRemoved(effect.token)

    def _list_partitions(self, effect: ListPartitions) -> PartitionsListed:
        try:
            return PartitionsListed(effect.token, tuple(self._tree.partitions()))
        except OSError as error:
            self._complain(f"{self.folder}: cannot be listed: {error}")
            return PartitionsListed(effect.token, ())


def _is_meant(effect: RemoveSegments | RemovePartition, file: SegmentFile) -> bool:
    if isinstance(effect, RemoveSegments):
        return file in effect.files
    return (file.namespace, file.created_revision) == (effect.namespace, effect.created_revision)
