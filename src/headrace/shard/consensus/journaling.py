"""Journals what the groups of a plane decide, and tells them when it is durable.

What a turn journals is one record. A group waits until its part of it is written, synced, or named
by the superblock, as its class and the kind of the op ask for.

Flow: replicate.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from headrace.ports.disk import BlockWritten, Synced, Written
from headrace.ports.network import Buffer
from headrace.shard.config import GroupConfig
from headrace.shard.consensus.ceilings import Ceilings
from headrace.storage.store import Store
from headrace.vsr.events import (
    GroupEvent,
    JournalPrepare,
    JournalTruncate,
    PersistView,
    PrepareDurable,
    ViewDurable,
)
from headrace.vsr.replica import Replica
from headrace.wire.batches import BATCH_SPAN
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PREPARE

# What groups wait for, in journal order: the record that must get so far, and what is told then.
_Waiting: TypeAlias = deque[tuple[int, Replica, GroupEvent]]

_OPERATION_AT = PREPARE.at("operation")
_SEND = int(Operation.SEND_MESSAGES)
_OFFSET_OPERATIONS = (
    Operation.STORE_CONSUMER_OFFSET,
    Operation.DELETE_CONSUMER_OFFSET,
    Operation.AUTO_COMMIT_OFFSET,
)


class Journaling:
    """The record of this turn, and who waits for records.

    `has_offsets` says that groups give out offsets: a single replica must keep a durable ceiling
    above them. `hand_back` takes what a group waited for.
    """

    def __init__(
        self,
        store: Store,
        configs: Mapping[int, GroupConfig],
        ceilings: Ceilings,
        hand_back: Callable[[Replica, GroupEvent], None],
        *,
        has_offsets: bool,
        is_alone: bool,
    ) -> None:
        self._store = store
        self._configs = configs
        self._ceilings = ceilings
        self._has_offsets = has_offsets
        self._hand_back = hand_back
        self._is_alone = is_alone
        # What the turn journals, and who waits for its durability, in journal order. Not by number:
        # a group that is made anew under the same one has asked for nothing of its namesake's.
        self._staged: list[tuple[_Waiting, Replica, GroupEvent]] = []
        self.has_staged = False
        self._wants_sync = False
        self._is_write_awaited = False  # whether somebody waits for less than a sync
        self._until_written: _Waiting = deque()
        self._until_synced: _Waiting = deque()
        self._until_named: _Waiting = deque()  # synced, and the superblock says so (O2.9)

    # What groups decide.

    def prepare(self, replica: Replica, effect: JournalPrepare) -> None:
        """Stage an op; the group is told when it is as durable as its class asks for."""
        self._store.stage_prepare(effect.header, effect.body, is_never_held=effect.is_never_held)
        self.has_staged = True
        is_synced = effect.body is None or self._waits_for_sync(replica, effect.header, effect.body)
        self._wants_sync |= is_synced
        if effect.body is not None:
            self._is_write_awaited |= not is_synced
            event = PrepareDurable(effect.op, effect.checksum)
            queue = self._until_synced if is_synced else self._until_written
            self._staged.append((queue, replica, event))

    def _waits_for_sync(self, replica: Replica, header: bytes, body: Buffer) -> bool:
        """Whether an op is acknowledged only when it survives a power cut."""
        config = self._configs[replica.group]
        operation = header[_OPERATION_AT]
        if operation != _SEND:
            return operation not in _OFFSET_OPERATIONS or config.is_offset_persisted
        if config.is_persisted:
            return True
        if not self._has_offsets or not self._is_alone:
            return False
        group, free = replica.group, self._ceilings.free
        base_offset, count = BATCH_SPAN.unpack_from(body)
        given = base_offset + count  # the next offset that the partition gives out
        if group in free and given <= free[group]:
            return False
        return self._is_above_ceiling(group, given)

    def _is_above_ceiling(self, group: int, given: int) -> bool:
        """Raise the ceiling in time; whether an op must wait until it is durable (FM-7)."""
        ceiling = self._ceilings.raise_over(group, given)
        assert ceiling is None or ceiling > given, "a ceiling is above what is given out"
        if ceiling is not None:
            self._store.stage_ceiling(group, ceiling)
            self._wants_sync = True
        return given > self._ceilings.durable(group)

    def truncate(self, replica: Replica, effect: JournalTruncate) -> None:
        """Stage that the ops of a group end here."""
        self._store.stage_truncate(replica.group, effect.from_op)
        self.has_staged = self._wants_sync = True

    def persist_view(self, replica: Replica, effect: PersistView) -> None:
        """Stage a view; the group is told when no restart can take it back."""
        assert effect.state.group == replica.group, "a view is that of its group"
        assert effect.state.log_view <= effect.state.view, "a log is of its view or an older one"
        self._store.stage_view(effect.state)
        self.has_staged = self._wants_sync = True
        event = ViewDurable(effect.state.view, effect.state.log_view)
        is_promise = not self._is_alone
        queue = self._until_named if is_promise else self._until_synced
        self._staged.append((queue, replica, event))

    def end_group(self, group: int) -> None:
        """Stage that a group is gone."""
        assert group not in self._configs, "a group that is here does not end"
        self._store.stage_gone(group)
        self.has_staged = True

    # The record.

    def flush(self) -> None:
        """Write what was staged as one record."""
        assert self.has_staged
        is_lone = (
            self._wants_sync
            and not self._is_write_awaited
            and not self._until_synced
            and len(self._staged) == 1
        )
        assert not is_lone or self._staged[0][0] is not self._until_written, "it waits for the sync"
        sequence = self._store.flush(
            sync=self._wants_sync, is_awaited=self._is_write_awaited, is_lone=is_lone
        )
        assert not self._until_written or self._until_written[-1][0] < sequence, "records follow"
        assert not self._until_synced or self._until_synced[-1][0] < sequence, "records follow"
        assert not self._until_named or self._until_named[-1][0] < sequence, "records follow"
        for queue, replica, event in self._staged:
            queue.append((sequence, replica, event))
        self._staged = []
        if self._ceilings.staged:
            self._ceilings.on_flushed(sequence)
        self.has_staged = self._wants_sync = self._is_write_awaited = False

    def on_written(self, event: Written) -> None:
        """Take that a record is written."""
        self._store.on_written(event.sequence)
        self._notify(self._until_written, event.sequence)

    def on_synced(self, event: Synced) -> None:
        """Take that records are synced."""
        self._store.step(event)
        self._ceilings.on_synced(event.sequence)
        self._notify(self._until_synced, event.sequence)
        self._name_views()

    def on_block_written(self, event: BlockWritten) -> None:
        """Take that a copy of the superblock is written."""
        self._store.step(event)
        self._name_views()

    def _name_views(self) -> None:
        """Have the superblock name the views that are synced: one write for all groups (O2.9)."""
        self._notify(self._until_named, self._store.named)
        if self._until_named and self._until_named[0][0] <= self._store.synced:
            self._store.name_synced()

    def _notify(self, queue: _Waiting, sequence: int) -> None:
        while queue and queue[0][0] <= sequence:
            _, replica, event = queue.popleft()
            self._hand_back(replica, event)

    def check(self) -> None:
        """Assert that whoever waits for a record is told as soon as it has got so far."""
        store = self._store
        assert store.named <= store.synced <= store.issued, "what is named is synced"
        assert store.written <= store.issued, "only what was issued is written"
        wants = (self._staged, self._wants_sync, self._is_write_awaited)
        assert self.has_staged or not any(wants), "who waits for a record has staged some of it"
        waiting = (
            (self._until_written, store.written),
            (self._until_synced, store.synced),
            (self._until_named, store.named),
        )
        for queue, reached in waiting:
            sequences = [sequence for sequence, _, _ in queue]
            assert sequences == sorted(sequences), "records come to be durable in their order"
            assert not sequences or reached < sequences[0], "who waits is told at once"
            assert not sequences or sequences[-1] <= store.issued, "nobody waits for no record"
        self._check_waiting()
        self._ceilings.check(store.issued, store.ceilings)

    def check_groups(self, groups: Mapping[int, Replica]) -> None:
        """Assert that groups are told of what they wait for: ops, and the view that they are in.

        Not once the plane has ended: what a group waited for is thrown away then.
        """
        queues = (self._until_written, self._until_synced, self._until_named)
        coming: dict[int, list[GroupEvent]] = {}
        for replica, event in [each[1:] for queue in queues for each in queue]:
            if groups.get(replica.group) is replica:
                coming.setdefault(replica.group, []).append(event)
        for group, replica in groups.items():
            state, told = replica.state, coming.get(group, [])
            entered = (state.view, state.log_view)
            is_coming = ViewDurable(*entered) in told
            assert is_coming or state.durable_view == entered, "a view that is entered is journaled"
            for entry in state.log.entries.values():
                if entry.body is not None and not entry.is_durable:
                    event = PrepareDurable(entry.header.op, entry.header.checksum)
                    assert event in told, "an op that is not durable yet is journaled"

    def _check_waiting(self) -> None:
        """Assert that a group waits for what it did, and as long as that must be waited for."""
        is_awaited = any(queue is self._until_written for queue, _, _ in self._staged)
        assert self._is_write_awaited == is_awaited, "a write is awaited by who needs no sync"
        is_synced = any(queue is not self._until_written for queue, _, _ in self._staged)
        assert self._wants_sync or not is_synced, "who waits for a sync gets one"
        assert not (self._is_alone and self._until_named), "a single replica promises nothing"
        early = [event for _, _, event in self._until_written]
        assert all(isinstance(event, PrepareDurable) for event in early), "a view waits for a sync"
        for _, replica, event in (*self._until_synced, *self._until_named):
            if isinstance(event, ViewDurable):
                assert event.view <= replica.view, "only a view that was entered becomes durable"
