"""A primary counts on promises of its own view only (O6.2)."""

from tests.vsr.cluster import Cluster

REPLICAS = 3


def elect_next(cluster: Cluster) -> None:
    """Have the backups leave the view, and enter the next one."""
    view = cluster.nodes[0].replica.view
    for node in cluster.nodes:
        if not node.replica.is_primary:
            cluster.silent(node.number)
    cluster.deliver_all()
    assert cluster.nodes[0].replica.view == view + 1


def test_promises_end_with_the_view_for_which_they_were_made() -> None:
    cluster = Cluster(REPLICAS)
    first = cluster.nodes[0].replica
    current = [first.is_current]
    first.hear_promise(1, 0, 0)
    current.append(first.is_current)
    for _ in range(REPLICAS):
        elect_next(cluster)
    current.append(first.is_current)
    assert first.is_serving
    assert current == [False, True, False]
