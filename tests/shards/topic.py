"""A topic with partitions on every shard of a node, and how tests of processes wait."""

import time
from collections.abc import Callable

from headrace.base.ids import GroupId, Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.placement import owner_of

PARTITIONS = 8
WAIT_SECONDS = 30.0


def until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def owners(shards: int) -> list[int]:
    """Return the owner of each partition of the first topic of the first stream."""
    namespaces = (
        Namespace(StreamId(0), TopicId(0), PartitionId(number)) for number in range(PARTITIONS)
    )
    return [owner_of(GroupId(pack_namespace(each)), shards) for each in namespaces]
