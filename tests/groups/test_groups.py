import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.changes import join, leave, redeal
from headrace.groups.roster import (
    EMPTY_ROSTER,
    Member,
    Roster,
    is_member,
    make_roster,
    may_poll,
    owns,
    pollable,
)


def test_nobody_owns_what_nobody_may_poll() -> None:
    assert pollable(EMPTY_ROSTER, 1) is None
    assert not owns(EMPTY_ROSTER, client=1, partition=0)
    assert not may_poll(EMPTY_ROSTER, client=1, partition=0)


def test_more_members_than_partitions() -> None:
    roster = EMPTY_ROSTER
    for client in (7, 8, 9):
        roster = join(roster, client=client, partitions_count=2)
    assert [member.partitions for member in roster.members] == [(0,), (1,), ()]
    assert pollable(roster, 9) == ()


def test_the_last_member_leaves_all_partitions_unowned() -> None:
    roster = leave(join(EMPTY_ROSTER, client=7, partitions_count=2), client=7, partitions_count=2)
    assert (roster.generation, roster.members, roster.owners) == (2, (), {})


def test_who_is_no_member_cannot_leave() -> None:
    with pytest.raises(AssertionError):
        leave(EMPTY_ROSTER, client=7, partitions_count=1)


def test_a_roster_keeps_its_invariants() -> None:
    for members in (
        (Member(0, 1), Member(0, 2)),
        (Member(1, 1), Member(0, 2)),
        (Member(0, 1), Member(1, 1)),
        (Member(0, 1, (3,)), Member(1, 2, (3,))),
    ):
        with pytest.raises(AssertionError):
            make_roster(1, members)


moves = st.lists(st.tuples(st.sampled_from(("join", "leave", "deal")), st.integers(0, 7)))


@given(moves)
def test_shares_are_whole_even_and_unique(run: list[tuple[str, int]]) -> None:
    roster: Roster = EMPTY_ROSTER
    partitions_count = 5
    for move, number in run:
        before = roster
        was_member = is_member(roster, number)
        if move == "join":
            roster = join(roster, client=number, partitions_count=partitions_count)
            assert (roster is before) == was_member
        elif move == "leave" and was_member:
            roster = leave(roster, client=number, partitions_count=partitions_count)
        elif move == "deal":
            partitions_count = number
            roster = redeal(roster, partitions_count=partitions_count)
        assert roster.generation == before.generation + (roster is not before)
        shares = [member.partitions for member in roster.members]
        dealt = sorted(partition for share in shares for partition in share)
        assert dealt == (list(range(partitions_count)) if shares else [])
        sizes = [len(share) for share in shares]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        for member in roster.members:
            for partition in range(partitions_count):
                has = partition in member.partitions
                assert may_poll(roster, client=member.client, partition=partition) == has
                assert owns(roster, client=member.client, partition=partition) == has


@given(moves)
def test_keys_are_the_lowest_free(run: list[tuple[str, int]]) -> None:
    roster: Roster = EMPTY_ROSTER
    for move, number in run:
        keys = [member.key for member in roster.members]
        if move == "leave" and is_member(roster, number):
            roster = leave(roster, client=number, partitions_count=1)
        elif move == "join" and not is_member(roster, number):
            roster = join(roster, client=number, partitions_count=1)
            assert roster.clients[number].key == next(k for k in range(99) if k not in keys)
