"""How far the shards of a node are with their partitions: a command of our own (O8, O5.9)."""

import msgspec

from headrace.wire.codec import FLAG, NOTHING, TEXT, U16, U32, U64, Counted, Optional, Record
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation

LISTED_MAX = 1000  # tombstones and failures of one shard in one reply


class Tombstone(msgspec.Struct, frozen=True):
    """A partition that ends: nothing reaches it, and its files are not known to be gone."""

    partition: str
    created_revision: int
    phase: str


class ReconcileFailure(msgspec.Struct, frozen=True):
    """What failed in a row, and when it is tried again; 0: with the next pass."""

    partition: str
    cause: str
    count: int
    due_micros: int
    text: str


class ShardReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """Wanted and actual partitions of one shard, and all that is in between.

    `revision` is that of the metadata as the shard knows it; `passed_revision` that of its last
    whole pass, if there was one. Tombstones and failures beyond `LISTED_MAX` are only counted.
    """

    shard: int
    revision: int
    passed_revision: int | None
    wanted: int
    actual: int
    routed: int
    staged: int
    doubted: int
    parked: int
    is_passing: bool
    tombstoned_count: int
    failures_count: int
    tombstoned: tuple[Tombstone, ...]
    failures: tuple[ReconcileFailure, ...]


class NodeReconcile(msgspec.Struct, frozen=True):
    """All shards that answered, in order, and the numbers of those that did not (O5.9)."""

    revision: int  # of the metadata on shard 0
    shards: tuple[ShardReconcile, ...]
    missing: tuple[int, ...] = ()


SHARD_RECONCILE = Record(
    ShardReconcile,
    shard=U16,
    revision=U64,
    passed_revision=Optional(U64),
    wanted=U32,
    actual=U32,
    routed=U32,
    staged=U32,
    doubted=U32,
    parked=U32,
    is_passing=FLAG,
    tombstoned_count=U32,
    failures_count=U32,
    tombstoned=Counted(U32, Record(Tombstone, partition=TEXT, created_revision=U64, phase=TEXT)),
    failures=Counted(
        U32,
        Record(ReconcileFailure, partition=TEXT, cause=TEXT, count=U32, due_micros=U64, text=TEXT),
    ),
)

GET_RECONCILE = Command(
    90_004,
    "get reconcile status",
    Operation.NON_REPLICATED,
    NOTHING,
    Record(
        NodeReconcile,
        revision=U64,
        shards=Counted(U16, SHARD_RECONCILE),
        missing=Counted(U16, U16),
    ),
)

COMMANDS = (GET_RECONCILE,)
