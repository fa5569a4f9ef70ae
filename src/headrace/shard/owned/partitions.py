"""All partitions of a shard: what others ask of them, and their part of a turn.

```
reconcile   what must be made, routed, torn down     own_ops  what their logs must still say
tombstones  deletes, and `failures` of such          table    which shard has which partition
parking     frames that came before their partition
opening     files are taken up after a start         orphans  files of partitions that are gone
store       batches to segments, effects, pieces     flush    segments synced for checkpoints
retain      segments dropped by limits               clearing files of dropped segments removed
```

Flow: apply, store.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.ids import GroupId
from headrace.metadata.state import Topic
from headrace.metadata.target import PartitionTarget
from headrace.partitions.dedup import DedupTable
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.options import PartitionOptions
from headrace.partitions.shared import Owner, PartitionsShared
from headrace.ports.host import WantTurn
from headrace.ports.recovered import Finding
from headrace.ports.segments import SegmentEvent
from headrace.shard.config import GroupConfig
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.clearing import Clearing
from headrace.shard.owned.early import EarlyError
from headrace.shard.owned.elsewhere import ElsewhereError
from headrace.shard.owned.failures import Failures
from headrace.shard.owned.flush import Flushes
from headrace.shard.owned.local import Local
from headrace.shard.owned.opening import Opening
from headrace.shard.owned.orphans import Orphans
from headrace.shard.owned.own_ops import OwnOps
from headrace.shard.owned.parking import Parking
from headrace.shard.owned.reconcile import Ledger, Reconciler
from headrace.shard.owned.retain import Retention
from headrace.shard.owned.staged import (
    ConfirmRemove,
    InsertOwned,
    InsertRouted,
    RemoveRouted,
    Staged,
)
from headrace.shard.owned.status import ReconcileStatus, make_status
from headrace.shard.owned.store import Storing
from headrace.shard.owned.table import Row, ShardsTable
from headrace.shard.owned.tombstones import Tombstones
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn, Wake
from headrace.shard.watch import Watch
from headrace.wire.errors import Code, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


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
        probes = turn.probes
        self._placement = settings.placement
        self._failures = Failures(self.findings, probes)
        self._staged = Staged(self.reconciling)
        self._table = ShardsTable()
        self._tombstones = Tombstones(
            settings.placement, plane, shared, turn, self._failures, self._staged
        )
        self.parking = Parking(settings.placement, metadata, plane, turn, self._staged)
        self._reconcile_due = -1  # until the time is known
        self._is_turn_wanted = False
        self._opening = Opening(plane)
        self._own_ops = OwnOps(
            metadata, plane, turn.clock, self.locals, self.findings, self.reconciling
        )
        self._awaited = self._own_ops.awaited
        self._metadata = metadata
        self._ledger = Ledger(
            self.locals, self._table, self._tombstones, self._failures, self._staged, self.parking
        )
        self._reconciler = Reconciler(settings, metadata, plane, self._ledger, self, turn)
        self._storing = Storing(settings, plane, shared, self.locals, turn)
        self.flushes = Flushes(plane, shared, self.locals, probes, self.findings)
        self.retention = Retention(settings, metadata, plane, self.locals, turn)
        self._orphans = Orphans(settings, metadata, plane, shared, self._tombstones, turn)
        self._clearing = Clearing(metadata, plane, shared, turn)
        self.polled = self._storing.polled
        self._apply: dict[type, Callable[[Any], None]] = {
            InsertOwned: self._insert_owned,
            InsertRouted: self._insert_routed,
            ConfirmRemove: self._confirm_remove,
            RemoveRouted: self._remove_routed,
        }

    # What others ask.

    def find(self, topic: Topic, partition_id: int) -> Local:
        """Return a partition of a topic, of the incarnation that metadata knows (SH-27).

        Raises:
            EarlyError: It is not here yet.
            RefusedError: An earlier incarnation is still here.
            ElsewhereError: It is another shard's.
        """
        namespace = topic.namespace(partition_id)
        return self.find_epoch(namespace, topic.partitions[partition_id].created_revision)

    def find_epoch(self, namespace: GroupId, epoch: int) -> Local:
        """Return one incarnation of a partition.

        Raises:
            EarlyError: It is not here yet, and nothing else is in its place.
            RefusedError: It is not here: not yet, or no longer.
            ElsewhereError: It is another shard's.
        """
        local = self.locals.get(namespace)
        if local is None or local.target.created_revision != epoch:
            placement = self._settings.placement
            if not placement.owns(namespace):
                raise ElsewhereError(placement.owner(namespace), namespace, epoch)
            self._reconciler.hasten(namespace)
            if local is None and self.parking.is_expected(namespace, epoch):
                raise EarlyError(namespace, epoch)
            self._turn.probes.hit("partition_requests_denied_transient_total")
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, partition=namespace)
        return local

    @property
    def is_open(self) -> bool:
        """Whether all partitions are taken up, or known to be damaged; none has foreign files."""
        has_passed = self._reconciler.has_passed
        return has_passed and self._opening.is_over and self._orphans.is_settled

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
        return self._reconciler.is_current and not self._awaited.is_purging

    @property
    def purged_revision(self) -> int:
        """The revision whose purges all partitions have applied; -1 if some have not."""
        return self._reconciler.settled_revision if self.is_purged else -1

    def take_findings(self) -> list[Finding]:
        """Return what was noticed since the last call, once."""
        found = [*self.findings, *self.retention.take_findings()]
        self.findings.clear()
        return found

    def reconcile_status(self) -> ReconcileStatus:
        """Return how far the partitions are from what metadata says."""
        state, now = self._metadata.state, self._turn.clock.now
        return make_status(state, self._placement, self._reconciler, self._ledger, now)

    # A turn.

    def reconcile(self) -> None:
        """Make a slice of the partitions equal to the metadata, if that has changed."""
        self.storing.is_awake = True
        has_run = self._reconciler.run()
        if self._staged:
            self._apply_staged()
        if has_run:
            self._opening.open_replayed()  # before anything is ordered in one that was just made
            if self.parking.ready:
                self.parking.go_on()
            if self._reconciler.is_passing and not self._is_turn_wanted:
                self._is_turn_wanted = True
                self._turn.out.append(WantTurn())
        else:
            self.look_after_ops()

    def look_after_ops(self) -> None:
        """Propose what the logs of partitions must still say; note what they have said."""
        self._own_ops.look_after()
        self.reconciling.is_awake |= self._reconciler.is_wanted

    def on_turn(self) -> None:
        """Go on with a pass that was left for other work."""
        assert self._is_turn_wanted, "a turn comes for who wanted one"
        self._is_turn_wanted = False
        self.reconciling.is_awake = True

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
        if self._tombstones.fenced:
            self._tombstones.after_turn()
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
        now, due = self._turn.clock.now, self._reconcile_due
        if now >= due:
            self._reconcile_due = now + self._settings.reconcile_ticks
            if due >= 0:
                self._reconciler.want_pass()
                self.reconciling.is_awake = True

    def check(self) -> None:
        """Assert, between turns, that all parts speak of the same partitions, and `check_awake`."""
        self.check_awake()
        groups = self._plane.groups
        assert self.locals.keys() == groups.keys(), "every partition has its group"
        for group, local in self.locals.items():
            assert local.target.group == group, "a partition is found by its number"
            assert local.replica is groups[group], "a partition has the group of its number"
            local.check()
            assert self._placement.owns(GroupId(group)), "a partition is here if it is this shard's"
        tails = [local.machine.tail_bytes for local in self.locals.values()]
        assert sum(tails) == self.shared.tail_bytes, "the budget counts the tails that are here"
        now, interval = self._turn.clock.now, self._settings.reconcile_ticks
        assert self._reconcile_due <= now + interval, "a pass begins in each interval"
        if self._reconciler.is_passing:
            assert self._is_turn_wanted, "a pass goes on without waiting for others"
        self._check_parts()

    def _check_parts(self) -> None:
        self._table.check()
        self._tombstones.check(self.locals)
        self._failures.check(self._turn.clock.now)
        self.parking.check(self.locals.values())
        owners: list[Owner] = [local.machine for local in self.locals.values()]
        others: list[Owner] = [self._orphans, self._tombstones, self._storing.pieces]
        self.shared.check_owners(dict.fromkeys([*owners, *others]))
        self._own_ops.check(self.shared.marked, is_compared=self._reconciler.is_current)
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
        self._staged.check()
        assert not self._staged, "what is staged is applied in its turn"

    # What a pass of the reconciler stages: only the turn applies it (RC-8, RC-9).

    def _apply_staged(self) -> None:
        for op in self._staged.take():
            self._apply[type(op)](op)
        assert not self._staged, "what is applied stages nothing"

    def _insert_owned(self, op: InsertOwned) -> None:
        """Make a partition, unless it is here: then the build is a bug, and is reported."""
        target, probes = op.target, self._turn.probes
        if target.group in self.locals:
            probes.hit("partitions_duplicate_builds_discarded_total")
            name = self.locals[target.group].name
            self.findings.append(Finding("built twice", name, 0, "the second build is discarded"))
            return
        assert self._placement.owns(target.group), "only its owner makes a partition (RC-14)"
        local = self._add(target)
        self._table.put(target.group, Row(self._placement.shard, target.created_revision))
        probes.hit("partitions_materialised_total")
        self.settle(local)
        self.parking.release(local)

    def _insert_routed(self, op: InsertRouted) -> None:
        assert op.owner != self._placement.shard, "an own partition is made, not routed"
        self._table.put(op.group, Row(op.owner, op.epoch))

    def _remove_routed(self, op: RemoveRouted) -> None:
        assert op.group not in self.parking.parked, "nothing waits for another shard"
        self._table.remove(op.group)

    def _confirm_remove(self, op: ConfirmRemove) -> None:
        """Drop what is left of a partition: its files are gone."""
        if self._tombstones.confirm(op.group, op.epoch):
            self._turn.probes.hit("partitions_removed_total")
            self.parking.forget(op.group, op.epoch)
            self._reconciler.look_again(op.group)

    def _add(self, target: PartitionTarget) -> Local:
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

    def tear_down(self, group: int, created_revision: int) -> None:
        """Put a partition out of reach, here or only on the disk (RC-13); then its files go.

        They go once the journal will not bring it back. Its row goes at once, and with its group
        whatever could reach it: requests find nothing here and may come again (RC-15).
        """
        if not self._tombstones.may_bury(group, self.findings):
            return
        local = self.locals.pop(group, None)
        self._plane.remove_group(group)  # It takes what was put for it, and then nothing more.
        if local is not None:
            assert local.target.created_revision == created_revision, "what is here ends"
            self._table.remove(group)
            self._fence(group, local)
        sequence = self._plane.store.issued + 1
        self._tombstones.bury(group, created_revision, local, sequence=sequence)
        if local is not None:
            self.removed.append(group)
            self._turn.probes.hit("partitions.removed")
            self.flushes.forget(group)

    def _fence(self, group: int, local: Local) -> None:
        """Let nothing be done for a partition any more.

        What it holds of memory that all share goes back: a delete may fail for long.
        """
        self._awaited.pop(group)
        self._storing.forget(group)
        self._opening.forget(group)
        self.retention.forget(group)
        local.machine.close()

    def accounts_for(self, namespace: int, created_revision: int) -> bool:
        """Whether files of a partition are known here: served, to be deleted, or to be judged."""
        local = self.locals.get(namespace)
        return (
            (local is not None and local.target.created_revision == created_revision)
            or self._tombstones.holds(namespace, created_revision)
            or self._plane.is_dormant(namespace)
            or self._orphans.is_waiting_for(namespace, created_revision)
        )
