"""Four copies of a small record in one file, and the choice between them.

With two copies a corrupt newest one looks like a lost one; of four, two equal ones decide.

Invariants: each copy lies in a block of its own and is written and synced alone, so that one crash
            damages at most one.
"""

import struct

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.wire.codec import Data

COPIES = 4
COPIES_QUORUM = 2
BLOCK_BYTES = 4096

_HEAD = struct.Struct("<8sIIQII")
_CHECKSUM_AT = BLOCK_BYTES - 8
PAYLOAD_BYTES_MAX = _CHECKSUM_AT - _HEAD.size

assert COPIES_QUORUM * 2 <= COPIES, "one change is agreed while the next is written"
assert COPIES_QUORUM > 1, "one damaged copy does not decide"


class Choice(msgspec.Struct, frozen=True):
    """The record that four copies agree on.

    `payload` is empty when no two valid copies agree. `sequence_max` is the highest that any valid
    copy names: the next one written goes above it. `order` begins with the damaged copies: writing
    these first never leaves fewer good ones than there were. `version` is another version that two
    copies name, or 0.
    """

    payload: bytes
    sequence: int
    sequence_max: int
    order: tuple[int, ...]
    damaged: tuple[int, ...]
    version: int


def encode_copy(*, magic: bytes, version: int, copy: int, sequence: int, payload: bytes) -> bytes:
    """Return one block."""
    assert 0 <= copy < COPIES, "each copy has its place"
    assert sequence > 0, "sequence 0 is that of no copy"
    assert 0 < len(payload) <= PAYLOAD_BYTES_MAX, "a block holds the record"
    block = bytearray(BLOCK_BYTES)
    _HEAD.pack_into(block, 0, magic, version, copy, sequence, len(payload), 0)
    block[_HEAD.size : _HEAD.size + len(payload)] = payload
    block[_CHECKSUM_AT:] = xxh3_64(block[:_CHECKSUM_AT]).to_bytes(8, "little")
    return bytes(block)


def encode_copies(
    *, magic: bytes, version: int, sequence: int, payload: bytes
) -> tuple[bytes, ...]:
    """Return all four blocks."""
    return tuple(
        encode_copy(magic=magic, version=version, copy=copy, sequence=sequence, payload=payload)
        for copy in range(COPIES)
    )


def choose_copy(data: Data, *, magic: bytes, version: int) -> Choice:
    """Return the newest record of which at least two valid copies exist."""
    found = [_read_copy(data, magic, version, copy) for copy in range(COPIES)]
    best_payload, best_sequence = b"", 0
    for one in found:
        if one is not None and found.count(one) >= COPIES_QUORUM and one[0] > best_sequence:
            best_sequence, best_payload = one
    damaged = tuple(copy for copy, one in enumerate(found) if one is None)
    behind = [copy for copy, one in enumerate(found) if one != (best_sequence, best_payload)]
    order = sorted(range(COPIES), key=lambda copy: (copy not in damaged, copy not in behind, copy))
    chosen = [copy for copy in range(COPIES) if copy not in behind]
    assert tuple(order[COPIES - len(chosen) :]) == tuple(chosen), "they are overwritten last"
    assert not best_payload or len(chosen) >= COPIES_QUORUM, "two copies decide"
    return Choice(
        payload=best_payload,
        sequence=best_sequence,
        sequence_max=max([one[0] for one in found if one is not None], default=0),
        order=tuple(order),
        damaged=damaged,
        version=_other_version(data, magic, version),
    )


def _read_copy(data: Data, magic: bytes, version: int, copy: int) -> tuple[int, bytes] | None:
    block = _read_block(data, copy)
    if block is None:
        return None
    head = _HEAD.unpack_from(block)
    sequence, length = head[3], head[4]
    if head[:3] != (magic, version, copy) or not 0 < length <= PAYLOAD_BYTES_MAX or sequence == 0:
        return None
    return sequence, block[_HEAD.size : _HEAD.size + length]


def _read_block(data: Data, copy: int) -> bytes | None:
    """Return a block of any version whose checksum is right, or None."""
    block = bytes(data[copy * BLOCK_BYTES : (copy + 1) * BLOCK_BYTES])
    stored = int.from_bytes(block[_CHECKSUM_AT:], "little")
    if len(block) < BLOCK_BYTES or stored == 0 or stored != xxh3_64(block[:_CHECKSUM_AT]):
        return None
    return block


def _other_version(data: Data, magic: bytes, version: int) -> int:
    """Return another version that at least two blocks name; 0 if there is none."""
    blocks = [_read_block(data, copy) for copy in range(COPIES)]
    heads = [_HEAD.unpack_from(block) for block in blocks if block is not None]
    named = [int(head[1]) for head in heads if head[0] == magic and head[1] != version]
    return max((one for one in named if named.count(one) >= COPIES_QUORUM), default=0)
