"""`headrace doctor` as a user types it: its table, its JSON, its exit codes, its refusals."""

import json
import os
import shutil
from pathlib import Path

import pytest

from headrace.cli.exits import Exit
from headrace.cli.main import run
from headrace.server.folders import hold_folder
from tests.server.doctor.test_examine import make_new


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give the folder of a node that was formatted and never opened."""
    return make_new(tmp_path / "data")


def test_a_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(data)]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split() == ["path", "verdict", "text", "partition"]
    assert "metadata/superblock" in told.out
    assert told.err.startswith(f"{data}: ")
    assert told.err.endswith(" fine\n")


def test_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "notes.txt").write_text("mine")
    assert run(["doctor", str(data), "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["folder"] == str(data)
    assert report["is_damaged"] is False
    assert report["free_bytes"] > 0
    verdicts = {each["path"]: each["verdict"] for each in report["files"]}
    assert verdicts["layout"] == "fine"
    assert verdicts["notes.txt"] == "unknown file"
    assert run(["doctor", str(data), "--problems", "-o", "jsonl"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["path"] == "notes.txt"


def test_no_problems_are_no_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(data), "--problems"]) == 0
    assert capsys.readouterr().out == ""


def test_damage_ends_with_1(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "metadata" / "marker").write_bytes(b"")
    assert run(["doctor", str(data), "--problems"]) == Exit.FAILED
    told = capsys.readouterr()
    assert "metadata/marker" in told.out
    assert "damaged" in told.out
    assert "1 damaged" in told.err


def test_a_folder_in_use(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hold_folder(data):
        assert run(["doctor", str(data)]) == Exit.FAILED
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{data} is in use by process {os.getpid()} " in told.err
    assert "stop it first" in told.err
    assert "--data" not in told.err  # no flag of the doctor


def test_what_is_no_data_folder(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(data)
    assert run(["doctor", str(data)]) == Exit.FAILED
    assert f"{data} is not a folder" in capsys.readouterr().err
    data.mkdir()
    (data / "letters.txt").write_text("mine")
    assert run(["doctor", str(data)]) == Exit.FAILED
    assert "holds files and no node's data" in capsys.readouterr().err


def test_a_folder_that_this_user_cannot_read(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(data / "lock"))

    monkeypatch.setattr("headrace.server.doctor.examine.os.open", refuse)
    assert run(["doctor", str(data)]) == Exit.FAILED
    assert "run the doctor as the user of the node" in capsys.readouterr().err
