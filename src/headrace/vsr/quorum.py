"""How many replicas must agree on what (VS-2)."""

import msgspec

from headrace.base.limits import REPLICAS_MAX


class Quorums(msgspec.Struct, frozen=True):
    """The quorums of a cluster; a nack quorum and a replication quorum never both exist."""

    replicas: int
    replication: int
    view_change: int
    nack: int


def quorums_of(replicas: int) -> Quorums:
    """Give the quorums of a cluster of that size."""
    assert 1 <= replicas <= REPLICAS_MAX
    replication = 2 if replicas == 2 else min((replicas + 1) // 2, 3)
    nack = replicas - replication + 1
    view_change = 2 if replicas == 2 else nack
    # An op that a quorum acknowledged meets every election and every proof that it never was.
    assert replication + view_change > replicas
    assert replication + nack > replicas
    return Quorums(replicas, replication, view_change, nack)
