"""What the votes for a view decide (VS-17), vote by vote."""

from headrace.vsr.merge import Decision, Merged, Vote, merge
from headrace.vsr.quorum import quorums_of
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import seal


def chain(
    *labels: str, start: int = 1, parent: int = 0, commit: int = 0
) -> dict[int, PrepareHeader]:
    """Give prepares that hang together; a label makes two of one op differ."""
    headers = {}
    for op, label in enumerate(labels, start):
        prepare = PrepareHeader(op=op, commit=min(commit, op - 1), parent=parent, client=ord(label))
        header = PREPARE.decode(seal(PREPARE.encode(prepare)))
        headers[op] = header
        parent = header.checksum
    return headers


def vote(
    replica: int,
    headers: dict[int, PrepareHeader],
    *,
    log_view: int = 0,
    commit: int = 0,
    without: tuple[int, ...] = (),
    nacks: tuple[int, ...] = (),
    is_suspect: bool = False,
) -> Vote:
    return Vote(
        replica=replica,
        log_view=log_view,
        op=max([commit, *headers]),
        commit=commit,
        headers=headers,
        present=tuple(op for op in headers if op not in without),
        nacks=nacks,
        is_suspect=is_suspect,
    )


def decide(replicas: int, *votes: Vote) -> Merged:
    return merge(list(votes), quorums_of(replicas))


LOG = chain("a", "b", "c")
SHORT = {1: LOG[1]}


def test_equal_logs_are_kept() -> None:
    merged = decide(3, vote(0, LOG, commit=1), vote(1, LOG))
    assert (merged.decision, merged.commit, merged.head) == (Decision.MERGED, 1, 3)
    assert merged.headers == LOG


def test_one_copy_is_kept_if_only_one_lacks_it() -> None:
    """It may have been committed with the acknowledgement of the third."""
    merged = decide(3, vote(0, LOG), vote(1, SHORT))
    assert merged.head == 3


def test_two_of_three_who_never_had_it_are_proof() -> None:
    merged = decide(3, vote(0, LOG), vote(1, SHORT), vote(2, SHORT))
    assert (merged.head, merged.was_cut) == (1, True)


def test_a_suspect_proves_nothing() -> None:
    """FM-6: a damaged log is neither a copy nor a nack."""
    merged = decide(3, vote(0, LOG), vote(1, SHORT), vote(2, SHORT, is_suspect=True))
    assert merged.head == 3


def test_where_the_log_ends_must_be_proven_too() -> None:
    """The suspect may have held an op that nobody else here knows of."""
    votes = [vote(0, SHORT), vote(1, SHORT, is_suspect=True)]
    assert decide(3, *votes).decision == Decision.WAIT
    assert decide(3, *votes, vote(2, SHORT, is_suspect=True)).head == 1
    assert decide(3, *votes, vote(2, LOG)).head == 3


def test_a_later_log_view_decides() -> None:
    other = chain("a", "x", "y")
    merged = decide(3, vote(0, other, log_view=1), vote(1, LOG, log_view=2))
    assert merged.headers == LOG


def test_what_is_behind_and_different_is_a_nack() -> None:
    """Nobody here can serve op 2, and both prove that they never acknowledged it."""
    other = chain("a", "x")
    log = {1: LOG[1], 2: LOG[2]}
    votes = [
        vote(0, log, log_view=2, without=(2,), nacks=(2,)),
        vote(1, other, log_view=1),
    ]
    assert decide(3, *votes).head == 1


def test_a_header_without_any_body_waits() -> None:
    log = {1: LOG[1], 2: LOG[2]}
    votes = [vote(0, log, without=(2,)), vote(1, SHORT)]
    assert decide(3, *votes).decision == Decision.WAIT
    assert decide(3, *votes, vote(2, log)).head == 2


def test_a_hole_in_the_only_log_waits() -> None:
    log = {1: LOG[1], 3: LOG[3]}
    votes = [vote(0, log), vote(1, SHORT)]
    assert decide(3, *votes).decision == Decision.WAIT
    assert decide(3, *votes, vote(2, LOG)).head == 3


def test_commit_is_the_highest_that_anybody_knows_of() -> None:
    log = chain("a", "b", "c", commit=2)
    merged = decide(3, vote(0, log), vote(1, {}))
    assert merged.commit == 2
    assert sorted(merged.headers) == [2, 3]


def test_the_header_at_the_commit_point_may_come_from_a_lagging_view() -> None:
    low = vote(0, {2: LOG[2]}, log_view=1, commit=2)
    high = vote(1, {}, log_view=2, commit=0, is_suspect=True)
    assert decide(3, low, high).decision == Decision.WAIT
    merged = decide(3, low, high, vote(2, {2: LOG[2]}, log_view=1, commit=2))
    assert (merged.commit, merged.head) == (2, 2)


