"""Completion: the scripts that shells read, and what they are told."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.completion import SHELLS
from headrace.cli.exits import Exit
from headrace.cli.main import run
from tests.cli.screen import Screen

pytestmark = pytest.mark.slow

VERBS = ["list", "get", "create", "update", "delete", "purge"]


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


# The lanes of the other shells take their script as a person would, and press the key.


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The command on the path, and nothing of the developer's own."""
    commands = Path(sys.executable).parent
    return {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
    }


def save_script(shell: str, path: Path) -> Path:
    script = subprocess.run(
        [sys.executable, "-m", "headrace", "completion", shell], capture_output=True, check=True
    ).stdout
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(script)
    return path


def test_fish_completes(
    tmp_path: Path, needs: Callable[[str], str], environment: dict[str, str]
) -> None:
    fish = needs("fish")
    save_script("fish", tmp_path / ".config/fish/completions/headrace.fish")

    def completed(typed: str) -> list[str]:
        done = subprocess.run(
            [fish, "-c", f"complete -C '{typed}'"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    assert completed("headrace str") == ["stream"]
    assert sorted(completed("headrace stream ")) == sorted(VERBS)
    assert completed("headrace stream list --add") == ["--address"]
    assert sorted(completed("headrace stream list -o js")) == ["json", "jsonl"]


def test_zsh_completes(
    tmp_path: Path, needs: Callable[[str], str], environment: dict[str, str]
) -> None:
    """What the key has made of a line is shown by `echo`, put before it with Ctrl-A."""
    zsh = needs("zsh")
    folder = save_script("zsh", tmp_path / "functions/_headrace").parent
    screen = Screen([zsh, "-f", "-i"], environment)
    try:
        screen.type(f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D\n")
        screen.type("PS1=; PROMPT_EOL_MARK=; print rea''dy\n")
        screen.wait_for("ready")
        for typed, made in (
            ("headrace str", "headrace stream"),
            ("headrace topic cr", "headrace topic create"),
            ("headrace stream list --add", "headrace stream list --address"),
        ):
            screen.type(f"{typed}\t\x01echo '<'\x05'>'\n")
            screen.wait_for(f"\r\n<{made}")
        screen.type("headrace stream \t")
        for verb in VERBS:
            screen.wait_for(verb)
    finally:
        screen.close()


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == Exit.USAGE
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_nouns_are_completed() -> None:
    assert complete("headrace str") == ["stream"]
    every = complete("headrace ")
    assert {"stream", "topic", "pipeline", "login"} <= dict.fromkeys(every).keys()
    assert "s" not in every


def test_the_verbs_of_a_noun_are_completed() -> None:
    assert complete("headrace stream ") == VERBS
    assert complete("headrace s ") == VERBS
    assert complete("headrace topic cr") == ["create"]


def test_flags_and_their_values_are_completed() -> None:
    assert complete("headrace stream list --add") == ["--address"]
    assert complete("headrace stream list -o js") == ["json", "jsonl"]
