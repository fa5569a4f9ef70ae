"""The sizes of quorums (VS-2)."""

import msgspec

from headrace.base.limits import REPLICAS_MAX


class Quorums(msgspec.Struct, frozen=True):
    """The quorums of a cluster; a nack quorum and a replication quorum never both exist."""

    replicas: int
    replication: int
    view_change: int
    nack: int


def quorums_of(replicas: int) -> Quorums:
    """Return the quorums of a cluster of that size."""
    assert 1 <= replicas <= REPLICAS_MAX
    replication = 2 if replicas == 2 else min((replicas + 1) // 2, 3)
    nack = replicas - replication + 1
    view_change = 2 if replicas == 2 else nack
    # A replication quorum intersects with every election and with every nack quorum.
    assert replication + view_change > replicas
    assert replication + nack > replicas
    return Quorums(replicas, replication, view_change, nack)
