"""Changes the primary without losing what was committed (VS-14 to VS-23).

    backup: primary silent ── StartViewChange ──▶ all      "I have left the old view"
    each, after enough others ── DoViewChange ──▶ new primary   its log, as headers
    new primary: merges the votes, fetches bodies it lacks ── StartView ──▶ all

A vote or an announcement is sent only after its view is durable in the journal.
"""

from typing import TYPE_CHECKING

from headrace.base.ids import View
from headrace.base.limits import HEADER_BYTES, PIPELINE_OPS_MAX
from headrace.vsr.events import JournalPrepare, JournalTruncate, PrimarySilent
from headrace.vsr.lease import is_bound
from headrace.vsr.log import Log, entry_of
from headrace.vsr.merge import Decision, Merged, Vote, merge
from headrace.vsr.normal import (
    acknowledge,
    advance_durable,
    apply_committed,
    foresee,
    give_up_requests,
)
from headrace.vsr.recovery import may_install, report, start_probing
from headrace.vsr.repair import contradicts_applied, link, missing_range, start_repair, stop_repair
from headrace.vsr.state import State, Status, Transfer
from headrace.vsr.timeouts import Timer
from headrace.vsr.transfer import abandon_pull
from headrace.wire.replica.decode import decode_suffix, encode_suffix
from headrace.wire.replica.views import (
    DO_VIEW_CHANGE,
    START_VIEW,
    START_VIEW_CHANGE,
    DoViewChangeHeader,
    RequestStartViewHeader,
    StartViewChangeHeader,
    StartViewHeader,
)

if TYPE_CHECKING:
    from headrace.wire.replica.prepares import PrepareHeader

_DOUBLINGS_MAX = 2  # of the timeout of a view change, while none succeeds


def start_view_change(state: State, view: View) -> None:
    """Leave the current view for a later one."""
    assert view > state.view
    assert state.replicas > 1, "a single replica leads every view"
    assert not state.is_wiped, "a wiped replica elects nobody"
    state.probes.hit("view_change.started")
    _leave(state)
    assert state.log_view < view, "the log of a new view is not decided yet"
    state.view = view
    state.become(Status.VIEW_CHANGE)
    state.persist_view()
    timeouts = state.options.timeouts
    state.start_timer(Timer.VIEW_CHANGE_RESEND, timeouts.view_change_retransmit_interval)
    # Slow disks may end a view before its votes are durable: the next one gets more time.
    state.restart_timer(
        Timer.VIEW_CHANGE_STATUS, timeouts.view_change_status_timeout, doublings_max=_DOUBLINGS_MAX
    )
    _send_suspicion(state)
    _vote_if_enough(state)


def _leave(state: State) -> None:
    """Reset everything that belongs to the view, and answer waiting clients."""
    give_up_requests(state)
    state.lease.promised.clear()
    state.is_short = False
    state.suspicions.clear()
    state.votes.clear()
    state.parked = None
    state.newer_view = View(0)
    state.wanted_head = 0
    state.reports.clear()
    state.offers.clear()
    state.held.clear()
    stop_repair(state)
    abandon_pull(state)
    assert state.transfer != Transfer.PULLING, "a pull ends with its view"
    assert not state.fetched, "what was fetched belongs to the log of the view"
    state.stop_timer(Timer.RETRANSMIT)
    state.stop_timer(Timer.PROBE)


def _send_suspicion(state: State) -> None:
    assert state.log_view < state.view, "who has left the view has not entered the next"
    for replica in state.others:
        state.send(
            replica,
            START_VIEW_CHANGE,
            StartViewChangeHeader(
                cluster=state.options.cluster,
                view=state.view,
                replica=state.options.replica,
                group=state.options.group,
            ),
        )


def on_start_view_change(state: State, sender: int, header: StartViewChangeHeader) -> None:
    """Leave the view with another replica, and count it."""
    if state.status == Status.RECOVERING:
        return
    if header.view > state.view:
        if is_bound(state) and sender != state.primary:
            state.probes.hit("view_change.stayed_as_promised")  # The sender repeats it (VS-21).
            return
        start_view_change(state, View(header.view))
    if header.view < state.view or state.status == Status.NORMAL:
        if state.is_primary:
            send_start_view(state, sender, 0)
        return
    assert state.status == Status.VIEW_CHANGE, "suspicions are counted in a view change"
    assert header.view == state.view, "a suspicion counts for its own view"
    state.suspicions[sender] = None
    _vote_if_enough(state)


def _vote_if_enough(state: State) -> None:
    """Vote as soon as enough others have left the old view too."""
    if len(state.suspicions) < (state.replicas - 1) // 2:
        return
    _send_vote(state)


