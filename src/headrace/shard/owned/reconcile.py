"""Makes the partitions of a shard equal to the committed metadata.

Level-triggered (RC-1): a pass compares what metadata says with what is here; nothing depends on
having heard of a change. Only the shard calls it, so there is one writer (RC-9).

Flow: apply.
"""

from typing import Protocol

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.state import TopicKey
from headrace.metadata.target import PartitionTarget, partitions_of, topic_keys
from headrace.ports.probes import Probes
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.settings import ShardSettings


class Changes(Protocol):
    """Carries out what a pass finds."""

    def add(self, target: PartitionTarget) -> Local:
        """Make a partition."""

    def remove(self, group: int) -> None:
        """Forget a partition that is here, and have its files removed."""

    def remove_dormant(self, group: int, created_revision: int) -> None:
        """Forget a partition that the disk knows and that is not here."""

    def settle(self, local: Local) -> None:
        """Look at a partition that is as metadata says: its log or its files may lack something."""


class Reconciler:
    """Compares, topic by topic, and has the difference carried out."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        plane: Plane,
        partitions: dict[int, Local],
        changes: Changes,
        probes: Probes,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._changes = changes
        self._probes = probes
        self._revision = -1
        self._of_topic: dict[TopicKey, dict[int, None]] = {}  # the partitions that are here
        # The partitions that the disk knew at the start, awake or gone meanwhile or not.
        self._known: dict[TopicKey, dict[int, None]] = {}
        for group, _ in plane.dormant_groups():
            self._known.setdefault(topic_of(group), {})[group] = None
        self._doubted: dict[TopicKey, None] = {}  # until all metadata is applied again (RC-16)

    @property
    def settled_revision(self) -> int:
        """The revision at which all partitions are as metadata says; -1 while some are doubted."""
        return -1 if self._doubted else self._revision

    def forget(self, group: int) -> None:
        """Forget a partition that is here no longer."""
        key = topic_of(group)
        del self._of_topic[key][group]
        if not self._of_topic[key]:
            del self._of_topic[key]

    def run(self) -> bool:
        """Compare what has changed, and do what is missing (RC-3); return whether there was any."""
        is_changed = self._metadata.state.revision != self._revision
        is_behind = (is_changed or bool(self._doubted)) and not self._metadata.is_caught_up
        if not is_changed and (is_behind or not self._doubted):
            return False
        topics = self._changed_topics()
        assert self._revision <= self._metadata.state.revision, "metadata does not go back"
        self._revision = self._metadata.state.revision
        if not is_behind:
            topics |= self._doubted
            self._doubted = {}
        for key in topics:
            self._reconcile_topic(key, is_behind=is_behind)
        assert is_behind or not self._doubted, "only who lags doubts"
        return True

    def _changed_topics(self) -> dict[TopicKey, None]:
        """Return the topics that must be looked at; all, if it is not known which have changed."""
        state = self._metadata.state
        changed = state.topics_changed_since(self._revision)
        if changed is None:
            changed = [*topic_keys(state), *self._of_topic, *self._known]
        return dict.fromkeys(changed)

    def _reconcile_topic(self, key: TopicKey, *, is_behind: bool) -> None:
        plane, changes = self._plane, self._changes
        owns = self._settings.placement.owns
        targets = partitions_of(self._metadata.state, key)
        wanted = {each.group: each for each in targets if owns(each.group)}
        for group in [group for group in self._of_topic.get(key, ()) if group not in wanted]:
            changes.remove(group)
        for target in wanted.values():
            each = self._bounded(target)
            local = self._partitions.get(each.group)
            if local is not None and local.target.created_revision != each.created_revision:
                changes.remove(each.group)
                local = None
            if local is None:
                if is_behind and plane.dormant_origin(each.group) != each.created_revision:
                    self._doubted[key] = None  # It may be deleted, and another have its name.
                    self._probes.hit("partitions.doubted")
                    continue
                local = changes.add(each)
                self._of_topic.setdefault(key, {})[each.group] = None
            local.target = each
            assert local.replica.group == each.group, "a partition keeps its number"
            changes.settle(local)
        for group in self._known.get(key, ()):
            # What metadata has seen created and does not know any more was deleted; what it has
            # not seen yet may be to come: this replica may lag (RC-16).
            origin = plane.dormant_origin(group)
            if group not in wanted and origin is not None and origin <= self._revision:
                changes.remove_dormant(group, origin)

    def _bounded(self, target: PartitionTarget) -> PartitionTarget:
        """Return a partition as it must be within the bounds of this server."""
        settings = self._settings
        segment_bytes = min(target.segment_bytes, settings.segment_bytes_max)
        bytes_max = min(target.bytes_max, settings.retained_bytes_max)
        if (segment_bytes, bytes_max) == (target.segment_bytes, target.bytes_max):
            return target
        return msgspec.structs.replace(target, segment_bytes=segment_bytes, bytes_max=bytes_max)

    def check(self) -> None:
        """Assert that the partitions of all topics are those that are here."""
        here = {group: key for key, groups in self._of_topic.items() for group in groups}
        assert here.keys() == self._partitions.keys(), "every partition is one of its topic"
        for group, key in here.items():
            assert topic_of(group) == key, "a partition is one of its own topic"
        assert all(self._of_topic.values()), "a topic without partitions is forgotten"
        assert self._revision <= self._metadata.state.revision, "metadata does not go back"
        assert not self._doubted or self._revision >= 0, "only what was looked at is doubted"
        settings = self._settings
        for local in self._partitions.values():
            assert local.target.segment_bytes <= settings.segment_bytes_max, "within its bounds"
            assert local.target.bytes_max <= settings.retained_bytes_max, "within its bounds"
        for group, _ in self._plane.dormant_groups():
            assert group in self._known[topic_of(group)], "what the disk knows is looked at"
        if self.settled_revision == self._metadata.state.revision:
            self._check_settled()

    def _check_settled(self) -> None:
        """Assert that the partitions are those of the metadata, each as it says."""
        state = self._metadata.state
        owns = self._settings.placement.owns
        targets = [each for key in topic_keys(state) for each in partitions_of(state, key)]
        wanted = [each for each in targets if owns(each.group)]
        assert len(wanted) == len(self._partitions), "every partition that is owned is here"
        for target in wanted:
            local = self._partitions[target.group]
            assert local.target == self._bounded(target), "a partition is as metadata says"
        for _, origin in self._plane.dormant_groups():
            is_to_come = origin is None or origin > self._revision
            assert is_to_come, "what metadata saw deleted is not kept"


def topic_of(group: int) -> TopicKey:
    """Return the topic of a partition."""
    stream, topic, _ = unpack_namespace(GroupId(group))
    return stream, topic
