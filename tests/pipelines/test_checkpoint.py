"""The checkpoint folder: one run at a time, and what it says without Spark."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.pipelines import checkpoint
from headrace.pipelines.checkpoint import (
    QueryState,
    RunningError,
    hold,
    read_progress,
    read_state,
    write_progress,
)


def test_a_second_run_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with (
        hold(tmp_path / "job"),
        pytest.raises(RunningError, match=rf"another process runs this job \({os.getpid()}\)"),
        hold(tmp_path / "job"),
    ):
        pass
    with hold(tmp_path / "job"):
        pass


def start_sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def name_in_lock(folder: Path, pid: int) -> None:
    """Leave the lock as a killed run does."""
    with hold(folder) as lock:
        lock.name_processes(pid)
        text = (folder / "lock").read_text()
    (folder / "lock").write_text(text)


def test_a_run_waits_for_the_jvm_of_the_killed_one(tmp_path: Path) -> None:
    jvm = start_sleeper()
    name_in_lock(tmp_path, jvm.pid)
    entered = threading.Event()

    def run() -> None:
        with hold(tmp_path):
            entered.set()

    second = threading.Thread(target=run)
    second.start()
    assert not entered.is_set()
    jvm.kill()
    jvm.communicate()
    second.join(30)
    assert entered.is_set()


def test_a_jvm_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "JVM_END_SECONDS_MAX", 0.0)
    jvm = start_sleeper()
    try:
        name_in_lock(tmp_path, jvm.pid)
        with (
            pytest.raises(RunningError, match=f"process {jvm.pid} of an earlier run"),
            hold(tmp_path),
        ):
            pass
    finally:
        jvm.kill()
        jvm.communicate()


def test_a_process_of_the_same_number_is_another(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f'[[{os.getpid()}, "1"]]')
    with hold(tmp_path):
        pass


def test_a_checkpoint_is_read_without_spark(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    (tmp_path / "metadata").write_text('{"id":"a-b"}')
    assert read_state(tmp_path) == QueryState("a-b", -1, -1, [])
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch in range(11):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"next":{batch}}}\n-')
    (tmp_path / "offsets" / ".10.crc").touch()
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    assert read_state(tmp_path) == QueryState("a-b", 10, 9, [{"next": 10}])


def test_progress_is_kept(tmp_path: Path) -> None:
    assert read_progress(tmp_path) == {}
    write_progress(tmp_path, {"query": {"batch": 3}})
    assert read_progress(tmp_path) == {"query": {"batch": 3}}
