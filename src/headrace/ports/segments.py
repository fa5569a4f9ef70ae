"""What the core asks of the folder of segments, and what it answers.

The bytes of a segment file are a function of the partition's committed log: a write that is
repeated writes the same bytes at the same place, so a crash at any step is mended by writing again.
Where a write finds other bytes than a crash can have left of it, they go to quarantine first.
A file is durable up to a length once a `SyncSegments` that names it is answered. An error of such
a file fences its partition alone (O2.4): the answer says so, nothing raises.
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
    """A file and how many of its bytes the checkpoint vouches for, the header block included."""

    file: SegmentFile
    length: int


class WriteSegment(msgspec.Struct, frozen=True):
    """Write bytes into a file, made if the position is 0; answered by `SegmentWritten`."""

    token: int
    file: SegmentFile
    position: int
    parts: tuple[bytes | bytearray | memoryview, ...]


class SyncSegments(msgspec.Struct, frozen=True):
    """Make what was written of these files durable, and their names; answered by `SegmentsSynced`.

    Syncs go on a thread of their own, in the order asked for.
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
    """The log of a partition once the journal is applied again: all that its files may hold.

    `lost_until`: messages below it may have gone with the power, and their offsets are not given
    out again; 0 where none may have.
    """

    history_epoch: int
    first_offset: int
    next_offset: int
    lost_until: int
    segments: tuple[SegmentExtent, ...]  # as long as they will be when all is written
    dropped: tuple[SegmentFile, ...]  # until a checkpoint no longer names them


class OpenSegments(msgspec.Struct, frozen=True):
    """Take up the files of a partition after a start; answered by `SegmentsOpened`.

    Each must be there, with the header of its name and at least its length. Nothing is ever created
    (finding 12), and a sync that fails is a fault of the partition (findings 1 and 2).

    With the `end` of the log known, what lies beyond it is judged (`partitions.beyond`): files that
    the log dropped go, messages that it does not have are a fault, anything else goes to
    quarantine (FM-11). Without it, because other replicas have what the log lacks, files are cut to
    their length and others of the partition are removed: they will be written again.
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
    """Remove all files of one incarnation of a partition; not answered."""

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
    """The write has returned; without space nothing may be taken as written: ask again later."""

    token: int
    is_done: bool


class SegmentsSynced(msgspec.Struct, frozen=True):
    """The files are durable up to what was written before the sync was asked for."""

    token: int


class SegmentFailed(msgspec.Struct, frozen=True):
    """A write or sync of this token failed for another reason than space: fence the partition."""

    token: int
    sentence: str


class SegmentRead(msgspec.Struct, frozen=True):
    """The bytes, maybe fewer than asked for; none when the disk could not read them."""

    token: int
    data: bytes | None


class IndexRead(msgspec.Struct, frozen=True):
    """The index, unchecked; none when there is no such file or it cannot be read."""

    token: int
    data: bytes | None


class SegmentFault(msgspec.Struct, frozen=True):
    """What is wrong with a file: the sentence names it, the place and the remedy."""

    file: SegmentFile
    sentence: str


class SegmentsOpened(msgspec.Struct, frozen=True):
    """The files are taken up, durable as far as their extents; or what is wrong with them."""

    token: int
    faults: tuple[SegmentFault, ...]


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
    | PartitionsListed
)
