"""Random work and power cuts: what was synced is there, what was not staged is not (DK6, DK7)."""

import pytest

from tests.storage.samples import config
from tests.storage.world import World


def run(seed: int, *, replica_count: int) -> World:
    world = World(config(replica_count=replica_count), seed)
    for _ in range(world.prng.between(2, 5)):
        world.work(world.prng.below(60))
        world.crash()
    world.disk.settle(world.store)
    world.crash()
    return world


@pytest.mark.parametrize("replica_count", [1, 3])
def test_what_was_synced_is_recovered(replica_count: int) -> None:
    for seed in range(6):
        run(seed, replica_count=replica_count)


@pytest.mark.slow
@pytest.mark.parametrize("replica_count", [1, 3])
def test_what_was_synced_is_recovered_over_many_seeds(replica_count: int) -> None:
    for seed in range(100, 200):
        run(seed, replica_count=replica_count)
