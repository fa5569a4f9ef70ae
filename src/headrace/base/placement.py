"""Which shard of a node owns a group: a pure function of its id and the number of shards.

Flow:       route.
Invariants: one owner for every group, the same on all shards and all nodes, and no table is asked
            (SH-3); the metadata group is on shard 0 and never hashed (SH-13).

The hash is 32-bit MurmurHash3, written out: eight bytes of input need few of its lines. It costs
about two microseconds, so whoever asks for every frame keeps the answer by group.
"""

from typing import NamedTuple

from headrace.base.ids import (
    GATEWAY,
    METADATA_GROUP,
    NOBODY,
    GroupId,
    ShardId,
    is_partition_group,
)

METADATA_SHARD = ShardId(0)
SHARDS_MAX = 65_534  # so that neither of these is the number of a shard (SH-8)

_MASK = (1 << 32) - 1


class Placement(NamedTuple):
    """Which shard of how many this is."""

    shard: ShardId = METADATA_SHARD
    shard_count: int = 1

    def owner(self, group: GroupId) -> ShardId:
        """Return the shard that owns a group."""
        return owner_of(group, self.shard_count)

    def owns(self, group: GroupId) -> bool:
        """Whether a group is this shard's; a shard that is alone owns all."""
        return self.shard_count == 1 or owner_of(group, self.shard_count) == self.shard


assert METADATA_SHARD < SHARDS_MAX <= GATEWAY < NOBODY < 1 << 16


def owner_of(group: GroupId, shard_count: int) -> ShardId:
    """Return the shard that owns a group (SH-10)."""
    assert 0 < shard_count <= SHARDS_MAX
    if group == METADATA_GROUP:
        return METADATA_SHARD
    assert is_partition_group(group)
    return ShardId((murmur3_32(group) >> 16) % shard_count)


def murmur3_32(number: int) -> int:
    """Return the MurmurHash3 of a number's eight bytes, little-endian, with seed 0."""
    assert 0 <= number < 1 << 64
    mixed = 0
    for block in (number & _MASK, number >> 32):
        scrambled = _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        mixed = _rotate(mixed ^ scrambled, 13) * 5 + 0xE6546B64 & _MASK
    mixed ^= 8  # bytes of input
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    return mixed ^ mixed >> 16


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK
