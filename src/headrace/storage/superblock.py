"""The superblock: which checkpoint is the current one, and what recovery must know first.

The page docs/formats/superblock.md says why each field is there.
"""

import struct

import msgspec

from headrace.storage.config import IDENTITY_BYTES, Identity, unpack_identity
from headrace.storage.copies import (
    PAYLOAD_BYTES_MAX,
    Choice,
    choose_copy,
    encode_copies,
    encode_copy,
)
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError

SUPERBLOCK_VERSION = 1
HISTORY_MAX = 64

_MAGIC = b"HRSUPER1"
_FIELDS = struct.Struct(f"<{IDENTITY_BYTES}s11QIIII")
_OPENING = struct.Struct("<QQ")
_CLEAN = 1

assert _FIELDS.size + HISTORY_MAX * _OPENING.size <= PAYLOAD_BYTES_MAX, "a copy holds the record"


class Opening(msgspec.Struct, frozen=True):
    """One opening of the store, and the sequence of the first record it could write.

    Records of earlier openings from that sequence on were cut and are void.
    """

    number: int
    first_sequence: int


class Superblock(msgspec.Struct, frozen=True, kw_only=True):
    """What the four copies hold.

    `suspect_at`: every group is suspect unless a view state in a record of that sequence or a later
    one says otherwise; 0 when none is. `power_lost_at`: likewise, power was lost after the view
    state of a group was written, and so maybe what it had written and not synced. `start`: which
    start of the node opened the store last; stores that differ in it are of two copies (DK16).
    """

    identity: Identity
    checkpoint_number: int = 0
    checkpoint_checksum: int = 0
    covered: int = 0
    synced: int = 0
    tail: int = 1
    tail_ordinal: int = 0
    suspect_at: int = 0
    power_lost_at: int = 0
    boot_identity: int = 0
    file_bytes: int = 0
    journal_files: int = 0
    start: int = 0
    is_clean: bool = False
    history: tuple[Opening, ...] = ()

    @property
    def opening(self) -> int:
        """The number of the latest opening, 0 before the first."""
        return self.history[-1].number if self.history else 0

    @property
    def first_sequence(self) -> int:
        """The first sequence that the latest opening could write."""
        return self.history[-1].first_sequence if self.history else 1


def encode_superblock(superblock: Superblock, *, copy: int, sequence: int) -> bytes:
    """Return the block of one copy."""
    return encode_copy(
        magic=_MAGIC,
        version=SUPERBLOCK_VERSION,
        copy=copy,
        sequence=sequence,
        payload=_payload(superblock),
    )


def encode_superblock_file(superblock: Superblock, *, sequence: int) -> bytes:
    """Return all copies, as in a newly formatted store."""
    blocks = encode_copies(
        magic=_MAGIC, version=SUPERBLOCK_VERSION, sequence=sequence, payload=_payload(superblock)
    )
    return b"".join(blocks)


def choose_superblock(data: Data) -> Choice:
    """Return the record that the four copies agree on."""
    return choose_copy(data, magic=_MAGIC, version=SUPERBLOCK_VERSION)


def decode_superblock(payload: Data) -> Superblock:
    """Return the superblock that a valid copy holds.

    Raises:
        CorruptError: The bytes are not those of a superblock.
    """
    try:
        fields = _FIELDS.unpack_from(payload)
    except struct.error:
        raise CorruptError(f"superblock record of {len(payload)} bytes") from None
    numbers, (flags, files, count, _) = fields[1:12], fields[12:]
    if len(payload) != _FIELDS.size + count * _OPENING.size or count > HISTORY_MAX:
        raise CorruptError(f"superblock record of {len(payload)} bytes with {count} openings")
    if numbers[2] > numbers[3]:
        raise CorruptError(f"superblock that covers record {numbers[2]}, synced to {numbers[3]}")
    openings = _OPENING.iter_unpack(payload[_FIELDS.size :])
    return Superblock(
        identity=unpack_identity(fields[0]),
        checkpoint_number=numbers[0],
        checkpoint_checksum=numbers[1],
        covered=numbers[2],
        synced=numbers[3],
        tail=numbers[4],
        tail_ordinal=numbers[5],
        suspect_at=numbers[6],
        boot_identity=numbers[7],
        file_bytes=numbers[8],
        power_lost_at=numbers[9],
        start=numbers[10],
        journal_files=files,
        is_clean=bool(flags & _CLEAN),
        history=tuple(Opening(number, first) for number, first in openings),
    )


def _payload(superblock: Superblock) -> bytes:
    assert superblock.covered <= superblock.synced, "a checkpoint covers synced records"
    assert len(superblock.history) <= HISTORY_MAX, "a copy holds the record"
    assert superblock.tail > 0, "sequences begin at 1"
    fields = _FIELDS.pack(
        superblock.identity.pack(),
        superblock.checkpoint_number,
        superblock.checkpoint_checksum,
        superblock.covered,
        superblock.synced,
        superblock.tail,
        superblock.tail_ordinal,
        superblock.suspect_at,
        superblock.boot_identity,
        superblock.file_bytes,
        superblock.power_lost_at,
        superblock.start,
        _CLEAN if superblock.is_clean else 0,
        superblock.journal_files,
        len(superblock.history),
        0,
    )
    openings = [_OPENING.pack(one.number, one.first_sequence) for one in superblock.history]
    return fields + b"".join(openings)
