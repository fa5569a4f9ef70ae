"""Arms of one comparison, run in turn, and what they took."""

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import SparkSession

from bench import machine
from headrace.client import Client

Arm = Callable[[], object]


class Lap(NamedTuple):
    """How long an arm took, and how much of the processors."""

    seconds: float
    cpu_seconds: float


class Bench:
    """One run: a node, a session, its topics and what was found."""

    def __init__(self, spark: SparkSession, client: Client, rounds: int, only: str) -> None:
        self.spark = spark
        self.client = client
        self.figures: dict[str, float] = {"second": 1.0}
        self.rounds = rounds
        self._only = only

    def is_wanted(self, part: str) -> bool:
        """Whether a part is to be measured."""
        return self._only in part

    def compare(self, title: str, rows: int, payload_bytes: int, arms: Mapping[str, Arm]) -> None:
        """Measure arms in turn and show them; rates go to the figures by title and arm."""
        laps: dict[str, list[Lap]] = {name: [] for name in arms}
        for number in range(self.rounds + 1):
            for name in random.sample(list(arms), len(arms)):
                lap = measure(arms[name])
                if number:
                    laps[name].append(lap)
        print(f"\n{title}: {rows:,} rows, load {machine.load_average():.1f}", flush=True)
        for name, found in laps.items():
            seconds = statistics.median(lap.seconds for lap in found)
            cpu_seconds = statistics.median(lap.cpu_seconds for lap in found)
            self.figures[f"{title}/{name}"] = rows / seconds
            self.figures[f"{title}/{name}/seconds"] = seconds
            self.figures[f"{title}/{name}/cpu"] = cpu_seconds
            print(
                f"  {name:8} {seconds:6.2f} s {rows / seconds / 1e6:6.2f} M rows/s"
                f" {payload_bytes / seconds / 1e6:6.0f} MB/s, {cpu_seconds:6.2f} s of processors;"
                f" rounds {min(found).seconds:.2f} to {max(found).seconds:.2f} s"
            )


def measure(arm: Arm) -> Lap:
    """Run an arm once; processors are those of Spark, its workers and the node."""
    family = machine.family_of(os.getpid())
    used, begun = machine.cpu_seconds(family), time.perf_counter()
    arm()
    seconds = time.perf_counter() - begun
    return Lap(seconds, machine.cpu_seconds(machine.family_of(os.getpid())) - used)
