"""Takes the checkpoints of a plane: captures its groups, has machines flush, writes, and the last.

```
IDLE      -> CAPTURING  wanted: the groups that changed since they were captured last, in slices
CAPTURING -> FLUSHING   all are captured; machines make durable what they keep outside
FLUSHING  -> READING    who cannot stays as the last checkpoint has it, and its later ops are read
                        from the journal
READING   -> WRITING    the store writes
WRITING   -> IDLE       it is durable
stop: one more checkpoint, and then the stop is marked as clean
```

A checkpoint holds all groups as they were at one sequence of the journal, though they are captured
in several turns: a group that is about to change is captured before (decision 0023).

Invariants: nothing that a checkpoint says depends on bytes that a power cut takes; what it does not
            cover stays with the groups, or is carried along, until it is durable; a group that is
            neither dirty nor pending is in the store's last checkpoint as it is now.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from itertools import islice
from typing import Protocol

import msgspec

from headrace.ports.network import Buffer
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup
from headrace.shard.consensus.carried import CarriedOps
from headrace.storage.checkpointing import UnreadableError
from headrace.storage.store import Store
from headrace.vsr.replica import Replica
from headrace.vsr.state import Transfer
from headrace.wire.replica.prepares import PREPARE


class Outside(Protocol):
    """What the machines of a plane keep outside its checkpoints."""

    def flush(self, groups: Sequence[int]) -> bool:
        """Have it made durable for these groups as it is now.

        Return whether it is durable for all groups that were given so far; if not, it is told when.
        """

    def lacking(self) -> Iterable[int]:
        """Return the groups for which that failed, once it is over for all."""

    @property
    def is_without_space(self) -> bool:
        """Whether it waits for space on the disk."""


class Nothing:
    """Machines that keep all they have in the checkpoint."""

    is_without_space = False

    def flush(self, groups: Sequence[int]) -> bool:
        return True

    def lacking(self) -> Iterable[int]:
        return ()


class Phase(Enum):
    """How far a checkpoint is."""

    IDLE = auto()
    CAPTURING = auto()
    FLUSHING = auto()
    READING = auto()
    WRITING = auto()


_IDLE = Phase.IDLE
_FOLLOWING = {
    Phase.IDLE: Phase.CAPTURING,
    Phase.CAPTURING: Phase.FLUSHING,
    Phase.FLUSHING: Phase.READING,
    Phase.READING: Phase.WRITING,
    Phase.WRITING: Phase.IDLE,
}


class Checkpoints:
    """The checkpoints of the groups on one store, one after another.

    `new_token` names reads of the journal, whose answers come back through `on_read`. A turn
    captures at most `slice_max` groups that it does not change.
    """

    def __init__(
        self,
        store: Store,
        groups: dict[int, Replica],
        dormant: dict[int, RecoveredGroup],
        outside: Outside,
        new_token: Callable[[], int],
        slice_max: int,
    ) -> None:
        assert slice_max > 0
        self._store = store
        self._groups = groups
        self._dormant = dormant
        self._outside = outside
        self._slice_max = slice_max
        self._durable = {  # the groups as the last checkpoint has them
            group: past.checkpoint for group, past in dormant.items() if past.checkpoint is not None
        }
        self._carried = CarriedOps(store, new_token)
        self.done_count = 0
        self.phase = Phase.IDLE
        self.is_writing = False  # whether the phase is that
        self._wanted: dict[int, None] = {}  # by groups whose state must be durable
        self._is_wanted = False  # by the owner of the machines
        self.is_awake = True  # whether `go_on` has work, though nothing was journaled since
        self._served: dict[int, None] = {}  # those of them that the running one serves
        # Groups that may differ from how they were captured last, and are not pending; at first
        # nobody was captured. `touch` changes nothing for them.
        self.dirty: dict[int, None] = dict.fromkeys(dormant)
        self._pending: dict[int, None] = {}  # those that the running one must still capture
        self._unflushed: list[int] = []  # captured, and not flushed yet
        self._captured: dict[int, GroupCheckpoint] = {}
        self._retained: list[Replica] = []  # those that keep ops for the running one
        # Who was dormant when the running one began, and woke since: a replica keeps only what it
        # has itself seen a checkpoint begin with.
        self._asleep: dict[int, RecoveredGroup] = {}
        self._gone: dict[int, None] = {}  # groups that went while the running one was taken
        self._covered = 0
        # The end: a last checkpoint was asked for, is under way, and is durable.
        self._is_stopping = self._is_last = False
        self.is_over = False  # the last one is durable, and the stop is marked as clean

    def want(self, group: int) -> None:
        """Have a group's state made durable."""
        assert group in self._groups, "only a group that is here wants to be durable"
        self._wanted[group] = None
        self.is_awake = True

    def want_one(self) -> None:
        """Have one more taken that begins after this call, for no group in particular."""
        self._is_wanted = True
        self.is_awake = True

    def touch(self, group: int) -> None:
        """Note that a group is about to change, or to come, or to go; called before it does."""
        if group in self._pending:
            self._capture(group)
        self.dirty[group] = None

    def wake(self, group: int, past: RecoveredGroup) -> None:
        """Note that a group is dormant no longer."""
        if self.phase != Phase.IDLE:
            assert group not in self._asleep, "a group wakes once"
            self._asleep[group] = past

    def forget(self, group: int) -> None:
        """Want nothing any more for a group that is gone; one with its number wants its own."""
        assert group in self.dirty
        self._wanted.pop(group, None)
        self._served.pop(group, None)
        self._durable.pop(group, None)
        self._asleep.pop(group, None)
        self._gone[group] = None

    def stop(self) -> None:
        """Take one more, and then mark the stop as clean."""
        self._is_stopping = True
        self.is_awake = True

    def go_on(self) -> bool:
        """Begin one if it is wanted and none is under way, or capture more for the one that is.

        Return whether there is more to capture in the next turn.
        """
        if self.phase is _IDLE:
            is_wanted = self._is_wanted or bool(self._wanted) or self._is_stopping
            self.is_awake = is_wanted and not self.is_over
            if self.is_over or not (is_wanted or self._store.wants_checkpoint()):
                return False
            if self._store.is_checkpointing:
                return False
            self._begin()
        if self.phase is Phase.CAPTURING:
            self._capture_slice()
            self.is_awake = True
        return self.phase is Phase.CAPTURING

    def _enter(self, phase: Phase) -> None:
        assert phase is _FOLLOWING[self.phase], f"{phase} after {self.phase}"
        self.phase = phase

    @property
    def reading(self) -> Collection[int]:
        """The tokens of the reads that it waits for."""
        return self._carried.reading

    def _begin(self) -> None:
        assert not self._pending, "the last one has captured all groups"
        assert not self._captured, "the last one is durable"
        assert self._carried.is_complete, "the last one carries nothing along any more"
        self._enter(Phase.CAPTURING)
        self._served, self._wanted = self._wanted, {}
        self._is_wanted = False
        assert self._covered <= self._store.issued, "a checkpoint covers as much as the one before"
        self._covered = self._store.issued
        self._pending, self.dirty = self.dirty, {}
        assert self._served.keys() <= self._pending.keys(), "a group that wants it has changed"
        self._is_last = self._is_stopping
        self._gone.clear()

    def _capture_slice(self) -> None:
        for group in list(islice(self._pending, self._slice_max)):
            self._capture(group)
        captured, self._unflushed = self._unflushed, []
        is_flushed = self._outside.flush(captured)
        if not self._pending:
            self._enter(Phase.FLUSHING)
            if is_flushed:
                self.on_flushed()

    def _capture(self, group: int) -> None:
        """Capture a group as it was when the running checkpoint began: it did not change since."""
        assert self.phase == Phase.CAPTURING
        assert group not in self._captured, "a group is captured once"
        del self._pending[group]
        replica, past = self._groups.get(group), self._dormant.get(group)
        if replica is not None:
            captured = replica.checkpoint()
            if replica.retain(is_checkpointing=True):
                self._retained.append(replica)
                self.dirty[group] = None  # The next one must have these ops kept again.
            self._unflushed.append(group)
        elif past is not None:
            captured = _as_checkpoint(past)
        else:
            self._store.capture_gone(group)
            return
        self._captured[group] = captured
        self._store.capture(captured)

    def on_flushed(self) -> None:
        """Go on with what was captured: all that it depends on is durable, or known to lack."""
        if self.phase != Phase.FLUSHING:
            return  # Others are still to be captured.
        self._enter(Phase.READING)
        for group in dict.fromkeys(self._outside.lacking()):
            captured = self._captured.get(group)
            if captured is not None:
                above = _commit_op(self._durable.get(group))
                assert above <= _commit_op(captured), "a group does not go back"
                self._carried.want(group, above=above, until=_commit_op(captured))
                self._captured[group] = self._without_lacking(captured)
                self._store.capture(self._captured[group])
                self.dirty[group] = None  # The next one must carry its ops along again.
        self._carried.read_on()
        self._write_if_read()

    def _without_lacking(self, captured: GroupCheckpoint) -> GroupCheckpoint:
        """Return a group as its segments were last durable, in the view that it is in now."""
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
        assert self.phase == Phase.READING
        if not self._carried.is_complete:
            return
        assert not self._pending, "all groups are captured before it is written"
        self._enter(Phase.WRITING)
        self.is_writing = True
        # A state that came from others is in no journal: who waits for it to be durable waits on.
        for group in self._carried.missing:
            self._served.pop(group, None)
        self._store.begin_checkpoint((), self._live, covered=self._covered)

    def _live(self, group: int, op: int) -> tuple[bytes, Buffer | None] | None:
        if self._carried.holds(group, op):
            carried = self._carried.get(group, op)
            if carried is None:
                raise UnreadableError(group, op)
            return carried
        past = self._asleep.get(group) or self._dormant.get(group)
        if past is not None:
            for entry in past.entries:
                if entry.header.op == op:
                    return PREPARE.encode(entry.header), entry.body
            return None
        replica = self._groups.get(group)
        return None if replica is None else replica.live(op)

    def end_if_durable(self) -> list[int] | None:
        """Return the groups that waited for the one that is written, once it is durable."""
        assert self.is_writing
        if self._store.is_checkpointing:
            return None
        assert self._carried.is_complete, "what travels was read before it was written"
        assert not self._unflushed, "what is durable was flushed"
        self._enter(Phase.IDLE)
        self.is_writing = False
        self.is_awake = True
        self.done_count += 1
        self._carried.clear()
        self._durable.update(self._captured)
        for group in self._gone:
            self._durable.pop(group, None)
        self._captured = {}
        self._asleep = {}
        for replica in self._retained:
            replica.retain(is_checkpointing=False)
        self._retained = []
        if self._is_last:
            self.is_over = True
            self._store.stop_clean()
        served, self._served = self._served, {}
        return list(served)

    def check(self) -> None:
        """Assert that each phase has what belongs to it, and that no change is forgotten."""
        is_running = self.phase != Phase.IDLE
        assert self.is_writing == (self.phase is Phase.WRITING), "the flag is that of the phase"
        if not is_running:
            running = (self._captured, self._served, self._asleep, self._retained)
            assert not any(running), "what the last one held is let go of"
        if self.phase != Phase.CAPTURING:
            assert not self._pending, "all groups are captured before they are flushed"
            assert not self._unflushed, "what was captured is flushed"
        is_reading = self.phase == Phase.READING
        assert is_reading != self._carried.is_complete, "what was read is written at once"
        if self.phase == Phase.WRITING:
            assert self._store.is_checkpointing, "one that is durable has ended"
        is_wanted = self._is_wanted or bool(self._wanted) or self._is_stopping
        is_due = is_wanted and not is_running and not self.is_over
        assert self.is_awake or not is_due, "who wants one gets one"
        assert self.is_awake or self.phase is not Phase.CAPTURING, "what is begun goes on"
        assert self._covered <= self._store.issued, "it covers what was issued when it began"
        assert len(self._retained) <= len(self._captured), "who keeps ops was captured"
        is_early = is_running and not self.is_writing
        assert not (is_early and self._store.is_checkpointing), "the store writes one that is read"
        assert self._is_stopping or not self._is_last, "the last one was asked for"
        assert self._is_last or not self.is_over, "only the last one is the end"
        assert self.done_count <= self._store.checkpointed, (
            "who is told of one finds it on the disk"
        )
        bounds = {
            group: (_commit_op(each), each.state.commit) for group, each in self._captured.items()
        }
        self._carried.check(bounds)
        self._check_groups()
        for group, (held, reached) in bounds.items():
            assert held <= reached, "a checkpoint has a group as it was, not as it will be"
            replica = self._groups.get(group)
            if replica is not None and group not in self._gone:
                assert held <= replica.commit_min, "a checkpoint holds applied ops only"

    def _check_groups(self) -> None:
        known = {**self._dormant, **self._groups}
        for group in (*self._wanted, *self._served):
            state = self._groups[group].state
            assert state.transfer == Transfer.INSTALLING, "who wants one has installed a state"
        for group in self._served:
            is_taken = group in self._captured or group in self._pending
            assert is_taken, "who is served is in the checkpoint"
        for group in self.dirty:
            assert group in known or group in self._gone, "what changed is known, or is gone"
        assert self._wanted.keys() <= self._groups.keys(), "only a group wants to be durable"
        assert self._served.keys() <= self._groups.keys(), "what is gone waits for nothing"
        assert self._asleep.keys() <= self._groups.keys(), "who woke is here"
        assert self._durable.keys() <= known.keys(), "what is gone is forgotten"
        assert not self._durable.keys() & self._gone.keys(), "what is gone is in no checkpoint"
        if self.done_count and not self._store.is_checkpointing:
            ops = self._store.checkpointed_ops()
            for group, durable in self._durable.items():
                assert ops[group] == _commit_op(durable), "the store has what is taken for durable"
        for group in self._captured:
            assert group in known or group in self._gone, "what is captured is known, or went since"
        for group in self._pending:
            assert group not in self._captured, "a group is captured once"
            assert group not in self.dirty, "a group that is to be captured has not changed"
        for group in known:
            if group not in self.dirty and group not in self._pending:
                is_held = group in self._captured or group in self._durable
                assert is_held, "a group that has not changed is in a checkpoint"
        assert all(group in self._captured for group in self._unflushed), "captured, then flushed"
        kept = [replica.group for replica in self._retained]
        assert all(group in self._captured for group in kept), "who keeps ops is captured"


def _commit_op(checkpoint: GroupCheckpoint | None) -> int:
    """Return the op up to which a checkpoint has a group."""
    if checkpoint is None or not checkpoint.commit_header:
        return 0
    return PREPARE.decode(checkpoint.commit_header).op


def _as_checkpoint(past: RecoveredGroup) -> GroupCheckpoint:
    """Return a group that nobody has asked for as the next checkpoint must hold it."""
    if past.checkpoint is None:
        return GroupCheckpoint(past.state, b"", b"", ())
    return msgspec.structs.replace(past.checkpoint, state=past.state)
