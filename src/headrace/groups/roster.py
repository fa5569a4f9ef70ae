"""Who belongs to a consumer group, and which partitions each member has.

A member owns its partitions; it may commit on those and poll them. The two questions are asked
apart because a hand-over in steps will part them: then a partition that is being handed over is
owned by its old member and polled by nobody (CG-4).

Invariants: members stand in order of their keys; a key and a client stand once; a partition has one
            owner at most.
"""

from itertools import pairwise

import msgspec


class Member(msgspec.Struct, frozen=True):
    """One client in a group; its key is the lowest that was free when it joined."""

    key: int
    client: int
    partitions: tuple[int, ...] = ()


class Roster(msgspec.Struct, frozen=True):
    """The members of a group and what they have; a new generation means a new assignment."""

    generation: int
    members: tuple[Member, ...]
    owners: dict[int, Member]  # by partition
    clients: dict[int, Member]


def make_roster(generation: int, members: tuple[Member, ...]) -> Roster:
    """Give a roster with its indexes."""
    assert generation >= 0
    assert all(left.key < right.key for left, right in pairwise(members))
    clients = {member.client: member for member in members}
    owners = {partition: member for member in members for partition in member.partitions}
    assert len(clients) == len(members)
    assert len(owners) == sum(len(member.partitions) for member in members)
    return Roster(generation, members, owners, clients)


EMPTY_ROSTER = make_roster(0, ())


def is_member(roster: Roster, client: int) -> bool:
    """Whether the client belongs to the group."""
    return client in roster.clients


def may_poll(roster: Roster, *, client: int, partition: int) -> bool:
    """Whether the client may be served from this partition now (CG-14)."""
    return owns(roster, client=client, partition=partition)


def owns(roster: Roster, *, client: int, partition: int) -> bool:
    """Whether the client may commit on this partition (CG-15)."""
    owner = roster.owners.get(partition)
    return owner is not None and owner.client == client


def pollable(roster: Roster, client: int) -> tuple[int, ...] | None:
    """Give the partitions that a member may poll; nothing if the client is none (CG-5)."""
    member = roster.clients.get(client)
    return None if member is None else member.partitions
