"""A replica that has promised to stay in its view stays, whatever others or the clock suggest."""

from headrace.vsr.state import Status
from tests.vsr.cluster import Cluster


def test_a_promise_outlives_silence_and_late_questions() -> None:
    """O6.2: the primary counts on it, and answers reads alone."""
    cluster = Cluster(3)
    cluster.restart(1)
    late = [each for each in cluster.flying if each[0] == 1 and each[1].replica == 2]
    assert late
    cluster.deliver_all()
    cluster.silent(2)
    cluster.deliver_all()
    replica = cluster.nodes[2].replica
    assert (replica.view, cluster.nodes[1].replica.is_primary) == (1, True)

    assert replica.promise(1)
    cluster.silent(2)
    cluster.flying += late  # The primary asked for its view before it led this one.
    cluster.deliver_all()
    assert (replica.view, replica.status) == (1, Status.NORMAL)

    cluster.nodes[2].shared.now += 10_000
    assert not replica.is_bound
    cluster.silent(2)
    assert (replica.view, replica.status) == (2, Status.VIEW_CHANGE)