def test_nothing_at_all() -> None:
    merged = decide(3, vote(0, {}), vote(1, {}))
    assert (merged.commit, merged.head, merged.headers) == (0, 0, {})


def test_a_cluster_of_two_needs_both_votes_and_one_nack() -> None:
    merged = decide(2, vote(0, LOG, without=(3,)), vote(1, {1: LOG[1], 2: LOG[2]}))
    assert (merged.head, merged.was_cut) == (2, True)


TORN = {1: LOG[1], 2: LOG[2]}


def test_a_torn_copy_is_dropped_once_all_have_voted() -> None:
    """FM-6a: each pair waits, for the third might have a copy."""
    votes = [vote(0, SHORT), vote(1, SHORT, is_suspect=True), vote(2, TORN, without=(2,))]
    assert decide(3, votes[0], votes[2]).decision == Decision.WAIT
    assert decide(3, votes[1], votes[2]).decision == Decision.WAIT
    merged = decide(3, *votes)
    assert (merged.decision, merged.head, merged.headers) == (Decision.MERGED, 1, SHORT)
    assert (merged.was_cut, merged.was_dropped) == (False, True)


def test_an_op_that_is_torn_everywhere_is_dropped() -> None:
    """CR3: the power failed everywhere before any sync returned."""
    votes = [vote(replica, TORN, without=(2,)) for replica in range(3)]
    assert decide(3, *votes[:2]).decision == Decision.WAIT
    assert decide(3, *votes).head == 1


def test_a_whole_copy_is_kept_however_many_are_torn() -> None:
    votes = [vote(0, TORN, without=(2,)), vote(1, TORN, without=(2,)), vote(2, TORN)]
    assert decide(3, *votes).head == 2


def test_a_copy_in_an_older_log_is_a_copy() -> None:
    votes = [
        vote(0, TORN, log_view=3, without=(2,)),
        vote(1, SHORT, log_view=3, is_suspect=True),
        vote(2, TORN, log_view=1),
    ]
    assert decide(3, *votes).head == 2


def test_what_follows_a_dropped_op_goes_with_it() -> None:
    """Acknowledgements are cumulative: who lacks op 2 has not acknowledged op 3."""
    votes = [
        vote(0, LOG, without=(2,)),
        vote(1, SHORT, is_suspect=True),
        vote(2, SHORT, is_suspect=True),
    ]
    assert decide(3, *votes).head == 1


def test_one_rotten_copy_is_no_quorum() -> None:
    votes = [
        vote(0, SHORT, is_suspect=True),
        vote(1, TORN, without=(2,)),
        vote(2, TORN, without=(2,), is_suspect=True),
    ]
    assert decide(3, *votes).head == 1


def test_a_quorum_of_rotten_copies_halts() -> None:
    """DK13: it may have been committed, so the group waits for an operator."""
    rotten = [vote(replica, TORN, without=(2,), is_suspect=True) for replica in range(3)]
    assert decide(3, *rotten[:2], vote(2, SHORT)).decision == Decision.WAIT
    assert decide(3, *rotten).decision == Decision.WAIT
    assert decide(2, *rotten[:2]).decision == Decision.WAIT


def test_of_five_three_rotten_copies_halt() -> None:
    rotten = [vote(replica, TORN, without=(2,), is_suspect=True) for replica in range(3)]
    torn = [vote(replica, TORN, without=(2,)) for replica in range(2, 5)]
    assert decide(5, *rotten[:2], *torn).head == 1
    assert decide(5, *rotten, *torn[1:]).decision == Decision.WAIT


def test_a_committed_op_is_never_dropped() -> None:
    """Somebody has applied it; its body comes by repair or transfer."""
    votes = [
        vote(0, SHORT, commit=1, is_suspect=True),
        vote(1, {2: LOG[2]}, commit=2, without=(2,)),
        vote(2, TORN, without=(2,)),
    ]
    assert decide(3, *votes).head == 2


HOLE = {1: LOG[1], 3: LOG[3]}


def test_a_hole_of_rot_that_nobody_has_a_copy_for_is_dropped() -> None:
    """FM-6a: not even the header is left, and what follows goes with it."""
    votes = [vote(0, HOLE, is_suspect=True), vote(1, SHORT, is_suspect=True), vote(2, SHORT)]
    assert decide(3, *votes[:2]).decision == Decision.WAIT
    assert decide(3, votes[0], votes[2]).decision == Decision.WAIT
    merged = decide(3, *votes)
    assert (merged.decision, merged.head, merged.headers) == (Decision.MERGED, 1, SHORT)
    assert (merged.was_cut, merged.was_dropped) == (False, True)


