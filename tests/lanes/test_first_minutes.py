"""The README's commands in a fresh environment from the built wheel, also without a compiler."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.known_secrets import check_nodes
from tests.lanes.building import ROOT, Wheel, run
from tests.watched_nodes import hand_in

README = (ROOT / "README.md").read_text()
WAIT_SECONDS = 60
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(README) if found == kind]


def test_the_readme_has_three_commands() -> None:
    assert [line.split("  #")[0].rstrip() for line in blocks("sh")[1].splitlines()] == [
        "headrace dev",
        "echo hello | headrace produce shop/orders",
        "headrace tail shop/orders",
    ]


def install(folder: Path, wheel: Path) -> Path:
    """Give the commands of a new environment: locked dependencies, then the wheel alone."""
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", str(environment))
    pip = (str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet")
    run(
        *pip,
        "--require-hashes",
        "--only-binary=:all:",
        "-r",
        str(ROOT / "requirements/runtime.lock"),
    )
    run(*pip, "--no-index", "--no-deps", str(wheel))
    return environment / "bin"


class Shell:
    """Runs lines of the README with the commands of one environment."""

    def __init__(self, commands: Path, folder: Path) -> None:
        self.folder = folder
        clean = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("HEADRACE_", "IGGY_", "PYTHON"))
        }
        self.environment = clean | {
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "TMPDIR": str(folder),  # where `headrace dev` has its data
            # Not the usual ports: a developer's own node may have them.
            "HEADRACE_TCP_ADDRESS": "127.0.0.1:0",
            "HEADRACE_HTTP_ADDRESS": "127.0.0.1:0",
        }

    def start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


@contextmanager
def node(shell: Shell, line: str) -> Iterator[None]:
    """Run a node as the README starts it, and end it as a person does."""
    process = shell.start(line)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        found = re.search(r"is ready: .*?tcp (\S+?),", ready)
        assert found is not None, (ready, process.communicate()[1] if not ready else "")
        shell.environment["HEADRACE_ADDRESS"] = found[1]
        yield
        check_nodes(shell.folder)  # now: it throws its data away
        process.send_signal(signal.SIGINT)
        said, words = process.communicate(timeout=WAIT_SECONDS)
        hand_in(ready + said + words, shell.folder)
        assert process.returncode == 0, words
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_readme_from_the_wheel(tmp_path: Path, wheel: Wheel) -> None:
    """Share: check, about 15 s each."""
    shell = Shell(install(tmp_path, wheel.path), tmp_path)
    native = shell.run("python -c 'from headrace import kernel; print(kernel.NATIVE)'")
    assert native == f"{wheel.has_compiler}\n"
    dev, produce, tail = blocks("sh")[1].splitlines()
    program = blocks("python")[0]  # the one on Spark is run with the other blocks of Spark
    (tmp_path / "program.py").write_text(program)
    with node(shell, dev):
        shell.run(produce)
        assert "hello" in shell.run(tail)
        printed = shell.run("python program.py")
    assert sorted(line.split(maxsplit=2)[2] for line in printed.splitlines()) == [
        "hello",
        "one pot of tea",
    ]


@pytest.mark.slow
def test_the_commands_of_this_file_find_a_failure(tmp_path: Path) -> None:
    shell = Shell(Path(sys.executable).parent, tmp_path)
    with pytest.raises(AssertionError, match="no-such-command"):
        shell.run("headrace no-such-command")
