"""What clients find of what was made and deleted, and into which incarnation messages go.

H13  who is told that a partition is not there could not find it by any metadata since the newest
     that some client had been told of before it asked; and what a shard has told a client of the
     metadata it knows from then on: nothing is sent to, or read from, what is gone by it
H14  a message that was forwarded is applied in an incarnation that its home has chosen for it
H15  who is told that a topic is purged finds all its partitions purged

A place is a shard of a node in one of its lives: what it knows of the metadata it does not forget.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from headrace.base.ids import GroupId
from headrace.base.placement import owner_of
from headrace.sim.nodes.history import Incarnation
from headrace.sim.violation import SimViolationError


class Place(NamedTuple):
    """Where a connection lives."""

    node: int
    life: int
    shard: int


class Presence:
    """The partitions that there were after each op of the metadata, and who was told of which."""

    def __init__(self) -> None:
        self._ops: list[int] = [0]
        self._found: list[Mapping[str, int]] = [{}]  # by name: when a partition was created
        self._told: dict[Place, int] = {}
        self.newest_told = 0

    def changed(self, op: int, found: Mapping[str, int]) -> None:
        """Take note of the partitions that there are after an op, as the first node applies it."""
        if found != self._found[-1]:
            self._ops.append(op)
            self._found.append(found)

    def told(self, place: Place | None, op: int) -> None:
        """Take note that a client was answered with an op, at a place if it is known."""
        self.newest_told = max(self.newest_told, op)
        if place is not None:
            self._told[place] = max(self._told.get(place, 0), op)

    def told_at(self, place: Place) -> int:
        """Return the newest op that a client was told of at a place."""
        return self._told.get(place, 0)

    def is_there(self, name: str, created_revision: int) -> bool:
        """Whether the newest metadata has an incarnation of a partition."""
        return self._found[-1].get(name) == created_revision

    def _since(self, op: int) -> list[Mapping[str, int]]:
        return self._found[bisect_right(self._ops, op) - 1 :]

    def check_missed(self, name: str, since: int) -> None:
        """Check that a partition was not there at some time since an op."""
        if all(name in found for found in self._since(since)):
            raise SimViolationError("H13", why="not found, and it was there", name=name, op=since)

    def check_met(self, name: str, since: int, created_revision: int | None = None) -> None:
        """Check that a partition, or one incarnation of it, was there at some time since an op."""
        met = [found[name] for found in self._since(since) if name in found]
        if not met or created_revision not in (None, *met):
            raise SimViolationError(
                "H13",
                why="found, and it was gone by what its home had told",
                name=name,
                op=since,
                created_revision=created_revision,
                there=met,
            )


class Choices:
    """The homes at which requests were asked, and the incarnations that those have chosen."""

    def __init__(self) -> None:
        # By client and request: shards, each with how many there were.
        self._homes: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
        self._chosen: dict[tuple[int, int], dict[Incarnation, None]] = {}

    def asked(self, client: int, request: int, home: int, shard_count: int) -> None:
        """Take note of the home of a connection by which something is sent."""
        self._homes.setdefault((client, request), {})[home, shard_count] = None

    def forwarded(self, client: int, request: int, chosen: Incarnation) -> None:
        """Take note of what a home has chosen for a message that another shard has to take."""
        self._chosen.setdefault((client, request), {})[chosen] = None

    def check(self, key: Incarnation, client: int, request: int) -> bool:
        """Check what a message is applied in; return whether it must have been forwarded."""
        homes = self._homes.get((client, request), {})
        if not homes or any(owner_of(GroupId(key.group), count) == home for home, count in homes):
            return False
        chosen = self._chosen.get((client, request), {})
        if key not in chosen:
            raise SimViolationError(
                "H14", group=key, client=client, request=request, chosen=list(chosen)
            )
        return True


class Purges:
    """The purges that metadata has decided, and those that partitions have applied."""

    def __init__(self) -> None:
        # By op: the generation of the last purge that was decided, by name and incarnation.
        self._decided: dict[int, Mapping[tuple[str, Incarnation], int]] = {}
        self._applied: dict[Incarnation, int] = {}

    def decided(self, op: int, generations: Mapping[tuple[str, Incarnation], int]) -> None:
        """Take note of a purge of the metadata log."""
        self._decided[op] = generations

    def applied(self, key: Incarnation, generation: int) -> None:
        """Take note that a partition has applied a purge, as the first replica does."""
        self._applied[key] = max(self._applied.get(key, 0), generation)

    def check(self, op: int, topic: str, presence: Presence) -> None:
        """Check that the partitions of a topic that are still there have applied a purge."""
        for (name, key), generation in self._decided[op].items():
            is_of_topic = name.rpartition("/")[0] == topic
            if not is_of_topic or not presence.is_there(name, key.origin):
                continue
            if self._applied.get(key, 0) < generation:
                raise SimViolationError("H15", why="told before it was purged", name=name, op=op)
