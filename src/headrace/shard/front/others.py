"""On shard 0: what other shards have told, for the read that is answered, and their last figures.

A reply of the protocol has no room for the names of shards that did not answer. There the last
figures that such a shard has told stand for those of now (decision 0034).

Flow: reply.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.metadata import lookups
from headrace.metadata.describe import PartitionStats
from headrace.metadata.target import target_of
from headrace.shard.metadata import Metadata
from headrace.wire.bus.feed import Subject
from headrace.wire.commands.holders import HOLDERS_MAX, TopicHolders
from headrace.wire.commands.shards import ShardStatus

if TYPE_CHECKING:
    from headrace.wire.bus.gathered import PartitionSize

_SPARE_ROWS = 1024  # of partitions that may be gone, before they are looked for


class Others:
    """What is known of other shards; a shard that is alone has none of this."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.told: Mapping[int, Any] = {}  # by shard, for the read that is being answered
        self.missing: tuple[int, ...] = ()  # those that were asked for it and did not answer
        self._sizes: dict[int, PartitionSize] = {}  # the last that was told of each partition
        self._statuses: dict[int, ShardStatus] = {}  # and of each shard

    def take(self, subject: int, told: Mapping[int, Any], missing: tuple[int, ...]) -> None:
        """Take the answers to a question, for the read that is answered now."""
        assert not told.keys() & dict.fromkeys(missing).keys(), "who has told is not missing"
        self.told, self.missing = told, missing
        if subject == Subject.SIZES:
            for rows in told.values():
                self._sizes.update({row.namespace: row for row in rows})
            self._forget_gone()
        elif subject == Subject.SHARD:
            self._statuses.update(told)

    def leave(self) -> None:
        """Forget what was told for one read: it is answered."""
        self.told, self.missing = {}, ()
        assert not self.told, "the next read has answers of its own"

    def stats_of(self, namespace: int, created_revision: int) -> PartitionStats | None:
        """Return the last figures of a partition; None if nothing was told of it."""
        row = self._sizes.get(namespace)
        if row is None or row.created_revision != created_revision:
            return None
        assert row.namespace == namespace, "a partition is found by its number"
        return PartitionStats(
            segments_count=row.segments_count,
            current_offset=row.current_offset,
            size_bytes=row.size_bytes,
            messages_count=row.messages_count,
        )

    def statuses(self) -> list[ShardStatus]:
        """Return the last that was told of each shard, in order."""
        found = [self._statuses[shard] for shard in sorted(self._statuses)]
        assert all(self._statuses[each.shard] is each for each in found), "each tells of itself"
        return found

    def _forget_gone(self) -> None:
        """Forget partitions that metadata does not know any more, once there may be many."""
        state = self._metadata.state
        if len(self._sizes) <= 2 * lookups.count(state).partitions + _SPARE_ROWS:
            return
        kept = {}
        for namespace, row in self._sizes.items():
            target = target_of(state, namespace)
            if target is not None and target.created_revision == row.created_revision:
                kept[namespace] = row
        self._sizes = kept
        assert len(kept) <= lookups.count(state).partitions, "what is kept is in the metadata"

    def check(self) -> None:
        """Assert that what was told is kept under its number, and for one read at a time."""
        assert not self.told, "what was told for a read is left with it"
        assert not self.missing, "what was told for a read is left with it"
        for namespace, row in self._sizes.items():
            assert row.namespace == namespace, "a partition is found by its number"
            assert row.created_revision <= self._metadata.state.revision, "nobody is ahead"
        for shard, status in self._statuses.items():
            assert status.shard == shard, "a shard is found by its number"
            assert status.commit <= self._metadata.commit, "nobody is ahead of the group"


def join_holders(told: Sequence[TopicHolders], missing: tuple[int, ...]) -> TopicHolders:
    """Return those who keep most of a topic, of the partitions of all shards that have told."""
    found = [each for one in told for each in one.holders]
    found.sort(key=lambda each: (-each.held_bytes, each.partition_id, each.kind, each.id))
    count = sum(one.count for one in told)
    assert len(found) <= count, "those that are listed are counted"
    return TopicHolders(count, tuple(found[:HOLDERS_MAX]), missing)
