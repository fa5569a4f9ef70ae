"""Counts which groups and partitions a shard looks at in its turns.

A visit is any use of a method or a property of a replica, of a partition's machine, or of the
shard's record of it; the metadata group does not count. Several uses in one turn are one visit. A
walk over all partitions is therefore at least as many visits as there are partitions, whoever makes
it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.base.ids import METADATA_GROUP
from headrace.partitions.machine import PartitionMachine
from headrace.shard.consensus.plane import Plane
from headrace.shard.owned.local import Local
from headrace.shard.shard import Shard
from headrace.vsr.replica import Replica
from headrace.vsr.state import State

_COUNTED: tuple[type, ...] = (Replica, State, PartitionMachine, Local)


class Visits:
    """What was visited since `clear`."""

    def __init__(self) -> None:
        self.turns = 0
        self.total = 0  # over all turns
        self.largest = 0  # of one turn
        self._groups: dict[int, None] = {}  # visited in this turn

    def clear(self) -> None:
        self.turns = self.total = self.largest = 0
        self._groups.clear()

    def visit(self, group: int) -> None:
        if group not in self._groups and group != METADATA_GROUP:
            self._groups[group] = None
            self.total += 1
            self.largest = max(self.largest, len(self._groups))

    def end_turn(self) -> None:
        self.turns += 1
        self._groups.clear()


@contextmanager
def counted_visits() -> Iterator[Visits]:
    """Count all visits while this is open."""
    visits = Visits()
    before = [(each, dict(vars(each))) for each in (*_COUNTED, Shard, Plane)]
    for each in _COUNTED:
        for name, member in list(vars(each).items()):
            if name.startswith("__"):
                continue
            if isinstance(member, property):
                assert member.fget is not None
                setattr(each, name, property(_counting(visits, member.fget)))
            elif callable(member):
                setattr(each, name, _counting(visits, member))
    step = Shard.step

    def counted_step(self: Shard, event: Any) -> Any:
        effects = step(self, event)
        visits.end_turn()
        return effects

    setattr(Shard, "step", counted_step)  # noqa: B010  # for mypy a method is no variable
    _leave_out_checks()
    try:
        yield visits
    finally:
        for each, members in before:
            for name, member in members.items():
                if vars(each).get(name) is not member:
                    setattr(each, name, member)


def _leave_out_checks() -> None:
    """Have nodes check only that no stage sleeps: the rest walks, and is off in production."""
    for each in (Shard, Plane):
        setattr(each, "check", vars(each)["check_awake"])  # noqa: B010  # as above


def _counting(visits: Visits, method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, *args: Any, **options: Any) -> Any:
        visits.visit(_group_of(self))
        return method(self, *args, **options)

    return counted


def _group_of(owner: Any) -> int:
    if isinstance(owner, Replica):
        return owner.group
    if isinstance(owner, State):
        return owner.options.group
    if isinstance(owner, PartitionMachine):
        return owner.options.namespace
    return int(owner.target.group)
