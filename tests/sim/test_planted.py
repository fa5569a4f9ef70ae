"""The simulator sees every planted bug, under the seed that `tools/hunt.py` found for it."""

import pytest

from tests.planted.of_groups import BUGS, UNSEEN
from tools.hunt import CAMPAIGN, LIMIT

FOUND = CAMPAIGN.read_seeds()


def test_there_are_enough_bugs_and_each_has_its_seed() -> None:
    assert len(BUGS) >= 30
    assert list(FOUND) == [name for name in BUGS if name not in UNSEEN]
    assert all(1 <= found.seed <= LIMIT for found in FOUND.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_the_simulator_sees_a_bug(name: str) -> None:
    seed = FOUND[name].seed
    report = CAMPAIGN.run_planted(name, seed)
    assert CAMPAIGN.is_caught(name, report), "search for another seed: python -m tools.hunt"
    assert CAMPAIGN.is_clean(seed), "the seed fails without the bug too"
