"""What the reconciler wants changed; the turn alone changes it (RC-7 to RC-9).

Flow: apply.
"""

from collections import deque
from typing import TypeAlias

import msgspec

from headrace.base.ids import ShardId
from headrace.metadata.target import PartitionTarget
from headrace.shard.turn import Wake


class InsertOwned(msgspec.Struct, frozen=True):
    """Make a partition of this shard, and write its row."""

    target: PartitionTarget


class InsertRouted(msgspec.Struct, frozen=True):
    """Write the row of a partition of another shard."""

    group: int
    owner: ShardId
    epoch: int


class ConfirmRemove(msgspec.Struct, frozen=True):
    """Drop a partition whose files are gone."""

    group: int
    epoch: int


class RemoveRouted(msgspec.Struct, frozen=True):
    """Remove the row of a partition of another shard that is gone."""

    group: int


ReconcileOp: TypeAlias = InsertOwned | InsertRouted | ConfirmRemove | RemoveRouted


class Staged:
    """The queue of such changes; `wake` has the turn apply them."""

    def __init__(self, wake: Wake) -> None:
        self._wake = wake
        self._queue: deque[ReconcileOp] = deque()
        self._inserts: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, op: ReconcileOp) -> None:
        """Stage a change."""
        if isinstance(op, InsertOwned):
            assert op.target.group not in self._inserts, "a partition is built once"
            self._inserts[op.target.group] = None
        self._queue.append(op)
        self._wake.is_awake = True

    def is_inserting(self, group: int) -> bool:
        """Whether a partition is to be made already: a second build would undo the first."""
        return group in self._inserts

    def take(self) -> list[ReconcileOp]:
        """Return what is staged, in order, once."""
        ops = list(self._queue)
        self._queue.clear()
        self._inserts.clear()
        return ops

    def check(self) -> None:
        """Assert that what is staged will be applied."""
        assert not self._queue or self._wake.is_awake, "what is staged is applied"
        assert len(self._inserts) <= len(self._queue), "a staged build is one of the changes"
        staged = [op.target.group for op in self._queue if isinstance(op, InsertOwned)]
        assert staged == list(self._inserts), "a build that is staged is known"
