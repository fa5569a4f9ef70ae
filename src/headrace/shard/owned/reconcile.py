"""Decides how the partitions of a shard become those of the committed metadata.

```
commit, tick, start -> pass: changed topics -> slices -> one partition: missing  InsertOwned
                                                         of a sibling   InsertRouted, RemoveRouted
                                                         not wanted     torn down (`tombstones`)
                                                         as it must be  settled: its log, its files
```

Level-triggered (RC-1): a pass compares what metadata says with what is here; nothing depends on
having heard of a change. It decides and stages, and the turn applies what is staged (RC-7 to RC-9);
of itself it only takes a partition out of reach that is to go. A turn looks at a slice of a pass,
so that requests do not wait for many partitions. A pass costs what has changed: topics since the
last one, partitions in which that one did something, and those of which something failed.

Flow: apply.
"""

from collections import deque
from typing import NamedTuple, Protocol

import msgspec

from headrace.base.ids import GroupId
from headrace.metadata.state import TopicKey
from headrace.metadata.target import (
    PartitionTarget,
    groups_of,
    partitions_of,
    target_of,
    topic_keys,
)
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.failures import Cause, Failures
from headrace.shard.owned.local import Local
from headrace.shard.owned.parking import Parking
from headrace.shard.owned.staged import InsertOwned, InsertRouted, RemoveRouted, Staged
from headrace.shard.owned.table import ShardsTable, topic_of
from headrace.shard.owned.tombstones import Tombstones
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn


class Ledger(NamedTuple):
    """What the reconciler reads, and the turn writes."""

    partitions: dict[int, Local]  # those that are here, and in reach
    table: ShardsTable
    tombstones: Tombstones
    failures: Failures
    staged: Staged
    parking: Parking


class Changes(Protocol):
    """Carries out what cannot wait until the turn applies what is staged."""

    def tear_down(self, group: int, created_revision: int) -> None:
        """Put a partition out of reach, and have its files removed; nothing of it may be here."""

    def settle(self, local: Local) -> None:
        """Look at a partition that is as metadata says: its log or its files may lack something."""


