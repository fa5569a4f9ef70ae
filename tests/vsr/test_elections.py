"""How long a replica gives an election."""

from headrace.vsr.state import Status
from headrace.vsr.timeouts import Timeouts, Timer
from tests.vsr.cluster import Cluster

BASE = Timeouts().view_change_status_timeout


def test_each_election_that_fails_gives_the_next_one_longer_up_to_four_times() -> None:
    """Where disks are so slow that votes come late, equal waits would end every view too early."""
    cluster = Cluster(3)
    cluster.silent(2)
    waits = []
    for _ in range(5):
        waits.append(cluster.nodes[2].timers[Timer.VIEW_CHANGE_STATUS])
        cluster.flying.clear()
        cluster.fire(2, Timer.VIEW_CHANGE_STATUS)
    lows = [BASE, 2 * BASE, 4 * BASE, 4 * BASE, 4 * BASE]
    assert all(low <= wait < 2 * low for low, wait in zip(lows, waits, strict=True))


def test_an_election_that_succeeds_starts_from_the_first_wait() -> None:
    cluster = Cluster(3)
    cluster.silent(2)
    for _ in range(3):
        cluster.flying.clear()
        cluster.fire(2, Timer.VIEW_CHANGE_STATUS)
    cluster.fire(2, Timer.VIEW_CHANGE_RESEND)
    cluster.deliver_all()
    replica = cluster.nodes[2].replica
    assert replica.status == Status.NORMAL
    backup = next(node for node in cluster.nodes if not node.replica.is_primary)
    cluster.silent(backup.number)
    assert backup.replica.status == Status.VIEW_CHANGE
    assert BASE <= backup.timers[Timer.VIEW_CHANGE_STATUS] < 2 * BASE
