"""Every benchmark of `make bench` but Spark's runs to its end, in its shortest form.

Only that: its figures mean nothing there, and time is not asserted.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300  # Something hangs: nothing is measured by this.
SPARK = ["-m", "bench.spark"]
HELPERS = ("bare", "flood", "kafka", "pairs")  # The last one needs another commit.


def read_benchmarks() -> list[list[str]]:
    """Return the arguments of Python, for each benchmark of `make bench`."""
    recipe = re.search(r"^bench:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    commands = [line.split() for line in recipe[1].splitlines()]
    assert all(command[0] == "$(BIN)/python" for command in commands)
    return [command[1:] for command in commands]


BENCHMARKS = read_benchmarks()


def test_sparks_is_the_only_one_that_is_left_out() -> None:
    assert SPARK in BENCHMARKS
    mains = [
        path.stem
        for path in (ROOT / "bench").glob("*.py")
        if "__main__" in path.read_text() and path.stem not in HELPERS
    ]
    named = [Path(command[-1].replace("bench.", "")).stem for command in BENCHMARKS]
    assert sorted(mains) == sorted(named)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [each for each in BENCHMARKS if each != SPARK], ids=lambda command: command[-1]
)
def test_a_benchmark_runs(command: list[str]) -> None:
    """Share: the rest, 20 s for all of them on an idle machine."""
    # In a session of its own, so that no server outlives it, whatever happens.
    running = subprocess.Popen(
        [sys.executable, *command, "--shortest"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=SECONDS_MAX)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert running.returncode == 0, output
    if (skipped := re.search(r"^skipped: (.*)$", output, re.MULTILINE)) is not None:
        pytest.skip(f"lane benchmarks: {skipped[1]}")
    assert re.search(r"\d", output), output
