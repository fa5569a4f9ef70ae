"""Takes the checkpoints of a plane: captures its groups, has machines flush, writes, and the last.

```
wanted -> capture all groups -> machines make durable what they keep outside -> the store writes
stop   -> one more checkpoint -> the stop is marked as clean
```

Invariants: nothing that a checkpoint says depends on bytes that a power cut takes; what it does not
            cover stays with the groups until it is durable.
"""

from collections.abc import Callable

import msgspec

from headrace.ports.network import Buffer
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup
from headrace.storage.store import Store
from headrace.vsr.replica import Replica
from headrace.wire.replica_headers import PREPARE


class Checkpoints:
    """The checkpoints of the groups on one store, one after another.

    `flush` makes durable what the machines keep outside the checkpoint, and says whether it is
    already; if not, `on_flushed` says when.
    """

    def __init__(
        self,
        store: Store,
        groups: dict[int, Replica],
        dormant: dict[int, RecoveredGroup],
        flush: Callable[[], bool],
    ) -> None:
        self._store = store
        self._groups = groups
        self._dormant = dormant
        self._flush = flush
        self.done_count = 0
        self._wanted: dict[int, None] = {}  # by groups whose state must be durable
        self._served: list[int] = []  # those of them that the running one serves
        self._captured: list[GroupCheckpoint] = []
        self._covered = 0
        self._is_flushing = False
        self._is_writing = False
        # The end: a last checkpoint was asked for, is under way, and is durable.
        self._is_stopping = self._is_last = self._is_over = False

    def want(self, group: int) -> None:
        """Have a group's state made durable."""
        self._wanted[group] = None

    def forget(self, group: int) -> None:
        """Want nothing any more for a group that is gone."""
        self._wanted.pop(group, None)

    def stop(self) -> None:
        """Take one more, and then mark the stop as clean."""
        self._is_stopping = True

    def begin_if_wanted(self) -> None:
        """Begin one, if somebody wants it and none is under way."""
        is_wanted = self._store.wants_checkpoint or self._wanted or self._is_stopping
        if is_wanted and not (self._is_over or self._is_flushing or self._store.is_checkpointing):
            self._begin()

    def _begin(self) -> None:
        self._served = list(self._wanted)
        self._wanted.clear()
        self._covered = self._store.issued
        self._captured = [replica.checkpoint() for replica in self._groups.values()]
        self._captured += [_as_checkpoint(past) for past in self._dormant.values()]
        for replica in self._groups.values():
            replica.retain(is_checkpointing=True)
        self._is_last = self._is_stopping
        self._is_flushing = True
        if self._flush():
            self.on_flushed()

    def on_flushed(self) -> None:
        """Write what was captured: all that it depends on is durable."""
        assert self._is_flushing
        self._is_flushing = False
        self._is_writing = True
        self._store.begin_checkpoint(self._captured, self._live, covered=self._covered)
        self._captured = []

    def _live(self, group: int, op: int) -> tuple[bytes, Buffer | None] | None:
        replica = self._groups.get(group)
        if replica is not None:
            return replica.live(op)
        past = self._dormant.get(group)
        if past is not None:
            for entry in past.entries:
                if entry.header.op == op:
                    return PREPARE.encode(entry.header), entry.body
        return None

    def end_if_durable(self) -> list[int] | None:
        """Give the groups that waited for the running one, once it is durable."""
        if not self._is_writing or self._store.is_checkpointing:
            return None
        self._is_writing = False
        self.done_count += 1
        for replica in self._groups.values():
            replica.retain(is_checkpointing=False)
        if self._is_last:
            self._is_over = True
            self._store.stop_clean()
        served, self._served = self._served, []
        return served


def _as_checkpoint(past: RecoveredGroup) -> GroupCheckpoint:
    """Give a group that nobody has asked for as the next checkpoint must hold it."""
    if past.checkpoint is None:
        return GroupCheckpoint(past.state, b"", b"", ())
    return msgspec.structs.replace(past.checkpoint, state=past.state)
