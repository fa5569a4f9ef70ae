"""Keeps the partitions of a shard equal to the committed metadata, and their batches stored.

Level-triggered (RC-1): a pass compares what metadata says with what is here; nothing depends on
having heard of a change, and an op that found no place is proposed again. Only the shard calls it,
so there is one writer (RC-9).

Flow: apply, store.
"""

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.target import PartitionTarget
from headrace.partitions.dedup import DedupTable
from headrace.partitions.gather import Polled
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.options import PartitionOptions
from headrace.partitions.shared import PartitionsShared
from headrace.ports.recovered import Finding
from headrace.ports.segments import (
    ReadSegment,
    RemovePartition,
    SegmentEvent,
    SegmentFailed,
    SegmentRead,
    SegmentsOpened,
)
from headrace.shard.clearing import Clearing
from headrace.shard.config import GroupConfig
from headrace.shard.desk import Desk
from headrace.shard.orphans import Orphans
from headrace.shard.retention import Retention
from headrace.vsr.events import OwnOp, PieceRead, ReadPiece
from headrace.vsr.replica import Replica
from headrace.wire.codec import encode
from headrace.wire.commands.internal import (
    FORGET_GROUP_OFFSETS,
    LOST_RANGE,
    PURGE_PARTITION,
    ForgetGroupOffsets,
    LostRange,
    PurgePartition,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import Operation

_PROPOSE_AGAIN_TICKS = 100


class Local:
    """One partition that is here."""

    __slots__ = ("lost_until", "machine", "replica", "target")

    def __init__(
        self, target: PartitionTarget, replica: Replica, machine: PartitionMachine
    ) -> None:
        self.target = target
        self.replica = replica
        self.machine = machine
        self.lost_until = 0  # offsets below this may have been given out and lost (FM-7)

    @property
    def name(self) -> str:
        """What people call it."""
        stream, topic, partition = unpack_namespace(self.target.group)
        return f"stream {stream} topic {topic} partition {partition}"

    @property
    def fence(self) -> str | None:
        """Why nothing is served from it, if so."""
        return self.machine.fence

    @property
    def is_short(self) -> bool:
        """Whether offsets that were given out before a power cut could be given again."""
        return self.lost_until > self.machine.next_offset


class _PieceReader:
    """Reads parts of stored pieces for state transfers."""

    def __init__(self, desk: Desk, shared: PartitionsShared) -> None:
        self._desk = desk
        self._shared = shared
        self._reads: dict[int, tuple[Replica, int]] = {}

    def read(self, replica: Replica, effect: ReadPiece) -> None:
        """Ask for a part of a piece."""
        token = self._shared.new_token(self)
        self._reads[token] = (replica, effect.token)
        position = effect.piece.position + effect.offset
        self._desk.out.append(ReadSegment(token, effect.piece.file, position, effect.length))

    def step(self, event: SegmentEvent) -> None:
        """Pass on what was read."""
        assert isinstance(event, SegmentRead)
        replica, token = self._reads.pop(event.token)
        self._desk.data_plane.put_piece(replica, PieceRead(token, event.data))

    def retry(self) -> None:
        """Never needed: a read takes no space."""


class Keeper:
    """All partitions of a shard."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        settings = desk.settings
        self.shared = PartitionsShared(settings.tail_bytes_max)
        self.locals: dict[int, Local] = {}
        self._revision = -1
        self._awaited: dict[int, tuple[Operation, int]] = {}  # by partition: what, and until when
        self._unstored: dict[int, Local] = {}
        self._store_due = 0
        self._flushes: dict[int, tuple[Local, int]] = {}
        self._captured: list[Local] = []
        self._removals: list[tuple[int, RemovePartition]] = []  # when their sequence is synced
        self._pieces = _PieceReader(desk, self.shared)
        self._polled: list[tuple[int, int, Polled | RefusedError]] = []
        self._removed: list[int] = []
        self._fenced: dict[int, None] = {}
        self.findings: list[Finding] = []
        self._unopened: dict[int, Local] = {}  # until the journal is applied again
        self._unsettled: dict[int, Local] = {}  # until the log says what went with the power
        self._orphans = Orphans(desk, self.shared)
        self._clearing = Clearing(desk, self.shared)
        self.retention = Retention(desk, self.locals)

    def find(self, namespace: GroupId) -> Local:
        """Give a partition that metadata knows.

        Raises:
            RefusedError: It is not here yet.
        """
        local = self.locals.get(namespace)
        if local is None:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, partition=namespace)
        return local

    @property
    def is_open(self) -> bool:
        """Whether all partitions are taken up, or known to be damaged; none has foreign files."""
        return self._orphans.is_settled and all(
            local.fence is not None or local.machine.is_open for local in self.locals.values()
        )

    @property
    def is_short(self) -> bool:
        """Whether the log of a partition does not say yet what a power cut may have taken."""
        return any(local.fence is None and local.is_short for local in self.locals.values())

    @property
    def is_stuck(self) -> bool:
        """Whether a checkpoint waits for a segment that lacks space."""
        return self.shared.is_without_space

    def next_offset(self, group: int) -> int:
        """Give the next offset that a partition gives out."""
        return self.locals[group].machine.prepared_offset

    # Making the partitions equal to the metadata.

    def reconcile(self) -> None:
        """Compare, and do what is missing (RC-3)."""
        desk = self._desk
        if desk.state.revision == self._revision:
            if self._awaited:
                self._look_after_awaited()
            return
        target = desk.metadata.target()
        self._revision = target.revision
        partitions = [self._bounded(each) for each in target.partitions]
        wanted = {each.group: each for each in partitions}
        is_behind = not desk.is_caught_up
        dormant = dict(desk.data_plane.dormant_groups()) if is_behind else {}
        for group in [group for group in self.locals if group not in wanted]:
            self._remove(group)
        for each in partitions:
            local = self.locals.get(each.group)
            if local is not None and local.target.created_revision != each.created_revision:
                self._remove(each.group)
                local = None
            if local is None:
                if is_behind and dormant.get(each.group) != each.created_revision:
                    self._revision = -1  # It may have been deleted, and another have its name.
                    desk.probes.hit("partitions.doubted")
                    continue
                local = self._add(each)
            local.target = each
            self._propose_missing(local)
        self._open_replayed()  # before anything is ordered in one that was just made
        for group, origin in desk.data_plane.dormant_groups():
            # What metadata has seen created and does not know any more was deleted; what it has
            # not seen yet may be to come: this replica may lag (RC-16).
            if group not in wanted and origin is not None and origin <= target.revision:
                self._forget(group, origin)

    def _bounded(self, target: PartitionTarget) -> PartitionTarget:
        """Give a partition as it must be within the bounds of this server."""
        settings = self._desk.settings
        segment_bytes = min(target.segment_bytes, settings.segment_bytes_max)
        bytes_max = min(target.bytes_max, settings.retained_bytes_max)
        if (segment_bytes, bytes_max) == (target.segment_bytes, target.bytes_max):
            return target
        return msgspec.structs.replace(target, segment_bytes=segment_bytes, bytes_max=bytes_max)

    def _look_after_awaited(self) -> None:
        """See whether what was proposed is applied; what is not is proposed again."""
        for group, (operation, due) in list(self._awaited.items()):
            local = self.locals.get(group)
            if local is None or not self._is_missing(local):
                del self._awaited[group]
                if local is not None:
                    if operation == Operation.LOST_RANGE:
                        self._tell_lost(local)
                    self._propose_missing(local)
            elif self._desk.now >= due:
                self._propose_missing(local)

    def _settle_tails(self) -> None:
        """Have partitions whose logs say what went with the power forget that they must.

        Not before their files were judged by it.
        """
        for group, local in list(self._unsettled.items()):
            if local.machine.is_open and not local.is_short:
                del self._unsettled[group]
                self._desk.data_plane.settle_tail(group)

    def _tell_lost(self, local: Local) -> None:
        """Tell which offsets a power cut may have taken, unless they are purged by now (D12)."""
        for first, end in local.machine.lost_ranges:
            if end == local.lost_until:
                text = (
                    f"offsets {first} to {end - 1} may have been given out and lost with the power"
                )
                self.findings.append(Finding("lost", local.name, 0, text))

    def _is_missing(self, local: Local) -> bool:
        machine = local.machine
        match self._awaited[local.target.group][0]:
            case Operation.PURGE_PARTITION:
                return machine.purge_generation < local.target.purge_generation
            case Operation.LOST_RANGE:
                return local.is_short
            case _:
                return bool(self._dead_groups(local))

    def _add(self, target: PartitionTarget) -> Local:
        desk = self._desk
        options = PartitionOptions(
            namespace=target.group,
            created_revision=target.created_revision,
            segment_bytes=target.segment_bytes,
            piece_bytes=desk.settings.piece_bytes,
            index_step_bytes=desk.settings.index_step_bytes,
            offsets_ahead=desk.settings.offsets_ahead,
        )
        machine = PartitionMachine(options, self.shared, desk.probes)
        config = GroupConfig(
            target.group,
            is_persisted=target.is_persisted,
            is_offset_persisted=target.is_offset_persisted,
            origin=target.created_revision,
        )
        plane = desk.data_plane
        ceiling = plane.ceiling_of(target.group)
        watched = desk.watch(target, machine)
        past = plane.add_group(config, watched, DedupTable(target.group, desk.probes))
        local = Local(target, plane.groups[target.group], machine)
        is_tail_lost = past is not None and past.state.is_tail_lost
        if is_tail_lost:
            local.lost_until = ceiling
        self.locals[target.group] = local
        if desk.settings.data.replica_count > 1:
            machine.open()  # What its own journal lacks, the others have.
        else:
            self._unopened[target.group] = local
            if is_tail_lost:
                self._unsettled[target.group] = local
        desk.probes.hit("partitions.materialised")
        return local

    def _remove(self, group: int) -> None:
        """Forget a partition; its files go once the journal will not bring it back."""
        local = self.locals.pop(group)
        self._awaited.pop(group, None)
        self._fenced.pop(group, None)
        self._unstored.pop(group, None)
        self._unopened.pop(group, None)
        self._unsettled.pop(group, None)
        self.retention.forget(group)
        local.machine.close()
        self._forget(group, local.target.created_revision)
        self._removed.append(group)
        self._desk.probes.hit("partitions.removed")
        if group in self._flushes:
            self._check_flushed()  # No answer of the disk may come any more that would lead there.

    def _forget(self, group: int, created_revision: int) -> None:
        plane = self._desk.data_plane
        plane.remove_group(group)
        removal = RemovePartition(group, created_revision)
        self._removals.append((plane.store.issued + 1, removal))

    def _propose_missing(self, local: Local) -> None:
        """Propose what the partition's own log must still say of what metadata decided."""
        if local.machine.purge_generation < local.target.purge_generation:
            body = encode(PURGE_PARTITION, PurgePartition(local.target.purge_generation))
            self._propose(local, Operation.PURGE_PARTITION, body)
        elif local.is_short:
            body = encode(LOST_RANGE, LostRange(local.machine.prepared_offset, local.lost_until))
            self._propose(local, Operation.LOST_RANGE, body)
        elif dead := self._dead_groups(local):
            body = encode(FORGET_GROUP_OFFSETS, ForgetGroupOffsets(dead))
            self._propose(local, Operation.FORGET_GROUP_OFFSETS, body)

    def _dead_groups(self, local: Local) -> tuple[int, ...]:
        """Give the consumer groups that have an offset here and are gone (RC-17)."""
        stored = local.machine.stored_group_ids()
        if not stored:
            return ()
        live = self._desk.metadata.live_group_ids(local.target.group)
        return tuple([each for each in stored if each not in live])

    def _propose(self, local: Local, operation: Operation, body: bytes) -> None:
        """Propose an op of the server, and look after it until it is applied."""
        desk = self._desk
        group = local.target.group
        if not desk.data_plane.has_begun:
            self._awaited[group] = (operation, desk.now)
            return
        self._awaited[group] = (operation, desk.now + _PROPOSE_AGAIN_TICKS)
        if local.replica.is_primary:
            desk.data_plane.propose(group, OwnOp(operation, body))

    @property
    def is_purged(self) -> bool:
        """Whether the partitions have applied all purges that metadata knows of."""
        return not any(
            operation == Operation.PURGE_PARTITION for operation, _ in self._awaited.values()
        )

    # Storing.

    def after_turn(self) -> None:
        """Hand over to segments what has come together, and carry on what machines want."""
        desk = self._desk
        if self._unopened:
            self._open_replayed()
        if self._unsettled:
            self._settle_tails()
        self._store_touched()
        if self._unstored and desk.now >= self._store_due:
            self._store_all()
        self._read_pieces()
        if self.shared.dropping:
            self._clearing.after_turn()
        if self.shared.busy:
            self._take_all_effects()
        if self._removals:
            self._remove_files()
        if not self._orphans.is_over:
            self._orphans.after_turn(self.locals, revision=self._revision)

    def _read_pieces(self) -> None:
        plane = self._desk.data_plane
        for replica, effect in plane.piece_reads:
            local = self.locals.get(replica.group)
            if local is not None and local.replica is replica:
                local.machine.store()  # A piece may end in memory.
                self._take_effects(local.machine)
                self._pieces.read(replica, effect)
        plane.piece_reads.clear()

    def _open_replayed(self) -> None:
        """Take up the files of partitions whose log is whole: nobody else has more of it."""
        if not self._desk.data_plane.has_begun:
            return
        for local in self._unopened.values():
            assert local.replica.commit_min == local.replica.op
            local.machine.open(is_whole=True, lost_until=local.lost_until)
        self._unopened.clear()

    def _store_touched(self) -> None:
        plane = self._desk.data_plane
        for group in plane.touched:
            local = self.locals.get(group)
            if local is None:
                continue
            waiting = local.machine.waiting_bytes
            if waiting >= self._desk.settings.store_bytes:
                local.machine.store()
            elif waiting:
                self._unstored[group] = local
        plane.touched.clear()

    def _store_all(self) -> None:
        self._store_due = self._desk.now + self._desk.settings.store_ticks
        unstored, self._unstored = self._unstored, {}
        for local in unstored.values():
            local.machine.store()

    def _take_all_effects(self) -> None:
        for owner in list(self.shared.busy):
            assert isinstance(owner, PartitionMachine)
            self._take_effects(owner)

    def _take_effects(self, machine: PartitionMachine) -> None:
        self._desk.out += machine.take_effects()
        for ticket, result in machine.take_polled():
            self._polled.append((machine.options.namespace, ticket, result))

    def take_removed(self) -> list[int]:
        """Give the partitions that were removed since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def take_polled(self) -> list[tuple[int, int, Polled | RefusedError]]:
        """Give the polls that were read: partition, ticket, and what came of it."""
        polled, self._polled = self._polled, []
        return polled

    def _remove_files(self) -> None:
        synced = self._desk.data_plane.store.synced
        while self._removals and self._removals[0][0] <= synced:
            self._desk.out.append(self._removals.pop(0)[1])

    def on_segment(self, event: SegmentEvent) -> None:
        """Take an answer of the folder of segments."""
        self.shared.step(event)
        if isinstance(event, (SegmentFailed, SegmentsOpened)):
            self._note_fences()
        if self._flushes:
            self._check_flushed()

    def _note_fences(self) -> None:
        """Tell of partitions that serve nothing any more (P7).

        What the segments of such a one lack stays in the journal: a restart writes them again.
        """
        for group, local in self.locals.items():
            if local.fence is not None and group not in self._fenced:
                self._fenced[group] = None
                self.findings.append(Finding("fenced", local.name, 0, local.fence))

    # Checkpoints.

    def flush(self) -> bool:
        """Have all segments synced as far as now; whether they are already.

        Nobody waits for a partition that is fenced: `lacking` names it.
        """
        self._captured = list(self.locals.values())
        self._flushes = {}
        for local in self._captured:
            token = None if local.fence is not None else local.machine.flush()
            if token is not None:
                self._flushes[local.target.group] = (local, token)
        return not self._flushes

    def lacking(self) -> list[int]:
        """Give the partitions whose segments never got all that was flushed (P7)."""
        found: list[int] = [
            local.target.group for local in self._captured if local.machine.is_lacking
        ]
        if found:
            self._desk.probes.hit("partitions.lacking_in_checkpoint")
        return found

    def _check_flushed(self) -> None:
        done = [
            group
            for group, (local, token) in self._flushes.items()
            if local.machine.is_flushed(token)
            or local.fence is not None
            or self.locals.get(group) is not local
        ]
        for group in done:
            del self._flushes[group]
        if done and not self._flushes:
            self._desk.data_plane.on_flushed()

    def on_checkpointed(self) -> None:
        """Remove files that the checkpoint no longer names."""
        for local in self._captured:
            local.machine.on_checkpointed()
        self._captured = []

    # Time.

    def tick(self) -> None:
        """Do what waits for time."""
        desk = self._desk
        self.shared.tick(desk.now)
        self._clearing.tick()
        self.retention.tick()
