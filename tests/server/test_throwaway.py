"""The folder of a `dev` without `--data`: killed nodes leave nothing for good, and it is small."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.server.folders import LOCK_NAME, hold_folder
from headrace.server.throwaway import PREFIX, throwaway_folder
from tests.watched_nodes import hand_in

MIB = 1 << 20
FRESH_BYTES_MAX = 48 * MIB
_READY = re.compile(r" is ready: .*, data (\S+)")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def left_folder(place: Path, name: str) -> Path:
    """Make what a killed node leaves: files, and a lock that nobody holds."""
    folder = place / f"{PREFIX}{name}"
    with hold_folder(folder):
        (folder / "metadata").mkdir()
        (folder / "metadata" / "superblock").write_bytes(bytes(MIB))
    return folder


def test_what_killed_nodes_left_is_removed(place: Path) -> None:
    gone = [left_folder(place, name) for name in ("a", "b")]
    assert all((folder / LOCK_NAME).exists() for folder in gone)
    with throwaway_folder() as own:
        assert sorted(place.iterdir()) == [own]
    assert list(place.iterdir()) == []


def test_what_others_have_is_left_alone(place: Path) -> None:
    held = left_folder(place, "held")
    beginning = place / f"{PREFIX}beginning"
    beginning.mkdir()
    other = place / "headrace-data"
    other.mkdir()
    link = place / f"{PREFIX}link"
    link.symlink_to(other)
    with hold_folder(held), throwaway_folder() as own:
        assert sorted(place.iterdir()) == sorted([held, beginning, other, link, own])
        assert (held / "metadata" / "superblock").stat().st_size == MIB


@pytest.mark.slow
def test_a_killed_dev_leaves_nothing_for_good(tmp_path: Path) -> None:
    """Share: check, about 4 s."""
    with dev(tmp_path) as (killed, folder):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (folder / LOCK_NAME).exists()
        with dev(tmp_path) as (second, own), dev(tmp_path) as (third, other):
            assert sorted(tmp_path.iterdir()) == sorted([own, other])
            for process in (second, third):
                process.send_signal(signal.SIGTERM)
                assert process.wait() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_fresh_folder_is_small(tmp_path: Path) -> None:
    """Share: check, about 2 s."""
    with dev(tmp_path) as (_, folder):
        journals = [path for path in folder.rglob("journal.*") if path.is_file()]
        assert len(journals) == 8
        assert sum(path.stat().st_size for path in journals) > 300 * MIB
        taken = sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))
        assert taken <= FRESH_BYTES_MAX


@contextmanager
def dev(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run `headrace dev` until its ready line."""
    own = ("HEADRACE_", "IGGY_")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    command = [sys.executable, "-m", "headrace", "dev"]
    with subprocess.Popen(
        [*command, "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment | {"TMPDIR": str(place)},
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = _READY.search(line)
            assert ready is not None
            hand_in(line, Path(ready[1]))
            yield process, Path(ready[1])
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
