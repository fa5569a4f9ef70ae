"""`headrace config`: every key with its origin, and all that is wrong with a file at once."""

import json
from pathlib import Path

import pytest

from headrace.cli.exits import Exit
from headrace.cli.main import run
from headrace.server.config.sections import SETTINGS

PASSWORD = "not-to-be-shown-9"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a file that holds some keys; the environment gives one more."""
    for name in ("HEADRACE_ROOT_PASSWORD", "HEADRACE_TCP_ADDRESS", "HEADRACE_SERVER_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_SERVER_NAME", "mill")
    made = tmp_path / "node.toml"
    made.write_text(
        f'[tcp]\naddress = "127.0.0.1:9"\nlogin_timeout = "20 s"\n[root]\npassword = "{PASSWORD}"\n'
    )
    made.chmod(0o600)
    return made


def rows_of(text: str) -> dict[str, dict[str, str]]:
    return {row["key"]: row for row in json.loads(text)}


def test_show_as_a_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", str(file)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["key", "value"] in lines
    assert ["tcp.login_timeout", "20", "s"] in lines
    assert ["server.name", "mill"] in lines
    assert {line[0] for line in lines} >= set(SETTINGS)


def test_show_says_where_each_value_comes_from(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--config", str(file), "--tcp", "127.0.0.1:0"]
    assert run(["config", "show", "--origin", *flags, "-o", "json"]) == 0
    told = capsys.readouterr()
    rows = rows_of(told.out)
    assert list(rows) == list(SETTINGS)
    assert rows["tcp.address"]["value"] == "127.0.0.1:0"
    origins = {key: row["origin"] for key, row in rows.items()}
    assert origins["tcp.address"] == "flag --tcp"
    assert origins["tcp.login_timeout"] == f"file {file}"
    assert origins["server.name"] == "environment HEADRACE_SERVER_NAME"
    assert origins["journal.files"] == "default"
    assert rows["root.password"]["value"] == "..."
    assert PASSWORD not in told.out + told.err
    assert run(["config", "show", "--origin", *flags]) == 0
    assert "flag --tcp" in capsys.readouterr().out


def test_show_with_the_defaults_of_dev(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_ROOT_PASSWORD", raising=False)
    values = []
    for profile in ("serve", "dev"):
        assert run(["config", "show", "--profile", profile, "-o", "json"]) == 0
        values.append(rows_of(capsys.readouterr().out)["topics.durability_minimum"]["value"])
    assert values == ["persisted", "replicated"]


def test_show_of_a_wrong_configuration(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", str(file), "--shards", "x"]) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert "server.shards = " in told.err


def test_check_of_a_right_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "check", str(file)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"{file} is right; keys that it gives: 3, all others have their default\n"
    assert run(["config", "check", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "keys_given": 3}


def test_check_looks_at_the_file_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_TCP_ADDRESS", "no address")
    assert run(["config", "check", str(file)]) == 0
    assert capsys.readouterr().err.startswith(f"{file} is right")


def test_check_names_all_errors_with_path_value_range_and_nearest_key(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        '[tcp]\nadress = "127.0.0.1:9"\nlogin_timeout = "2 h"\n[jurnal]\nfiles = 4\n'
        "[server]\nshards = 0\n"
    )
    assert run(["config", "check", str(file)]) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    first, *problems = told.err.splitlines()
    assert first == "headrace: the configuration has 4 problems:"
    assert f"  tcp.adress (file {file}): no such key; did you mean tcp.address?" in problems
    assert f"  jurnal (file {file}): no such section; did you mean journal?" in problems
    assert any(
        line.startswith(f"  server.shards = 0 (file {file}): zero shards:") for line in problems
    )
    assert any(
        line.startswith('  tcp.login_timeout = "2 h"') and "allowed 1 s to 1 h" in line
        for line in problems
    )
    assert run(["config", "check", str(file), "-o", "json"]) == Exit.USAGE
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["key"] for row in rows) == [
        "jurnal",
        "server.shards",
        "tcp.adress",
        "tcp.login_timeout",
    ]


def test_check_of_a_secret_that_everybody_can_read(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.chmod(0o644)
    assert run(["config", "check", str(file)]) == Exit.USAGE
    told = capsys.readouterr().err
    assert told == (
        f"headrace: {file}: holds root.password and is readable for everybody: chmod 600 {file}\n"
    )
    assert PASSWORD not in told


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file or directory"), ("[tcp", "is not TOML"), (b"\xff", "is not UTF-8")],
)
def test_check_of_what_is_no_configuration(
    tmp_path: Path, content: str | bytes | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert run(["config", "check", str(path)]) == Exit.USAGE
    assert words in capsys.readouterr().err
