"""Takes the checkpoints of a plane: captures its groups, has machines flush, writes, and the last.

```
wanted -> capture all groups -> machines make durable what they keep outside
       -> who cannot stays as the last checkpoint has it, its later ops are read from the journal
       -> the store writes
stop   -> one more checkpoint -> the stop is marked as clean
```

Invariants: nothing that a checkpoint says depends on bytes that a power cut takes; what it does not
            cover stays with the groups, or is carried along, until it is durable.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from headrace.ports.network import Buffer
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup
from headrace.shard.carried import CarriedOps
from headrace.storage.checkpointing import UnreadableError
from headrace.storage.store import Store
from headrace.vsr.replica import Replica
from headrace.wire.replica_headers import PREPARE


class Outside(Protocol):
    """What the machines of a plane keep outside its checkpoints."""

    def flush(self) -> bool:
        """Have it made durable as it is now; whether it is already. If not, it is told when."""

    def lacking(self) -> Iterable[int]:
        """Give the groups for which that failed, once it is over for all."""

    @property
    def is_without_space(self) -> bool:
        """Whether it waits for space on the disk."""


class Nothing:
    """Machines that keep all they have in the checkpoint."""

    is_without_space = False

    def flush(self) -> bool:
        return True

    def lacking(self) -> Iterable[int]:
        return ()


class Checkpoints:
    """The checkpoints of the groups on one store, one after another.

    `new_token` names reads of the journal, whose answers come back through `on_read`.
    """

    def __init__(
        self,
        store: Store,
        groups: dict[int, Replica],
        dormant: dict[int, RecoveredGroup],
        outside: Outside,
        new_token: Callable[[], int],
    ) -> None:
        self._store = store
        self._groups = groups
        self._dormant = dormant
        self._outside = outside
        self._durable = {  # the groups as the last checkpoint has them
            group: past.checkpoint for group, past in dormant.items() if past.checkpoint is not None
        }
        self._carried = CarriedOps(store, new_token)
        self.done_count = 0
        self._wanted: dict[int, None] = {}  # by groups whose state must be durable
        self._is_wanted = False  # by the owner of the machines
        self._served: list[int] = []  # those of them that the running one serves
        self._captured: list[GroupCheckpoint] = []
        # Who was dormant then, and may wake meanwhile: a replica keeps only what it has itself seen
        # a checkpoint begin with.
        self._asleep: dict[int, RecoveredGroup] = {}
        self._gone: dict[int, None] = {}  # groups that went while the running one was taken
        self._covered = 0
        self._is_flushing = False
        self._is_reading = False
        self._is_writing = False
        # The end: a last checkpoint was asked for, is under way, and is durable.
        self._is_stopping = self._is_last = self._is_over = False

    def want(self, group: int) -> None:
        """Have a group's state made durable."""
        self._wanted[group] = None

    def want_one(self) -> None:
        """Have one more taken that begins after this call, for no group in particular."""
        self._is_wanted = True

    def forget(self, group: int) -> None:
        """Want nothing any more for a group that is gone; one with its number wants its own."""
        self._wanted.pop(group, None)
        self._served = [each for each in self._served if each != group]
        self._durable.pop(group, None)
        self._asleep.pop(group, None)
        self._gone[group] = None

    def stop(self) -> None:
        """Take one more, and then mark the stop as clean."""
        self._is_stopping = True

    def begin_if_wanted(self) -> None:
        """Begin one, if somebody wants it and none is under way."""
        if self._is_flushing or self._is_reading or self._is_over:
            return
        is_wanted = self._is_wanted or self._wanted or self._is_stopping
        if (is_wanted or self._store.wants_checkpoint) and not self._store.is_checkpointing:
            self._begin()

    def _begin(self) -> None:
        self._served = list(self._wanted)
        self._wanted.clear()
        self._is_wanted = False
        self._covered = self._store.issued
        self._captured = [replica.checkpoint() for replica in self._groups.values()]
        self._asleep = dict(self._dormant)
        self._captured += [_as_checkpoint(past) for past in self._asleep.values()]
        for replica in self._groups.values():
            replica.retain(is_checkpointing=True)
        self._is_last = self._is_stopping
        self._gone.clear()
        self._is_flushing = True
        if self._outside.flush():
            self.on_flushed()

    def on_flushed(self) -> None:
        """Go on with what was captured: all that it depends on is durable, or known to lack."""
        assert self._is_flushing
        self._is_flushing = False
        self._is_reading = True
        lacking = dict.fromkeys(self._outside.lacking())
        for each in self._captured:
            if each.state.group in lacking:
                above = _commit_op(self._durable.get(each.state.group))
                self._carried.want(each.state.group, above=above, until=_commit_op(each))
        self._captured = [
            self._without_lacking(each) if each.state.group in lacking else each
            for each in self._captured
        ]
        self._carried.read_on()
        self._write_if_read()

    def _without_lacking(self, captured: GroupCheckpoint) -> GroupCheckpoint:
        """Give a group as its segments were last durable, in the view that it is in now."""
        durable = self._durable.get(captured.state.group)
        if durable is None:
            return GroupCheckpoint(captured.state, b"", b"", ())
        return msgspec.structs.replace(durable, state=captured.state)

    def on_read(self, token: int, header: bytes, body: bytes) -> bool:
        """Take an op that was read; whether it was asked for here."""
        if not self._carried.on_read(token, header, body):
            return False
        self._write_if_read()
        return True

    def _write_if_read(self) -> None:
        """Write what was captured, once the journal can go on without its oldest files."""
        if not self._carried.is_complete:
            return
        self._is_reading = False
        self._is_writing = True
        # A state that came from others is in no journal: who waits for it to be durable waits on.
        self._served = [group for group in self._served if group not in self._carried.missing]
        self._store.begin_checkpoint(self._captured, self._live, covered=self._covered)

    def _live(self, group: int, op: int) -> tuple[bytes, Buffer | None] | None:
        if self._carried.holds(group, op):
            carried = self._carried.get(group, op)
            if carried is None:
                raise UnreadableError(group, op)
            return carried
        past = self._asleep.get(group)
        if past is not None:
            for entry in past.entries:
                if entry.header.op == op:
                    return PREPARE.encode(entry.header), entry.body
            return None
        replica = self._groups.get(group)
        return None if replica is None else replica.live(op)

    def end_if_durable(self) -> list[int] | None:
        """Give the groups that waited for the running one, once it is durable."""
        if not self._is_writing or self._store.is_checkpointing:
            return None
        self._is_writing = False
        self.done_count += 1
        self._carried.clear()
        self._durable = {
            each.state.group: each for each in self._captured if each.state.group not in self._gone
        }
        self._captured = []
        self._asleep = {}
        for replica in self._groups.values():
            replica.retain(is_checkpointing=False)
        if self._is_last:
            self._is_over = True
            self._store.stop_clean()
        served, self._served = self._served, []
        return served


def _commit_op(checkpoint: GroupCheckpoint | None) -> int:
    """Give the op up to which a checkpoint has a group."""
    if checkpoint is None or not checkpoint.commit_header:
        return 0
    return PREPARE.decode(checkpoint.commit_header).op


def _as_checkpoint(past: RecoveredGroup) -> GroupCheckpoint:
    """Give a group that nobody has asked for as the next checkpoint must hold it."""
    if past.checkpoint is None:
        return GroupCheckpoint(past.state, b"", b"", ())
    return msgspec.structs.replace(past.checkpoint, state=past.state)
