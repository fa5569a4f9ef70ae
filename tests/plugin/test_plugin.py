"""The pytest plugin, as its users have it: in a run of pytest of its own."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from headrace.pytest_plugin import ServerError, _start, _wait_ready

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TESTS = """
import asyncio
import pytest


def test_sync(headrace_topic):
    with headrace_topic.connect() as client:
        client.send(headrace_topic.name, ["one"])
        assert [message.text for message in client.poll(headrace_topic.name)] == ["one"]


@pytest.mark.headrace_topic(partitions=3)
async def test_async(headrace_topic):
    async with headrace_topic.connect_async() as client:
        found = await client.get_topic(headrace_topic.name)
        assert len(found.partitions) == 3
        await client.send(str(headrace_topic), ["one"])


@pytest.mark.parametrize("number", [1, 2])
def test_each_has_a_topic_of_its_own(headrace_topic, number):
    with headrace_topic.connect() as client:
        assert client.get_topic(headrace_topic.name).topic.messages_count == 0
        client.send(headrace_topic.name, ["one"])


def test_nothing_is_left(headrace_server):
    with headrace_server.connect() as client:
        assert client.get_streams() == ()
        assert client.address.is_loopback
"""
# Stands in for the plugins that run async tests.
CONFTEST = """
import asyncio
import inspect


def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = inspect.signature(pyfuncitem.obj).parameters
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Where the project was installed since it has the plugin, pytest finds it by itself.
    is_installed = any(each.name == "headrace" for each in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", "headrace.pytest_plugin"]
    # What the nodes of that run leave is searched there: they are gone when it ends.
    watching = ["-p", "tests.conftest"]
    command = [sys.executable, "-m", "pytest", *plugin, *watching, "--strict-markers"]
    return subprocess.run(
        [*command, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_fixtures_in_sync_and_async_tests(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


SLIPS = """
import pytest


@pytest.fixture(scope="session")
def headrace_server():
    return None  # A slip is told before anybody asks the server.


@pytest.mark.headrace_topic(partitons=3)
def test_unknown(headrace_topic):
    pass


@pytest.mark.headrace_topic(3)
def test_unnamed(headrace_topic):
    pass
"""


def test_a_slip_in_the_marker_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_slips.py").write_text(SLIPS)
    done = run_pytest(tmp_path)
    assert "2 errors" in done.stdout
    assert "'partitons'; did you mean partitions?" in done.stdout
    assert "takes its option by name: partitions=3" in done.stdout


def test_the_fixtures_are_listed_with_their_words(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--fixtures")
    assert "headrace_server [session scope]" in done.stdout
    assert "A real server for the whole run" in done.stdout


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    taken = tmp_path / "data"
    taken.write_text("a file where a folder should be")
    log = tmp_path / "output.log"
    with pytest.raises(ServerError, match="the server ended with"):
        _wait_ready(_start(taken, log), log)
