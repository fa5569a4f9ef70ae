"""Whole runs of the code that ships."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.sim.faults import FaultOptions
from headrace.sim.groups.options import Options, draw_options
from headrace.sim.groups.workload import make_world
from headrace.sim.minimise import minimise
from headrace.sim.outcome import Outcome
from tools.simulate import GROUPS

ROOT = Path(__file__).parent.parent.parent.parent
HASH_SEEDS = ("0", "1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(1, 13), *GROUPS.stored_seeds()])
def test_a_seed_passes(seed: int) -> None:
    options = draw_options(seed)
    report = make_world(options).run()
    assert report.outcome == Outcome.PASS, (report.reason, report.last[-30:])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5, 8])
def test_a_seed_gives_the_same_trace_in_every_process(seed: int) -> None:
    lines = []
    for hash_seed in HASH_SEEDS:
        ended = subprocess.run(
            [sys.executable, "-m", "tools.simulate", "--seed", str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stdout, ended.stderr
        lines.append(ended.stdout.splitlines()[-1])
    assert lines[0] == lines[1]
    assert "trace" in lines[0]


@pytest.mark.slow
def test_the_canary_fails() -> None:
    options = msgspec.structs.replace(draw_options(3), canary=True)
    report = make_world(options).run()
    assert report.outcome == Outcome.VIOLATION, report.reason


def test_a_failing_run_is_made_smaller() -> None:
    options = draw_options(11)
    faults = FaultOptions(crash_mean=1_000, pause_mean=1_000, clog_mean=1_000)
    options = msgspec.structs.replace(options, faults=faults)

    def fails(smaller: Options) -> bool:
        return smaller.faults.pause_mean > 0 and smaller.workload.requests > 20

    smallest = minimise(options, fails)
    assert smallest.faults == FaultOptions(pause_mean=1_000)
    assert smallest.workload.client_count == 1
    assert smallest.workload.requests < 42
    assert len(smallest.groups) == 1
    assert smallest.safety_limit <= 100_000


def test_options_survive_their_text() -> None:
    options = draw_options(5)
    assert msgspec.json.decode(msgspec.json.encode(options), type=Options) == options
