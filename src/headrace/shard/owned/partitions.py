"""All partitions of a shard: what others ask of them, and their part of a turn.

```
reconcile   as metadata says: made, removed          own_ops  what their logs must still say
opening     files are taken up after a start         orphans  files of partitions that are gone
store       batches to segments, effects, pieces     flush    segments synced for checkpoints
retain      segments dropped by limits               clearing files of dropped segments removed
```

Flow: apply, store.
"""

from collections import deque

from headrace.base.ids import GroupId
from headrace.metadata.target import PartitionTarget
from headrace.partitions.dedup import DedupTable
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.options import PartitionOptions
from headrace.partitions.shared import Owner, PartitionsShared
from headrace.ports.recovered import Finding
from headrace.ports.segments import RemovePartition, SegmentEvent
from headrace.shard.config import GroupConfig
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.clearing import Clearing
from headrace.shard.owned.elsewhere import ElsewhereError
from headrace.shard.owned.flush import Flushes
from headrace.shard.owned.local import Local
from headrace.shard.owned.opening import Opening
from headrace.shard.owned.orphans import Orphans
from headrace.shard.owned.own_ops import OwnOps
from headrace.shard.owned.reconcile import Reconciler
from headrace.shard.owned.retain import Retention
from headrace.shard.owned.store import Storing
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn, Wake
from headrace.shard.watch import Watch
from headrace.wire.errors import Code, RefusedError


