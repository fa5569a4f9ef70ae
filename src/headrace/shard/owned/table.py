"""Where each partition of the node is: its shard, and which incarnation that was said of (SH-16).

A cache: the owner is a function of the number, and a row says nothing of readiness. A row of an own
partition goes as soon as the partition is fenced (RC-13).

Flow: route, apply.
"""

from collections.abc import Collection
from typing import NamedTuple

from headrace.base.ids import GroupId, ShardId, unpack_namespace
from headrace.metadata.state import TopicKey


class Row(NamedTuple):
    """The shard of a partition, and the revision that created it."""

    owner: ShardId
    epoch: int


class ShardsTable:
    """The rows of all partitions, own ones and those of other shards."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._of_topic: dict[TopicKey, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, group: int) -> Row | None:
        """Return the row of a partition, if there is one."""
        return self._rows.get(group)

    def put(self, group: int, row: Row) -> None:
        """Write a row in the place of the one before."""
        before = self._rows.get(group)
        assert before is None or before.epoch <= row.epoch, "an incarnation follows an earlier one"
        self._rows[group] = row
        self._of_topic.setdefault(topic_of(group), {})[group] = None

    def remove(self, group: int) -> None:
        """Remove the row of a partition, if there is one."""
        if self._rows.pop(group, None) is not None:
            key = topic_of(group)
            assert group in self._of_topic[key], "every row is one of its topic"
            del self._of_topic[key][group]
            if not self._of_topic[key]:
                del self._of_topic[key]

    def of_topic(self, key: TopicKey) -> Collection[int]:
        """Return the partitions of a topic that have a row."""
        return self._of_topic.get(key, {}).keys()

    def topics(self) -> Collection[TopicKey]:
        """Return the topics that have a row."""
        return self._of_topic.keys()

    def count_of(self, owner: ShardId) -> int:
        """Return how many partitions are said to be of a shard."""
        return sum(row.owner == owner for row in self._rows.values())

    def check(self) -> None:
        """Assert that every row is found by its topic too."""
        found = {group: key for key, groups in self._of_topic.items() for group in groups}
        assert found.keys() == self._rows.keys(), "every row is one of its topic"
        listed_count = sum(len(groups) for groups in self._of_topic.values())
        assert listed_count == len(self._rows), "a row is listed once"
        for group, key in found.items():
            assert topic_of(group) == key, "a row is one of its own topic"
        assert all(self._of_topic.values()), "a topic without rows is forgotten"


def topic_of(group: int) -> TopicKey:
    """Return the topic of a partition."""
    stream, topic, _ = unpack_namespace(GroupId(group))
    return stream, topic
