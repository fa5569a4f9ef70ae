"""What holds for a replica between any two steps: relations between the values of its state.

Too expensive for every step of a server: tests and the simulator call `Replica.check`. An assertion
that fails here is a fault of ours, never of a peer or a disk.
"""

from collections.abc import Iterable, Iterator

from headrace.base.limits import PIPELINE_OPS_MAX
from headrace.vsr.state import Shared, State, Status, Transfer
from headrace.vsr.timeouts import Timer
from headrace.vsr.transfer_session import OFFERS_MAX, READS_MAX
from headrace.wire.requests import RequestHeader


def check(state: State) -> None:
    """Assert every relation that holds between two steps."""
    assert not state.out, "every effect of a step was handed over"
    _check_commit(state)
    _check_durable(state)
    _check_view(state)
    _check_stamps(state)
    _check_primary(state)
    _check_requests(state)
    _check_lease(state)
    _check_view_change(state)
    _check_recovery(state)
    _check_repair(state)
    _check_transfer(state)
    _check_serving(state)
    _check_timers(state)
    state.table.check(state.commit_min)


def check_shared(shared: Shared, states: Iterable[State]) -> None:
    """Assert that the sums over all groups of a store are those of its groups."""
    groups = {state.options.group: state for state in states}
    fetched = [state.fetched for state in groups.values()]
    assert shared.held.count == sum(map(len, fetched)), "every waiting op is counted once"
    assert shared.held.body_bytes == sum(each.body_bytes for each in fetched), "its body, too"
    for place, group in shared.queued.items():
        assert group in groups, "a request waits in a group that runs"
        assert any((header.client, header.request) == place for header, _ in groups[group].queue), (
            "a request that the shard knows is queued"
        )


def _leads(state: State) -> bool:
    """Return whether the replica has the role of the primary, also if it has stopped leading."""
    return state.status == Status.NORMAL and state.primary == state.options.replica


def _check_commit(state: State) -> None:
    log = state.log
    log.check()
    assert 0 <= state.commit_min <= state.commit_max, "only committed ops are applied"
    assert state.commit_min <= log.head, "an applied op is in the log, or below it"
    assert not state.commit_min or log.get(state.commit_min) is not None, "a vote begins with it"
    assert log.linked <= log.head or log.head == state.commit_min, "the head is linked"
    if log.linked <= state.commit_min + 1 <= log.head:
        first = log.entries[state.commit_min + 1].header
        assert first.parent == log.checksum(state.commit_min), "the log follows what is applied"
    for op in range(max(log.linked, state.commit_min + 1), log.head + 1):
        header = log.entries[op].header
        assert header.group == state.options.group, "a log holds ops of one group"
        assert header.origin == state.options.origin, "a log holds ops of one incarnation"


def _check_durable(state: State) -> None:
    log = state.log
    assert state.durable <= log.head, "what is durable is part of the log"
    if state.durable > state.commit_min:
        assert log.linked <= state.commit_min + 1, "an op is counted as durable once it is linked"
    for op in range(state.commit_min + 1, state.durable + 1):
        entry = log.entries[op]
        assert entry.is_durable, "every op up to the durable one is durable"
        assert entry.body is not None, "a header alone is never counted as durable"
    if state.replicas == 1:
        assert state.commit_max <= state.durable, "a single replica commits what its disk holds"
    if state.transfer != Transfer.INSTALLING and log.linked <= state.durable + 1 <= log.head:
        following = log.entries[state.durable + 1]
        assert not following.is_durable or state.durable < state.commit_min, (
            "the durable op moves on as soon as it can"
        )


def _check_view(state: State) -> None:
    assert 0 <= state.log_view <= state.view, "a log is of the current view or of an older one"
    assert state.durable_view <= (state.view, state.log_view), "the journal knows no later view"
    if state.status == Status.NORMAL:
        assert state.log_view == state.view, "a normal replica has the log of its view"
    if state.durable_view == (state.view, state.log_view):
        assert not state.held, "frames of a view leave as soon as the view is durable"
    assert state.newer_view == 0 or state.newer_view > state.view, "an entered view is not newer"
    assert state.newer_view == 0 or state.status == Status.NORMAL, "only a normal replica probes so"
    if state.replicas == 1:
        assert state.status == Status.NORMAL, "a single replica asks nobody for its view"
    else:
        assert not state.is_tail_lost, "the tail of one replica is what the others say"


