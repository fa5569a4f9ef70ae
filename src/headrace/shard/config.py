"""What a shard is told when it starts."""

import msgspec

from headrace.vsr.timeouts import Timeouts

METADATA_STORE = 0
DATA_STORE = 1


class GroupConfig(msgspec.Struct, frozen=True):
    """One consensus group, its classes of durability, and which incarnation of its name it is."""

    group: int
    is_persisted: bool = True
    is_offset_persisted: bool = True
    origin: int = 0


class PlaneConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who the node is, and how its groups behave; the seed differs with every start."""

    cluster: int
    replica: int
    replica_count: int
    timeouts: Timeouts
    seed: int
    journal: int = 0  # which of the node's stores the groups are on
    pipeline_max: int = 32
    queue_max: int = 64
    repair_ops_max: int = 128
    chunk_bytes: int = 256 << 10
    offsets_reserved: int = 65_536  # how far ahead a ceiling lies (FM-7)
    slice_groups_max: int = 256  # groups that a turn looks at of a walk over many
