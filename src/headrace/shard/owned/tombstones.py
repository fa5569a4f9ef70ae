"""Deletes partitions in two phases: out of reach first, then the disk, memory last (RC-12, RC-13).

```
FENCED     nothing reaches it; its end is journaled, and not durable yet
READY      an earlier incarnation of its number is deleted first
DELETING   the disk was asked to remove its files
FAILED     it could not: a failure is recorded, and the next pass after its pause asks again (RC-11)
DELETED    its files are gone: `ConfirmRemove` is staged, and drops the tombstone

FENCED -> READY -> DELETING -> DELETED        DELETING -> FAILED -> DELETING
```

A restart forgets tombstones. What was not journaled is known to the disk and torn down again; files
whose partition is gone are found among the orphans.

Flow:       apply, store.
Invariants: for one number at most one delete is under way; a record of a failed delete means that
            there is none; files of another shard's partitions are not touched (RC-14).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum

from headrace.base.ids import GroupId
from headrace.base.placement import Placement
from headrace.partitions.shared import PartitionsShared
from headrace.ports.recovered import Finding
from headrace.ports.segments import PartitionRemoved, RemovePartition, SegmentEvent
from headrace.shard.consensus.plane import Plane
from headrace.shard.owned.failures import Cause, Failures, name_of
from headrace.shard.owned.local import Local
from headrace.shard.owned.staged import ConfirmRemove, Staged
from headrace.shard.turn import Turn


class Phase(Enum):
    """How far the end of a partition is."""

    FENCED = 0
    READY = 1
    DELETING = 2
    FAILED = 3
    DELETED = 4


class Tombstone:
    """One incarnation of a partition that ends; `local` is what was here of it, if anything."""

    __slots__ = ("created_revision", "group", "local", "phase", "sequence")

    def __init__(
        self, group: int, created_revision: int, local: Local | None, sequence: int
    ) -> None:
        self.group = group
        self.created_revision = created_revision
        self.local = local
        self.sequence = sequence  # of the record that must be durable before files go
        self.phase = Phase.FENCED if sequence else Phase.READY


class Tombstones:
    """All partitions of a shard that end."""

    def __init__(
        self,
        placement: Placement,
        plane: Plane,
        shared: PartitionsShared,
        turn: Turn,
        failures: Failures,
        staged: Staged,
    ) -> None:
        self._placement = placement
        self._plane = plane
        self._shared = shared
        self._turn = turn
        self._failures = failures
        self._staged = staged
        self._of: dict[int, deque[Tombstone]] = {}  # by number, the earliest incarnation first
        self.fenced: deque[Tombstone] = deque()  # until their records are durable, in order
        self._deleting: dict[int, Tombstone] = {}  # by token

    def __iter__(self) -> Iterator[Tombstone]:
        return iter([each for line in self._of.values() for each in line])

    def __contains__(self, group: int) -> bool:
        return group in self._of

    def holds(self, group: int, created_revision: int) -> bool:
        """Whether an incarnation of a partition ends."""
        return any(each.created_revision == created_revision for each in self._of.get(group, ()))

    def may_bury(self, group: int, findings: list[Finding]) -> bool:
        """Whether a partition may be deleted here; one of another shard is reported (RC-14)."""
        if self._placement.owns(GroupId(group)):
            return True
        owner = self._placement.owner(GroupId(group))
        self._turn.probes.hit("partitions_reconcile_failures_total")
        self._turn.probes.hit("reconcile.foreign")
        text = f"it belongs to shard {owner}: shard {self._placement.shard} does not delete it"
        findings.append(Finding("foreign", name_of(group), 0, text))
        return False

    def bury(
        self, group: int, created_revision: int, local: Local | None, *, sequence: int
    ) -> None:
        """Begin to delete a partition that nothing reaches any more.

        Its files go once the record of that sequence is durable; at once if there is none.
        """
        assert self._placement.owns(GroupId(group)), "files of another shard are not touched"
        assert not self.holds(group, created_revision), "an incarnation ends once"
        made = Tombstone(group, created_revision, local, sequence)
        self._of.setdefault(group, deque()).append(made)
        if made.phase == Phase.FENCED:
            self.fenced.append(made)
        else:
            self._go_on(group)

    def after_turn(self) -> None:
        """Have the files removed of partitions whose end is durable."""
        synced = self._plane.store.synced
        while self.fenced and self.fenced[0].sequence <= synced:
            ready = self.fenced.popleft()
            ready.phase = Phase.READY
            self._go_on(ready.group)

    def drive(self, group: int) -> None:
        """Ask the disk again for a delete that failed, if its pause is over (RC-5)."""
        first = self._of[group][0] if group in self._of else None
        if first is None or first.phase != Phase.FAILED:
            return
        if not self._failures.is_backed_off(group, Cause.DELETE, self._turn.clock.now):
            self._turn.probes.hit("reconcile.driven_again")
            self._delete(first)

    def _go_on(self, group: int) -> None:
        """Delete the earliest incarnation of a number, if nothing else comes first."""
        first = self._of[group][0]
        if first.phase == Phase.READY:
            self._delete(first)

    def _delete(self, each: Tombstone) -> None:
        assert each.phase in (Phase.READY, Phase.FAILED), "one delete at a time"
        each.phase = Phase.DELETING
        token = self._shared.new_token(self)
        self._deleting[token] = each
        self._turn.out.append(RemovePartition(token, each.group, each.created_revision))

    def step(self, event: SegmentEvent) -> None:
        """Take the disk's answer: only a success lets memory go."""
        assert isinstance(event, PartitionRemoved)
        each = self._deleting.pop(event.token)
        if event.failure is not None:
            each.phase = Phase.FAILED
            self._failures.note(each.group, Cause.DELETE, self._turn.clock.now, event.failure)
            return
        each.phase = Phase.DELETED
        self._failures.clear(each.group, Cause.DELETE)
        self._staged.put(ConfirmRemove(each.group, each.created_revision))

    def retry(self) -> None:
        """Never needed: a removal takes no space."""

    def confirm(self, group: int, created_revision: int) -> bool:
        """Drop a partition whose files are gone; return whether it was still known."""
        line = self._of.get(group)
        if line is None or line[0].created_revision != created_revision:
            return False
        assert line[0].phase == Phase.DELETED, "memory goes after the disk"
        line.popleft()
        if line:
            self._go_on(group)
        else:
            del self._of[group]
        return True

    def check(self, here: Mapping[int, Local]) -> None:
        """Assert that what ends is out of reach, and goes on by itself."""
        for each in self:
            local = here.get(each.group)
            assert local is None or local.target.created_revision != each.created_revision, (
                "files of a partition that is here stay"
            )
            assert self._placement.owns(GroupId(each.group)), (
                "files of another shard are not touched"
            )
        for line in self._of.values():
            first, *later = line
            assert all(each.phase in (Phase.FENCED, Phase.READY) for each in later), (
                "one delete of a number at a time"
            )
            assert first.phase != Phase.READY, "what may be deleted is deleted"
            is_failed = self._failures.find(first.group, Cause.DELETE) is not None
            assert first.phase != Phase.FAILED or is_failed, "a failed delete is tried again"
        assert all(self._of.values()), "a number without a tombstone is forgotten"
        assert len(self.fenced) <= sum(map(len, self._of.values())), "who is fenced ends"
        waiting = [each for each in self._of.values() if each[0].phase == Phase.DELETING]
        assert len(waiting) == len(self._deleting), "the disk answers every delete"
        assert self._deleting.keys() == self._shared.awaited(self), "a delete has a token"
        self._check_order()

    def _check_order(self) -> None:
        sequences = [each.sequence for each in self.fenced]
        synced = self._plane.store.synced
        assert not sequences or synced < sequences[0], "files go once they cannot come back"
        assert sequences == sorted(sequences), "files are removed in the order of their records"
        issued = self._plane.store.issued
        assert not sequences or sequences[-1] <= issued + 1, "files wait for a record that comes"
        fenced = [each for each in self if each.phase == Phase.FENCED]
        assert len(fenced) == len(self.fenced), "who is fenced waits for a record"
