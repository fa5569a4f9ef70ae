"""`pip install .` as a user types it: the build of its own, and dependencies as they are declared.

What is then installed is used in `test_first_minutes.py`, from the wheel.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lanes.building import copy_project, run

SMOKE = """
from headrace import connect, kernel
assert "site-packages" in kernel.__file__, kernel.__file__
print(connect.__module__, "native", kernel.NATIVE)
"""


@pytest.mark.slow
def test_pip_install(tmp_path: Path, needs: Callable[[str], str]) -> None:
    """Share: check, about 15 s."""
    project = copy_project(tmp_path / "project")
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", str(project), CC=needs("gcc"))
    assert run(python, "-c", SMOKE) == "headrace.client.sync.client native True\n"
    assert "Usage: headrace" in run(str(environment / "bin" / "headrace"), "--help")
