"""The physical record of the journal: a header, the headers of its entries, then their bodies.

```
record = [record header 128][entry]* [body]* padding to 64
entry  = [entry header 24][extra: 256 bytes of a Prepare's header, 8 of a ViewState, else none]
```

The page docs/formats/journal.md has the tables.

Invariants: the record's checksum covers its header and all entries; a body is covered by what its
            prepare says of it. A record names its own place, so that it is valid nowhere else.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import Buffer
from headrace.ports.recovered import ViewState
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError
from headrace.wire.layout import CHECKSUM_BODY, KIND_OFFSET
from headrace.wire.numbers import FrameKind, find_operation
from headrace.wire.replica.prepares import PREPARE
from headrace.wire.replica.seals import is_body

RECORD_VERSION = 1
RECORD_MAGIC = b"HRJRNAL1"
RECORD_ALIGNMENT = 64
RECORD_HEADER_BYTES = 128
TERMINATOR = bytes(RECORD_ALIGNMENT)
_ZEROS = bytes(RECORD_ALIGNMENT)

_CHECKSUM_AT = RECORD_HEADER_BYTES - 8
_HEAD = struct.Struct("<8sII8QIIII24x")  # all but the checksum
_ENTRY = struct.Struct("<BBHIQQ")
ENTRY_BYTES = _ENTRY.size
PREPARE_ENTRY_BYTES = ENTRY_BYTES + HEADER_BYTES

FLAG_BODY = 1  # of a Prepare: the body follows in this record
FLAG_NEVER_HELD = 2  # of a Prepare: the body was never here, and the op never acknowledged
_FLAG_SUSPECT = 1  # of a ViewState
_FLAG_VIEW_LOST = 2
_FLAG_TAIL_LOST = 4
_JOINED_BYTES_MAX = 16 << 10  # copying so much costs less than a longer vector
INDEXED = PREPARE.struct("size", "op", "group")  # what the index reads of a prepare
_OP = PREPARE.struct("op")
_GROUP = PREPARE.struct("group")
_SIZE = PREPARE.struct("size")
_OPERATION_AT = PREPARE.at("operation")

assert RECORD_HEADER_BYTES % RECORD_ALIGNMENT == 0, "recovery looks at aligned places"
assert len(TERMINATOR) <= RECORD_HEADER_BYTES, "the next record overwrites the terminator"
assert _HEAD.size == _CHECKSUM_AT, "the checksum follows the fields"


class Kind(IntEnum):
    """The kinds of entries."""

    PREPARE = 1
    TRUNCATE = 2
    VIEW_STATE = 3
    OFFSET_CEILING = 4
    GROUP_GONE = 5
    SYNC_POINT = 6


_EXTRA_BYTES: dict[int, int] = {Kind.PREPARE: HEADER_BYTES, Kind.VIEW_STATE: 8}


class Entry(msgspec.Struct, frozen=True):
    """One entry, as staged and as found.

    `first` and `second` mean by kind: Truncate group and op; ViewState group and both views;
    OffsetCeiling group and offset; GroupGone group. Of a Prepare they are the segment and position
    of a body that lies outside the journal, zero for now (O2.7). `extra` is the header of a Prepare
    and the commit point of a ViewState.
    """

    kind: int
    flags: int = 0
    first: int = 0
    second: int = 0
    extra: bytes = b""
    body: Buffer | None = None

    @property
    def has_body(self) -> bool:
        """Whether a body was written with it, damaged or not."""
        return self.kind == Kind.PREPARE and bool(self.flags & FLAG_BODY)

    @property
    def is_never_held(self) -> bool:
        """Whether it was stored without a body, as one that was never acknowledged."""
        return self.kind == Kind.PREPARE and bool(self.flags & FLAG_NEVER_HELD)

    @property
    def size(self) -> int:
        """How many bytes of a record it takes."""
        return ENTRY_BYTES + len(self.extra) + len(self.body or b"")


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a prepare lies: its header, and its body if there is one, in one file of one lap."""

    ordinal: int
    header_at: int
    header_hash: int
    body_at: int
    body_bytes: int
    is_never_held: bool


class Head(msgspec.Struct, frozen=True):
    """The header of a record whose checksum is right, or of one that is to be built."""

    version: int
    file: int
    place: int
    life: int
    lap: int
    sequence: int
    opening: int
    previous: int
    synced: int
    position: int
    length: int
    # These follow from the entries.
    head_bytes: int = 0
    entries_count: int = 0
    checksum: int = 0


