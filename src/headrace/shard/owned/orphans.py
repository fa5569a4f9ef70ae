"""Looks after files of partitions that are not here, once after each start (FM-11).

```
it is another shard's                                         left alone (RC-14)
metadata has seen it created, and does not know it any more   it was deleted: its files go
metadata has not seen it yet, and other replicas may have     it may be to come: it waits
metadata has not seen it, and there is nobody else            an orphan: quarantine
```

A crash between the end of a partition and the removal of its files leaves the second kind; files
that are newer than the stores beside them are of the last one.

Flow: recover.
"""

from collections.abc import Mapping

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.target import target_of
from headrace.partitions.shared import PartitionsShared
from headrace.ports.segments import (
    ListPartitions,
    PartitionsListed,
    QuarantinePartition,
    SegmentEvent,
)
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.owned.tombstones import Tombstones
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn


class Orphans:
    """Asks once which partitions have files, and has those of no partition put away."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        plane: Plane,
        shared: PartitionsShared,
        tombstones: Tombstones,
        turn: Turn,
    ) -> None:
        self._placement = settings.placement
        self._metadata = metadata
        self._plane = plane
        self._shared = shared
        self._tombstones = tombstones
        self._turn = turn
        self._is_alone = plane.config.replica_count == 1
        self._is_asked = False
        self._listed: dict[tuple[int, int], None] | None = None  # those that are not judged yet
        self._judged_revision = -1
        self.is_over = False  # whether all files are judged

    @property
    def is_settled(self) -> bool:
        """Whether nothing lies where a partition that is created now would find it."""
        return self.is_over or not self._is_alone

    def is_waiting_for(self, namespace: int, created_revision: int) -> bool:
        """Whether files of a partition are not judged yet, or are not listed yet."""
        return self._listed is None or (namespace, created_revision) in self._listed

    def after_turn(self, here: Mapping[int, Local], *, revision: int) -> None:
        """Go on: `here` are the partitions as metadata has them at that revision."""
        metadata = self._metadata
        assert revision <= metadata.state.revision, "partitions follow the metadata"
        if not self._is_asked:
            self._is_asked = True
            self._turn.out.append(ListPartitions(self._shared.new_token(self)))
        is_current = revision == metadata.state.revision and metadata.is_caught_up
        if self._listed is None or not is_current or not self._plane.has_begun:
            return
        if revision != self._judged_revision:
            self._judged_revision = revision
            for namespace, created_revision in list(self._listed):
                self._judge(here, namespace, created_revision)
            self.is_over = not self._listed

    def _judge(self, here: Mapping[int, Local], namespace: int, created_revision: int) -> None:
        """Decide what becomes of the files of one incarnation of a partition."""
        assert self._listed is not None
        local = here.get(namespace)
        is_here = local is not None and local.target.created_revision == created_revision
        is_known = (
            is_here
            or self._tombstones.holds(namespace, created_revision)
            or self._plane.dormant_origin(namespace) == created_revision
        )
        is_dormant = self._plane.is_dormant(namespace)
        is_to_come = is_dormant or created_revision > self._judged_revision
        if is_to_come and not is_known and not self._is_alone:
            self._turn.probes.hit("partitions.to_come")
            return
        if not is_known and not is_dormant:
            self._put_away(namespace, created_revision)
        del self._listed[namespace, created_revision]

    def _put_away(self, namespace: int, created_revision: int) -> None:
        turn, revision = self._turn, self._judged_revision
        wanted = target_of(self._metadata.state, namespace)
        assert wanted is None or wanted.created_revision != created_revision, (
            "files that metadata wants stay"
        )
        if created_revision <= revision:
            turn.probes.hit("partitions.left_over_removed")
            self._tombstones.bury(namespace, created_revision, None, sequence=0)
        else:
            turn.probes.hit("partitions.orphaned")
            stream, topic, partition = unpack_namespace(GroupId(namespace))
            reason = (
                f"stream {stream} topic {topic} partition {partition} was created at revision"
                f" {created_revision}, and metadata ends at revision {revision}: the stores are"
                " older than these files"
            )
            turn.out.append(QuarantinePartition(namespace, created_revision, reason))

    def step(self, event: SegmentEvent) -> None:
        """Take the answer; what is another shard's is not looked at."""
        assert self._listed is None, "the list comes once"
        assert isinstance(event, PartitionsListed)
        owns = self._placement.owns
        self._listed = {each: None for each in event.partitions if owns(GroupId(each[0]))}

    def retry(self) -> None:
        """Never needed: a list takes no space."""

    def check(self) -> None:
        """Assert that it asks before it is answered, and is answered before it is over."""
        assert self._is_asked or self._listed is None, "only who asked is answered"
        assert not self.is_over or self._listed == {}, "it ends when all are judged"
        assert self._plane.has_begun or not self.is_over, "nothing goes before the groups live"
        is_waiting = self._is_asked and self._listed is None
        assert bool(self._shared.awaited(self)) == is_waiting, "who asked waits for one answer"
        for namespace, _ in self._listed or ():
            assert self._placement.owns(GroupId(namespace)), (
                "files of another shard are not touched"
            )
