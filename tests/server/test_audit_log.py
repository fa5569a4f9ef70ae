"""The file and the lines of the audit log (SE-6)."""

import json
import logging
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.ports.audit import Audit
from headrace.server.audit_log import (
    AuditFileError,
    audit_log,
    describe,
    write_audit,
)
from headrace.server.config.kinds import LogFile

NOW = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
LOGIN = Audit(event="login", user="iggy", user_id=0, address="127.0.0.1:4000", client="ab", op=17)


def events_of(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def test_a_line_is_one_json_object() -> None:
    assert json.loads(describe(LOGIN, NOW)) == {
        "time": "2026-01-31T12:00:00.000005Z",
        "event": "login",
        "outcome": "ok",
        "user": "iggy",
        "user_id": 0,
        "address": "127.0.0.1:4000",
        "client": "ab",
        "op": 17,
        "about": "",
        "recovered": False,
    }


def test_no_name_breaks_the_line_or_the_terminal() -> None:
    line = describe(Audit(event="login", user='a"\n\x1b[31m\u2028\ud800', about="\0"), NOW)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["user"] == 'a"\n\x1b[31m\u2028\ud800'


def test_a_file_is_its_owners_and_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    before = os.umask(0)
    try:
        for event in ("one", "two"):
            with audit_log(path):
                write_audit(Audit(event=event))
    finally:
        os.umask(before)
    assert events_of(path) == ["one", "two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path):
        write_audit(Audit(event="one"))
        path.rename(tmp_path / "audit.1")
        write_audit(Audit(event="two"))
    assert events_of(tmp_path / "audit.1") == ["one"]
    assert events_of(path) == ["two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(mode=0o644)
    path.chmod(0o644)
    why = "others may read or change it: chmod 600"
    with pytest.raises(AuditFileError, match=why), audit_log(path):
        pass


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "missing" / "file", "No such file"),
        (pipe, "No such device"),
    ):
        with pytest.raises(AuditFileError, match=why), audit_log(path):
            pass


def test_a_line_that_cannot_be_written_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with audit_log(folder / "audit.jsonl"):
        (folder / "audit.jsonl").unlink()
        folder.rmdir()
        write_audit(LOGIN)
        folder.mkdir()
        write_audit(Audit(event="later"))
    (lost,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "a line is lost" in lost.getMessage()
    assert events_of(folder / "audit.jsonl") == ["later"]


def test_stderr_and_off(capsys: pytest.CaptureFixture[str]) -> None:
    with audit_log(LogFile.STDERR):
        write_audit(LOGIN)
    assert json.loads(capsys.readouterr().err)["event"] == "login"
    with audit_log(LogFile.OFF):
        write_audit(LOGIN)
    assert capsys.readouterr() == ("", "")
