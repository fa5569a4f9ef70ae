"""A driver is killed: its tables equal the log. The other kills, and more: `night_spark`."""

from pathlib import Path

import pytest

from tests.spark.kills import run_kills


@pytest.mark.slow  # two sessions of their own: 40 s of the share of Spark
def test_tables_equal_the_log_after_a_kill(tmp_path: Path) -> None:
    tally = run_kills(tmp_path, ["driver"], seed=1)
    assert tally.messages == 1200
    assert tally.dead_letters == 12