def test_a_replication_quorum_of_holes_halts() -> None:
    """DK13: whether a header is left or not, they may all have acknowledged it."""
    holes = [vote(replica, HOLE, is_suspect=True) for replica in range(3)]
    rotten = vote(1, TORN, without=(2,), is_suspect=True)
    assert decide(3, *holes[:2], vote(2, SHORT)).decision == Decision.WAIT
    assert decide(3, holes[0], rotten, vote(2, SHORT)).decision == Decision.WAIT
    assert decide(3, *holes).decision == Decision.WAIT
    assert decide(5, *holes[:2], *(vote(each, {}, is_suspect=True) for each in (2, 3, 4))).head == 1


def test_a_lost_op_is_known_by_the_name_that_the_next_one_gives_it() -> None:
    """A voter of an older view has it: it is the same op, as its checksum says."""
    votes = [
        vote(0, HOLE, log_view=2, is_suspect=True),
        vote(1, TORN, log_view=1),
        vote(2, SHORT, log_view=1, is_suspect=True),
    ]
    merged = decide(3, *votes)
    assert (merged.decision, merged.head, merged.headers) == (Decision.MERGED, 3, LOG)


def test_several_lost_ops_in_a_row_are_known_by_their_names() -> None:
    log = chain("a", "b", "c", "d")
    votes = [
        vote(0, {1: log[1], 4: log[4]}, log_view=2, is_suspect=True),
        vote(1, {1: log[1], 2: log[2], 3: log[3]}, log_view=1),
        vote(2, SHORT, log_view=1, is_suspect=True),
    ]
    assert decide(3, *votes).headers == log


def test_another_op_in_the_place_of_a_lost_one_is_no_copy() -> None:
    other = chain("a", "x")
    votes = [
        vote(0, HOLE, log_view=2, is_suspect=True),
        vote(1, other, log_view=1),
        vote(2, other, log_view=1),
    ]
    assert decide(3, *votes[:2]).decision == Decision.WAIT
    merged = decide(3, *votes)
    assert (merged.head, merged.was_dropped) == (1, True)


def test_what_may_be_a_copy_of_a_lost_op_is_not_dropped() -> None:
    """Nothing names op 2, for op 3 is lost too: what the older view has may be just that."""
    log = chain("a", "b", "c", "d")
    lost = vote(0, {1: log[1], 4: log[4]}, log_view=2, is_suspect=True)
    suspect = vote(1, SHORT, log_view=1, is_suspect=True)
    holder = vote(2, {1: log[1], 2: log[2]}, log_view=1)
    assert decide(3, lost, suspect, holder).decision == Decision.WAIT
    assert decide(3, lost, suspect, vote(2, SHORT, log_view=1)).head == 1


def test_a_name_that_hangs_from_nothing_is_none() -> None:
    """Between two holes may lie what was left of another log."""
    log = chain("a", "b", "c", "d", "e")
    stale = chain("a", "x", "y")
    lost = vote(0, {1: log[1], 3: stale[3], 5: log[5]}, log_view=2, is_suspect=True)
    suspect = vote(1, SHORT, log_view=1, is_suspect=True)
    holder = vote(2, {op: log[op] for op in (1, 2, 3)}, log_view=1)
    assert decide(3, lost, suspect, holder).decision == Decision.WAIT


def test_a_committed_op_is_known_by_its_name() -> None:
    """Who has it does not know that it is committed."""
    log = chain("a", "b", "c", commit=2)
    votes = [
        vote(0, {1: log[1], 3: log[3]}, log_view=2, is_suspect=True),
        vote(1, {1: log[1], 2: log[2]}, log_view=1),
        vote(2, {}, log_view=1, is_suspect=True),
    ]
    merged = decide(3, *votes)
    assert (merged.commit, merged.head, sorted(merged.headers)) == (2, 3, [2, 3])


def test_a_committed_op_that_nobody_knows_waits() -> None:
    log = chain("a", "b", "c", commit=2)
    lost = vote(0, {1: log[1], 3: log[3]}, is_suspect=True)
    votes = [lost, vote(1, SHORT, is_suspect=True), vote(2, SHORT, is_suspect=True)]
    assert decide(3, *votes).decision == Decision.WAIT


def test_a_hole_that_no_damage_explains_waits() -> None:
    """Its voter has not fetched it yet, so it was committed when the view began."""
    votes = [
        vote(0, {1: LOG[1], 3: LOG[3]}),
        vote(1, SHORT, is_suspect=True),
        vote(2, SHORT, is_suspect=True),
    ]
    assert decide(3, *votes).decision == Decision.WAIT


def test_ops_that_do_not_hang_together_begin_no_view() -> None:
    """No two voters of one view say so; a liar may."""
    other = chain("x", "y")
    merged = decide(3, vote(0, {1: LOG[1]}), vote(1, {2: other[2]}))
    assert merged.decision == Decision.WAIT
