"""Judges the segments of one partition against its checkpoint, batch by batch; changes nothing.

```
file     |header| batch | batch | ..... | batch | written since the checkpoint
         0      4096                            length the checkpoint vouches for
```

A batch whose header is wrong hides where the next one begins; the walk goes on at the next place
that the checkpoint or the index names, and everything between is lost.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.partitions.index import Place, SegmentIndex
from headrace.partitions.install import state_artifact
from headrace.partitions.log import PartitionLog, Segment
from headrace.partitions.options import PartitionOptions
from headrace.partitions.snapshot import decode_snapshot
from headrace.partitions.walk import DamageError, check_header
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentFile
from headrace.runtime.segment_tree import folder_names, index_name
from headrace.runtime.whole import read_all, read_file
from headrace.server.doctor_beyond import JournalEnd, judge_beyond
from headrace.server.doctor_indexes import Known, judge_index
from headrace.server.doctor_report import FileReport, Lost, Verdict
from headrace.server.folders import PARTITIONS_NAME
from headrace.wire.batches import verify_batch
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.replica_headers import PREPARE
from headrace.wire.segment import SegmentHeader, decode_segment_header, segment_name
from headrace.wire.transfer import chain_batch

_RESTORE = "restore the file from a copy of this folder"


def checkpointed_log(group: RecoveredGroup) -> PartitionLog | None:
    """Give the log of a partition as its checkpoint has it; nothing if it has none.

    Raises:
        CorruptError: The checkpoint does not hang together.
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
    root: Path, log: PartitionLog, end: JournalEnd, name: str
) -> Iterator[FileReport]:
    """Judge the segments and indexes of one partition; `root` is the folder `partitions`."""
    for segment in log.segments:
        folder = root.joinpath(*folder_names(segment.file))
        walk = _Walk(segment, folder, end)
        yield walk.report(name)
        index = folder / index_name(segment.base_offset)
        if index.is_file() and not index.is_symlink():
            yield _examine_index(index, segment, walk, name)


class _Walk:
    """One pass over one segment file; it collects what is lost."""

    def __init__(self, segment: Segment, folder: Path, end: JournalEnd) -> None:
        self._segment = segment
        self._end = end
        self._partition = unpack_namespace(GroupId(segment.file.namespace)).partition
        self._file = folder / segment_name(segment.base_offset)
        self._size: int | None = None
        self._reasons: list[str] = []
        self._position: int | None = None
        self._lost: list[Lost] = []
        self._pieces = [piece.position for piece in segment.pieces]
        self.index: SegmentIndex | None = None  # as the file gives it, if all of it is right
        self._run()

    def _run(self) -> None:
        segment = self._segment
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            self._fence(f"cannot be opened: {error.strerror}")
            self._lose(Place(segment.base_offset, 0), segment.end_offset)
            return
        try:
            self._size = os.fstat(fd).st_size
            if self._size < segment.length:
                self._fence(f"{self._size} bytes, the checkpoint vouches for {segment.length}")
            self._check_header(fd)
            self._walk_batches(fd)
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

    def _walk_batches(self, fd: int) -> None:
        """Read every batch that the checkpoint vouches for."""
        segment = self._segment
        index = segment.begin_index()
        known = Known(self._file, segment)
        place = Place(segment.base_offset, SEGMENT_HEADER_BYTES)
        chains: dict[int, int] = {}
        while place.position < segment.length:
            place = self._read_batch(fd, place, chains, index) or self._skip(place, known)
        self._check_chains(chains)
        if not self._reasons:
            self.index = index

    def _read_batch(
        self, fd: int, place: Place, chains: dict[int, int], index: SegmentIndex
    ) -> Place | None:
        """Check one batch; give where the next one is, or nothing if this one hides it."""
        try:
            head = read_all(fd, BATCH_HEADER_BYTES, place.position)
            header = check_header(self._segment, place, memoryview(head), self._partition)
        except (DamageError, DecodeError, OSError) as error:
            self._note(place.position, str(error))
            return None
        following = Place(place.offset + header.messages_count, place.position + header.length)
        try:
            checksum = verify_batch(read_all(fd, header.length, place.position))
        except (CorruptError, OSError) as error:
            self._note(place.position, str(error))
            if not self._is_start(fd, following):
                return None  # Its header is not to be believed either.
            self._lose(place, following.offset)
            return following
        piece = bisect_right(self._pieces, place.position)
        chains[piece] = chain_batch(chains.get(piece, 0), checksum)
        if index.covered_to == place.position:
            index.walk(
                offset=place.offset,
                end_offset=following.offset,
                timestamp=header.base_timestamp,
                span=(place.position, following.position),
            )
        return following

    def _is_start(self, fd: int, place: Place) -> bool:
        """Whether a batch of that offset seems to begin there, or the segment ends."""
        segment = self._segment
        if place.position >= segment.length:
            return place == Place(segment.end_offset, segment.length)
        try:
            head = read_all(fd, BATCH_HEADER_BYTES, place.position)
            check_header(segment, place, memoryview(head), self._partition)
        except (DamageError, DecodeError, OSError):
            return False
        return True

    def _skip(self, place: Place, known: Known) -> Place:
        following = known.after(place)
        self._lose(place, following.offset)
        return following

    def _check_chains(self, chains: dict[int, int]) -> None:
        """Find batches that are whole and are not those that the checkpoint vouches for."""
        if self._reasons:
            return  # A chain that misses a link says nothing.
        pieces = self._segment.pieces
        ends = [*(piece.first_offset for piece in pieces[1:]), self._segment.end_offset]
        for number, (piece, end) in enumerate(zip(pieces, ends, strict=True), start=1):
            if chains.get(number) != piece.chain:
                self._note(piece.position, "the batches are not those of the checkpoint")
                self._lose(Place(piece.first_offset, piece.position), end)

    def _note(self, position: int, reason: str) -> None:
        self._reasons.append(reason)
        if self._position is None:
            self._position = position

    def _fence(self, reason: str) -> None:
        """Note what makes the node serve nothing of the whole partition."""
        self._note(0, f"{reason}: nothing of the partition is served until that is put right")

    def _lose(self, place: Place, end_offset: int) -> None:
        """Add a lost range; one that goes on where the last one ended makes that longer."""
        last = end_offset - 1
        if self._lost and place.offset <= self._lost[-1].last + 1:
            self._lost[-1] = Lost(self._lost[-1].first, max(last, self._lost[-1].last))
        else:
            self._lost.append(Lost(place.offset, last))

    def report(self, partition: str) -> FileReport:
        """Give the verdict."""
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
            place = Place(segment.end_offset, segment.length)
            verdict, judged = judge_beyond(self._file, segment.file, place, self._end)
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


def _examine_index(file: Path, segment: Segment, walk: _Walk, partition: str) -> FileReport:
    data = read_file(file)
    verdict, text = judge_index(data, segment, walk.index)
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
