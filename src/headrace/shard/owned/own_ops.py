"""Proposes what the log of a partition must still say of what metadata decided (RC-17).

An op that found no place is proposed again. At most one is on its way for each partition: a purge
comes first, then the range that a power cut took, then the offsets of deleted consumer groups.

Flow: replicate, apply.
"""

from collections.abc import Container, Mapping

from headrace.metadata.target import live_group_ids
from headrace.partitions.shared import Owner
from headrace.ports.recovered import Finding
from headrace.shard.consensus.clock import Clock
from headrace.shard.consensus.plane import Plane
from headrace.shard.metadata import Metadata
from headrace.shard.owned.awaited import Awaited
from headrace.shard.owned.local import Local
from headrace.shard.turn import Wake
from headrace.vsr.events import OwnOp
from headrace.wire.codec import encode
from headrace.wire.commands.internal import (
    FORGET_GROUP_OFFSETS,
    LOST_RANGE,
    PURGE_PARTITION,
    ForgetGroupOffsets,
    LostRange,
    PurgePartition,
)
from headrace.wire.numbers import Operation

_PROPOSE_AGAIN_TICKS = 100


class OwnOps:
    """The ops of the server itself for all partitions of a shard; `findings` are for the log."""

    def __init__(
        self,
        metadata: Metadata,
        plane: Plane,
        clock: Clock,
        partitions: Mapping[int, Local],
        findings: list[Finding],
        wake: Wake,
    ) -> None:
        """Make it; `wake` has `look_after` called at the end of the turn."""
        self._metadata = metadata
        self._plane = plane
        self._clock = clock
        self._partitions = partitions
        self._findings = findings
        self._wake = wake
        self.awaited = Awaited()

    def propose(self, local: Local) -> None:
        """Propose what the log of a partition lacks, if anything."""
        if local.machine.purge_generation < local.target.purge_generation:
            body = encode(PURGE_PARTITION, PurgePartition(local.target.purge_generation))
            self._propose(local, Operation.PURGE_PARTITION, body)
        elif local.is_short:
            body = encode(LOST_RANGE, LostRange(local.machine.prepared_offset, local.lost_until))
            self._propose(local, Operation.LOST_RANGE, body)
        elif dead := self._dead_groups(local):
            body = encode(FORGET_GROUP_OFFSETS, ForgetGroupOffsets(dead))
            self._propose(local, Operation.FORGET_GROUP_OFFSETS, body)

    def _propose(self, local: Local, operation: Operation, body: bytes) -> None:
        """Propose an op of the server, and look after it until it is applied."""
        group, now = local.target.group, self._clock.now
        assert self._partitions[group] is local, "an op is proposed to a partition that is here"
        if not self._plane.has_begun:
            self.awaited.put(group, operation, now)
            self._wake.is_awake = True
            return
        self.awaited.put(group, operation, now + _PROPOSE_AGAIN_TICKS)
        if local.replica.is_primary:
            self._plane.propose(group, OwnOp(operation, body))

    def look_after(self) -> None:
        """Propose again what is not applied in time, and what comes after what is applied."""
        if not self._plane.has_begun:
            self._wake.is_awake = bool(self.awaited.ops)
            return
        self._wake.is_awake = False
        stirred, due = self.awaited.take(self._clock.now)
        for group in stirred | due:
            local = self._partitions[group]
            assert group in self.awaited.ops, "only what is awaited is looked after"
            if not self._is_missing(local):
                operation = self.awaited.operation(group)
                self.awaited.pop(group)
                if operation == Operation.LOST_RANGE:
                    self._report_lost(local)
                self.propose(local)
            elif group in due:
                self.propose(local)

    def stir(self, group: int) -> None:
        """Note that a partition did something: it may have applied its op."""
        if group in self.awaited.ops:
            self.awaited.stir(group)
            self._wake.is_awake = True

    def tick(self) -> None:
        """Have `look_after` called when an op is due."""
        due = self.awaited.due
        if due is not None and due <= self._clock.now:
            self._wake.is_awake = True

    def check(self, marked: Container[Owner], *, is_compared: bool) -> None:
        """Assert that awaited ops are what logs of partitions lack, and `check_awake`.

        Those in `marked` will be looked at, and all of them unless `is_compared`: a pass of the
        reconciler has then seen what metadata says.
        """
        self.check_awake()
        self.awaited.check()
        assert self.awaited.ops.keys() <= self._partitions.keys(), "who is gone applies nothing"
        for _, due in self.awaited.ops.values():
            assert due <= self._clock.now + _PROPOSE_AGAIN_TICKS, "an op is proposed again in time"
        lost = [
            group for group, (what, _) in self.awaited.ops.items() if what == Operation.LOST_RANGE
        ]
        assert all(self._partitions[group].lost_until > 0 for group in lost), (
            "only what is lost is said"
        )
        self._check_proposed(marked, is_compared=is_compared)

    def _check_proposed(self, marked: Container[Owner], *, is_compared: bool) -> None:
        """Assert that what the log of a partition lacks is proposed until it is there."""
        ops, is_alone = self.awaited.ops, self._plane.config.replica_count == 1
        for group, local in self._partitions.items():
            purged, wanted = local.machine.purge_generation, local.target.purge_generation
            operation = ops[group][0] if group in ops else None
            assert wanted <= purged or operation == Operation.PURGE_PARTITION, "a purge comes first"
            assert purged <= wanted or not is_alone, "only what metadata decided is purged"
            assert wanted or operation != Operation.PURGE_PARTITION, "a purge was decided before"
            assert not local.is_short or group in ops, "a range that is lost will be named"
            is_noted = group in ops or local.machine in marked or not is_compared
            assert is_noted or not self._dead_groups(local), (
                "offsets of dead groups will be removed"
            )

    def check_awake(self) -> None:
        """Assert that an op which may be applied, or is due, is looked after in the next turn."""
        due = self.awaited.due
        is_due = due is not None and due <= self._clock.now
        if self.awaited.is_stirred or is_due:
            assert self._wake.is_awake, "an op that is due is looked after"

    def _is_missing(self, local: Local) -> bool:
        machine = local.machine
        match self.awaited.operation(local.target.group):
            case Operation.PURGE_PARTITION:
                return machine.purge_generation < local.target.purge_generation
            case Operation.LOST_RANGE:
                return local.is_short
            case _:
                return bool(self._dead_groups(local))

    def _dead_groups(self, local: Local) -> tuple[int, ...]:
        """Return the consumer groups that have an offset here and are gone (RC-17)."""
        stored = local.machine.stored_group_ids()
        if not stored:
            return ()
        live = live_group_ids(self._metadata.state, local.target.group)
        return tuple([each for each in stored if each not in live])

    def _report_lost(self, local: Local) -> None:
        """Report the offsets that a power cut may have taken, unless they are purged (D12)."""
        for first, end in local.machine.lost_ranges:
            assert first < end, "a lost range has an offset"
            if end == local.lost_until:
                text = (
                    f"offsets {first} to {end - 1} may have been given out and lost with the power"
                )
                self._findings.append(Finding("lost", local.name, 0, text))
