"""The kernel's own tests again, with a build that reports every wrong access to memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_kernel_under_the_address_sanitizer(needs: Callable[[str], str]) -> None:
    """Share: wire and kernel, about 40 s."""
    compiler = needs("gcc")
    library = output(compiler, "-print-file-name=libasan.so")
    if not Path(library).is_absolute():
        pytest.skip("lane address sanitizer: this compiler has no libasan")
    native = output(str(ROOT / "tools" / "build-asan")).splitlines()[-1]
    environment = os.environ | {
        "HEADRACE_NATIVE_PATH": native,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",  # The interpreter itself leaves memory at its end.
        "PYTHONMALLOC": "malloc",  # Python's own arenas would hide a wrong access.
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernel"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
