"""Offsets that polls store by themselves, and the requests that wait until they are stored (O3.6).

```
poll served -> op proposed -> applied: whoever waits goes on
            -> again every tick, until it is applied or the partition is gone
```

Flow: replicate, reply.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.base.ids import GroupId
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.owned.local import Local
from headrace.shard.owned.partitions import Partitions
from headrace.vsr.events import OwnOp
from headrace.wire.codec import encode
from headrace.wire.commands.internal import OFFSET_MARK, OffsetMark
from headrace.wire.errors import Code
from headrace.wire.numbers import ConsumerKind, Operation


class OffsetKey(NamedTuple):
    """Whose offset in which partition."""

    group: GroupId
    kind: ConsumerKind
    id: int


class _Parked(NamedTuple):
    """A request behind an offset that is not stored yet."""

    ticket: int
    go_on: Callable[[], bool]


class AutoCommits:
    """What was served and is not stored yet, of all partitions of a shard."""

    def __init__(self, plane: Plane, partitions: Partitions, answers: Answers) -> None:
        self._plane = plane
        self._partitions = partitions
        self._answers = answers
        self.pending: dict[OffsetKey, int] = {}  # served, and not stored yet
        self._parked: dict[OffsetKey, list[_Parked]] = {}

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether an offset was served and is not stored yet."""
        return key in self.pending

    def park(self, key: OffsetKey, ticket: int, go_on: Callable[[], bool]) -> None:
        """Have a request wait until the pending offset is stored.

        `go_on` is called then, as `Answers.resume` does.
        """
        assert key in self.pending, "nobody waits for a stored offset"
        assert self._answers.is_waiting(ticket), "who is answered does not wait"
        self._parked.setdefault(key, []).append(_Parked(ticket, go_on))

    def commit(self, local: Local, key: OffsetKey, offset: int) -> None:
        """Store what was served; the stored offset never moves backwards."""
        assert local.target.group == key.group, "an offset is stored in its partition"
        if not local.replica.is_primary:
            return
        stored = local.machine.peek_offset(key.kind, key.id)
        if stored is not None and stored >= offset:
            return
        self.pending[key] = max(offset, self.pending.get(key, 0))
        assert self.pending[key] >= offset, "an offset that is pending does not fall"
        self._propose(key)

    def _propose(self, key: OffsetKey) -> None:
        mark = OffsetMark(key.kind, key.id, self.pending[key])
        body = encode(OFFSET_MARK, mark)
        own = OwnOp(Operation.AUTO_COMMIT_OFFSET, body)
        self._plane.propose(key.group, own)

    def settle(self) -> None:
        """Resume the requests whose offset is stored now, or will not be stored here."""
        for key in list(self.pending):
            local = self._partitions.locals.get(key.group)
            if local is not None and local.replica.is_primary:
                stored = local.machine.peek_offset(key.kind, key.id)
                if stored is None or stored < self.pending[key]:
                    continue
            self._drop(key)

    def tick(self) -> None:
        """Propose again what found no place, and forget the requests that nobody waits for."""
        for key in list(self.pending):
            local = self._partitions.locals.get(key.group)
            if local is None or local.machine.next_offset <= self.pending[key]:
                self._drop(key)  # The partition is gone or was purged.
            else:
                self._propose(key)
        if self._plane.is_without_space:
            self._refuse_all()
        answers = self._answers
        for key, parked in list(self._parked.items()):
            self._parked[key] = [each for each in parked if answers.is_waiting(each.ticket)]
            if not self._parked[key]:
                del self._parked[key]
        assert self._parked.keys() <= self.pending.keys(), "whose offset is stored has gone on"

    def forget_partitions(self, removed: Mapping[int, Code]) -> None:
        """Refuse the requests on partitions that are gone, or are others now."""
        for key in [key for key in self.pending if key.group in removed]:
            del self.pending[key]
            for each in self._parked.pop(key, ()):
                self._answers.refuse_waiting(each.ticket, removed[key.group])
        assert not any(key.group in removed for key in self.pending), "it is stored nowhere"
        assert not any(key.group in removed for key in self._parked), (
            "nobody waits for what is gone"
        )

    def _drop(self, key: OffsetKey) -> None:
        del self.pending[key]
        for each in self._parked.pop(key, ()):
            self._answers.resume(*each)

    def _refuse_all(self) -> None:
        """Refuse everyone behind offsets that are not stored: that may lack space (O2.3)."""
        parked, self._parked = self._parked, {}
        for requests in parked.values():
            for each in requests:
                self._answers.refuse_waiting(each.ticket, Code.CANNOT_APPEND_MESSAGE)
        assert not self._parked, "a refusal has nobody wait again"

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        return [each.ticket for parked in self._parked.values() for each in parked]

    def check(self) -> None:
        """Assert that whoever waits for an offset waits for one that is not stored yet."""
        assert self._parked.keys() <= self.pending.keys(), "nobody waits for a stored offset"
        assert all(self._parked.values()), "an offset that nobody waits for has no list"
        tickets = self.tickets()
        assert len(dict.fromkeys(tickets)) == len(tickets), "a request waits for one offset"
        assert min(tickets, default=1) > 0, "who waits has a ticket"
        for key, offset in self.pending.items():
            local = self._partitions.locals.get(key.group)
            if local is not None and local.replica.is_primary:
                stored = local.machine.peek_offset(key.kind, key.id)
                assert stored is None or stored < offset, "what is stored is not pending"
        known = dict.fromkeys([*self._partitions.locals, *self._partitions.removed])
        assert all(key.group in known for key in self.pending), "an offset goes with its partition"