class Built(msgspec.Struct, frozen=True):
    """A record that is to be written, and where in it the entries are.

    `places` has for each entry the positions of its extra and of its body, 0 if it has none.
    """

    parts: tuple[Buffer, ...]
    length: int  # of all parts
    checksum: int
    places: list[tuple[int, int]]


def prepare_entry(header: bytes, body: Buffer | None, *, is_never_held: bool) -> Entry:
    """Return the entry of one op; `body` is None while it is still missing."""
    if header[KIND_OFFSET] != FrameKind.PREPARE:  # A repaired prepare is the prepare it repeats.
        header = header[:KIND_OFFSET] + bytes([FrameKind.PREPARE]) + header[KIND_OFFSET + 1 :]
    flags = FLAG_BODY if body is not None else FLAG_NEVER_HELD if is_never_held else 0
    return Entry(Kind.PREPARE, flags, extra=header, body=body)


def view_entry(state: ViewState) -> Entry:
    """Return the entry of a group's view."""
    assert state.log_view <= state.view, "no log is newer than the view of its group"
    flags = (
        (_FLAG_SUSPECT if state.is_suspect else 0)
        | (_FLAG_VIEW_LOST if state.is_view_lost else 0)
        | (_FLAG_TAIL_LOST if state.is_tail_lost else 0)
    )
    views = state.view | state.log_view << 32
    return Entry(Kind.VIEW_STATE, flags, state.group, views, state.commit.to_bytes(8, "little"))


def view_of(entry: Entry) -> ViewState:
    """Return the view that an entry holds."""
    view, log_view = entry.second & 0xFFFFFFFF, entry.second >> 32
    commit = int.from_bytes(entry.extra, "little")
    return ViewState(
        entry.first,
        view,
        log_view,
        commit,
        is_suspect=bool(entry.flags & _FLAG_SUSPECT),
        is_view_lost=bool(entry.flags & _FLAG_VIEW_LOST),
        is_tail_lost=bool(entry.flags & _FLAG_TAIL_LOST),
    )


def prepare_op(header: Data) -> int:
    """Return the op of a prepare header."""
    op: int = _OP.unpack_from(header)[0]
    return op


def prepare_group(header: Data) -> int:
    """Return the group of a prepare header."""
    group: int = _GROUP.unpack_from(header)[0]
    return group


def prepare_body_bytes(header: Data) -> int:
    """Return the length of the body of a prepare; negative if the header is not ours."""
    size: int = _SIZE.unpack_from(header)[0]
    return size - HEADER_BYTES


def is_body_of(header: Data, body: Data) -> bool:
    """Whether the bytes are the body that a prepare header names."""
    operation = find_operation(header[_OPERATION_AT])
    if operation is None or len(body) != prepare_body_bytes(header):
        return False
    return is_body(operation, int.from_bytes(header[CHECKSUM_BODY], "little"), body)


def record_bytes(entries_bytes: int) -> int:
    """Return the size of a record whose entries take so many bytes together."""
    size = RECORD_HEADER_BYTES + entries_bytes
    return size + -size % RECORD_ALIGNMENT


def entries_bytes_max(record_bytes_max: int) -> int:
    """Return how many bytes the entries of a record may take that is at most so large."""
    return record_bytes_max - record_bytes_max % RECORD_ALIGNMENT - RECORD_HEADER_BYTES


