"""Builds the package from what git holds, as a release would."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
EPOCH = "1700000000"  # what SOURCE_DATE_EPOCH says: the time of every file in the archive


class Wheel(NamedTuple):
    """A wheel, and whether there was a compiler when it was built."""

    path: Path
    compiler: str
    has_compiler: bool


def copy_project(target: Path) -> Path:
    """Copy what git would hold, not what an earlier build left, to a new folder; give it."""
    target.mkdir(parents=True)
    left_out = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_file():
            shutil.copy(source, target)
        else:
            shutil.copytree(source, target / name, ignore=left_out)
    return target


def build_wheel(project: Path, compiler: str) -> Path:
    """Build the wheel of a project in its place; give the file."""
    out = project / "out"
    options = ("--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", str(out))
    run(
        sys.executable,
        *("-m", "pip", "wheel", *options, str(project)),
        CC=compiler,
        SOURCE_DATE_EPOCH=EPOCH,
    )
    (wheel,) = out.glob("headrace-*.whl")
    return wheel


def run(*command: str, **variables: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    done = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