def _send_vote(state: State) -> None:
    assert state.status == Status.VIEW_CHANGE, "votes are cast in a view change"
    assert not state.is_wiped, "a wiped replica elects nobody"
    header, body = _make_vote(state)
    if state.primary == state.options.replica:
        _count_vote(state, state.options.replica, header, body)
    else:
        state.send(state.primary, DO_VIEW_CHANGE, header, body)


def _make_vote(state: State) -> tuple[DoViewChangeHeader, bytes]:
    """Return a vote: our log from the commit point to the head, newest first."""
    log = state.log
    head = log.head
    commit = min(state.commit_max, head)
    assert state.log_view < state.view, "a vote tells of the log of an older view"
    assert state.commit_min <= commit, "what is applied is committed"
    ops = range(head, max(commit, 1) - 1, -1)
    present = nack = 0
    suffix: list[bytes | None] = []
    parent = None
    for position, op in enumerate(ops):
        entry = log.get(op)
        if entry is not None and parent is not None and entry.header.checksum != parent:
            entry = None  # From another log: a crash prevented its replacement.
        parent = None if entry is None else entry.header.parent
        suffix.append(None if entry is None else entry.data)
        if entry is not None and (entry.body is not None or op <= state.commit_min):
            present |= 1 << position
        if entry is not None and entry.body is None and entry.is_never_held:
            nack |= 1 << position
    body = encode_suffix(suffix)
    header = DoViewChangeHeader(
        cluster=state.options.cluster,
        size=HEADER_BYTES + len(body),
        view=state.view,
        replica=state.options.replica,
        op=head,
        commit=commit,
        group=state.options.group,
        log_view=state.log_view,
        is_suspect=state.is_suspect,
        nack_bitset=nack,
        present_bitset=present,
    )
    return header, body


def on_do_view_change(state: State, sender: int, header: DoViewChangeHeader, body: bytes) -> None:
    """Collect a vote for a view that this replica will lead."""
    if state.status == Status.RECOVERING or header.view % state.replicas != state.options.replica:
        return
    if header.view > state.view:
        start_view_change(state, View(header.view))
    if header.view < state.view or state.status == Status.NORMAL:
        if state.is_primary:
            send_start_view(state, sender, 0)
        return
    if state.parked is None:
        _count_vote(state, sender, header, body)


def _count_vote(state: State, sender: int, header: DoViewChangeHeader, body: bytes) -> None:
    assert state.primary == state.options.replica, "the next primary counts the votes"
    assert header.view == state.view, "a vote counts for its own view"
    state.votes[sender] = _read_vote(sender, header, body)
    if len(state.votes) < state.options.quorums.view_change:
        return
    merged = merge(list(state.votes.values()), state.options.quorums)
    if merged.decision == Decision.WAIT:
        state.probes.hit("view_change.waited_for_more")
        return
    if merged.was_cut:
        state.probes.hit("view_change.merged_by_nacks")
    if merged.was_dropped:
        state.probes.hit("view_change.dropped_without_copy")
    _park(state, merged)


def _read_vote(sender: int, header: DoViewChangeHeader, body: bytes) -> Vote:
    headers: dict[int, PrepareHeader] = {}
    present = []
    nacks = []
    for position, each in enumerate(decode_suffix(body)):
        op = header.op - position
        if each is None:
            continue
        assert each.op == op  # as it was decoded
        headers[op] = each
        if header.present_bitset >> position & 1:
            present.append(op)
        if header.nack_bitset >> position & 1:
            nacks.append(op)
    return Vote(
        replica=sender,
        log_view=header.log_view,
        op=header.op,
        commit=header.commit,
        headers=headers,
        present=tuple(present),
        nacks=tuple(nacks),
        is_suspect=header.is_suspect != 0,
    )


def _park(state: State, merged: Merged) -> None:
    """Keep the decided log beside our own until all of its bodies are here (VS-18)."""
    assert merged.decision == Decision.MERGED, "an undecided log is not kept"
    assert merged.commit <= merged.head, "a decided log has all that is committed"
    log = Log(merged.head)
    for op in sorted(merged.headers, reverse=True):
        header = merged.headers[op]
        own = state.log.get(op)
        is_own = own is not None and own.header.checksum == header.checksum
        log.put(own if own is not None and is_own else entry_of(header, None, is_never_held=True))
        log.linked = op
    if merged.commit <= state.commit_min:
        log.linked = max(log.linked, min(state.commit_min + 1, log.head + 1))
    if contradicts_applied(state, log):
        state.probes.hit("contradiction.votes")
        return
    state.parked = log
    state.parked_commit = merged.commit
    link(state, log)
    start_view_if_complete(state)
    if state.status == Status.VIEW_CHANGE:
        start_repair(state, _richest_voter(state))


