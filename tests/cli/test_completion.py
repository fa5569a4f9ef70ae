"""Completion: the scripts that shells read, and what they are told."""

import os
import subprocess
import sys

import pytest

from headrace.cli.completion import SHELLS
from headrace.cli.exits import Exit
from headrace.cli.main import run

pytestmark = pytest.mark.slow


def complete(typed: str) -> list[str]:
    """Ask as the script for bash does, with the cursor behind what was typed."""
    words = typed.split(" ")
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "headrace"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == Exit.OK
    told = capsys.readouterr()
    assert "_HEADRACE_COMPLETE" in told.out
    assert f"{shell}_complete" in told.out
    assert "headrace" in told.out


def test_bash_takes_its_script() -> None:
    script = subprocess.run(
        [sys.executable, "-m", "headrace", "completion", "bash"], capture_output=True, check=True
    ).stdout
    done = subprocess.run(
        ["bash", "-c", "source /dev/stdin && complete -p headrace"],
        input=script,
        capture_output=True,
        check=True,
    )
    assert b"headrace" in done.stdout


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == Exit.USAGE
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_nouns_are_completed() -> None:
    assert complete("headrace str") == ["stream"]
    every = complete("headrace ")
    assert {"stream", "topic", "pipeline", "login"} <= dict.fromkeys(every).keys()
    assert "s" not in every


def test_the_verbs_of_a_noun_are_completed() -> None:
    verbs = ["list", "get", "create", "update", "delete", "purge"]
    assert complete("headrace stream ") == verbs
    assert complete("headrace s ") == verbs
    assert complete("headrace topic cr") == ["create"]


def test_flags_and_their_values_are_completed() -> None:
    assert complete("headrace stream list --add") == ["--address"]
    assert complete("headrace stream list -o js") == ["json", "jsonl"]
