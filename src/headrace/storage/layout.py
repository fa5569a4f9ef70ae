"""The node's layout record: how many shards there are, and in which generation of folders (O2.5).

Four copies as in the superblock. A change of the shard count writes it last.
"""

import struct

import msgspec

from headrace.base.placement import SHARDS_MAX
from headrace.storage.copies import Choice, choose_copy, encode_copies
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError

LAYOUT_VERSION = 1

_MAGIC = b"HRLAYOT1"
_FIELDS = struct.Struct("<16sBBHIQ")


class LayoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the shards of a node lie: `shards/<generation>/`."""

    cluster: int
    replica: int
    replica_count: int
    shard_count: int
    generation: int


def encode_layout(record: LayoutRecord, *, sequence: int) -> tuple[bytes, ...]:
    """Return the four blocks; write and sync them one at a time."""
    assert record.shard_count > 0, "a node without shards holds nothing"
    assert 0 <= record.replica < record.replica_count, "replicas are numbered from 0"
    payload = _FIELDS.pack(
        record.cluster.to_bytes(16, "little"),
        record.replica,
        record.replica_count,
        0,
        record.shard_count,
        record.generation,
    )
    return encode_copies(magic=_MAGIC, version=LAYOUT_VERSION, sequence=sequence, payload=payload)


def choose_layout(data: Data) -> Choice:
    """Return the record that the four copies agree on."""
    return choose_copy(data, magic=_MAGIC, version=LAYOUT_VERSION)


def decode_layout(payload: Data) -> LayoutRecord:
    """Return the layout that a valid copy holds.

    Raises:
        CorruptError: The bytes are not those of a layout.
    """
    if len(payload) != _FIELDS.size:
        raise CorruptError(f"layout record of {len(payload)} bytes, {_FIELDS.size} wanted")
    cluster, replica, replica_count, reserved, shards, generation = _FIELDS.unpack(payload)
    if not 0 < shards <= SHARDS_MAX or reserved:
        raise CorruptError(f"layout record of {shards} shards")
    return LayoutRecord(
        cluster=int.from_bytes(cluster, "little"),
        replica=replica,
        replica_count=replica_count,
        shard_count=shards,
        generation=generation,
    )