def _check_stamps(state: State) -> None:
    head = state.log.get(state.log.head)
    if head is not None:
        assert head.header.timestamp <= state.timestamp, "stamps go on above the log"
        if state.status == Status.NORMAL:
            assert head.header.timestamp == state.timestamp, "no stamp is above the log"


def _check_primary(state: State) -> None:
    log, acknowledged = state.log, state.acknowledged
    assert len(acknowledged) == state.replicas, "every replica may acknowledge"
    if not _leads(state):
        return
    assert state.view_head <= log.head, "what a primary adopted is never cut"
    assert max(acknowledged) <= log.head, "nobody acknowledges what was not ordered"
    assert acknowledged[state.options.replica] == state.durable, "a primary counts its own disk"
    quorum = sorted(acknowledged, reverse=True)[state.options.quorums.replication - 1]
    assert quorum <= state.commit_max, "what a quorum acknowledged is committed at once"
    assert state.commit_max <= log.head, "a primary commits what it ordered"
    assert log.linked <= state.commit_min + 1, "a primary has the whole log"
    if not state.is_halted and state.transfer != Transfer.INSTALLING:
        assert state.commit_min == state.commit_max, "a primary applies what is committed at once"
    assert log.whole_up_to(state.commit_min) == log.head, "a primary has every body"
    assert log.head - state.commit_min <= PIPELINE_OPS_MAX, "a vote names every uncommitted op"
    if state.commit_min >= state.view_head:
        bound = max(state.options.pipeline_max, state.view_head - state.commit_min)
        assert log.head - state.commit_min <= bound, "the pipeline is bounded"


def _check_requests(state: State) -> None:
    """Assert that clients wait for what is queued or ordered, and for nothing else."""
    options, queue = state.options, state.queue
    assert len(queue) <= options.queue_max, "the queue is bounded"
    if not _leads(state):
        assert not queue, "requests are queued by a primary"
        assert not state.in_flight, "a replica that leads no longer has answered its clients"
        return
    if queue and state.is_primary and not state.is_short:
        is_full = state.log.head - state.commit_min >= options.pipeline_max
        assert is_full, "a request waits for a place, or for room in the journal"
    queued = {id_of(header): None for header, _ in queue}
    assert len(queued) == len(queue), "a request is queued once"
    ordered = dict.fromkeys(_ordered(state))
    for key, header in state.in_flight.items():
        assert key[0] == header.client, "a request in flight is known by its client"
        place = id_of(header)
        assert place in queued or place in ordered, "who waits has a request in queue or log"
    waiting = {id_of(header): None for header in state.in_flight.values()}
    assert all(place in waiting for place in queued), "the client of a queued request waits"
    shared = state.shared.queued
    assert all(place[:2] in shared for place in queued), "a queued request is known to the shard"


def id_of(header: RequestHeader) -> tuple[int, int, int]:
    """Return what tells requests apart."""
    return header.client, header.request, header.operation


def _ordered(state: State) -> Iterator[tuple[int, int, int]]:
    for op in range(state.commit_min + 1, state.log.head + 1):
        header = state.log.entries[op].header
        yield header.client, header.request, header.operation


def _check_lease(state: State) -> None:
    lease, now = state.lease, state.shared.now
    assert not lease.promised or _leads(state), "promises end with the view"
    assert state.options.replica not in lease.promised, "a primary promises itself nothing"
    assert all(sent <= now for sent in lease.promised.values()), "a promise answers what was sent"
    longest = state.options.timeouts.heartbeat_timeout * 3 // 4
    assert lease.bound_until <= now + longest, "a promise has an end"


def _check_view_change(state: State) -> None:
    is_changing = state.status == Status.VIEW_CHANGE
    me, parked = state.options.replica, state.parked
    assert not state.suspicions or is_changing, "suspicions end with the view change"
    assert me not in state.suspicions, "only others are counted"
    assert not state.votes or (is_changing and state.primary == me), "the next primary counts votes"
    assert all(vote.replica == voter for voter, vote in state.votes.items()), "a vote has one voter"
    if is_changing:
        assert state.log_view < state.view, "a view that changes has no log yet"
    if parked is None:
        return
    parked.check()
    assert is_changing, "a log is parked until its view starts"
    assert len(state.votes) >= state.options.quorums.view_change, "a quorum has decided the log"
    assert state.commit_min <= parked.head, "a decided log has all that is applied"
    assert state.parked_commit <= parked.head, "a decided log has all that is committed"


