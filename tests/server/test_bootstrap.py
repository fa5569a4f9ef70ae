"""Where the first password is shown."""

import io
import sys

import pytest

from headrace.server.bootstrap import _show_once


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
    _show_once("secret")
    assert {name: stream.getvalue() for name, stream in streams.items()} == {
        "stderr": "",
        "stdout": "",
        shown_on: "secret\n",
    }
