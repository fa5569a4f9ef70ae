"""What a shard is told when it starts."""

import msgspec

from headrace.vsr.timeouts import Timeouts


class GroupConfig(msgspec.Struct, frozen=True):
    """One consensus group and its class of durability."""

    group: int
    is_persisted: bool = True


class ShardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who the shard is, and which groups live in it; the seed differs with every start."""

    cluster: int
    replica: int
    replica_count: int
    groups: tuple[GroupConfig, ...]
    timeouts: Timeouts
    seed: int
    pipeline_max: int = 32
    repair_ops_max: int = 128
    chunk_bytes: int = 256 << 10
