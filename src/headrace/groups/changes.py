"""What changes a consumer group: a member comes, a member goes, the partitions change.

Every change deals all partitions anew, in turn: partition i goes to member i mod members, in order
of keys (CG-7). A join, too: handing over in steps what its owner still works on (CG-6) comes later
and changes this module alone.

Invariants: whatever was dealt, each partition has exactly one owner if there is a member, and the
            shares of members differ by one at most.
"""

from headrace.groups.roster import Member, Roster, is_member, make_roster


def join(roster: Roster, *, client: int, partitions_count: int) -> Roster:
    """Add a client; one that is a member already changes nothing, not even the generation."""
    assert partitions_count >= 0
    if is_member(roster, client):
        return roster
    key = _lowest_free_key(roster)
    members = (*roster.members[:key], Member(key, client), *roster.members[key:])
    return _deal(roster.generation + 1, members, partitions_count)


def leave(roster: Roster, *, client: int, partitions_count: int) -> Roster:
    """Remove a member; what it had goes to the others."""
    assert partitions_count >= 0
    assert is_member(roster, client)
    members = tuple([member for member in roster.members if member.client != client])
    return _deal(roster.generation + 1, members, partitions_count)


def redeal(roster: Roster, *, partitions_count: int) -> Roster:
    """Deal again after the partitions of the topic changed."""
    assert partitions_count >= 0
    return _deal(roster.generation + 1, roster.members, partitions_count)


def _lowest_free_key(roster: Roster) -> int:
    """Keys below it are taken without a gap, so it is also where its member stands."""
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
