"""Opens the segment files of a partition at a start: checks them, judges surplus bytes, syncs.

```
check all that the checkpoint names -> judge what the log does not have -> put away -> sync
```

If anything is a fault, nothing is changed: the partition is fenced as it is (P7).

Flow: recover.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from headrace.base.limits import MIB, SEGMENT_HEADER_BYTES
from headrace.partitions.beyond import Fate, find_batch, header_of, judge_file, judge_remains
from headrace.ports.segments import (
    LogEnd,
    OpenSegments,
    QuarantinePartition,
    SegmentExtent,
    SegmentFault,
    SegmentFile,
    SegmentsOpened,
)
from headrace.runtime.files.quarantine import Quarantine
from headrace.runtime.files.segment_tree import (
    FILE_MODE,
    Names,
    SegmentTree,
    folder_names,
    index_name,
)
from headrace.runtime.files.whole import read_all
from headrace.wire.batches import BatchHeader
from headrace.wire.errors import CorruptError
from headrace.wire.segment import decode_segment_header, partition_names, segment_name

_COPY_BYTES = 4 * MIB
_SPARE = "bytes behind the end of the log, and no message that it lacks"
_STRANGE = "a segment that the log does not have, and no message that it lacks"
_TOLD = "messages that went with the power as far as the journal knows; told as a lost range"
_REMEDY = (
    "the stores beside it are older, or have lost records: restore the whole data folder from one"
    " copy"
)


class Beyond(msgspec.Struct, kw_only=True):
    """What the files of one partition hold that its log does not have, and what is wrong with them.

    If there is a fault, the rest is not carried out.
    """

    too_long: list[tuple[SegmentExtent, str]] = []  # with the length to keep, and why
    strange: list[tuple[SegmentFile, str]] = []
    gone: list[tuple[Names, str]] = []
    faults: list[SegmentFault] = []


class SegmentOpener:
    """Opens partitions one after another; `complain` receives all that goes to quarantine."""

    def __init__(
        self, tree: SegmentTree, quarantine: Quarantine, complain: Callable[[str], None]
    ) -> None:
        self._tree = tree
        self._quarantine = quarantine
        self._complain = complain

    def open(self, effect: OpenSegments) -> SegmentsOpened:
        """Open the files of one partition, or return their fault."""
        beyond = self.judge(effect)
        faults = beyond.faults or self._take_up(effect, beyond)
        return SegmentsOpened(effect.token, tuple(faults))

    def judge(self, effect: OpenSegments) -> Beyond:
        """Return what `open` would do with the files of one partition; change nothing."""
        faults = [
            SegmentFault(extent.file, sentence)
            for extent in effect.extents
            if (sentence := self._check(extent)) is not None
        ]
        if faults:
            return Beyond(faults=faults)
        try:
            return self._look(effect) if effect.end is None else self._judge(effect, effect.end)
        except OSError as error:
            return Beyond(faults=[self._failed(effect, error)])

    def is_kept(self, extent: SegmentExtent) -> bool:
        """Whether what lies behind the end of a file is more than zeros, and so is evidence."""
        with self._tree.opened_file(extent.file, os.O_RDONLY) as fd:
            return _has_bytes(fd, extent.length)

    def _take_up(self, effect: OpenSegments, beyond: Beyond) -> list[SegmentFault]:
        try:
            self._put_away(beyond)
        except OSError as error:
            return [self._failed(effect, error)]
        faults = self._sync(effect)
        if not faults:
            for names, name in beyond.gone:
                self._tree.remove_file(names, name)
            partition = partition_names(effect.namespace, effect.created_revision)
            self._tree.remove_empty_folders(partition)
        return faults

    def _failed(self, effect: OpenSegments, error: OSError) -> SegmentFault:
        partition = partition_names(effect.namespace, effect.created_revision)
        folder = self._tree.folder.joinpath(*partition)
        sentence = f"{folder}: cannot be taken up: {error}; the partition is fenced"
        return SegmentFault(SegmentFile(effect.namespace, effect.created_revision, 0, 0), sentence)

    def quarantine_partition(self, effect: QuarantinePartition) -> None:
        """Move the folder of a partition that does not exist to quarantine."""
        names = partition_names(effect.namespace, effect.created_revision)
        path = self._tree.folder.joinpath(*names)
        try:
            with self._tree.opened_folder(names[:-1]) as parent:
                self._complain(self._quarantine.move(path, parent, effect.reason))
        except OSError as error:
            self._complain(f"{path}: cannot be moved to quarantine: {error}; {effect.reason}")

    # What must be there.

    def _check(self, extent: SegmentExtent) -> str | None:
        """Return the fault of a file, if it has one."""
        file = extent.file
        path = self._tree.path_of(file)
        try:
            with self._tree.opened_file(file, os.O_RDONLY) as fd:
                size = os.fstat(fd).st_size
                header = decode_segment_header(read_all(fd, SEGMENT_HEADER_BYTES, 0))
        except CorruptError as error:
            return f"{path}: {error}; restore the file from a copy"
        except OSError as error:
            return self._tree.sentence(file, "open", error)
        if header != header_of(file):
            return f"{path}: its header is that of {header}; put the right file there"
        if size < extent.length:
            return (
                f"{path}: {size} bytes, the checkpoint vouches for {extent.length}; restore the"
                " file, or the whole data folder, from one copy"
            )
        return None

    def _sync(self, effect: OpenSegments) -> list[SegmentFault]:
        """Sync what the checkpoint names: it may be in the page cache alone."""
        faults = []
        for extent in effect.extents:
            try:
                with self._tree.opened_file(extent.file, os.O_RDWR) as fd:
                    if effect.end is None and os.fstat(fd).st_size > extent.length:
                        os.ftruncate(fd, extent.length)
                    os.fsync(fd)
                    os.fchmod(fd, FILE_MODE)
                self._tree.sync_names(folder_names(extent.file))
            except OSError as error:
                sentence = self._tree.sentence(extent.file, "sync", error)
                faults.append(SegmentFault(extent.file, sentence))
        return faults

    # What is too much.

    def _look(self, effect: OpenSegments) -> Beyond:
        """Treat all that the checkpoint does not name as bytes that will be written again."""
        return Beyond(gone=self._unknown(effect, [each.file for each in effect.extents]))

    def _judge(self, effect: OpenSegments, end: LogEnd) -> Beyond:
        """Judge what the log does not have; the log is complete."""
        beyond = Beyond()
        for extent in end.segments:
            self._judge_known(extent, end, beyond)
        known = [*(each.file for each in (*end.segments, *effect.extents)), *end.dropped]
        for names, name in self._unknown(effect, known):
            if not name.endswith(".log"):
                beyond.gone.append((names, name))  # An index alone is no evidence of anything.
                continue
            base_offset = int(name.removesuffix(".log"))
            file = SegmentFile(
                effect.namespace, effect.created_revision, int(names[-1]), base_offset
            )
            self._judge_unknown(file, end, beyond)
        return beyond

    def _unknown(self, effect: OpenSegments, known: list[SegmentFile]) -> list[tuple[Names, str]]:
        kept = {
            (*folder_names(file), name(file.base_offset))
            for file in known
            for name in (segment_name, index_name)
        }
        partition = partition_names(effect.namespace, effect.created_revision)
        return [each for each in self._tree.files_of(partition) if (*each[0], each[1]) not in kept]

    def _judge_known(self, extent: SegmentExtent, end: LogEnd, beyond: Beyond) -> None:
        file = extent.file
        try:
            with self._tree.opened_file(file, os.O_RDONLY) as fd:
                if os.fstat(fd).st_size <= extent.length:
                    return
                batch = find_batch(file, partial(_read, fd), extent.length)
        except FileNotFoundError:
            return  # It is written anew.
        if judge_remains(end, batch) == Fate.FAULT:
            assert batch is not None
            sentence = (
                f"{self._tree.path_of(file)} at {extent.length}: messages from offset"
                f" {batch.base_offset} on, and the log ends at {end.next_offset}: {_REMEDY}; or"
                f" give them up: cut the file to {extent.length} bytes"
            )
            beyond.faults.append(SegmentFault(file, sentence))
        beyond.too_long.append((extent, _why(batch, end, _SPARE)))

    def _judge_unknown(self, file: SegmentFile, end: LogEnd, beyond: Beyond) -> None:
        with self._tree.opened_file(file, os.O_RDONLY) as fd:
            fate = judge_file(end, file, partial(_read, fd))
            batch = find_batch(file, partial(_read, fd), SEGMENT_HEADER_BYTES)
        if fate == Fate.QUARANTINE:
            beyond.strange.append((file, _why(batch, end, _STRANGE)))
            return
        if fate == Fate.FAULT:
            sentence = (
                f"{self._tree.path_of(file)}: messages from offset {file.base_offset} of history"
                f" {file.history_epoch} on, and the log ends at {end.next_offset} of history"
                f" {end.history_epoch}: {_REMEDY}; or give them up: move the file away"
            )
            beyond.faults.append(SegmentFault(file, sentence))
        beyond.gone.append((folder_names(file), segment_name(file.base_offset)))

    # Putting away.

    def _put_away(self, beyond: Beyond) -> None:
        for file, why in beyond.strange:
            with self._tree.opened_folder(folder_names(file)) as parent:
                self._complain(self._quarantine.move(self._tree.path_of(file), parent, why))
            self._tree.remove_file(folder_names(file), index_name(file.base_offset))
        for extent, why in beyond.too_long:
            self._cut(extent, why)

    def _cut(self, extent: SegmentExtent, why: str) -> None:
        """Cut a file to the length that the log has, and keep what is not zero."""
        with self._tree.opened_file(extent.file, os.O_RDWR) as fd:
            if _has_bytes(fd, extent.length):
                path, chunks = self._tree.path_of(extent.file), _chunks(fd, extent.length)
                self._complain(self._quarantine.copy(path, extent.length, chunks, why))
            os.ftruncate(fd, extent.length)
            os.fsync(fd)


def _why(batch: BatchHeader | None, end: LogEnd, otherwise: str) -> str:
    """Return the reason for the quarantine."""
    is_lost = batch is not None and end.next_offset <= batch.base_offset < end.lost_until
    return _TOLD if is_lost else otherwise


def _read(fd: int, position: int, length: int) -> bytes:
    return read_all(fd, length, position)


def _has_bytes(fd: int, position: int) -> bool:
    return any(chunk.strip(b"\0") for chunk in _chunks(fd, position))


def _chunks(fd: int, position: int) -> Iterator[bytes]:
    while data := read_all(fd, _COPY_BYTES, position):
        yield data
        position += len(data)
