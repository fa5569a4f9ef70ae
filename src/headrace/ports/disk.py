"""What the core asks of the disk, and what the disk answers.

A write is done when `Written` names its sequence: the write call has returned, the page cache holds
it, a killed process loses nothing. It is durable when `Synced` names its sequence or a later one;
if the first is not awaited, the second may be the only answer.
An error of a journal write or sync has no event: it ends the node, and restart is the recovery
(O2.4).
"""

from typing import TypeAlias

import msgspec

from headrace.ports.network import Buffer


class WriteJournal(msgspec.Struct, frozen=True):
    """Write one physical record at its place in a journal file.

    Sequences rise by one. A sync is wanted soon when `sync` says so: the next one starts when the
    last one ended and covers everything written by then (D5). `Written` follows if `is_awaited`,
    and may follow otherwise. `is_lone` says that one op waits for the sync and nobody for an
    earlier one: it may be done at once, where that is known to be quick.
    """

    sequence: int
    file: int
    position: int
    parts: tuple[Buffer, ...]  # back to back; not copied into one for the sake of large bodies
    length: int  # of all parts, with the terminator behind the record
    sync: bool
    is_awaited: bool = True
    is_lone: bool = False

    @property
    def data(self) -> bytes:
        """The record in one piece."""
        return b"".join(self.parts)


class AllocateJournal(msgspec.Struct, frozen=True):
    """Make a journal file of that size, its space taken; answered by `JournalAllocated`."""

    file: int
    size: int


class ReadJournal(msgspec.Struct, frozen=True):
    """Read bytes of a journal file; answered by `JournalRead`."""

    token: int
    file: int
    position: int
    length: int


class ReplaceFile(msgspec.Struct, frozen=True):
    """Write a whole file atomically: temporary file, sync, rename, sync of the folder.

    Answered by `FileReplaced`, once, when all four are done; or with `is_done` false when there was
    no space, and then nothing has changed.
    """

    token: int
    name: str
    data: bytes


class WriteBlock(msgspec.Struct, frozen=True):
    """Write a block in place and sync it; answered by `BlockWritten`. Copies go one at a time."""

    token: int
    name: str
    position: int
    data: bytes


class RemoveFile(msgspec.Struct, frozen=True):
    """Remove a file that nothing names any more; not answered."""

    name: str


class Written(msgspec.Struct, frozen=True):
    """The writes up to this sequence have returned."""

    sequence: int


class Synced(msgspec.Struct, frozen=True):
    """The records up to this sequence survive a power cut."""

    sequence: int


class JournalAllocated(msgspec.Struct, frozen=True):
    """Whether the file could be made; without space it is asked for again later (O2.3)."""

    file: int
    is_done: bool


class JournalRead(msgspec.Struct, frozen=True):
    """The bytes, unchecked; None if the disk could not read them."""

    token: int
    data: bytes | None


class FileReplaced(msgspec.Struct, frozen=True):
    """A `ReplaceFile` has ended."""

    token: int
    is_done: bool


class BlockWritten(msgspec.Struct, frozen=True):
    """A `WriteBlock` is durable."""

    token: int


class OnStore(msgspec.Struct, frozen=True):
    """Carry an effect out on one of the node's stores: 0 is the metadata group's, 1 the shard's."""

    store: int
    effect: "DiskEffect"


class FromStore(msgspec.Struct, frozen=True):
    """An event of one of the node's stores."""

    store: int
    event: "DiskEvent"


DiskEffect: TypeAlias = (
    WriteJournal | AllocateJournal | ReadJournal | ReplaceFile | WriteBlock | RemoveFile
)
DiskEvent: TypeAlias = (
    Written | Synced | JournalAllocated | JournalRead | FileReplaced | BlockWritten
)
