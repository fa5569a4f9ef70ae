"""The options of a partition, fixed when it is made."""

from enum import IntEnum

import msgspec

from headrace.base.ids import GroupId
from headrace.base.limits import MIB, SEGMENT_BYTES_MAX
from headrace.partitions.index import INDEX_STEP_BYTES

PIECE_BYTES = 8 * MIB
CONSUMER_OFFSETS_MAX = 65_536

assert INDEX_STEP_BYTES < PIECE_BYTES < SEGMENT_BYTES_MAX, "a segment has pieces, a piece has marks"


class AheadPolicy(IntEnum):
    """What becomes of a stored offset that lies beyond the data after recovery (PT-20)."""

    FAIL = 0  # reading it is an error until it is stored anew or deleted
    CLAMP = 1  # it moves to the end of the data


class PartitionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which partition it is, and its bounds.

    Where segments and pieces are cut, and which batches an index names, follows from these, so
    replicas must have them alike.
    """

    namespace: GroupId
    created_revision: int
    segment_bytes: int = SEGMENT_BYTES_MAX
    piece_bytes: int = PIECE_BYTES
    index_step_bytes: int = INDEX_STEP_BYTES
    offsets_max: int = CONSUMER_OFFSETS_MAX
    offsets_ahead: AheadPolicy = AheadPolicy.FAIL
