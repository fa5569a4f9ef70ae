"""The guide's first ten minutes, lived again: what is stable of the recording is as it is shown."""

import tempfile
from pathlib import Path

import pytest

from tests.known_secrets import check_nodes
from tests.watched_nodes import hand_in
from tools.record_minutes import PAGE, Terminal, record, steady


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nodes that throw their data away have it; it is searched before they are ended."""
    interrupt = Terminal.interrupt

    def search_first(place: Terminal) -> str:
        check_nodes(tmp_path)
        return interrupt(place)

    monkeypatch.setattr(Terminal, "interrupt", search_first)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_the_page_shows_what_happens(searched: Path) -> None:
    """Share: check, about 15 s."""
    page = PAGE.read_text()
    recorded = record(page)
    for _ in range(recorded.count("$ headrace dev") + recorded.count("$ headrace serve")):
        hand_in(recorded, searched)
    assert steady(recorded) == steady(page), "renew it: python -m tools.record_minutes"


def test_what_differs_is_seen() -> None:
    page = "```console\n$ echo one; echo two >&2\none\n```\n"
    assert record(page) == "```console\n$ echo one; echo two >&2\none\ntwo\n```\n"


def test_files_and_variables() -> None:
    page = (
        "```python\n# hello.py\nprint('hello')\n```\n"
        "```console\n$ export WHO=ada\n$ python hello.py; echo $WHO\n```\n"
    )
    assert record(page).endswith("$ python hello.py; echo $WHO\nhello\nada\n```\n")


def test_what_is_stable() -> None:
    assert steady("3 messages in 0.01 s, 119/s, 12.5 KiB") == steady(
        "3 messages in 2.50 s, 7,119/s, 13 KiB"
    )
    assert steady("3 messages") != steady("4 messages")
    assert steady("| a    | b |\n") == steady("| a  | b |\n")
