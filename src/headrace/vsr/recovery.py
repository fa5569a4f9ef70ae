"""Recovers a replica: after a restart, when it is left behind, and with an empty disk.

It probes: it asks all replicas for the current view, and is part of no quorum until the primary has
answered (VS-20). A wiped replica also waits for reports of enough others that at least one of them
knows every promise that it has forgotten (FM-7).
"""

from headrace.base.ids import View
from headrace.vsr.state import State, Status
from headrace.vsr.timeouts import Timer
from headrace.wire.replica.views import (
    RECOVERY_REPORT,
    REQUEST_START_VIEW,
    RecoveryReportHeader,
    RequestStartViewHeader,
)


def start_probing(state: State) -> None:
    """Ask all replicas for the view, and repeat that."""
    assert state.replicas > 1, "a single replica has nobody to ask"
    state.probes_sent = 0
    _probe(state)
    state.start_timer(Timer.PROBE, state.options.timeouts.request_start_view_retransmit_interval)


def _probe(state: State) -> None:
    assert state.status != Status.VIEW_CHANGE, "a replica that elects does not probe"
    state.probes_sent += 1
    for replica in state.others:
        state.send_unscoped(
            replica,
            REQUEST_START_VIEW,
            RequestStartViewHeader(
                cluster=state.options.cluster,
                view=state.view,
                replica=state.options.replica,
                group=state.options.group,
                is_wiped=state.is_wiped,
                incarnation=state.options.incarnation,
            ),
        )


def hear_of_view(state: State, view: View) -> None:
    """Record that a later view exists; a primary stops leading at once (VS-14a)."""
    assert view > state.view
    if view <= state.newer_view or state.status != Status.NORMAL:
        return
    assert state.log_view == state.view, "a normal replica has the log of its view"
    state.newer_view = view
    start_probing(state)


def is_probing(state: State) -> bool:
    """Return whether this replica waits for an answer about its view."""
    return state.status == Status.RECOVERING or state.newer_view > state.view


def on_probe_timer(state: State) -> bool:
    """Probe again; return whether it is time to start an election instead."""
    if not is_probing(state):
        return False
    assert state.probes_sent > 0, "the timer runs since the first probe"
    if state.probes_sent >= state.options.timeouts.view_probe_attempts_max and not state.is_wiped:
        return True
    _probe(state)
    state.start_timer(Timer.PROBE, state.options.timeouts.request_start_view_retransmit_interval)
    return False


def report(state: State, sender: int, header: RequestStartViewHeader) -> None:
    """Send the view and the commit point to a wiped replica."""
    assert state.status == Status.NORMAL, "only who knows its view reports"
    assert not state.is_wiped, "a report is a promise that was kept"
    state.send(
        sender,
        RECOVERY_REPORT,
        RecoveryReportHeader(
            cluster=state.options.cluster,
            view=state.view,
            replica=state.options.replica,
            group=state.options.group,
            commit=state.commit_min,
            incarnation=header.incarnation,
        ),
    )


def on_report(state: State, sender: int, header: RecoveryReportHeader) -> None:
    """Count a report, if it answers this start of the node."""
    if state.is_wiped and header.incarnation == state.options.incarnation:
        state.reports[sender] = header.view


def may_install(state: State, view: int, incarnation: int) -> bool:
    """Return whether a recovering replica may enter an announced view."""
    assert state.status == Status.RECOVERING, "others know their view"
    assert len(state.reports) < state.replicas, "a replica does not report to itself"
    is_answer = incarnation == state.options.incarnation
    if not state.is_wiped:
        return is_answer or view > state.view
    enough = len(state.reports) >= state.options.quorums.nack
    return is_answer and enough and view >= max(state.reports.values())
