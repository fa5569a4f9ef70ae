"""What the partitions must be: the view by which a shard makes its own equal to the metadata.

Invariants: the view is in ascending order of group ids; as long as `revision` is the same, so is
            the view.
"""

from itertools import pairwise

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.bounds import RETAINED_BYTES_ABOVE_SEGMENT
from headrace.metadata.settings import expiry_or_never
from headrace.metadata.state import State, Topic, TopicKey
from headrace.wire.topic_options import SERVER_DEFAULT_WORD, UNLIMITED


class PartitionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as it must be; sizes in bytes, durations in microseconds."""

    group: GroupId
    created_revision: int
    is_persisted: bool
    is_offset_persisted: bool
    segment_bytes: int
    message_expiry: int  # 0: messages never expire
    bytes_max: int  # sealed bytes to keep; 0: no bound
    purge_generation: int
    retention_consumers: str = SERVER_DEFAULT_WORD


class Target(msgspec.Struct, frozen=True):
    """All partitions, and the revision at which they were seen."""

    revision: int
    partitions: tuple[PartitionTarget, ...]


class TargetView:
    """Makes the view; topics that did not change since are not looked at again."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen: dict[tuple[int, int], tuple[int, tuple[PartitionTarget, ...]]] = {}
        self._target = Target(-1, ())

    def target(self) -> Target:
        """Return the view as of now; the same value as before if nothing changed."""
        if self._target.revision == self._state.revision:
            return self._target
        partitions: list[PartitionTarget] = []
        seen = {}
        for stream in self._state.streams:
            for topic in stream.topics:
                key = (stream.id, topic.id)
                known = self._seen.get(key)
                if known is None or known[0] != topic.changed_revision:
                    known = (topic.changed_revision, _target_of_topic(topic))
                seen[key] = known
                partitions.extend(known[1])
        assert self._target.revision < self._state.revision, "revisions count up"
        self._seen = seen
        self._target = Target(self._state.revision, tuple(partitions))
        return self._target

    def check(self) -> None:
        """Assert that the view, and what is kept of each topic, is that of the state."""
        for key, (revision, partitions) in self._seen.items():
            topic = self._state.find_topic(key)
            if topic is not None and topic.changed_revision == revision:
                assert partitions == _target_of_topic(topic), "what did not change is the same"
        target = self._target
        assert target.revision <= self._state.revision, "revisions count up"
        if target.revision == self._state.revision:
            keys = topic_keys(self._state)
            found = [each for key in keys for each in partitions_of(self._state, key)]
            assert list(target.partitions) == found, "one revision has one view"
        for low, high in pairwise(target.partitions):
            assert low.group < high.group, "the view is in ascending order"


def topic_keys(state: State) -> list[TopicKey]:
    """Return all topics, in ascending order."""
    return [(stream.id, topic.id) for stream in state.streams for topic in stream.topics]


def partitions_of(state: State, key: TopicKey) -> tuple[PartitionTarget, ...]:
    """Return the partitions of a topic as they must be; none if the topic is gone."""
    topic = state.find_topic(key)
    return () if topic is None else _target_of_topic(topic)


def groups_of(state: State, key: TopicKey) -> list[GroupId]:
    """Return the numbers of the partitions of a topic; none if the topic is gone."""
    stream = state.streams.find(key[0])
    topic = None if stream is None else stream.topics.find(key[1])
    if topic is None:
        return []
    return [topic.namespace(partition_id) for partition_id in range(len(topic.partitions))]


def target_of(state: State, group: int) -> PartitionTarget | None:
    """Return one partition as it must be; none if there is no such partition."""
    stream_id, topic_id, partition_id = unpack_namespace(GroupId(group))
    stream = state.streams.find(stream_id)
    topic = None if stream is None else stream.topics.find(topic_id)
    if topic is None or partition_id >= len(topic.partitions):
        return None
    return _target(topic, partition_id, _bytes_max(topic))


def live_group_ids(state: State, namespace: GroupId) -> tuple[int, ...]:
    """Return the consumer groups of a partition's topic; none if the topic is gone."""
    stream_id, topic_id, _ = unpack_namespace(namespace)
    topic = state.find_topic((stream_id, topic_id))
    return () if topic is None else tuple([group.id for group in topic.groups])


def _target_of_topic(topic: Topic) -> tuple[PartitionTarget, ...]:
    bytes_max = _bytes_max(topic)
    return tuple([_target(topic, number, bytes_max) for number in range(len(topic.partitions))])


def _target(topic: Topic, partition_id: int, bytes_max: int) -> PartitionTarget:
    settings, partition = topic.settings, topic.partitions[partition_id]
    return PartitionTarget(
        group=topic.namespace(partition_id),
        created_revision=partition.created_revision,
        is_persisted=settings.is_persisted,
        is_offset_persisted=settings.is_offset_persisted,
        segment_bytes=settings.segment_bytes,
        message_expiry=expiry_or_never(settings),
        bytes_max=bytes_max,
        purge_generation=partition.purge_generation,
        retention_consumers=settings.retention_consumers,
    )


def _bytes_max(topic: Topic) -> int:
    """Return the share of each partition, at least one full segment."""
    if topic.settings.max_topic_size == UNLIMITED or not topic.partitions:
        return 0
    share = topic.settings.max_topic_size // len(topic.partitions)
    return max(share, topic.settings.segment_bytes + RETAINED_BYTES_ABOVE_SEGMENT)
