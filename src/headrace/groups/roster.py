"""The members of a consumer group, and the partitions of each.

A member owns its partitions: it may commit offsets on them and poll them. The two permissions are
separate functions because cooperative rebalancing will separate them: a partition under revocation
is owned by its old member and polled by nobody (CG-4).

Invariants: members are in the order of their keys; keys and clients are unique; a partition has at
            most one owner.
"""

from itertools import pairwise

import msgspec


class Member(msgspec.Struct, frozen=True):
    """One client in a group; its key is the lowest free one at the time it joined."""

    key: int
    client: int
    partitions: tuple[int, ...] = ()


class Roster(msgspec.Struct, frozen=True):
    """The members of a group with their partitions; a new assignment has a new generation."""

    generation: int
    members: tuple[Member, ...]
    owners: dict[int, Member]  # by partition
    clients: dict[int, Member]


def make_roster(generation: int, members: tuple[Member, ...]) -> Roster:
    """Return a roster with its indexes."""
    assert generation >= 0
    assert all(left.key < right.key for left, right in pairwise(members))
    clients = {member.client: member for member in members}
    owners = {partition: member for member in members for partition in member.partitions}
    assert len(clients) == len(members)
    assert len(owners) == sum(len(member.partitions) for member in members)
    return Roster(generation, members, owners, clients)


EMPTY_ROSTER = make_roster(0, ())


def is_member(roster: Roster, client: int) -> bool:
    """Return whether the client belongs to the group."""
    return client in roster.clients


def may_poll(roster: Roster, *, client: int, partition: int) -> bool:
    """Return whether the client may poll this partition now (CG-14)."""
    return owns(roster, client=client, partition=partition)


def owns(roster: Roster, *, client: int, partition: int) -> bool:
    """Return whether the client may commit on this partition (CG-15)."""
    owner = roster.owners.get(partition)
    return owner is not None and owner.client == client


def pollable(roster: Roster, client: int) -> tuple[int, ...] | None:
    """Return the partitions that a member may poll; None if the client is no member (CG-5)."""
    member = roster.clients.get(client)
    return None if member is None else member.partitions
