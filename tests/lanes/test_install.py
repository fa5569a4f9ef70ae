"""`pip install .` as a user types it, with a C compiler and without one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
SMOKE = """
import pathlib, sys
from headrace import kernel
from headrace.wire.commands.table import COMMANDS
assert "site-packages" in kernel.__file__, kernel.__file__
assert (pathlib.Path(kernel.__file__).parents[1] / "py.typed").exists()
print(len(COMMANDS), "commands, native", kernel.NATIVE)
"""
# A node and a client of the installed package alone.
SERVE = """
import re, subprocess, sys
import headrace
command = ["-m", "headrace", "dev", "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as node:
    try:
        address = re.search(r"tcp (\\S+:\\d+)", node.stdout.readline())[1]
        with headrace.connect(address) as client:
            client.create_stream("shop")
            client.create_topic("shop/orders", partitions=1)
            client.send("shop/orders", [b"tea", b"bread"])
            print([message.value for message in client.poll("shop/orders", count=10)])
    finally:
        node.terminate()
"""


@pytest.mark.slow
@pytest.mark.parametrize("has_compiler", [True, False])
def test_pip_install(tmp_path: Path, needs: Callable[[str], str], has_compiler: bool) -> None:
    """Share: check, about 15 s each."""
    compiler = needs("gcc") if has_compiler else "no-such-compiler"
    project = tmp_path / "project"
    project.mkdir()
    for name in BUILT_FROM:
        copy(ROOT / name, project / name)
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", str(environment))
    python = str(environment / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", str(project), CC=compiler)
    assert run(python, "-c", SMOKE) == f"51 commands, native {has_compiler}\n"
    assert run(python, "-c", SERVE) == "[b'tea', b'bread']\n"


def copy(source: Path, target: Path) -> None:
    """Copy what git would hold, not what an earlier build left."""
    if source.is_file():
        shutil.copy(source, target)
        return
    shutil.copytree(
        source, target, ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    )


def run(*command: str, **variables: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    done = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
