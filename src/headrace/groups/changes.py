"""Changes of a consumer group: a member joins, a member leaves, the partitions change.

Every change, a join included, assigns all partitions again, round robin: partition i belongs to
member i mod members, in the order of keys (CG-7). Cooperative rebalancing, which waits until the
old owner has finished (CG-6), comes later and changes this module alone.

Invariants: if there is a member, each partition has exactly one owner, and the numbers of
            partitions of two members differ by one at most.
"""

from headrace.groups.roster import Member, Roster, is_member, make_roster


def join(roster: Roster, *, client: int, partitions_count: int) -> Roster:
    """Add a client; for an existing member nothing changes, not even the generation."""
    assert partitions_count >= 0
    if is_member(roster, client):
        return roster
    key = _lowest_free_key(roster)
    members = (*roster.members[:key], Member(key, client), *roster.members[key:])
    return _deal(roster.generation + 1, members, partitions_count)


def leave(roster: Roster, *, client: int, partitions_count: int) -> Roster:
    """Remove a member; its partitions are assigned to the others."""
    assert partitions_count >= 0
    assert is_member(roster, client)
    members = tuple([member for member in roster.members if member.client != client])
    return _deal(roster.generation + 1, members, partitions_count)


def redeal(roster: Roster, *, partitions_count: int) -> Roster:
    """Assign again after the partitions of the topic changed."""
    assert partitions_count >= 0
    return _deal(roster.generation + 1, roster.members, partitions_count)


def _lowest_free_key(roster: Roster) -> int:
    """Return the lowest free key, which is also the position of its member."""
    for position, member in enumerate(roster.members):
        if member.key != position:
            return position
    return len(roster.members)


def _deal(generation: int, members: tuple[Member, ...], partitions_count: int) -> Roster:
    count = len(members)
    dealt = tuple(
        [
            Member(member.key, member.client, tuple(range(position, partitions_count, count)))
            for position, member in enumerate(members)
        ]
    )
    roster = make_roster(generation, dealt)
    assert len(roster.owners) == (partitions_count if members else 0)
    return roster
