"""The Spark measurements: what is read off their samples."""

from bench.spark import TARGETS
from bench.spark_memory import Sample, Watch


def test_the_peaks_of_both_halves() -> None:
    watch = Watch()
    watch.samples = [Sample(1.0, 5), Sample(2.0, 9), Sample(3.0, 7), Sample(4.0, 8)]
    assert watch.peak(first_half=True) == 9
    assert watch.peak(first_half=False) == 8


def test_memory_that_grows_misses_its_aim() -> None:
    [target] = [each for each in TARGETS if each.figure == "memory/late"]
    assert target.judge({"memory/late": 100.0, "memory/early": 100.0}).is_met is True
    assert target.judge({"memory/late": 150.0, "memory/early": 100.0}).is_met is False
    assert target.judge({}).is_met is None
