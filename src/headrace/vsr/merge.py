"""Decides what the log of a new view is, from the votes for it (VS-17). A pure function.

An op may be dropped only when a nack quorum proves that it was never acknowledged by a replication
quorum. What cannot be decided waits for more votes: better stalled than silently losing data.
"""

from enum import IntEnum

import msgspec

from headrace.base.limits import PIPELINE_OPS_MAX
from headrace.vsr.quorum import Quorums
from headrace.wire.replica.prepares import PrepareHeader


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's log as it stood when it left its old view.

    `headers` are those it knows from its commit point to its head; `present` are ops whose body it
    can serve, `nacks` ops that it provably never acknowledged. A suspect voter may have lost ops,
    so that the shortness of its log proves nothing. What it knows and is in neither list it may
    have acknowledged, if it is suspect; else nothing on its disk says that it did.
    """

    replica: int
    log_view: int
    op: int
    commit: int
    headers: dict[int, PrepareHeader]
    present: tuple[int, ...]
    nacks: tuple[int, ...]
    is_suspect: bool


class Decision(IntEnum):
    """Whether the votes decide the log."""

    MERGED = 0
    WAIT = 1


class Merged(msgspec.Struct, frozen=True):
    """The log of the new view: its commit point, its head, and the headers between."""

    decision: Decision
    commit: int = 0
    head: int = 0
    headers: dict[int, PrepareHeader] = {}
    was_cut: bool = False  # nacks removed an op that some voter knew
    was_dropped: bool = False  # an op of which no replica has a copy was removed


WAIT = Merged(Decision.WAIT)


def merge(votes: list[Vote], quorums: Quorums) -> Merged:
    """Return the new log, or `WAIT` if more votes are needed.

    Needs a view-change quorum of votes. With the votes of all replicas, "nobody knows of an op
    above" is proof enough even when some are suspect: every op keeps a copy somewhere. For the same
    reason an op that is part of the log and that nobody can serve is then dropped, its header lost
    or not (see `_is_uncommitted` and `_is_lost_to_rot`).
    """
    assert quorums.view_change <= len(votes) <= quorums.replicas, "a replica votes once"
    canonical_view = max(vote.log_view for vote in votes)
    canonical = [vote for vote in votes if vote.log_view == canonical_view]
    commit = _committed(votes, canonical)
    head = max(*(vote.op for vote in canonical), commit)
    assert commit <= head, "a committed op is part of every later log"
    known, linked = _known_headers(votes, canonical, commit, head)
    headers: dict[int, PrepareHeader] = {}
    was_cut = was_dropped = False
    for op in range(max(commit, 1), head + 1):
        header = known.get(op)
        nacks = sum(_nacks(vote, op, header, canonical) for vote in votes)
        if op > commit and nacks >= quorums.nack:
            head = op - 1
            was_cut = True
            break
        if op > commit and not _has_copy(votes, header):
            is_named = op + 1 == linked <= head
            if header is None and not _is_lost_to_rot(votes, canonical, op, is_named=is_named):
                return WAIT
            if not _is_uncommitted(votes, op, quorums):
                return WAIT
            head = op - 1
            was_dropped = True
            break
        if header is None:
            return WAIT
        headers[op] = header
    else:
        if not _ends_here(votes, canonical, head, quorums):
            return WAIT
    if not _is_chain(headers):
        return WAIT
    assert commit <= head, "a committed op is never cut"
    assert len(headers) == head - max(commit, 1) + 1, "every op of the new log is known"
    return Merged(Decision.MERGED, commit, head, headers, was_cut, was_dropped)


def _committed(votes: list[Vote], canonical: list[Vote]) -> int:
    """Return the highest op that the votes prove committed."""
    commit = max(vote.commit for vote in votes)
    for vote in votes:
        for header in vote.headers.values():
            commit = max(commit, header.commit)
    # A primary never has more uncommitted ops than this.
    return max(commit, max(vote.op for vote in canonical) - PIPELINE_OPS_MAX, 0)


def _known_headers(
    votes: list[Vote], canonical: list[Vote], commit: int, head: int
) -> tuple[dict[int, PrepareHeader], int]:
    """Return the headers of the latest log, and the lowest op to which its chain is unbroken.

    A log is trusted from the head down: an op that all voters of the latest view have lost is named
    by the one above, and then any other voter may know it.
    """
    known: dict[int, PrepareHeader] = {}
    linked = head + 1
    for op in range(head, max(commit, 1) - 1, -1):
        above = known[op + 1] if op + 1 == linked <= head else None
        header = _canonical_header(canonical, op)
        if header is None and above is not None:
            header = _header_named(votes, op, above.parent)
        if header is None and op == commit:
            header = _any_header(votes, op)  # Committed ops have one history in every view.
        if header is None:
            continue
        known[op] = header
        if op == head or (above is not None and above.parent == header.checksum):
            linked = op
    assert linked > head or linked in known, "a chain begins at the head"
    return known, linked


def _canonical_header(canonical: list[Vote], op: int) -> PrepareHeader | None:
    for vote in canonical:
        header = vote.headers.get(op)
        if header is not None:
            return header
    return None


def _header_named(votes: list[Vote], op: int, checksum: int) -> PrepareHeader | None:
    """Return the header with this checksum, from whichever view its holder is."""
    for vote in votes:
        header = vote.headers.get(op)
        if header is not None and header.checksum == checksum:
            return header
    return None


def _any_header(votes: list[Vote], op: int) -> PrepareHeader | None:
    """Return a header of a committed op from a voter that knows it to be committed."""
    for vote in votes:
        if vote.commit >= op and op in vote.headers:
            return vote.headers[op]
    return None


def _nacks(vote: Vote, op: int, header: PrepareHeader | None, canonical: list[Vote]) -> bool:
    """Return whether a voter proves that it never acknowledged this op."""
    if op in vote.nacks:
        return True
    if vote.is_suspect:
        return False
    if vote.op < op:
        return True
    held = vote.headers.get(op)
    is_behind = vote.log_view < canonical[0].log_view
    if held is None or not is_behind:
        return False
    if header is None:
        return not all(each.is_suspect for each in canonical)
    return held.checksum != header.checksum


def _has_copy(votes: list[Vote], header: PrepareHeader | None) -> bool:
    return header is not None and any(_serves(vote, header) for vote in votes)


def _serves(vote: Vote, header: PrepareHeader) -> bool:
    held = vote.headers.get(header.op)
    return held is not None and held.checksum == header.checksum and header.op in vote.present


def _is_lost_to_rot(votes: list[Vote], canonical: list[Vote], op: int, *, is_named: bool) -> bool:
    """Return whether damage alone explains that no voter of the latest view knows an op of its log.

    A voter that is not suspect has a hole only where it has not fetched yet what was committed
    before its view. If the op above does not name the lost one, whatever a voter of an older view
    has in its place may be a copy of it.
    """
    assert op <= max(vote.op for vote in canonical), "the log of the latest view reaches the op"
    if not all(vote.is_suspect for vote in canonical if op <= vote.op):
        return False
    return is_named or not any(op in vote.present for vote in votes)


def _is_uncommitted(votes: list[Vote], op: int, quorums: Quorums) -> bool:
    """Return whether the votes of all prove that an op without a copy is uncommitted (FM-6a).

    Had it been committed, a replication quorum would have synced it, and each of these replicas
    would have lost it since: more disks than a cluster survives, for at least one of a replication
    quorum is sound. Beyond that promise a group must halt rather than lose (DK13), so the disks are
    asked too. A lost copy of a suspect voter was synced and counts as acknowledged; one of any
    other voter is torn above its sync point, and does not.

    With a vote missing this proves nothing: the missing voter may have the sound copy. So a torn
    copy is no nack: its sync may have returned, unrecorded, and the copy have rotted after.
    """
    if len(votes) < quorums.replicas:
        return False
    assert not any(op <= vote.commit for vote in votes), "a committed op is not asked about"
    lost = sum(
        vote.is_suspect and op <= vote.op and op not in vote.present and op not in vote.nacks
        for vote in votes
    )
    return lost < quorums.replication


def _ends_here(votes: list[Vote], canonical: list[Vote], head: int, quorums: Quorums) -> bool:
    """Return whether the log provably has no op above the head."""
    assert all(vote.op <= head for vote in canonical), "nothing that the latest view knows is cut"
    if len(votes) == quorums.replicas:
        return True
    return sum(_nacks(vote, head + 1, None, canonical) for vote in votes) >= quorums.nack


def _is_chain(headers: dict[int, PrepareHeader]) -> bool:
    return all(
        headers[op].parent == headers[op - 1].checksum for op in headers if op - 1 in headers
    )
