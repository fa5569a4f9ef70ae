"""Hands committed batches to the segments of their partitions, and takes what machines want done.

Flow: store.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.partitions.machine import PartitionMachine
from headrace.partitions.shared import PartitionsShared
from headrace.ports.segments import ReadSegment, SegmentEvent, SegmentRead
from headrace.shard.consensus.plane import Plane
from headrace.shard.effects import ShardEffect
from headrace.shard.owned.local import Local
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.vsr.events import PieceRead, ReadPiece
from headrace.vsr.replica import Replica

if TYPE_CHECKING:
    from headrace.partitions.gather import Polled
    from headrace.wire.errors import RefusedError


class Storing:
    """What partitions have in memory alone, what their machines want, and what polls have read."""

    def __init__(
        self,
        settings: ShardSettings,
        plane: Plane,
        shared: PartitionsShared,
        partitions: Mapping[int, Local],
        turn: Turn,
    ) -> None:
        self.store_bytes = settings.store_bytes  # so much is stored at once
        self._store_ticks = settings.store_ticks
        self._plane = plane
        self._shared = shared
        self._partitions = partitions
        self._clock = turn.clock
        self._out = turn.out
        self.unstored: dict[int, Local] = {}
        self.due = 0  # the tick at which they are stored
        self.pieces = _PieceReader(plane, shared, turn.out)
        # The polls that were read: partition, ticket, and what came of it.
        self.polled: list[tuple[int, int, Polled | RefusedError]] = []

    def forget(self, group: int) -> None:
        """Forget a partition that is gone."""
        self.unstored.pop(group, None)

    def look_at(self, local: Local, waiting_bytes: int) -> None:
        """Store what a partition holds, at once if it is much."""
        assert waiting_bytes > 0, "there is something to store"
        assert self._partitions[local.target.group] is local, "what is gone is not stored"
        if waiting_bytes >= self.store_bytes:
            local.machine.store()
        else:
            self.unstored[local.target.group] = local

    def store_due(self) -> None:
        """Store what has waited since `due`."""
        assert self._clock.now >= self.due
        self.due = self._clock.now + self._store_ticks
        unstored, self.unstored = self.unstored, {}
        for local in unstored.values():
            local.machine.store()

    def read_pieces(self) -> None:
        """Read what groups must send of their stored pieces."""
        for replica, effect in self._plane.piece_reads:
            local = self._partitions.get(replica.group)
            if local is not None and local.replica is replica:
                local.machine.store()  # A piece may end in memory.
                self._take_effects(local.machine)
                self.pieces.read(replica, effect)
        self._plane.piece_reads.clear()

    def take_all_effects(self) -> None:
        """Take what the machines want done, and the polls that they have finished."""
        for owner in list(self._shared.busy):
            assert isinstance(owner, PartitionMachine)
            self._take_effects(owner)
        assert not self._shared.busy, "whoever had effects is done"

    def check(self) -> None:
        """Assert that what waits in memory is stored in time, by partitions that are here."""
        for group, local in self.unstored.items():
            assert self._partitions.get(group) is local, "what is gone is not stored"
            assert local.target.group == group, "a partition is found by its number"
        assert self.due <= self._clock.now + self._store_ticks, "what waits is stored in time"
        for group, local in self._partitions.items():
            is_stored = group in self.unstored or not self._may_store(local)
            assert is_stored or not local.machine.writer.waiting_bytes, "what waits will be stored"
        self.pieces.check()

    def _may_store(self, local: Local) -> bool:
        """Whether a partition stores what it is given: its files are open, and nothing is going."""
        machine, shared = local.machine, self._shared
        is_able = machine.is_open and machine.fence is None and machine not in shared.without_space
        return is_able and not shared.awaited(machine)

    def _take_effects(self, machine: PartitionMachine) -> None:
        self._out += machine.take_effects()
        for ticket, result in machine.take_polled():
            self.polled.append((machine.options.namespace, ticket, result))


class _PieceReader:
    """Reads parts of stored pieces for state transfers."""

    def __init__(self, plane: Plane, shared: PartitionsShared, out: list[ShardEffect]) -> None:
        self._plane = plane
        self._shared = shared
        self._out = out
        self._reads: dict[int, tuple[Replica, int]] = {}

    def read(self, replica: Replica, effect: ReadPiece) -> None:
        """Ask for a part of a piece."""
        token = self._shared.new_token(self)
        assert token not in self._reads, "a token is given once"
        self._reads[token] = (replica, effect.token)
        end = effect.offset + effect.length
        assert end <= effect.piece.length, "a read stays within its piece"
        position = effect.piece.position + effect.offset
        self._out.append(ReadSegment(token, effect.piece.file, position, effect.length))

    def step(self, event: SegmentEvent) -> None:
        """Pass on what was read."""
        assert isinstance(event, SegmentRead)
        replica, token = self._reads.pop(event.token)
        self._plane.put_piece(replica, PieceRead(token, event.data))

    def retry(self) -> None:
        """Never needed: a read takes no space."""

    def check(self) -> None:
        """Assert that every read of a piece is answered by the disk."""
        awaited = self._shared.awaited(self)
        assert self._reads.keys() == awaited, "a piece that is read has a token, and no other"
        groups, plane = self._plane.groups, self._plane
        coming = [(replica, effect.token) for replica, effect in plane.piece_reads]
        read = [
            (replica.group, token)
            for replica, token in (*self._reads.values(), *coming)
            if groups.get(replica.group) is replica
        ]
        sending = [(group, token) for group in groups for token in groups[group].state.sending]
        is_over = plane.inbox.has_ended
        assert is_over or sorted(read) == sorted(sending), "what a transfer sends is read, once"