def build_record(head: Head, entries: Sequence[Entry], *, is_followed: bool) -> Built:
    """Return the bytes of a record, its checksum, and where its entries are in it.

    The fields of `head` that follow from the entries are not read. A terminator follows each record
    but the last of its file, so that bytes of an earlier lap are not read as a further record.
    """
    assert entries
    assert head.synced < head.sequence, "a record vouches for earlier ones"
    count, head_bytes = 0, RECORD_HEADER_BYTES
    starts: list[int] = []  # of the extras
    for entry in entries:
        starts += (head_bytes + ENTRY_BYTES,)
        head_bytes += ENTRY_BYTES + len(entry.extra)
        count += 1
    length, body_at = head.length, head_bytes
    record = bytearray(
        _HEAD.pack(
            RECORD_MAGIC,
            RECORD_VERSION,
            head.file,
            head.place,
            head.life,
            head.lap,
            head.sequence,
            head.opening,
            head.previous,
            head.synced,
            head.position,
            length,
            head_bytes,
            count,
            0,
        )
    )
    bodies: list[Buffer] = []
    places: list[tuple[int, int]] = []
    for entry, at in zip(entries, starts, strict=True):
        body = entry.body
        placed = 0 if body is None else body_at
        record += _ENTRY.pack(entry.kind, entry.flags, 0, placed, entry.first, entry.second)
        record += entry.extra
        places += ((at, placed),)
        if body is not None:
            bodies += (body,)
            body_at += len(body)
    assert length == body_at + -body_at % RECORD_ALIGNMENT, "a record fills the space it was given"
    checksum = xxh3_64(record)
    record[_CHECKSUM_AT:_CHECKSUM_AT] = checksum.to_bytes(8, "little")
    end = _ZEROS[: length - body_at]
    if is_followed:
        end += TERMINATOR
        length += RECORD_ALIGNMENT
    if length > _JOINED_BYTES_MAX:
        return Built((record, *bodies, end), length, checksum, places)
    for body in bodies:
        record += body
    record += end
    return Built((record,), length, checksum, places)


def read_head(data: Data, position: int) -> Head | None:
    """Return the header of the record at a position, or None if its checksum is wrong.

    The caller checks store, version and position.
    """
    if len(data) - position < RECORD_HEADER_BYTES:
        return None
    fields = _HEAD.unpack_from(data, position)
    length, head_bytes, count = fields[11], fields[12], fields[13]
    if fields[0] != RECORD_MAGIC or not RECORD_HEADER_BYTES < head_bytes <= length:
        return None
    if position + head_bytes > len(data) or length % RECORD_ALIGNMENT:
        return None
    start = position + _CHECKSUM_AT
    stored = int.from_bytes(data[start : start + 8], "little")
    covered = bytes(data[position:start]) + bytes(data[start + 8 : position + head_bytes])
    if stored == 0 or stored != xxh3_64(covered):
        return None
    return Head(
        version=fields[1],
        file=fields[2],
        place=fields[3],
        life=fields[4],
        lap=fields[5],
        sequence=fields[6],
        opening=fields[7],
        previous=fields[8],
        synced=fields[9],
        position=fields[10],
        length=length,
        head_bytes=head_bytes,
        entries_count=count,
        checksum=stored,
    )


def read_entries(data: Data, head: Head) -> list[tuple[Entry, int, int]]:
    """Return the entries of a record, each with the positions of its header and body in the file.

    An entry whose body is damaged, or lies outside the file, has no body and position 0.

    Raises:
        CorruptError: The entries are none that this version writes.
    """
    found = []
    at = head.position + RECORD_HEADER_BYTES
    end = head.position + head.head_bytes
    for _ in range(head.entries_count):
        if at + ENTRY_BYTES > end:
            raise CorruptError(f"record {head.sequence} has fewer entries than it says")
        kind, flags, reserved, body_at, first, second = _ENTRY.unpack_from(data, at)
        at += ENTRY_BYTES
        extra_at = at
        at += _EXTRA_BYTES.get(kind, 0)
        if not Kind.PREPARE <= kind <= Kind.SYNC_POINT or reserved or at > end:
            raise CorruptError(f"record {head.sequence} has an entry of kind {kind}")
        entry = Entry(kind, flags, first, second, bytes(data[extra_at:at]))
        if kind == Kind.VIEW_STATE and (view := view_of(entry)).log_view > view.view:
            raise CorruptError(f"record {head.sequence} has a log newer than its view")
        placed = 0
        if entry.has_body:
            body, placed = _read_body(data, head, entry.extra, body_at)
            entry = Entry(kind, flags, first, second, entry.extra, body)
        found.append((entry, extra_at, placed))
    if at != end:
        raise CorruptError(f"record {head.sequence} has more entries than it says")
    return found


def _read_body(data: Data, head: Head, header: bytes, body_at: int) -> tuple[bytes | None, int]:
    start = head.position + body_at
    length = prepare_body_bytes(header)
    if length < 0 or body_at < head.head_bytes or body_at + length > head.length:
        return None, 0
    body = bytes(data[start : start + length])
    return (body, start) if is_body_of(header, body) else (None, 0)
