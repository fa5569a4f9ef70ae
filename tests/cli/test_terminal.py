"""What only shows on a terminal: questions, secrets, bars, colours. Share: check, about 8 s."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import headrace
from tests.cli.conftest import Terminal
from tests.cli.screen import WAIT_SECONDS, Screen
from tests.node import Node

pytestmark = pytest.mark.slow

BAR = "━"
MANY = 20_000


def environment_of(node: Node) -> dict[str, str]:
    return {**os.environ, "HEADRACE_ADDRESS": str(node.tcp), "TERM": "xterm", "COLUMNS": "99"}


@pytest.fixture
def screens(terminal: Terminal) -> Iterator[list[Screen]]:
    """The screens that a test opened, which are closed; `terminal` makes the environment."""
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()


@pytest.fixture
def shop(clean: headrace.Client) -> headrace.Client:
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=40)
    clean.create_group("shop/orders", "billing")
    return clean


def watch(screens: list[Screen], node: Node, output: IO[bytes] | None, *arguments: str) -> Screen:
    command = [sys.executable, "-m", "headrace", *arguments]
    screens.append(Screen(command, environment_of(node), output))
    return screens[-1]


def open_screen(screens: list[Screen], node: Node, *arguments: str) -> Screen:
    return watch(screens, node, None, *arguments)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A file of many lines."""
    path = tmp_path / "orders.txt"
    path.write_text("".join(f"order {number}\n" for number in range(MANY)))
    return path


def run_piped(node: Node, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose outputs are both pipes."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment_of(node),
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x04", 130)])
def test_what_cannot_be_undone_is_asked(
    screens: list[Screen], node: Node, shop: headrace.Client, answer: str, code: int
) -> None:
    screen = open_screen(screens, node, "stream", "delete", "shop")
    screen.wait_for("This will delete the stream shop with 1 topic and 0 messages. Go on? [y/N]")
    screen.type(answer)
    ended, said = screen.end()
    assert ended == code
    assert ("nothing was done" in said) == (code == 1)
    assert len(shop.get_streams()) == (0 if code == 0 else 1)


def test_a_password_is_asked_for_and_not_shown(
    screens: list[Screen], node: Node, clean: headrace.Client
) -> None:
    clean.create_user("ada", "secret-of-ada")
    screen = open_screen(screens, node, "user", "get", "ada", "--username", "ada")
    screen.wait_for("Password: ")
    screen.type("secret-of-ada\n")
    code, said = screen.end()
    assert code == 0
    assert "active" in said
    assert "secret-of-ada" not in said


def test_a_new_password_is_asked_for_twice(
    screens: list[Screen], node: Node, clean: headrace.Client
) -> None:
    screen = open_screen(screens, node, "user", "create", "ada")
    screen.wait_for("Password of ada: ")
    screen.type("secret-of-ada\n")
    screen.wait_for("Repeat for confirmation: ")
    screen.type("secret-of-ada\n")
    code, said = screen.end()
    assert code == 0
    assert "secret-of-ada" not in said
    with headrace.connect(str(node.tcp), username="ada", password="secret-of-ada"):
        pass


def test_long_work_shows_a_bar(screens: list[Screen], node: Node, shop: headrace.Client) -> None:
    code, said = open_screen(screens, node, "group", "lag", "shop/orders", "billing").end()
    assert code == 0
    assert "offsets" in said
    assert BAR in said


def test_no_bar_without_a_terminal(terminal: Terminal, shop: headrace.Client) -> None:
    told = terminal("group", "lag", "shop/orders", "billing")
    assert (told.code, told.err) == (0, "")
    assert BAR not in told.out


def test_a_file_that_is_sent_shows_a_bar(
    screens: list[Screen], node: Node, shop: headrace.Client, many: Path
) -> None:
    code, said = open_screen(screens, node, "produce", "shop/orders", "--file", str(many)).end()
    assert code == 0
    assert BAR in said
    assert "%" in said
    assert f"{MANY:,} messages to shop/orders" in said


def test_a_pipe_is_sent_and_read_without_a_bar(
    screens: list[Screen], node: Node, shop: headrace.Client, many: Path
) -> None:
    """Neither shows one where stderr is no terminal; nor does `tail` into a pipe where it is."""
    sent = run_piped(node, "produce", "shop/orders", "--file", str(many))
    assert sent.stdout == ""
    assert len(sent.stderr.splitlines()) == 1
    assert BAR not in sent.stderr
    asked = ("tail", "shop/orders", "--from", "earliest", "--count", str(MANY))
    read = run_piped(node, *asked)
    assert read.stderr == ""
    assert BAR not in read.stdout
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert watch(screens, node, reader.stdin, *asked).end() == (0, "")
        reader.communicate()


def test_messages_that_go_to_a_file_show_a_bar(
    screens: list[Screen], node: Node, shop: headrace.Client, many: Path, tmp_path: Path
) -> None:
    run_piped(node, "produce", "shop/orders", "--file", str(many))
    asked = ("tail", "shop/orders", "--from", "earliest", "--count")
    target = tmp_path / "copy.txt"
    with target.open("wb") as output:
        code, said = watch(screens, node, output, *asked, str(MANY)).end()
    assert code == 0
    assert BAR in said
    assert "messages" in said
    assert sorted(target.read_text().splitlines()) == sorted(many.read_text().splitlines())
    with target.open("wb") as output:  # What is done at once needs none.
        assert watch(screens, node, output, *asked, "5").end() == (0, "")


def test_headings_are_bold_on_a_terminal_alone(
    screens: list[Screen], node: Node, terminal: Terminal, shop: headrace.Client
) -> None:
    _, said = open_screen(screens, node, "stream", "list").end()
    assert "\x1b[1m" in said
    assert "\x1b" not in terminal("stream", "list").out
