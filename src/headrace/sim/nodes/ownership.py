"""Who may be served from which partition of a consumer group, and who was (H11).

The metadata log gives every group a row of assignments. A member that is served must have owned the
partition in one of them: not in one that was over before an earlier poll, of whomever, was served
from a later one; not in one that was over before the poll began, as far as clients of a node alone
knew (in a cluster, who leads the partition may hear of it later than they); and not in one that
came only after the answer. So at no time two members are served from one partition.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.sim.violation import SimViolationError


class _Assignment(NamedTuple):
    op: int  # of the metadata log
    applied: int  # the moment at which the first node knew of it
    owners: Mapping[int, int]  # clients by partition


class _Served(NamedTuple):
    topic: str
    partition: int
    client: int
    invoked: int
    answered: int


class Ownership:
    """The assignments of all groups, one for a topic, and the polls that were served."""

    def __init__(self) -> None:
        self._assignments: dict[str, list[_Assignment]] = {}
        self._confirmed: list[tuple[int, int]] = []  # moment and op, both rising
        self._served: list[_Served] = []

    def assigned(self, op: int, moment: int, owners: Mapping[str, Mapping[int, int]]) -> None:
        """Take note of who owns what of which topic after an op, as the first node applies it."""
        for topic in {**self._assignments, **owners}:
            known = self._assignments.setdefault(topic, [_Assignment(0, 0, {})])
            now = owners.get(topic, {})
            if known[-1].owners != now:
                known.append(_Assignment(op, moment, now))

    def confirmed(self, op: int, moment: int) -> None:
        """Take note that a client was answered with an op of the metadata log."""
        if not self._confirmed or op > self._confirmed[-1][1]:
            self._confirmed.append((moment, op))

    def served(
        self, topic: str, partition: int, client: int, *, invoked: int, answered: int
    ) -> None:
        """Take note of messages that a member was given."""
        self._served.append(_Served(topic, partition, client, invoked, answered))

    def check(self) -> int:
        """Check every poll; return how many there were.

        Raises:
            SimViolationError: Somebody was served who could not own the partition then.
        """
        judged: list[tuple[_Served, int]] = []
        for served in sorted(self._served, key=lambda each: each.invoked):
            before = [
                number
                for other, number in judged
                if other.answered < served.invoked
                and (other.topic, other.partition) == (served.topic, served.partition)
            ]
            first = max([self._known_before(served), *before])
            judged.append((served, self._find(served, first)))
        return len(judged)

    def _known_before(self, served: _Served) -> int:
        """Return the newest assignment that a client had been told of when a poll began."""
        told = max((op for moment, op in self._confirmed if moment < served.invoked), default=0)
        assignments = self._assignments.get(served.topic, [])
        return sum(each.op <= told for each in assignments) - 1

    def _find(self, served: _Served, first: int) -> int:
        """Return the first assignment, from one on, by which a poll was right."""
        assignments = self._assignments.get(served.topic, [])
        for number in range(max(first, 0), len(assignments)):
            one = assignments[number]
            if one.applied < served.answered and one.owners.get(served.partition) == served.client:
                return number
        raise SimViolationError(
            "H11",
            why="served to a client that does not own the partition",
            served=served,
            assignments=assignments[max(first - 1, 0) : first + 3],
        )
