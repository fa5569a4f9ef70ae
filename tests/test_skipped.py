"""What is skipped is listed in a file, whatever workers ran it: `make test` shows it at its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHELLS = "tests/cli/test_completion.py"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_each_skipped_test_is_a_line_with_its_reason(
    workers: tuple[str, ...], tmp_path: Path
) -> None:
    """Share: the rest, 5 s for both."""
    listed = tmp_path / "skipped"
    listed.write_text("what an earlier run has skipped\n")
    wanted = ["-k", "fish or zsh", SHELLS, "--list-skipped", str(listed)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *wanted],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path)},  # No shell is there.
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, *lines = listed.read_text().splitlines()
    assert first == "what an earlier run has skipped"
    assert sorted({*lines}) == [
        f"{SHELLS}: this lane needs {shell}, which is not installed" for shell in ("fish", "zsh")
    ]


def test_every_run_of_make_test_adds_to_the_list() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    recipes = makefile.partition("\ncheck: ")[2].partition("\nbench: ")[0]
    runs = [line for line in recipes.splitlines() if "-m pytest" in line]
    assert len(runs) == 4  # that of the lanes at two shards is a variable
    assert recipes.count("$(AT_TWO_SHARDS) ") == 3
    assert all("--list-skipped=$(SKIPPED)" in line for line in runs)
    assert recipes.rstrip().endswith('echo "No lane was skipped."; fi')
