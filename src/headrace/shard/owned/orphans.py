"""Looks after files of partitions that are not here, once after each start (FM-11).

```
metadata has seen it created, and does not know it any more   it was deleted: its files go
metadata has not seen it yet, and other replicas may have     it may be to come: left alone
metadata has not seen it, and there is nobody else            an orphan: quarantine
```

A crash between the end of a partition and the removal of its files leaves the first kind; files
that are newer than the stores beside them are of the last one.

Flow: recover.
"""

from collections.abc import Mapping

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.target import partitions_of
from headrace.partitions.shared import PartitionsShared
from headrace.ports.segments import (
    ListPartitions,
    PartitionsListed,
    QuarantinePartition,
    RemovePartition,
    SegmentEvent,
)
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.owned.reconcile import topic_of
from headrace.shard.turn import Turn


class Orphans:
    """Asks once which partitions have files, and has those of no partition put away."""

    def __init__(
        self, metadata: Metadata, plane: Plane, shared: PartitionsShared, turn: Turn
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._shared = shared
        self._turn = turn
        self._is_alone = plane.config.replica_count == 1
        self._is_asked = False
        self._listed: tuple[tuple[int, int], ...] | None = None
        self.is_over = False  # whether all of it is done

    @property
    def is_settled(self) -> bool:
        """Whether nothing lies where a partition that is created now would find it."""
        return self.is_over or not self._is_alone

    def after_turn(self, here: Mapping[int, Local], *, revision: int) -> None:
        """Go on: `here` are the partitions as metadata has them at that revision."""
        assert not self.is_over
        metadata, plane = self._metadata, self._plane
        assert revision <= metadata.state.revision, "partitions follow the metadata"
        if not self._is_asked:
            self._is_asked = True
            self._turn.out.append(ListPartitions(self._shared.new_token(self)))
        is_current = revision == metadata.state.revision and metadata.is_caught_up
        if self._listed is not None and is_current and plane.has_begun:
            self.is_over = True
            dormant = dict(plane.dormant_groups())
            for namespace, created_revision in self._listed:
                local = here.get(namespace)
                is_here = local is not None and local.target.created_revision == created_revision
                if not is_here and namespace not in dormant:
                    self._put_away(namespace, created_revision, revision)

    def _put_away(self, namespace: int, created_revision: int, revision: int) -> None:
        turn = self._turn
        wanted = partitions_of(self._metadata.state, topic_of(namespace))
        known = [(each.group, each.created_revision) for each in wanted]
        assert (namespace, created_revision) not in known, "files that metadata wants stay"
        if created_revision <= revision:
            turn.probes.hit("partitions.left_over_removed")
            turn.out.append(RemovePartition(namespace, created_revision))
        elif self._is_alone:
            turn.probes.hit("partitions.orphaned")
            stream, topic, partition = unpack_namespace(GroupId(namespace))
            reason = (
                f"stream {stream} topic {topic} partition {partition} was created at revision"
                f" {created_revision}, and metadata ends at revision {revision}: the stores are"
                " older than these files"
            )
            turn.out.append(QuarantinePartition(namespace, created_revision, reason))

    def step(self, event: SegmentEvent) -> None:
        """Take the answer."""
        assert not self.is_over, "the list comes before it is used"
        assert isinstance(event, PartitionsListed)
        self._listed = event.partitions

    def retry(self) -> None:
        """Never needed: a list takes no space."""

    def check(self) -> None:
        """Assert that it asks before it is answered, and is answered before it is over."""
        assert self._is_asked or self._listed is None, "only who asked is answered"
        assert not self.is_over or self._listed is not None, "it ends when it is answered"
        assert self._plane.has_begun or not self.is_over, "nothing goes before the groups live"
        is_waiting = self._is_asked and self._listed is None
        assert bool(self._shared.awaited(self)) == is_waiting, "who asked waits for one answer"
