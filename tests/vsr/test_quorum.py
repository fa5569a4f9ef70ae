import pytest

from headrace.vsr.quorum import Quorums, quorums_of


@pytest.mark.parametrize(
    ("replicas", "replication", "view_change", "nack"),
    [(1, 1, 1, 1), (2, 2, 2, 1), (3, 2, 2, 2), (4, 2, 3, 3), (5, 3, 3, 3), (6, 3, 4, 4)],
)
def test_the_table(replicas: int, replication: int, view_change: int, nack: int) -> None:
    """VS-2."""
    assert quorums_of(replicas) == Quorums(replicas, replication, view_change, nack)


@pytest.mark.parametrize("replicas", [0, 7])
def test_other_sizes_are_none(replicas: int) -> None:
    with pytest.raises(AssertionError):
        quorums_of(replicas)
