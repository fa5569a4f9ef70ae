"""Where the first password is shown, and how a node ends that was never ready."""

import asyncio
import io
import os
import signal
import sys
from pathlib import Path

import pytest

from headrace.server.bootstrap import _serve
from headrace.server.config.load import load_config
from headrace.server.node import Node
from headrace.server.root_password import show_once
from headrace.shard.shard import Shard


class Stream(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_error_seen", "is_output_seen", "shown_on"),
    [
        (True, True, "stderr"),
        (False, True, "stdout"),
        (True, False, "stderr"),
        (False, False, "stderr"),
    ],
)
def test_a_secret_is_shown_once_on_the_terminal_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, *, is_error_seen: bool, is_output_seen: bool, shown_on: str
) -> None:
    streams = {
        "stderr": Stream(is_terminal=is_error_seen),
        "stdout": Stream(is_terminal=is_output_seen),
    }
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    show_once("secret")
    assert {name: stream.getvalue() for name, stream in streams.items()} == {
        "stderr": "",
        "stdout": "",
        shown_on: "secret\n",
    }


def test_a_node_that_is_not_ready_yet_ends_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Shard, "is_ready", False)
    config = load_config(None, {}, {"server.data_dir": str(tmp_path)}, "dev")

    async def main() -> int:
        node = Node(config, version="0.1.0", boot_identity=1, root_password_hash=lambda _: "hash")
        serving = asyncio.create_task(_serve(node, config, is_throwaway=False))
        await asyncio.sleep(0.1)  # its handlers are there with its first step
        os.kill(os.getpid(), signal.SIGTERM)
        return await serving

    assert asyncio.run(main()) == 0
    said = capsys.readouterr()
    assert "is ready" not in said.out
    assert said.err.splitlines()[-1].endswith("has stopped")
