"""Every node that is started is searched for secrets, however it is started; else the run fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.known_secrets import LeakedError, make_password
from tests.watched_nodes import Watch, find_node

ROOT = Path(__file__).parents[1]
HERE = Path("/here")
PASSWORD = make_password("planted")
NODE = ["python", "-m", "headrace", "dev", "--data"]


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (["python", "-m", "headrace", "dev", "--data", "/there/data"], "/there/data"),
        (["/venv/bin/headrace", "serve", "--tcp", ":0", "--data=data"], "/here/data"),
        (["env", "A=b", "python", "-m", "headrace", "serve", "--data", "x"], "/here/x"),
        (["bash", "-c", "exec headrace serve --data 'a b'  # a remark"], "/here/a b"),
        (["sh", "-c", "echo don't; headrace dev --data x"], "/here/x"),
        (["python", "tests/crash/booted_node.py", "7", "/disk/data"], "/disk/data"),
    ],
)
def test_what_starts_a_node_is_known(command: list[str], data: str) -> None:
    found = find_node(command, HERE, {})
    assert found is not None
    assert found.data == Path(data)


def test_a_folder_may_be_named_by_a_variable_or_not_at_all() -> None:
    found = find_node(["headrace", "dev"], HERE, {"HEADRACE_SERVER_DATA_DIR": "data"})
    assert found is not None
    assert found.data == HERE / "data"
    found = find_node(["headrace", "dev"], HERE, {})
    assert found is not None
    assert found.data is None


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-m", "headrace", "ping"],
        ["headrace", "config", "check", "dev"],
        ["headrace"],
        ["bash", "-c", "headrace doctor data"],
        ["cat", "headrace"],
    ],
)
def test_what_starts_none(command: list[str]) -> None:
    assert find_node(command, HERE, {}) is None


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a node, beside its output."""
    made = tmp_path / "node" / "data"
    made.mkdir(parents=True)
    (made / "layout").touch()
    (made.parent / "output.log").write_text("ready\n")
    return made


def started(data: Path) -> Watch:
    watch = Watch()
    watch.starts([*NODE, str(data)], HERE, {})
    return watch


@pytest.mark.parametrize("place", ["data/journal", "output.log"])
def test_what_is_removed_is_searched_first(data: Path, place: str) -> None:
    watch = started(data)
    watch.removes(data.parent)
    watch.finish()
    watch = started(data)
    leak = data.parent / place
    leak.write_bytes(PASSWORD)
    with pytest.raises(LeakedError, match=leak.name):
        watch.removes(data.parent.parent)
    with pytest.raises(LeakedError, match=leak.name):
        watch.finish()
    leak.unlink()  # The whole run is searched in the end.


def test_who_starts_again_is_searched_again(data: Path) -> None:
    watch = started(data)
    watch.removes(data.parent)
    watch.starts([*NODE, str(data)], HERE, {})
    (data / "journal").write_bytes(PASSWORD)
    with pytest.raises(LeakedError, match="journal"):
        watch.finish()
    (data / "journal").unlink()


def test_a_node_that_is_gone_unsearched_fails_the_run(tmp_path: Path) -> None:
    watch = started(tmp_path / "data")
    with pytest.raises(LeakedError, match=r"headrace dev --data .*was never searched"):
        watch.finish()
    watch.finish()  # It is told once.


def test_output_that_is_read_from_a_pipe_is_to_be_handed_in(data: Path) -> None:
    (data.parent / "output.log").unlink()
    watch = started(data)
    watch.removes(data.parent)
    with pytest.raises(LeakedError, match="never searched"):
        watch.finish()
    watch = started(data)
    with pytest.raises(LeakedError, match="what a node printed"):
        watch.hand_in(f"login of {PASSWORD.decode()}", data)
    watch.hand_in("ready", data)
    watch.finish()


def test_a_folder_of_its_own_is_to_be_handed_in(data: Path) -> None:
    watch = Watch()
    watch.starts(["headrace", "dev"], HERE, {})
    watch.starts(["headrace", "dev"], HERE, {})
    (data / "journal").write_bytes(PASSWORD)
    with pytest.raises(LeakedError, match="journal"):
        watch.hand_in("ready", data)
    (data / "journal").unlink()
    watch.hand_in("ready", data)
    with pytest.raises(LeakedError, match="never searched"):
        watch.finish()  # There were two.


# A node in a way that nobody has thought of; `FOLDER` is where its data goes.
STARTS = """
import pathlib, subprocess, sys, tempfile


def test_a_node():
    with tempfile.TemporaryDirectory() as name:
        data = pathlib.Path(name) / FOLDER
        command = [sys.executable, "-m", "headrace", "dev", "--data", data]
        ports = ["--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        with subprocess.Popen([*command, *ports], stdout=subprocess.PIPE) as node:
            said = node.stdout.readline()
            node.terminate()
        assert b"is ready" in said
        if IS_KEPT:
            (data.parent / "mine.log").write_bytes(said)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "is_kept", "wrong"),
    [
        ("data", True, None),
        ("data", False, "its data or its output was never searched"),
        # The ready line of a real node tells where its data is.
        (f"{PASSWORD.decode()}/data", True, "mine.log holds 'hush-hush'"),
    ],
    ids=["searched", "forgotten", "leaked"],
)
def test_a_real_run(tmp_path: Path, folder: str, *, is_kept: bool, wrong: str | None) -> None:
    """Share: check, about 5 s each."""
    words = f"FOLDER, IS_KEPT = {folder!r}, {is_kept}\n"
    (tmp_path / "test_new_way.py").write_text(words + STARTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (wrong is None), done.stdout
    assert wrong is None or wrong in done.stdout
    for leak in tmp_path.rglob("mine.log"):  # The whole run is searched in the end.
        leak.unlink()
