"""Judges the segments of one partition against its checkpoint, batch by batch; changes nothing.

```
file     |header| batch | batch | ..... | batch | written since the checkpoint
         0      4096                            length the checkpoint vouches for
```

Batches are proven by the chains of the checkpoint, step by step as a poll does it: what is lost
here is what a poll cannot read. Whole batches of another history are lost as well.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.install import state_artifact
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.options import PartitionOptions
from headrace.partitions.pieces import Stretch
from headrace.partitions.proof import FilePart, prove_stretch, survey
from headrace.partitions.snapshot import decode_snapshot
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentFile
from headrace.runtime.files.segment_tree import folder_names, index_name
from headrace.runtime.files.whole import read_all, read_file
from headrace.server.doctor.indexes import judge_index, known_index
from headrace.server.doctor.next_start import NOT_JUDGED, Judged, is_dropped
from headrace.server.doctor.report import FileReport, Lost, Verdict
from headrace.server.folders import PARTITIONS_NAME
from headrace.wire.batches import decode_batch_header, verify_batch
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.replica.prepares import PREPARE
from headrace.wire.segment import SegmentHeader, decode_segment_header, segment_name

_RESTORE = "restore the file from a copy of this folder"


def checkpointed_log(group: RecoveredGroup) -> PartitionLog | None:
    """Return the log of a partition as its checkpoint has it; none if it has none.

    Raises:
        CorruptError: The checkpoint contradicts itself.
    """
    checkpoint = group.checkpoint
    if checkpoint is None or not checkpoint.commit_header:
        return None
    options = PartitionOptions(
        namespace=GroupId(group.state.group),
        created_revision=PREPARE.decode(checkpoint.commit_header).origin,
    )
    return decode_snapshot(state_artifact(checkpoint.artifacts).data, options).log


def examine_segments(
    root: Path, log: PartitionLog, judged: Judged, name: str
) -> Iterator[FileReport]:
    """Judge the segments and indexes of one partition; `root` is the folder `partitions`.

    `judged` are the decisions of a start. What the log has dropped since the checkpoint is not read
    any more, and on a full disk it may be removed already (decision 0020): it is not judged here.
    """
    for segment in log.segments:
        if is_dropped(judged, segment.file):
            continue
        folder = root.joinpath(*folder_names(segment.file))
        walk = _Walk(segment, folder, judged.get(segment.file, NOT_JUDGED))
        yield walk.report(name)
        index = folder / index_name(segment.base_offset)
        if index.is_file() and not index.is_symlink():
            yield _examine_index(index, segment, name)


class _Walk:
    """One pass over one segment file; it collects what is lost."""

    def __init__(self, segment: Segment, folder: Path, beyond: tuple[Verdict, str]) -> None:
        self._segment = segment
        self._beyond = beyond  # the decision of a start about bytes behind the checkpoint
        self._partition = unpack_namespace(GroupId(segment.file.namespace)).partition
        self._file = folder / segment_name(segment.base_offset)
        self._size: int | None = None
        self._reasons: list[str] = []
        self._position: int | None = None
        self._lost: list[Lost] = []
        self._run()

    def _run(self) -> None:
        segment = self._segment
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            self._fence(f"cannot be opened: {error.strerror}")
            self._lose(segment.base_offset, segment.end_offset)
            return
        try:
            self._size = os.fstat(fd).st_size
            if self._size < segment.length:
                self._fence(f"{self._size} bytes, the checkpoint vouches for {segment.length}")
            self._check_header(fd)
            self._prove_batches(fd)
        finally:
            os.close(fd)

    def _check_header(self, fd: int) -> None:
        file = self._segment.file
        wanted = SegmentHeader(
            namespace=file.namespace,
            created_revision=file.created_revision,
            history_epoch=file.history_epoch,
            base_offset=file.base_offset,
        )
        try:
            header = decode_segment_header(read_all(fd, SEGMENT_HEADER_BYTES, 0))
        except (CorruptError, OSError) as error:
            self._fence(str(error))
            return
        if header != wanted:
            self._fence(f"its header is that of {header}")

    def _prove_batches(self, fd: int) -> None:
        """Read every batch that the checkpoint vouches for, as a poll does: one step at a time."""
        segment = self._segment
        index = known_index(self._file.with_suffix(".index"), segment)
        offset = segment.base_offset
        while offset < segment.end_offset:
            stretch = index.stretch(offset, offset + 1, end_offset=segment.end_offset, bytes_max=0)
            self._prove(fd, stretch)
            offset = stretch.end.offset

    def _prove(self, fd: int, stretch: Stretch) -> None:
        start = stretch.start.position
        part = FilePart(stretch.end.offset, stretch.length, ())
        try:
            data = memoryview(read_all(fd, stretch.length, start))
        except OSError as error:
            self._note(start, str(error))
            self._lose(stretch.start.offset, part.end_offset)
            return
        if prove_stretch(stretch, part, data, self._partition) is not None:
            return
        for found in survey(stretch, part, data, self._partition):
            if found.run is None:
                self._note(start + found.position, _reason(data[found.position :]))
                self._lose(found.first, found.end)

    def _note(self, position: int, reason: str) -> None:
        self._reasons.append(reason)
        if self._position is None:
            self._position = position

    def _fence(self, reason: str) -> None:
        """Note a fault that makes the node serve nothing of the partition."""
        self._note(0, f"{reason}: nothing of the partition is served until that is put right")

    def _lose(self, first: int, end_offset: int) -> None:
        """Add a lost range; merge it with the last one if they touch."""
        if self._lost and first == self._lost[-1].last + 1:
            first = self._lost.pop().first
        self._lost.append(Lost(first, end_offset - 1))

    def report(self, partition: str) -> FileReport:
        """Return the verdict."""
        segment = self._segment
        verdict = Verdict.FINE
        state = "sealed" if segment.is_sealed else "active"
        text = f"{state}, {Lost(segment.base_offset, segment.end_offset - 1)}"
        if self._reasons:
            verdict = Verdict.DAMAGED
            more = f" (and {len(self._reasons) - 1} more)" if len(self._reasons) > 1 else ""
            lost = ", ".join(map(str, self._lost)) or "nothing"
            text = f"{self._reasons[0]}{more}; lost: {lost}; {_RESTORE}"
        elif self._size is not None and self._size > segment.length:
            verdict, judged = self._beyond
            text += f"; {self._size - segment.length} bytes behind it: {judged}"
        return FileReport(
            path=_below(self._file, segment.file),
            what="segment",
            verdict=verdict,
            text=text,
            size_bytes=self._size,
            position=self._position,
            partition=partition,
            lost=tuple(self._lost),
        )


def _examine_index(file: Path, segment: Segment, partition: str) -> FileReport:
    data = read_file(file)
    verdict, text = judge_index(data, segment)
    return FileReport(
        path=_below(file, segment.file),
        what="index",
        verdict=verdict,
        text=text,
        size_bytes=len(data),
        partition=partition,
    )


def _below(file: Path, segment: SegmentFile) -> str:
    return "/".join((PARTITIONS_NAME, *folder_names(segment), file.name))


def _reason(data: memoryview) -> str:
    """Describe the fault of the batch that begins here, or of those that follow it."""
    try:
        length = decode_batch_header(data).length
        verify_batch(data[:length])
    except (CorruptError, DecodeError) as error:
        return str(error)
    return "the batches are not those of the checkpoint"
