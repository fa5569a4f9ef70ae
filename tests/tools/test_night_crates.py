"""The lane of the Rust clients misses nothing, and says why it was not run."""

import pytest

from tools.iggy_commands import COMMANDS, LEFT_OUT, TRANSPORTS_LEFT_OUT
from tools.night_crates import (
    PROGRAM,
    ROOT,
    SDK_VERSION,
    TERMINAL_VERSION,
    Outcome,
    find_missing,
    find_uncalled,
    main,
    read_report,
)

PAGE = (ROOT / "docs" / "guide" / "compatibility.md").read_text()


def test_without_cargo_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.argv", ["night_crates", "all"])
    assert main() == 0
    assert capsys.readouterr().out == "not run: the Rust clients need cargo, which is not here\n"


def test_a_command_that_is_never_run_is_a_failure() -> None:
    listed = ["ping", "stream create", "stream shred", *LEFT_OUT]
    assert [each.call for each in find_missing(listed, COMMANDS)] == ["stream shred"]


def test_a_call_that_is_never_made_is_a_failure() -> None:
    report = read_report("ok\tping\t\nfailed\tget_me: in a group\t5 no\n")
    assert report == [Outcome("ping"), Outcome("get_me: in a group", "5 no")]
    assert [each.call for each in find_uncalled(["ping", "get_me", "snapshot"], report)] == [
        "snapshot"
    ]


def test_the_page_names_what_is_run() -> None:
    manifest = (PROGRAM / "Cargo.toml").read_text()
    assert f'iggy = "={SDK_VERSION}"' in manifest
    assert f"`iggy-cli` {TERMINAL_VERSION}" in PAGE
    assert f"`iggy` {SDK_VERSION}" in PAGE


@pytest.mark.parametrize("reason", [*LEFT_OUT.values(), *TRANSPORTS_LEFT_OUT.values()])
def test_the_page_names_what_is_left_out(reason: str) -> None:
    assert reason.replace("needs a key", "need a key") in PAGE