class Partitions:
    """The room of owned partitions."""

    def __init__(
        self, settings: ShardSettings, metadata: Metadata, plane: Plane, turn: Turn, watch: Watch
    ) -> None:
        self._settings = settings
        self._plane = plane
        self._turn = turn
        self._watch = watch
        self.shared = shared = PartitionsShared(
            settings.tail_bytes_max, settings.indexes_max, settings.replies_bytes_max
        )
        self.locals: dict[int, Local] = {}
        self.findings: list[Finding] = []
        self.removed: list[int] = []  # partitions that were removed, for whoever waits on them
        self.reconciling = Wake(is_awake=True)
        self.storing = Wake(is_awake=True)
        # What is to be removed, and the sequence that must be synced before.
        self._removals: deque[tuple[int, RemovePartition]] = deque()
        probes = turn.probes
        self._opening = Opening(plane)
        self._own_ops = OwnOps(
            metadata, plane, turn.clock, self.locals, self.findings, self.reconciling
        )
        self._awaited = self._own_ops.awaited
        self._reconciler = Reconciler(settings, metadata, plane, self.locals, self, probes)
        self._storing = Storing(settings, plane, shared, self.locals, turn)
        self.flushes = Flushes(plane, shared, self.locals, probes, self.findings)
        self.retention = Retention(settings, metadata, plane, self.locals, turn)
        self._orphans = Orphans(metadata, plane, shared, turn)
        self._clearing = Clearing(metadata, plane, shared, turn)
        self.polled = self._storing.polled

    # What others ask.

    def find(self, namespace: GroupId) -> Local:
        """Return a partition that metadata knows.

        Raises:
            RefusedError: It is not here yet.
            ElsewhereError: It is another shard's.
        """
        local = self.locals.get(namespace)
        if local is None:
            placement = self._settings.placement
            if not placement.owns(namespace):
                raise ElsewhereError(placement.owner(namespace), namespace)
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, partition=namespace)
        return local

    @property
    def is_open(self) -> bool:
        """Whether all partitions are taken up, or known to be damaged; none has foreign files."""
        return self._opening.is_over and self._orphans.is_settled

    @property
    def is_short(self) -> bool:
        """Whether the log of a partition does not say yet what a power cut may have taken."""
        return self._opening.is_short

    @property
    def is_stuck(self) -> bool:
        """Whether a checkpoint waits for a segment that lacks space."""
        return self.shared.is_without_space

    @property
    def is_purged(self) -> bool:
        """Whether the partitions have applied all purges that metadata knows of."""
        return not self._awaited.is_purging

    @property
    def purged_revision(self) -> int:
        """The revision whose purges all partitions have applied; -1 if some have not."""
        return self._reconciler.settled_revision if self.is_purged else -1

    def take_findings(self) -> list[Finding]:
        """Return what was noticed since the last call, once."""
        found = [*self.findings, *self.retention.take_findings()]
        self.findings.clear()
        return found

    # A turn.

    def reconcile(self) -> None:
        """Make the partitions equal to the metadata, if that has changed."""
        self.storing.is_awake = True
        if self._reconciler.run():
            self._opening.open_replayed()  # before anything is ordered in one that was just made
        else:
            self._own_ops.look_after()

    def after_turn(self) -> None:
        """Hand over to segments what has come together, and carry on what machines want."""
        shared = self.shared
        self.storing.is_awake = False
        if self._opening.unopened:
            self._opening.open_replayed()
        if self._plane.touched:
            self._look_at_touched()
        if shared.marked or shared.sealed:
            self._look_at_marked()
            self._look_at_sealed()
        if self._storing.unstored and self._turn.clock.now >= self._storing.due:
            self._storing.store_due()
        if self._plane.piece_reads:
            self._storing.read_pieces()
        if shared.dropping:
            self._clearing.after_turn()
        if shared.busy:
            self._storing.take_all_effects()
        if self._removals:
            self._remove_files()
        if not self._orphans.is_over:
            self._orphans.after_turn(self.locals, revision=self._reconciler.settled_revision)

    def _look_at_touched(self) -> None:
        """Store what the partitions that did something hold, and see what came of their ops."""
        touched = self._plane.touched
        for group in touched:
            if group not in self.locals:
                continue
            local = self.locals[group]
            if self._awaited.ops:
                self._own_ops.stir(group)
            if self._opening.unsettled:
                self._opening.settle_tail(group)
            waiting = local.machine.writer.waiting_bytes
            if waiting >= self._storing.store_bytes or (
                waiting and group not in self._storing.unstored
            ):
                self._storing.look_at(local, waiting)
        self._plane.touched = {}

    def _look_at_marked(self) -> None:
        """Have offsets removed that were stored for consumer groups which are gone (RC-17).

        Such an op may have been ordered before the group was deleted, and be applied after.
        """
        marked, self.shared.marked = self.shared.marked, {}
        for owner in marked:
            assert isinstance(owner, PartitionMachine)
            local = self.locals.get(owner.options.namespace)
            if local is not None and local.target.group not in self._awaited:
                self._own_ops.propose(local)

    def _look_at_sealed(self) -> None:
        """Have retention look at partitions with sealed segments."""
        sealed, self.shared.sealed = self.shared.sealed, {}
        for owner in sealed:
            assert isinstance(owner, PartitionMachine)
            local = self.locals.get(owner.options.namespace)
            if local is not None:
                self.retention.consider(local)

    def _remove_files(self) -> None:
        synced = self._plane.store.synced
        while self._removals and self._removals[0][0] <= synced:
            self._turn.out.append(self._removals.popleft()[1])

    def on_segment(self, event: SegmentEvent) -> None:
        """Take an answer of the folder of segments."""
        self.storing.is_awake = True
        owner = self.shared.step(event)
        if self.shared.fenced:
            self.flushes.note_fences()
        if isinstance(owner, PartitionMachine):
            group = owner.options.namespace
            self._opening.settle_tail(group)
            self.flushes.go_on(group)

    def tick(self) -> None:
        """Do what waits for time."""
        self.shared.tick(self._turn.clock.now)
        self._own_ops.tick()
        self._clearing.tick()
        self.retention.tick()

    def check(self) -> None:
        """Assert, between turns, that all parts speak of the same partitions, and `check_awake`."""
        self.check_awake()
        groups = self._plane.groups
        assert self.locals.keys() == groups.keys(), "every partition has its group"
        for group, local in self.locals.items():
            assert local.target.group == group, "a partition is found by its number"
            assert local.replica is groups[group], "a partition has the group of its number"
            local.check()
        tails = [local.machine.tail_bytes for local in self.locals.values()]
        assert sum(tails) == self.shared.tail_bytes, "the budget counts the tails that are here"
        sequences = [sequence for sequence, _ in self._removals]
        assert sequences == sorted(sequences), "files are removed in the order of their records"
        issued = self._plane.store.issued
        assert not sequences or sequences[-1] <= issued + 1, "files wait for a record that comes"
        synced = self._plane.store.synced
        assert not sequences or synced < sequences[0], "files go once they cannot come back"
        removals = [(each.namespace, each.created_revision) for _, each in self._removals]
        assert len(dict.fromkeys(removals)) == len(removals), "files are removed once"
        self._check_parts()

    def _check_parts(self) -> None:
        for _, removal in self._removals:
            here = self.locals.get(removal.namespace)
            revision = -1 if here is None else here.target.created_revision
            assert removal.created_revision != revision, "files of a partition that is here stay"
        owners: list[Owner] = [local.machine for local in self.locals.values()]
        self.shared.check_owners(dict.fromkeys([*owners, self._orphans, self._storing.pieces]))
        self._own_ops.check(self.shared.marked)
        self._reconciler.check()
        self._opening.check(self.locals)
        self._orphans.check()
        self._clearing.check()
        self._storing.check()
        self.flushes.check()
        self.retention.check(self.shared.sealed)

    def check_awake(self) -> None:
        """Assert, between turns, that no stage sleeps while it has work."""
        assert not self.shared.busy, "what machines want done is among the effects"
        assert not self.removed, "who waits on a partition hears at once that it is gone"
        assert not self.shared.fenced, "a fence is reported in the turn in which it is made"
        assert self.storing.is_awake or not self.shared.sealed, "retention hears of what is sealed"
        if self._plane.touched or self._plane.piece_reads or self.shared.marked:
            assert self.storing.is_awake, "what partitions did is looked at"
        self._own_ops.check_awake()

    # What a pass of the reconciler finds.

    def add(self, target: PartitionTarget) -> Local:
        """Make a partition, with its past if the disk has one."""
        group, plane, probes = target.group, self._plane, self._turn.probes
        assert group not in self.locals, "a partition is made once"
        machine = PartitionMachine(self._options(target), self.shared, probes)
        config = GroupConfig(
            group,
            is_persisted=target.is_persisted,
            is_offset_persisted=target.is_offset_persisted,
            origin=target.created_revision,
        )
        watched = self._watch(target, machine)
        past = plane.add_group(config, watched, DedupTable(group, probes))
        local = self.locals[group] = Local(target, plane.groups[group], machine)
        is_tail_lost = past is not None and past.state.is_tail_lost
        self._opening.add(local, lost_until=plane.ceiling_of(group) if is_tail_lost else None)
        probes.hit("partitions.materialised")
        return local

    def _options(self, target: PartitionTarget) -> PartitionOptions:
        return PartitionOptions(
            namespace=target.group,
            created_revision=target.created_revision,
            segment_bytes=target.segment_bytes,
            piece_bytes=self._settings.piece_bytes,
            index_step_bytes=self._settings.index_step_bytes,
            offsets_ahead=self._settings.offsets_ahead,
        )

    def settle(self, local: Local) -> None:
        """Look at a partition that is as metadata says: its log or its files may lack something."""
        assert self.locals[local.target.group] is local, "what is settled is here"
        self.retention.consider(local)
        self._own_ops.propose(local)

    def remove(self, group: int) -> None:
        """Forget a partition; its files go once the journal will not bring it back."""
        local = self.locals.pop(group)
        self._reconciler.forget(group)
        self._awaited.pop(group)
        self._storing.forget(group)
        self._opening.forget(group)
        self.retention.forget(group)
        local.machine.close()
        self.remove_dormant(group, local.target.created_revision)
        assert group not in self._plane.groups, "a partition goes with its group"
        self.removed.append(group)
        self._turn.probes.hit("partitions.removed")
        self.flushes.forget(group)

    def remove_dormant(self, group: int, created_revision: int) -> None:
        """Forget a partition that the disk knows, and have its files removed after that."""
        self._plane.remove_group(group)
        removal = RemovePartition(group, created_revision)
        self._removals.append((self._plane.store.issued + 1, removal))