def _richest_voter(state: State) -> int:
    """Return the voter that has most of the decided log, to be asked first."""
    assert len(state.votes) >= state.options.quorums.view_change, "a quorum has decided the log"
    others = [vote for vote in state.votes.values() if vote.replica != state.options.replica]
    if not others:
        return state.options.replica
    return max(others, key=lambda vote: (len(vote.present), vote.op)).replica


def start_view_if_complete(state: State) -> None:
    """Lead the view as soon as the whole decided log is here."""
    log = state.parked
    if log is None or state.status != Status.VIEW_CHANGE:
        return
    if log.linked > state.commit_min + 1 or missing_range(state) is not None:
        return
    assert state.primary == state.options.replica, "the next primary starts the view"
    assert state.log_view < state.view, "a view starts once"
    bodies = _bodies_to_journal(state, log)
    if bodies and not state.shared.has_room(bodies[0], bodies[1:]):
        state.probes.hit("view_change.without_room")
        return
    state.probes.hit("view_change.completed")
    commit = state.parked_commit
    _install(state, log)
    _enter(state, commit)
    assert state.log is log, "a primary leads with the decided log"
    assert state.commit_min <= log.head, "a decided log has all that is applied"
    state.view_head = log.head
    state.acknowledged = [0] * state.replicas
    state.acknowledged[state.options.replica] = min(state.durable, log.head)
    for replica in state.others:
        send_start_view(state, replica, 0)
    advance_durable(state)
    apply_committed(state)
    foresee(state)
    if log.head > state.commit_max:
        state.start_timer(Timer.RETRANSMIT, state.options.timeouts.prepare_retransmit_interval)


def _bodies_to_journal(state: State, log: Log) -> list[int]:
    """Return the sizes of the bodies of a decided log that are not journaled yet."""
    return [
        len(entry.body)
        for op, entry in log.entries.items()
        if op > state.commit_min and entry.body is not None and not entry.is_durable
    ]


def _install(state: State, log: Log) -> None:
    """Replace our log by a decided one, in memory and in the journal."""
    old = state.log
    assert state.commit_min <= log.head, "what is applied is never cut"
    assert state.durable <= old.head, "durable ops are a part of the log"
    if old.head > log.head and any(op > log.head for op in old.entries):
        state.probes.hit("log.truncated")
        state.out.append(JournalTruncate(log.head + 1))
    for op in range(max(log.linked, state.commit_min + 1), log.head + 1):
        entry = log.entries[op]
        own = old.get(op)
        is_own = own is not None and own.header.checksum == entry.header.checksum
        if own is not None and is_own and (own.body is not None or entry.body is None):
            log.put(own)
            continue
        state.out.append(
            JournalPrepare(op, entry.header.checksum, entry.data, entry.body, entry.is_never_held)
        )
    for op, entry in old.entries.items():
        if op < log.linked and op not in log.entries:
            log.put(entry)
    state.durable = min(state.durable, log.head)
    _lower_durable(state, old, log)
    assert state.durable <= log.head, "what was cut is not acknowledged"
    state.log = log
    state.parked = None
    state.fetched.clear()


def _lower_durable(state: State, old: Log, log: Log) -> None:
    """Lower the durable op to what both logs share: replaced ops are no longer on the disk."""
    if log.linked > state.commit_min + 1:
        state.durable = min(state.durable, state.commit_min)
    for op in range(max(log.linked, state.commit_min + 1), min(state.durable, log.head) + 1):
        before = old.get(op)
        if before is None or before.header.checksum != log.entries[op].header.checksum:
            state.durable = op - 1
            assert state.durable >= state.commit_min, "what is applied is in both logs"
            return


def _enter(state: State, commit: int) -> None:
    """Become normal in the view whose log was installed."""
    state.become(Status.NORMAL)
    state.log_view = state.view
    state.is_suspect = False
    state.is_wiped = False
    state.newer_view = View(0)
    state.votes.clear()
    state.suspicions.clear()
    assert state.transfer != Transfer.PULLING, "a pull ends with its view"
    assert state.commit_min <= state.log.head, "an entered log has all that is applied"
    state.commit_max = max(state.commit_max, commit)
    head = state.log.get(state.log.head)
    assert (head is None) == (state.log.head == 0), "the head of a log is known"
    # Stamps continue from this log: an op that it does not have was never stamped (CK1).
    state.timestamp = 0 if head is None else head.header.timestamp
    stop_repair(state)
    state.stop_timer(Timer.VIEW_CHANGE_RESEND)
    state.stop_timer(Timer.VIEW_CHANGE_STATUS)
    state.attempts.pop(Timer.VIEW_CHANGE_STATUS, None)
    state.stop_timer(Timer.PROBE)
    state.persist_view()


