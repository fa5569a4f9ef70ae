"""The simulator of whole nodes sees every planted bug, under the seed that was found for it."""

import pytest

from tests.sim.nodes.planted import BUGS, UNSEEN
from tests.sim.planted import plant
from tools.hunt_node import CAMPAIGN

FOUND = CAMPAIGN.read_seeds()


def test_there_are_enough_bugs_and_each_has_its_seed() -> None:
    assert len(BUGS) >= 10
    assert list(FOUND) == [name for name in BUGS if name not in UNSEEN]


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_fits_the_code_and_leaves_it_as_it_was(name: str) -> None:
    functions = [edit.function for edit in BUGS[name].edits]
    before = [function.__code__ for function in functions]
    with plant(BUGS[name]):
        planted = [function.__code__ for function in functions]
    after = [function.__code__ for function in functions]
    assert all(one is not other for one, other in zip(before, planted, strict=True))
    assert after == before


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_the_simulator_sees_a_bug(name: str) -> None:
    seed = FOUND[name].seed
    report = CAMPAIGN.run_planted(name, seed)
    assert CAMPAIGN.is_caught(name, report), "search for another seed: python -m tools.hunt_node"
    assert CAMPAIGN.is_clean(seed), "the seed fails without the bug too"
