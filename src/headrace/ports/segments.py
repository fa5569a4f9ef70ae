"""The effects for the folder of segments, and its events.

The bytes of a segment file are a function of the partition's committed log: a write that is
repeated writes the same bytes at the same place, so writing again repairs a crash at any step.
If a write finds bytes that no crash of it can have left, they go to quarantine first.
A file is durable up to a length once a `SyncSegments` that names it is answered. An error of such
a file fences its partition alone (O2.4): the answer reports it, nothing raises.
"""

from typing import TypeAlias

import msgspec


class SegmentFile(msgspec.Struct, frozen=True):
    """Which file: partition, incarnation and history are part of its path, and of its header."""

    namespace: int
    created_revision: int
    history_epoch: int
    base_offset: int


class SegmentExtent(msgspec.Struct, frozen=True):
    """A file and how many of its bytes the checkpoint covers, the header block included."""

    file: SegmentFile
    length: int


class WriteSegment(msgspec.Struct, frozen=True):
    """Write bytes into a file, created at position 0; answered by `SegmentWritten`."""

    token: int
    file: SegmentFile
    position: int
    parts: tuple[bytes | bytearray | memoryview, ...]


class SyncSegments(msgspec.Struct, frozen=True):
    """Make what was written of these files durable, and their names; answered by `SegmentsSynced`.

    Syncs run on a thread of their own, in the order of requests.
    """

    token: int
    files: tuple[SegmentFile, ...]


class ReadSegment(msgspec.Struct, frozen=True):
    """Read bytes of a file; answered by `SegmentRead`, unchecked."""

    token: int
    file: SegmentFile
    position: int
    length: int


class WriteIndex(msgspec.Struct, frozen=True):
    """Replace the index of a sealed file; derived data, so neither synced nor answered."""

    file: SegmentFile
    data: bytes


class ReadIndex(msgspec.Struct, frozen=True):
    """Read the index of a file; answered by `IndexRead`."""

    token: int
    file: SegmentFile


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a partition after the replay of the journal: all that its files may hold.

    `lost_until`: messages below it may have been lost in a power failure, and their offsets are not
    assigned again; 0 if none can be lost.
    """

    history_epoch: int
    first_offset: int
    next_offset: int
    lost_until: int
    segments: tuple[SegmentExtent, ...]  # as long as they will be when all is written
    dropped: tuple[SegmentFile, ...]  # until a checkpoint no longer names them


class OpenSegments(msgspec.Struct, frozen=True):
    """Open the files of a partition after a start; answered by `SegmentsOpened`.

    Each must exist, with the header of its name and at least its length. Nothing is ever created
    (finding 12), and a sync that fails is a fault of the partition (findings 1 and 2).

    If the `end` of the log is known, bytes beyond it are judged (`partitions.beyond`): files that
    the log dropped are removed, messages that it does not have are a fault, anything else goes to
    quarantine (FM-11). Without it, other replicas have what the log lacks: files are cut to their
    length, and other files of the partition are removed, because they will be written again.
    """

    token: int
    namespace: int
    created_revision: int
    extents: tuple[SegmentExtent, ...]
    end: LogEnd | None = None


class RemoveSegments(msgspec.Struct, frozen=True):
    """Remove files with their indexes, and folders that are empty then; not answered."""

    files: tuple[SegmentFile, ...]


class RemovePartition(msgspec.Struct, frozen=True):
    """Remove all files of one incarnation of a partition; answered by `PartitionRemoved`.

    It can be repeated: files that are gone already are removed.
    """

    token: int
    namespace: int
    created_revision: int


class QuarantinePartition(msgspec.Struct, frozen=True):
    """Move all files of one incarnation of a partition to quarantine; not answered (FM-11)."""

    namespace: int
    created_revision: int
    reason: str


class ListPartitions(msgspec.Struct, frozen=True):
    """List the partitions that have files; answered by `PartitionsListed`."""

    token: int


class SegmentWritten(msgspec.Struct, frozen=True):
    """The write has returned; without space nothing counts as written: retry later."""

    token: int
    is_done: bool


class SegmentsSynced(msgspec.Struct, frozen=True):
    """The files are durable up to what was written before the sync was requested."""

    token: int


class SegmentFailed(msgspec.Struct, frozen=True):
    """A write or sync of this token failed for another reason than space: fence the partition."""

    token: int
    sentence: str


class SegmentRead(msgspec.Struct, frozen=True):
    """The bytes, maybe fewer than requested; None if the disk could not read them."""

    token: int
    data: bytes | None


class IndexRead(msgspec.Struct, frozen=True):
    """The index, unchecked; None if there is no such file or it cannot be read."""

    token: int
    data: bytes | None


class SegmentFault(msgspec.Struct, frozen=True):
    """A fault of a file: the sentence names the file, the position and the remedy."""

    file: SegmentFile
    sentence: str


class SegmentsOpened(msgspec.Struct, frozen=True):
    """The files are open and durable as far as their extents; or their faults."""

    token: int
    faults: tuple[SegmentFault, ...]


class PartitionRemoved(msgspec.Struct, frozen=True):
    """No file of the partition is left; or the reason why some may be: ask again later."""

    token: int
    failure: str | None = None


class PartitionsListed(msgspec.Struct, frozen=True):
    """The partitions that have a folder: namespace and revision of their creation."""

    token: int
    partitions: tuple[tuple[int, int], ...]


SegmentEffect: TypeAlias = (
    WriteSegment
    | SyncSegments
    | ReadSegment
    | WriteIndex
    | ReadIndex
    | OpenSegments
    | RemoveSegments
    | RemovePartition
    | QuarantinePartition
    | ListPartitions
)
SegmentEvent: TypeAlias = (
    SegmentWritten
    | SegmentsSynced
    | SegmentFailed
    | SegmentRead
    | IndexRead
    | SegmentsOpened
    | PartitionRemoved
    | PartitionsListed
)
