"""The benchmark of partitions takes as many steps as its partitions need."""

import pytest

from bench.partitions import START, STEPS_PER_PARTITION_MAX, Row, Run, figures_of
from bench.targets import RECONCILER_TARGETS
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
    assert names[0] == START
    assert names[-1] == "checkpoint of 1"


def make_row(name: str, seconds: float, longest: float) -> Row:
    row = Row(name)
    row.seconds, row.longest = seconds, longest
    return row


def test_a_step_of_the_start_delays_nobody() -> None:
    rows = {
        count: [
            make_row(START, 1.0, 1.0),
            make_row("idle pass", 0.001 * count, 0.005),
            make_row("one partition", 0.1, 0.01),
        ]
        for count in (100, 10_000)
    }
    judged = [target.judge(figures_of(rows)) for target in RECONCILER_TARGETS]
    assert [verdict.ratio for verdict in judged] == pytest.approx([100.0, 1.0, 0.5])
    assert [verdict.is_met for verdict in judged] == [False, True, True]