class Reconciler:
    """Compares, partition by partition, and stages the difference."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        plane: Plane,
        ledger: Ledger,
        changes: Changes,
        turn: Turn,
    ) -> None:
        self._settings = settings
        self._placement = settings.placement
        self._metadata = metadata
        self._plane = plane
        self._partitions, self._table, self._tombstones = ledger[:3]
        self._failures, self._staged, self._parking = ledger[3:]
        self._changes = changes
        self._turn = turn
        self._revision = -1  # of the last whole pass, as it was when that began
        self._is_due = True  # whether a pass is wanted though metadata is the same (RC-2)
        self._is_passing = False
        self._pass_revision = -1
        self._topics: deque[TopicKey] = deque()  # what this pass has still to look at,
        self._groups: deque[int] = deque()  # and the partitions of the topic that it is at
        # Partitions in which a pass did something: the next one looks at them again (RC-4).
        self._again: dict[int, None] = {}
        # The partitions that the disk knew at the start, awake or gone meanwhile or not.
        self._known: dict[TopicKey, dict[int, None]] = {}
        for group, _ in plane.dormant_groups():
            self._known.setdefault(topic_of(group), {})[group] = None
        self._doubted: dict[int, None] = {}  # until all metadata is applied again (RC-16)

    @property
    def is_passing(self) -> bool:
        """Whether a pass has begun and is not over."""
        return self._is_passing

    @property
    def has_passed(self) -> bool:
        """Whether a whole pass was made since the start."""
        return self._revision >= 0

    @property
    def is_current(self) -> bool:
        """Whether a whole pass has looked at all that metadata says."""
        return not self._is_passing and self._revision == self._metadata.state.revision

    @property
    def is_wanted(self) -> bool:
        """Whether the next turn has a pass to begin, or to go on with."""
        return self._is_due or not self.is_current

    @property
    def settled_revision(self) -> int:
        """The revision at which all partitions are as metadata says; -1 while some may not be."""
        return -1 if self._doubted or self._is_passing else self._revision

    @property
    def revision(self) -> int:
        """The revision of the last whole pass."""
        return self._revision

    @property
    def doubted_count(self) -> int:
        """How many partitions wait until all metadata is applied again."""
        return len(self._doubted)

    def want_pass(self) -> None:
        """Have a pass begin with the next turn, unless the last one left nothing to do."""
        self._is_due = True

    def look_again(self, group: int) -> None:
        """Have the next pass look at a partition."""
        self._again[group] = None
        self._is_due = True

    def hasten(self, group: int) -> None:
        """Have a partition looked at in this turn, if a pass has still to come to it."""
        if self._is_passing:
            self._groups.appendleft(group)

    def run(self) -> bool:
        """Look at the next slice of a pass, or of a new one; return whether there was any."""
        if not self._is_passing and not self._begin():
            return False
        for _ in range(self._settings.data.slice_groups_max):
            if self._groups:
                self._look(self._groups.popleft())
            elif self._topics:
                self._enter(self._topics.popleft())
            else:
                break
        if not self._groups and not self._topics:
            self._end()
        return True

    # A pass.

    def _begin(self) -> bool:
        """Begin a pass if there may be anything to do (RC-3); return whether it began."""
        metadata, is_due = self._metadata, self._is_due
        is_changed = metadata.state.revision != self._revision
        is_doubt_over = bool(self._doubted) and metadata.is_caught_up
        self._is_due = False
        if not is_changed and not is_doubt_over:
            if not is_due:
                return False
            if not self._again and not self._failures and not self._parking.parked.count:
                self._turn.probes.hit("reconcile.skipped")
                return False
        assert self._revision <= metadata.state.revision, "metadata does not go back"
        self._is_passing = True
        self._pass_revision = metadata.state.revision
        self._topics.extend(self._changed_topics())
        self._groups.extend(self._again)
        self._again = {}
        self._groups.extend(self._parking.parked.groups())
        self._groups.extend([group for group, _, _ in self._failures])
        if metadata.is_caught_up:
            self._groups.extend(self._doubted)
            self._doubted = {}
        self._turn.probes.hit("reconcile.passed")
        return True

    def _changed_topics(self) -> dict[TopicKey, None]:
        """Return the topics that must be looked at; all, if it is not known which have changed."""
        state = self._metadata.state
        changed = state.topics_changed_since(self._revision)
        if changed is None:
            changed = [*topic_keys(state), *self._table.topics(), *self._known]
        return dict.fromkeys(changed)

    def _enter(self, key: TopicKey) -> None:
        """Take up the partitions of a topic: those that it has, has here, and had on the disk."""
        groups: dict[int, None] = dict.fromkeys(groups_of(self._metadata.state, key))
        for each in (self._table.of_topic(key), self._known.get(key, ())):
            groups.update(dict.fromkeys(each))
        self._groups.extend(groups)

    def _end(self) -> None:
        self._is_passing = False
        self._revision = self._pass_revision
        for group in self._parking.sweep():
            self._again[group] = None
        for group, cause, _ in self._failures:
            is_known = group in self._partitions or group in self._tombstones
            if not is_known and target_of(self._metadata.state, group) is None:
                self._failures.clear(group, cause)

    # One partition.

    def _look(self, group: int) -> None:
        """Compare one partition with what metadata says of it now (RC-5, RC-6)."""
        target = target_of(self._metadata.state, group)
        self._tombstones.drive(group)
        self._look_for_another(group, target)
        if target is None:
            row = self._table.find(group)
            if row is not None and row.owner != self._placement.shard:
                self._staged.put(RemoveRouted(group))
                self._again[group] = None
        elif not self._placement.owns(GroupId(group)):
            self._route(target)
        elif group in self._partitions:
            local = self._partitions[group]
            local.target = self._bounded(target)
            assert local.replica.group == group, "a partition keeps its number"
            self._changes.settle(local)
        else:
            self._build(target)

    def _look_for_another(self, group: int, target: PartitionTarget | None) -> None:
        """Tear down what is here or on the disk of another incarnation than the wanted one."""
        wanted = None if target is None else target.created_revision
        local = self._partitions.get(group)
        if local is not None and local.target.created_revision != wanted:
            self._changes.tear_down(group, local.target.created_revision)
            self._again[group] = None
        # What metadata has seen created and does not know any more was deleted; what it has not
        # seen yet may be to come: this replica may lag (RC-16).
        origin = self._plane.dormant_origin(group)
        if origin not in (None, wanted) and origin <= self._metadata.state.revision:
            self._changes.tear_down(group, origin)
            self._again[group] = None

    def _route(self, target: PartitionTarget) -> None:
        """Have the row written of a partition of another shard."""
        row = self._table.find(target.group)
        if row is None or row.epoch != target.created_revision:
            owner = self._placement.owner(target.group)
            self._staged.put(InsertRouted(target.group, owner, target.created_revision))
            self._again[target.group] = None

    def _build(self, target: PartitionTarget) -> None:
        """Have a partition made, unless it may be deleted already."""
        group = target.group
        if self._staged.is_inserting(group):
            return
        is_behind = not self._metadata.is_caught_up
        if is_behind and self._plane.dormant_origin(group) != target.created_revision:
            self._doubted[group] = None  # It may be deleted, and another have its name.
            self._turn.probes.hit("partitions.doubted")
            return
        if self._failures.is_backed_off(group, Cause.ADD, self._turn.clock.now):
            return
        self._staged.put(InsertOwned(self._bounded(target)))
        self._again[group] = None

    def _bounded(self, target: PartitionTarget) -> PartitionTarget:
        """Return a partition as it must be within the bounds of this server."""
        settings = self._settings
        segment_bytes = min(target.segment_bytes, settings.segment_bytes_max)
        bytes_max = min(target.bytes_max, settings.retained_bytes_max)
        if (segment_bytes, bytes_max) == (target.segment_bytes, target.bytes_max):
            return target
        return msgspec.structs.replace(target, segment_bytes=segment_bytes, bytes_max=bytes_max)

    # What must hold.

    def check(self) -> None:
        """Assert that every partition that is here has its row, and is within its bounds."""
        shard, settings = self._placement.shard, self._settings
        for group, local in self._partitions.items():
            row = self._table.find(group)
            assert row is not None, "every partition that is here has its row"
            assert row.owner == shard, "a partition is here if it is this shard's"
            assert row.epoch == local.target.created_revision, "a row is of one incarnation"
            assert local.target.segment_bytes <= settings.segment_bytes_max, "within its bounds"
            assert local.target.bytes_max <= settings.retained_bytes_max, "within its bounds"
        for group, _ in self._plane.dormant_groups():
            assert group in self._known[topic_of(group)], "what the disk knows is looked at"
        own = self._table.count_of(shard)
        assert own == len(self._partitions), "a row of this shard is of a partition that is here"
        assert self._revision <= self._metadata.state.revision, "metadata does not go back"
        assert self._revision <= self._pass_revision, "a pass that is over has begun"
        assert self._pass_revision <= self._metadata.state.revision, "metadata does not go back"
        is_over = not self._is_passing
        assert not is_over or self._revision == self._pass_revision, "a pass ends as it began"
        if not self._is_passing:
            assert not self._groups, "a pass that is over has looked at all"
            assert not self._topics, "a pass that is over has looked at all"
        if self.settled_revision == self._metadata.state.revision:
            self._check_settled()

    def _check_settled(self) -> None:
        """Assert that the partitions are those of the metadata, each as it says."""
        state, placement = self._metadata.state, self._placement
        wanted = [each for key in topic_keys(state) for each in partitions_of(state, key)]
        assert len(wanted) == len(self._table), "every partition of the metadata has its row"
        own = [target for target in wanted if placement.owns(target.group)]
        assert len(own) == len(self._partitions), "every partition of this shard is here"
        for target in own:
            local = self._partitions[target.group]
            assert local.target == self._bounded(target), "a partition is as metadata says"
        for _, origin in self._plane.dormant_groups():
            is_to_come = origin is None or origin > self._revision
            assert is_to_come, "what metadata saw deleted is not kept"
