"""The command as a whole: its subcommands, its exit codes, its words."""

import subprocess
import sys
from typing import NoReturn

import click
import pytest

from headrace import __version__
from headrace.cli.exits import CommandError, Exit
from headrace.cli.main import headrace, main, run
from headrace.cli.tree import Entry, load


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    for name, entry in headrace.entries().items():
        assert f"{', '.join([name, *entry.aliases])} {entry.words}" in page


@pytest.mark.parametrize("arguments", [["no-such"], ["dev", "--no-such"], ["ping", "--count", "x"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert "Error: " in told.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["strem", "list"], "No such command 'strem'. Did you mean 'stream'?"),
        (["consumer-grup"], "No such command 'consumer-grup'. Did you mean 'group'"),
        (["stream", "creat", "shop"], "No such command 'creat'. Did you mean 'create'?"),
        (["stream", "xyz"], "No such command 'xyz'. There are list, get, create, "),
        (["stream", "list", "--adress", "x"], "Did you mean '--address'?"),
        (["dev", "--dat", "x"], "'--data'"),
    ],
)
def test_a_slip_is_answered_with_its_nearest_neighbour(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == Exit.USAGE
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("s l", "stream list"),
        ("t c", "topic create"),
        ("p d", "partition delete"),
        ("seg d", "segment delete"),
        ("m p", "message poll"),
        ("g l", "group list"),
        ("consumer-group g", "group get"),
        ("o s", "offset set"),
        ("consumer-offset store", "offset set"),
        ("u pwd", "user password"),
        ("u p", "user permissions"),
        ("c g", "client get"),
        ("ctx u", "context use"),
        ("cluster m", "cluster metadata"),
        ("session s", "session status"),
    ],
)
def test_aliases(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*typed.split(), "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: headrace {meant} ")


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


def test_an_extra_that_is_missing_is_named() -> None:
    entry = Entry("headrace.no_such_module:command", "Words.", extra="spark")
    with pytest.raises(CommandError) as caught:
        load(entry)
    assert str(caught.value) == (
        'this needs headrace.no_such_module, which is not installed: pip install "headrace[spark]"'
    )
    with pytest.raises(ModuleNotFoundError):
        load(entry._replace(extra=""))


def test_a_command_without_arguments_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stream"]) == Exit.USAGE
    told = capsys.readouterr()
    assert "list, l " in told.out + told.err


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ("msgspec", "json", "headrace.wire", "headrace.server")),
        (["stream", "list", "--help"], ("msgspec", "tomllib", "headrace.wire", "headrace.client")),
        (["user", "create", "--help"], ("headrace.client",)),
        (["topic", "create", "--help"], ("msgspec", "headrace.wire", "headrace.client")),
        (["stream", "list", "--address", "127.0.0.1:1"], ()),  # and so does what talks to a node
    ],
)
def test_nothing_heavy_is_loaded(arguments: list[str], absent: tuple[str, ...]) -> None:
    names = (*absent, "rich", "asyncio", "argon2", "uvloop", "pyspark", "pyarrow", "ssl")
    code = (
        "import sys\n"
        "from headrace.cli.main import run\n"
        f"run({arguments})\n"
        f"print([name for name in sys.modules if name in {names}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_python_m_headrace() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"headrace {__version__}\n"


def test_every_name_is_one_commands_own() -> None:
    context = click.Context(headrace)
    names = [*headrace.list_commands(context), *headrace.aliases()]
    aliases = [alias for entry in headrace.entries().values() for alias in entry.aliases]
    assert len(dict.fromkeys(names)) == len(headrace.entries()) + len(aliases)
