"""What only shows on a terminal: questions, secrets, bars, colours. Share: check, about 8 s."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from select import select

import pytest

import headrace
from tests.cli.conftest import Terminal
from tests.node import Node

pytestmark = pytest.mark.slow

WAIT_SECONDS = 30


class Screen:
    """A command whose input and output are a terminal of its own."""

    def __init__(self, node: Node, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self._said = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "HEADRACE_ADDRESS": str(node.tcp), "TERM": "xterm", "COLUMNS": "99"},
            start_new_session=True,
        )
        os.close(slave)

    def wait_for(self, words: str) -> None:
        while words not in self._said:
            assert self._read(), f"{words!r} never came, but {self._said!r}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """Give its exit code and all that the terminal showed."""
        while self._read():
            pass
        return self.process.wait(WAIT_SECONDS), self._said

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        readable, _, _ = select([self._master], [], [], WAIT_SECONDS)
        assert readable, f"nothing more came, only {self._said!r}"
        piece = b""
        with suppress(OSError):  # how the end of a terminal shows on Linux
            piece = os.read(self._master, 65_536)
        self._said += piece.decode()
        return bool(piece)


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


def open_screen(screens: list[Screen], node: Node, *arguments: str) -> Screen:
    screens.append(Screen(node, *arguments))
    return screens[-1]


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
    assert "━" in said


def test_no_bar_without_a_terminal(terminal: Terminal, shop: headrace.Client) -> None:
    told = terminal("group", "lag", "shop/orders", "billing")
    assert (told.code, told.err) == (0, "")
    assert "━" not in told.out


def test_headings_are_bold_on_a_terminal_alone(
    screens: list[Screen], node: Node, terminal: Terminal, shop: headrace.Client
) -> None:
    _, said = open_screen(screens, node, "stream", "list").end()
    assert "\x1b[1m" in said
    assert "\x1b" not in terminal("stream", "list").out
