"""Bodies of questions to other shards and of their answers, by subject (O5.9).

```
subject      question             answer
SIZES        Scope                a row for each partition of the shard
COUNTERS                          NodeCounters
RECONCILER                        ShardReconcile
SHARD                             ShardStatus
HOLDERS      Scope of one topic   TopicHolders
SNAPSHOT                          text
```
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.wire.bus.feed import Subject
from headrace.wire.codec import NOTHING, TEXT, U32, U64, Codec, Counted, Record
from headrace.wire.commands.counters import NODE_COUNTERS
from headrace.wire.commands.holders import TOPIC_HOLDERS
from headrace.wire.commands.reconcile import SHARD_RECONCILE
from headrace.wire.commands.shards import SHARD_STATUS

ALL = 0xFFFF_FFFF  # every stream, or every topic of a stream


class Scope(msgspec.Struct, frozen=True):
    """A topic; all topics of a stream; or all."""

    stream_id: int = ALL
    topic_id: int = ALL


class PartitionSize(msgspec.Struct, frozen=True):
    """One partition in numbers, and which incarnation of it."""

    namespace: int
    created_revision: int
    segments_count: int
    current_offset: int
    size_bytes: int
    messages_count: int


SCOPE = Record(Scope, stream_id=U32, topic_id=U32)
SIZES = Counted(
    U32,
    Record(
        PartitionSize,
        namespace=U64,
        created_revision=U64,
        segments_count=U32,
        current_offset=U64,
        size_bytes=U64,
        messages_count=U64,
    ),
)

# Each subject has bodies of its own type.
QUESTIONS: Mapping[int, Codec[Any]] = {
    Subject.SIZES: SCOPE,
    Subject.COUNTERS: NOTHING,
    Subject.RECONCILER: NOTHING,
    Subject.SHARD: NOTHING,
    Subject.HOLDERS: SCOPE,
    Subject.SNAPSHOT: NOTHING,
}
ANSWERS: Mapping[int, Codec[Any]] = {
    Subject.SIZES: SIZES,
    Subject.COUNTERS: NODE_COUNTERS,
    Subject.RECONCILER: SHARD_RECONCILE,
    Subject.SHARD: SHARD_STATUS,
    Subject.HOLDERS: TOPIC_HOLDERS,
    Subject.SNAPSHOT: TEXT,
}
assert list(QUESTIONS) == list(ANSWERS) == list(Subject), "every subject has its bodies"