def send_start_view(state: State, replica: int, incarnation: int) -> None:
    """Announce the view and its log, from our own commit point on if that fits."""
    assert state.status == Status.NORMAL
    log = state.log
    commit = min(state.commit_max, log.head)
    low = max(min(commit, state.commit_min), log.head - PIPELINE_OPS_MAX, 1)
    assert low <= max(commit, 1)
    entries = [log.get(op) for op in range(log.head, low - 1, -1)]
    body = b"".join(entry.data for entry in entries if entry is not None)
    assert len(body) == len(entries) * HEADER_BYTES
    state.send(
        replica,
        START_VIEW,
        StartViewHeader(
            cluster=state.options.cluster,
            size=HEADER_BYTES + len(body),
            view=state.view,
            replica=state.options.replica,
            op=log.head,
            commit=commit,
            group=state.options.group,
            incarnation=incarnation,
        ),
        body,
    )


def on_start_view(state: State, sender: int, header: StartViewHeader, body: bytes) -> None:
    """Enter an announced view as a backup (VS-19)."""
    if header.view < state.view or header.view % state.replicas != sender:
        return
    if header.view == state.view and state.status == Status.NORMAL:
        return
    if state.status == Status.RECOVERING and not may_install(
        state, header.view, header.incarnation
    ):
        return
    log = _read_log(state, header, body)
    if log is None:
        return
    if state.status == Status.RECOVERING:
        state.probes.hit(
            "recovery.wiped_recovered" if state.is_wiped else "recovery.probe_answered"
        )
    _leave(state)
    state.view = View(header.view)
    _install(state, log)
    _enter(state, header.commit)
    acknowledge(state)
    advance_durable(state)
    apply_committed(state)
    start_repair(state, state.primary)


def _read_log(state: State, header: StartViewHeader, body: bytes) -> Log | None:
    """Return an announced log; None if it lacks or contradicts applied ops."""
    suffix = decode_suffix(body)
    if header.op < state.commit_min:
        return None
    log = Log(header.op)
    assert state.commit_min <= log.head, "an announced log has all that is applied"
    is_clean = not state.is_suspect and not state.is_wiped
    for position, each in enumerate(suffix):
        op = header.op - position
        assert each is not None  # as it was decoded
        assert each.op == op
        own = state.log.get(op)
        is_own = own is not None and own.header.checksum == each.checksum
        entry = own if own is not None and is_own else entry_of(each, None, is_never_held=is_clean)
        log.put(entry)
        log.linked = op
    log.linked = max(log.linked, min(state.commit_min + 1, log.head + 1))
    if contradicts_applied(state, log):
        state.probes.hit("contradiction.announcement")
        return None
    link(state, log)
    return log


def on_request_start_view(state: State, sender: int, header: RequestStartViewHeader) -> None:
    """Answer a replica that does not know its view; elect if it is the primary of ours."""
    if state.status != Status.NORMAL:
        return
    if state.is_primary:
        if header.is_wiped:
            report(state, sender, header)
        send_start_view(state, sender, header.incarnation)
    elif sender == state.primary:
        # A probe from before this view is late, and does not show that the primary has failed.
        if header.view >= state.view or not is_bound(state):
            start_view_change(state, View(state.view + 1))
    elif header.is_wiped:
        report(state, sender, header)


def on_view_change_resend_timer(state: State) -> None:
    """Repeat the suspicion and the vote (VS-21)."""
    if state.status != Status.VIEW_CHANGE:
        return
    assert not state.is_wiped, "a wiped replica elects nobody"
    _send_suspicion(state)
    if len(state.suspicions) >= (state.replicas - 1) // 2 and state.parked is None:
        _send_vote(state)
    state.start_timer(
        Timer.VIEW_CHANGE_RESEND, state.options.timeouts.view_change_retransmit_interval
    )


def on_view_change_status_timer(state: State) -> None:
    """Try the next view: the change to this one did not succeed in time."""
    if state.status == Status.VIEW_CHANGE:
        start_view_change(state, View(state.view + 1))


def on_primary_silent(state: State, _: PrimarySilent) -> None:
    """Start a view change; if a later view is known, probe for it instead (VS-14)."""
    if state.status != Status.NORMAL or state.primary == state.options.replica:
        return
    if is_bound(state):
        return
    if state.newer_view > state.view:
        start_probing(state)
    else:
        start_view_change(state, View(state.view + 1))
