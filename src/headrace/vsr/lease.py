"""The lease of a primary: backups have promised to stay in its view, so nobody else leads (O6.2).

    primary ── heartbeat n, asks ──▶ backup       sent at t
    primary ◀── acknowledges n, promises ── backup    "I follow nobody out of this view for a while"

A promise is valid for three quarters of a heartbeat timeout, from the moment the backup makes it.
The primary relies on it for half a timeout, from the moment it sent the heartbeat that the promise
answers. So the primary stops first, although the two clocks run at different rates. A backup that
restarts probes for longer than that before it takes part in an election.

Invariants: while a majority has promised, the remaining replicas are too few to elect a primary.
"""

from headrace.vsr.state import State, Status


def promise(state: State, view: int) -> bool:
    """Promise to stay in a view, if this replica is a backup in it; return whether it did."""
    if (
        state.status != Status.NORMAL
        or view != state.view
        or state.primary == state.options.replica
        or state.newer_view > state.view
    ):
        return False
    ticks = state.options.timeouts.heartbeat_timeout * 3 // 4
    assert state.log_view == state.view, "a replica stays in a view whose log it has"
    assert state.lease.bound_until <= state.shared.now + ticks, "a promise is never cut short"
    state.lease.bound_until = state.shared.now + ticks
    return True


def is_bound(state: State) -> bool:
    """Return whether a promise keeps this replica in its view."""
    return state.status == Status.NORMAL and state.shared.now < state.lease.bound_until


def hear_promise(state: State, sender: int, view: int, sent: int) -> None:
    """Record a promise; it is valid from the tick of the heartbeat that it answers."""
    if state.is_primary and view == state.view:
        assert sender != state.options.replica, "a majority is counted with ourselves added"
        assert sent <= state.shared.now, "a promise answers what was sent before"
        promised = state.lease.promised
        promised[sender] = max(sent, promised.get(sender, 0))


def has_proof(state: State) -> bool:
    """Return whether a majority has promised to stay, so that nobody else can lead now."""
    oldest = state.shared.now - state.options.timeouts.heartbeat_timeout // 2
    staying = 1 + sum(sent > oldest for sent in state.lease.promised.values())
    assert staying <= state.replicas, "each replica is counted once"
    return staying > state.replicas // 2
