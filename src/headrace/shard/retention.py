"""Proposes to drop segments that are too old or too many (PT-28).

Flow: apply.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.shard.desk import Desk
from headrace.vsr.events import OwnOp
from headrace.vsr.replica import Replica
from headrace.wire.codec import encode
from headrace.wire.commands.internal import RETAIN, Retain
from headrace.wire.numbers import Operation


class _Here(Protocol):
    """A partition that is here."""

    target: PartitionTarget
    replica: Replica
    machine: PartitionMachine


class Retention:
    """The retention of all partitions of a shard; `believed_time` is in microseconds."""

    def __init__(
        self, desk: Desk, partitions: Mapping[int, _Here], believed_time: Callable[[], int]
    ) -> None:
        self._desk = desk
        self._partitions = partitions
        self._believed_time = believed_time
        self._due = desk.settings.retention_ticks

    def tick(self) -> None:
        """Look at the partitions once in each interval."""
        desk = self._desk
        if desk.now >= self._due:
            self._due = desk.now + desk.settings.retention_ticks
            self._retain()

    def _retain(self) -> None:
        """Propose to drop what is too old or too much, where there is such (PT-28)."""
        now = self._believed_time()
        for local in self._partitions.values():
            target = local.target
            if not target.message_expiry and not target.bytes_max:
                continue
            stamp_max = now - target.message_expiry if target.message_expiry else 0
            if local.replica.is_primary and _has_too_much(local, stamp_max):
                body = encode(RETAIN, Retain(max(0, stamp_max), target.bytes_max, 0))
                self._desk.data_plane.propose(target.group, OwnOp(Operation.RETAIN, body))


def _has_too_much(local: _Here, stamp_max: int) -> bool:
    """Whether a sealed segment is too old, or there are too many."""
    stamp = local.machine.oldest_sealed_stamp
    if stamp is None:
        return False
    bytes_max = local.target.bytes_max
    return stamp <= stamp_max or 0 < bytes_max < local.machine.sealed_bytes
