"""The benchmark of partitions takes as many steps as its partitions need."""

import pytest

from bench.partitions import STEPS_PER_PARTITION_MAX, Run
from tests.shard import whole


def test_steps_grow_with_the_partitions_and_not_with_the_bound_of_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 10,000 partitions a stop takes more steps than any test may."""
    assert STEPS_PER_PARTITION_MAX * 10_000 > whole.STEPS_MAX
    defaults = whole.Whole.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "steps_max", 50)
    names = [row.name for row in Run(100, None).rows]
    assert names[0] == "start"
    assert names[-1] == "checkpoint of 1"