def _check_recovery(state: State) -> None:
    is_recovering = state.status == Status.RECOVERING
    assert not state.is_wiped or is_recovering, "a wiped replica takes part in nothing"
    assert not state.reports or state.is_wiped, "only a wiped replica counts reports"
    assert state.options.replica not in state.reports, "a report comes from another replica"
    if state.replicas > 1:
        assert not state.is_suspect or state.status != Status.NORMAL, "an entered view ends doubts"
    if is_recovering:
        assert not state.repairing, "a recovering replica does not know what it misses"
        assert state.transfer == Transfer.NONE, "a recovering replica knows no primary"
    if (is_recovering or state.newer_view > state.view) and not state.is_wiped:
        most = state.options.timeouts.view_probe_attempts_max
        assert 0 < state.probes_sent <= max(most, 1), "probing ends in an election"


def _check_repair(state: State) -> None:
    fetched, held = state.fetched, state.shared.held
    fetched.check()
    assert len(fetched) <= held.count, "the room that waiting ops need is counted"
    assert fetched.body_bytes <= held.body_bytes, "the room that waiting ops need is counted"
    if state.repairing is None:
        assert not len(fetched), "ops wait only while others are asked for"
        return
    low, high = state.repairing
    assert 0 < low <= high, "a repair asks for at least one op"
    assert high - low < state.options.repair_ops_max, "a request names so many ops at most"
    assert state.replicas > 1, "a single replica has nobody to ask"
    assert all(low <= op <= high for op in fetched.ops()), "an op waits because it was asked for"


def _check_transfer(state: State) -> None:
    pull, transfer = state.pull, state.transfer
    assert (pull is None) == (transfer != Transfer.PULLING), "a pull is what the phase says"
    assert transfer != Transfer.WANTED, "a step decides about a wanted transfer"
    if pull is None:
        return
    pull.check()
    assert state.status == Status.NORMAL, "a replica pulls while it is normal"
    assert pull.view == state.view, "a pull ends with its view"
    assert pull.source == state.primary, "only the primary offers its state"
    assert pull.source != state.options.replica, "a primary pulls from nobody"
    assert state.repairing is None, "what a transfer brings is not repaired"


def _check_serving(state: State) -> None:
    """Assert that what others were promised can be served."""
    assert not state.offers or _leads(state), "offers end with the view"
    assert len(state.offers) <= OFFERS_MAX, "offers are bounded"
    for offer in state.offers.values():
        assert 0 < offer.commit <= state.commit_min, "an offer is a state that was reached"
    assert len(state.sending) <= READS_MAX, "reads for transfers are bounded"
    assert len(state.serving) <= 4 * state.options.repair_ops_max, "reads for repairs are bounded"
    tokens = [*state.serving, *state.sending]
    assert len(dict.fromkeys(tokens)) == len(tokens), "a token names one read"
    assert all(0 < token <= state.token for token in tokens), "a token was given before"
    for _, _, op in state.serving.values():
        assert 0 < op <= state.commit_min, "the journal is asked for committed ops"


def _check_timers(state: State) -> None:
    """Assert that whoever waits for something has a timer that ends the wait."""
    timers, status = state.timers, state.status
    is_changing = status == Status.VIEW_CHANGE
    assert (Timer.VIEW_CHANGE_RESEND in timers) == is_changing, "votes are repeated"
    assert (Timer.VIEW_CHANGE_STATUS in timers) == is_changing, "a view change has an end"
    is_probing = status == Status.RECOVERING or state.newer_view > state.view
    assert (Timer.PROBE in timers) == is_probing, "probes are repeated"
    assert (Timer.REPAIR in timers) == (state.repairing is not None), "repairs are repeated"
    assert (Timer.TRANSFER in timers) == (state.pull is not None), "pulls are repeated"
    if state.is_primary and state.replicas > 1 and state.log.head > state.commit_max:
        assert Timer.RETRANSMIT in timers, "prepares without a quorum are repeated"
    if not _leads(state):
        assert Timer.RETRANSMIT not in timers, "only a primary sends prepares again"
