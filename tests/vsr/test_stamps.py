"""Stamps rise with the ops of a group, whatever the clocks say (VS-6, CK1)."""

from headrace.sim.machine import encode_append
from headrace.vsr.timeouts import Timer
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from tests.vsr.cluster import Cluster

FAST = 2_000_000
SLOW = 1_000_000


def stamps(cluster: Cluster, node: int) -> list[int]:
    entries = cluster.nodes[node].replica.state.log.entries
    return [entries[op].header.timestamp for op in sorted(entries)]


def deliver(cluster: Cluster, *nodes: int) -> None:
    """Deliver what flies between these nodes, and lose the rest."""
    while cluster.flying:
        sender, sent = cluster.flying[0]
        if sender in nodes and sent.replica in nodes:
            cluster.deliver(0)
        else:
            cluster.flying.pop(0)


def test_a_clock_that_stands_still() -> None:
    cluster = Cluster(3)
    cluster.nodes[0].replica.state.shared.wall = FAST
    cluster.request(0, 1, 0, 0, b"")
    cluster.deliver_all()
    cluster.request(0, 1, 1, 1, encode_append(b"a", b"b"))
    assert stamps(cluster, 0) == [FAST, FAST + 1]


def test_a_primary_that_fetched_its_log_stamps_above_it() -> None:
    """Node 2 gets op 2 by repair, as the new primary, and its clock lags."""
    cluster = Cluster(3)
    for node, wall in enumerate((FAST, SLOW, SLOW)):
        cluster.nodes[node].replica.state.shared.wall = wall
    cluster.request(0, 1, 0, 0, b"")
    cluster.deliver_all()
    cluster.nodes[0].replica.state.shared.wall = 2 * FAST
    cluster.request(0, 1, 1, 1, encode_append(b"a", b"b"))
    cluster.flying = [
        (sender, sent)
        for sender, sent in cluster.flying
        if sent.frame[KIND_OFFSET] != FrameKind.PREPARE or sent.replica == 1
    ]
    deliver(cluster, 0, 1)
    for node in (1, 2):
        cluster.silent(node)
    cluster.flying.clear()
    for node in (1, 2):
        cluster.fire(node, Timer.VIEW_CHANGE_STATUS)
    deliver(cluster, 1, 2)
    assert cluster.nodes[2].replica.is_primary
    cluster.request(2, 1, 2, 1, encode_append(b"a", b"c"))
    assert stamps(cluster, 2)[-2:] == [2 * FAST, 2 * FAST + 1]


def test_stamps_of_ops_that_were_cut_are_forgotten() -> None:
    """The log of node 0 is cut to nothing: its fast clock leaves no trace."""
    cluster = Cluster(3)
    cluster.nodes[0].replica.state.shared.wall = FAST
    cluster.request(0, 1, 0, 0, b"")
    assert cluster.nodes[0].replica.timestamp == FAST
    cluster.flying.clear()
    for node in (1, 2):
        cluster.silent(node)
    deliver(cluster, 1, 2)
    cluster.beat()
    cluster.deliver_all()
    assert [node.replica.op for node in cluster.nodes] == [0, 0, 0]
    assert cluster.nodes[0].replica.timestamp == 0
