"""The terminal against a real node: one node for the run, and for each test what it looks at.

`terminal("stream", "list")` runs a command in this process, as `headrace stream list` would.
"""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace
from headrace.cli.main import run
from tests.node import Node, running_node


@dataclass(frozen=True)
class Told:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Terminal:
    """Runs commands with nothing of the developer's own around them."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, typed: str = "") -> Told:
        """Run a command; `typed` is what its input holds, which is no terminal."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        self._capsys.readouterr()
        code = run(list(arguments))
        told = self._capsys.readouterr()
        return Told(code, told.out, told.err)


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running_node() as started:
        yield started


@pytest.fixture(scope="session")
def owner(node: Node) -> Iterator[headrace.Client]:
    """The root user, for what tests prepare and look at."""
    with headrace.connect(str(node.tcp), username="iggy", password="iggy") as client:
        yield client


@pytest.fixture
def lone_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Terminal:
    """A terminal that knows of no node."""
    for name in [name for name in os.environ if name.startswith(("HEADRACE_", "IGGY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return Terminal(capsys, monkeypatch)


@pytest.fixture
def terminal(lone_terminal: Terminal, node: Node, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal whose commands reach the node."""
    monkeypatch.setenv("HEADRACE_ADDRESS", str(node.tcp))
    return lone_terminal


@pytest.fixture
def clean(owner: headrace.Client) -> Iterator[headrace.Client]:
    """The root user of a node on which nothing is left when the test ends."""
    yield owner
    for stream in owner.get_streams():
        owner.delete_stream(stream.id)
    for user in owner.get_users():
        if user.id != 0:
            owner.delete_user(user.id)
    for token in owner.get_tokens():
        owner.delete_token(token.name)
