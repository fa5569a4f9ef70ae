"""The command as a whole: its subcommands, its exit codes, its words."""

import subprocess
import sys
from typing import NoReturn

import click
import pytest

from headrace import __version__
from headrace.cli.exits import CommandError, Exit
from headrace.cli.main import SUBCOMMANDS, headrace, main, run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


def test_help_lists_every_subcommand_as_it_describes_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == 0
    page = capsys.readouterr().out
    for name, (_, words) in SUBCOMMANDS.items():
        assert f"  {name} " in page
        assert words in page
        command = headrace.get_command(click.Context(headrace), name)
        assert command is not None
        assert command.name == name
        assert command.short_help == words


@pytest.mark.parametrize("arguments", [["no-such"], ["dev", "--no-such"], ["ping", "--count", "x"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert "Error: " in told.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (CommandError("no such stream", Exit.NOT_FOUND), 3, "headrace: no such stream\n"),
        (CommandError("it did not work"), 1, "headrace: it did not work\n"),
        (OSError(28, "No space left on device"), 1, "headrace: [Errno 28] No space left on dev"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(headrace, "invoke", fail)
    assert run(["dev"]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(words)


def test_the_process_ends_with_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["no-such"])
    assert caught.value.code == Exit.USAGE
    assert capsys.readouterr().err


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from headrace.cli.main import run\n"
        "run(['--help'])\n"
        "print([name for name in sys.modules if name in ('msgspec', 'rich', 'argon2', 'asyncio')"
        " or name.startswith(('headrace.wire', 'headrace.server'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_python_m_headrace() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"headrace {__version__}\n"
