"""Offsets that a partition may have given out are known by its own ceiling alone (FM-7)."""

from headrace.shard.consensus.ceilings import Ceilings


def test_a_ceiling_counts_once_it_is_durable() -> None:
    ceilings = Ceilings([(1, 50)], reserved=100)
    assert ceilings.durable(1) == 50
    assert ceilings.raise_over(1, 10) == 110
    ceilings.on_flushed(7)
    ceilings.on_synced(6)
    assert ceilings.durable(1) == 50
    ceilings.on_synced(7)
    assert ceilings.durable(1) == 110
    assert ceilings.raise_over(1, 60) is None


def test_a_partition_made_anew_has_nothing_of_its_namesake() -> None:
    """What was on its way to the disk for the old one says nothing of the new one."""
    ceilings = Ceilings([], reserved=100)
    ceilings.raise_over(1, 5000)
    ceilings.on_flushed(1)
    ceilings.raise_over(1, 9000)
    ceilings.forget(1)
    assert ceilings.raise_over(1, 0) == 100
    ceilings.on_flushed(2)
    ceilings.on_synced(1)
    assert ceilings.durable(1) == 0
    ceilings.on_synced(2)
    assert ceilings.durable(1) == 100
