"""Keeps the partitions of a shard equal to the committed metadata, and their batches stored.

Level-triggered (RC-1): a pass compares what metadata says with what is here; nothing depends on
having heard of a change, and an op that found no place is proposed again. Only the shard calls it,
so there is one writer (RC-9).

Flow: apply, store.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.metadata.state import TopicKey
from headrace.metadata.target import (
    PartitionTarget,
    live_group_ids,
    partitions_of,
    topic_keys,
)
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
    SegmentRead,
)
from headrace.shard.config import GroupConfig
from headrace.shard.desk import Desk
from headrace.shard.owned.awaited import Awaited
from headrace.shard.owned.clearing import Clearing
from headrace.shard.owned.orphans import Orphans
from headrace.shard.owned.retain import Retention
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
        self.shared = PartitionsShared(
            settings.tail_bytes_max, settings.indexes_max, settings.replies_bytes_max
        )
        self.locals: dict[int, Local] = {}
        self._revision = -1
        self._of_topic: dict[TopicKey, dict[int, None]] = {}  # the partitions that are here
        # The partitions that the disk knew at the start, awake or gone meanwhile or not.
        self._known: dict[TopicKey, dict[int, None]] = {}
        for group, _ in desk.data_plane.dormant_groups():
            self._known.setdefault(_topic_of(group), {})[group] = None
        self._doubted: dict[TopicKey, None] = {}  # until all metadata is applied again (RC-16)
        self._awaited = Awaited()
        self._unstored: dict[int, Local] = {}
        self._store_due = 0
        self._flushes: dict[int, tuple[Local, int]] = {}
        # What is to be removed, and the sequence that must be synced before.
        self._removals: deque[tuple[int, RemovePartition]] = deque()
        self._pieces = _PieceReader(desk, self.shared)
        self._polled: list[tuple[int, int, Polled | RefusedError]] = []
        self._removed: list[int] = []
        self._fenced: dict[int, Local] = {}
        self.findings: list[Finding] = []
        self._unopened: dict[int, Local] = {}  # until the journal is applied again
        self._opening: dict[int, Local] = {}  # until their files are taken up, or judged
        self._short: dict[int, Local] = {}  # those of which a power cut may have taken something
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
        opening = self._opening
        while opening:
            group, local = next(iter(opening.items()))
            if local.fence is None and not local.machine.is_open:
                return False
            del opening[group]  # It stays as it is: nobody looks at it again.
        return self._orphans.is_settled

    @property
    def is_short(self) -> bool:
        """Whether the log of a partition does not say yet what a power cut may have taken."""
        while self._short:
            group, local = next(iter(self._short.items()))
            if local.fence is None and local.is_short:
                return True
            del self._short[group]
        return False

    @property
    def is_stuck(self) -> bool:
        """Whether a checkpoint waits for a segment that lacks space."""
        return self.shared.is_without_space

    def next_offset(self, group: int) -> int:
        """Give the next offset that a partition gives out."""
        return self.locals[group].machine.prepared_offset

    # Making the partitions equal to the metadata.

    def reconcile(self) -> None:
        """Compare what has changed, and do what is missing (RC-3)."""
        desk = self._desk
        is_changed = desk.metadata.state.revision != self._revision
        is_behind = (is_changed or bool(self._doubted)) and not desk.metadata.is_caught_up
        if not is_changed and (is_behind or not self._doubted):
            self._look_after_awaited()
            return
        topics = self._changed_topics()
        self._revision = desk.metadata.state.revision
        if not is_behind:
            topics |= self._doubted
            self._doubted = {}
        for key in topics:
            self._reconcile_topic(key, is_behind=is_behind)
        self._open_replayed()  # before anything is ordered in one that was just made

    def _changed_topics(self) -> dict[TopicKey, None]:
        """Return the topics that must be looked at; all, if it is not known which have changed."""
        changed = self._desk.metadata.state.topics_changed_since(self._revision)
        if changed is None:
            changed = [*topic_keys(self._desk.metadata.state), *self._of_topic, *self._known]
        return dict.fromkeys(changed)

    def _reconcile_topic(self, key: TopicKey, *, is_behind: bool) -> None:
        plane = self._desk.data_plane
        wanted = {each.group: each for each in partitions_of(self._desk.metadata.state, key)}
        for group in [group for group in self._of_topic.get(key, ()) if group not in wanted]:
            self._remove(group)
        for target in wanted.values():
            each = self._bounded(target)
            local = self.locals.get(each.group)
            if local is not None and local.target.created_revision != each.created_revision:
                self._remove(each.group)
                local = None
            if local is None:
                if is_behind and plane.dormant_origin(each.group) != each.created_revision:
                    self._doubted[key] = None  # It may be deleted, and another have its name.
                    self._desk.probes.hit("partitions.doubted")
                    continue
                local = self._add(each)
            local.target = each
            self.retention.consider(local)
            self._propose_missing(local)
        for group in self._known.get(key, ()):
            # What metadata has seen created and does not know any more was deleted; what it has
            # not seen yet may be to come: this replica may lag (RC-16).
            origin = plane.dormant_origin(group)
            if group not in wanted and origin is not None and origin <= self._revision:
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
        if not self._desk.data_plane.has_begun:
            return
        stirred, due = self._awaited.take(self._desk.clock.now)
        for group in stirred | due:
            local = self.locals[group]
            if not self._is_missing(local):
                operation = self._awaited.operation(group)
                self._awaited.pop(group)
                if operation == Operation.LOST_RANGE:
                    self._tell_lost(local)
                self._propose_missing(local)
            elif group in due:
                self._propose_missing(local)

    def _settle_tail(self, group: int) -> None:
        """Have a partition whose log says what went with the power forget that it must.

        Not before its files were judged by it.
        """
        local = self._unsettled.get(group)
        if local is not None and local.machine.is_open and not local.is_short:
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
        match self._awaited.operation(local.target.group):
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
            self._short[target.group] = local
        self.locals[target.group] = local
        self._of_topic.setdefault(_topic_of(target.group), {})[target.group] = None
        self._opening[target.group] = local
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
        key = _topic_of(group)
        del self._of_topic[key][group]
        if not self._of_topic[key]:
            del self._of_topic[key]
        self._awaited.pop(group)
        for each in (
            self._fenced,
            self._unstored,
            self._unopened,
            self._opening,
            self._short,
            self._unsettled,
        ):
            each.pop(group, None)
        self.retention.forget(group)
        local.machine.close()
        self._forget(group, local.target.created_revision)
        self._removed.append(group)
        self._desk.probes.hit("partitions.removed")
        self._check_flushed(group)  # No answer of the disk may come that would lead there.

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
        live = live_group_ids(self._desk.metadata.state, local.target.group)
        return tuple([each for each in stored if each not in live])

    def _propose(self, local: Local, operation: Operation, body: bytes) -> None:
        """Propose an op of the server, and look after it until it is applied."""
        desk = self._desk
        group = local.target.group
        if not desk.data_plane.has_begun:
            self._awaited.put(group, operation, desk.clock.now)
            return
        self._awaited.put(group, operation, desk.clock.now + _PROPOSE_AGAIN_TICKS)
        if local.replica.is_primary:
            desk.data_plane.propose(group, OwnOp(operation, body))

    @property
    def is_purged(self) -> bool:
        """Whether the partitions have applied all purges that metadata knows of."""
        return not self._awaited.is_purging

    # Storing.

    def after_turn(self) -> None:
        """Hand over to segments what has come together, and carry on what machines want."""
        desk = self._desk
        if self._unopened:
            self._open_replayed()
        self._look_at_touched()
        if self.shared.marked:
            self._look_at_marked()
        if self.shared.sealed:
            self._look_at_sealed()
        if self._unstored and desk.clock.now >= self._store_due:
            self._store_all()
        self._read_pieces()
        if self.shared.dropping:
            self._clearing.after_turn()
        if self.shared.busy:
            self._take_all_effects()
        if self._removals:
            self._remove_files()
        if not self._orphans.is_over:
            revision = -1 if self._doubted else self._revision
            self._orphans.after_turn(self.locals, revision=revision)

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

    def _look_at_touched(self) -> None:
        """Store what the partitions that did something hold, and see what came of their ops."""
        plane = self._desk.data_plane
        for group in plane.touched:
            local = self.locals.get(group)
            if local is None:
                continue
            self._awaited.stir(group)
            if self._unsettled:
                self._settle_tail(group)
            waiting = local.machine.waiting_bytes
            if waiting >= self._desk.settings.store_bytes:
                local.machine.store()
            elif waiting:
                self._unstored[group] = local
        plane.touched.clear()

    def _look_at_marked(self) -> None:
        """Have offsets removed that were stored for consumer groups which are gone (RC-17).

        Such an op may have been ordered before the group was deleted, and be applied after.
        """
        marked, self.shared.marked = self.shared.marked, {}
        for owner in marked:
            assert isinstance(owner, PartitionMachine)
            local = self.locals.get(owner.options.namespace)
            if local is not None and local.target.group not in self._awaited:
                self._propose_missing(local)

    def _look_at_sealed(self) -> None:
        """Have retention look at partitions with sealed segments."""
        sealed, self.shared.sealed = self.shared.sealed, {}
        for owner in sealed:
            assert isinstance(owner, PartitionMachine)
            local = self.locals.get(owner.options.namespace)
            if local is not None:
                self.retention.consider(local)

    def _store_all(self) -> None:
        self._store_due = self._desk.clock.now + self._desk.settings.store_ticks
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
            self._desk.out.append(self._removals.popleft()[1])

    def on_segment(self, event: SegmentEvent) -> None:
        """Take an answer of the folder of segments."""
        owner = self.shared.step(event)
        if self.shared.fenced:
            self._note_fences()
        if isinstance(owner, PartitionMachine):
            group = owner.options.namespace
            self._settle_tail(group)
            self._check_flushed(group)

    def _note_fences(self) -> None:
        """Tell of partitions that serve nothing any more (P7).

        What the segments of such a one lack stays in the journal: a restart writes them again.
        """
        fenced, self.shared.fenced = self.shared.fenced, {}
        for owner in fenced:
            assert isinstance(owner, PartitionMachine)
            local = self.locals[owner.options.namespace]
            assert local.fence is not None
            self._fenced[local.target.group] = local
            self.findings.append(Finding("fenced", local.name, 0, local.fence))

    # Checkpoints.

    def flush(self, groups: Sequence[int]) -> bool:
        """Have the segments of partitions synced as far as now; whether all given so far are.

        Nobody waits for a partition that is fenced: `lacking` names it.
        """
        for group in groups:
            local = self.locals.get(group)
            token = None if local is None or local.fence is not None else local.machine.flush()
            if local is not None and token is not None:
                self._flushes[group] = (local, token)
        return not self._flushes

    def lacking(self) -> list[int]:
        """Give the partitions whose segments never got all that was flushed (P7)."""
        found = [group for group, local in self._fenced.items() if local.machine.is_lacking]
        if found:
            self._desk.probes.hit("partitions.lacking_in_checkpoint")
        return found

    def _check_flushed(self, group: int) -> None:
        """Go on with a checkpoint, if this partition was the last that it waited for."""
        local, token = self._flushes.get(group, (None, 0))
        if local is None:
            return
        is_gone = self.locals.get(group) is not local
        if is_gone or local.fence is not None or local.machine.is_flushed(token):
            del self._flushes[group]
            if not self._flushes:
                self._desk.data_plane.on_flushed()

    def on_checkpointed(self) -> None:
        """Remove files that the checkpoint no longer names."""
        for owner in self.shared.end_checkpoint():
            assert isinstance(owner, PartitionMachine)
            owner.on_checkpointed()

    # Time.

    def tick(self) -> None:
        """Do what waits for time."""
        desk = self._desk
        self.shared.tick(desk.clock.now)
        self._clearing.tick()
        self.retention.tick()


def _topic_of(group: int) -> TopicKey:
    stream, topic, _ = unpack_namespace(GroupId(group))
    return stream, topic
