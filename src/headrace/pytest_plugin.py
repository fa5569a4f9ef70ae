"""Fixtures for tests of programs that use Headrace: a real server, and a new topic per test.

```python
def test_orders(headrace_topic):
    with headrace_topic.connect() as client:
        client.send(headrace_topic.name, ["one order"])


async def test_orders_async(headrace_topic):  # with any plugin that runs async tests
    async with headrace_topic.connect_async() as client:
        await client.send(headrace_topic.name, ["one order"])
```

`headrace_server` is one node for the whole run, in its own process and folder, on free loopback
ports; `headrace_topic` is a new topic for each test. Modules are loaded on first use.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.base.nearest import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.client.aio.client import Connecting

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.01
_LINES_SHOWN = 20
_READY = re.compile(r"^.* is ready: .*?, tcp (\S+?),", re.MULTILINE)


class ServerError(Exception):
    """The server did not start; the message has its last output."""


class Server:
    """A running node of `headrace dev`, with the user iggy and the password iggy."""

    def __init__(self, address: str) -> None:
        self.address = address

    def connect(self) -> headrace.Client:
        """Return a client; use it in a `with` block."""
        return headrace.connect(self.address, username="iggy", password="iggy")  # noqa: S106

    def connect_async(self) -> Connecting:
        """Return a client for asyncio; use it in an `async with` block."""
        return headrace.aio.connect(self.address, username="iggy", password="iggy")  # noqa: S106

    def __repr__(self) -> str:
        return f"<headrace server {self.address}>"


class Topic:
    """A topic for one test."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def address(self) -> str:
        """The address of its server."""
        return self.server.address

    def connect(self) -> headrace.Client:
        """Return a client of its server."""
        return self.server.connect()

    def connect_async(self) -> Connecting:
        """Return a client of its server for asyncio."""
        return self.server.connect_async()

    def __str__(self) -> str:
        return self.name


@pytest.fixture(scope="session")
def headrace_server() -> Iterator[Server]:
    """A real server for the whole run; its data is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-pytest-") as folder:
        log = Path(folder) / "output.log"
        process = _start(Path(folder) / "data", log)
        try:
            yield Server(_wait_ready(process, log))
        finally:
            _stop(process)


@pytest.fixture
def headrace_topic(headrace_server: Server, request: pytest.FixtureRequest) -> Iterator[Topic]:
    """A new topic, named after the test, with the number of partitions of the marker.

    `@pytest.mark.headrace_topic(partitions=3)` sets it; the default is 1.
    """
    partitions = _read_partitions(request.node.get_closest_marker("headrace_topic"))
    stream = f"pytest-{os.getpid()}-{time.time_ns()}"
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", request.node.name)[:100]
    with headrace_server.connect() as client:
        client.create_stream(stream)
        client.create_topic((stream, name), partitions=partitions)
    yield Topic(headrace_server, f"{stream}/{name}")
    with headrace_server.connect() as client:
        client.delete_stream(stream)


def _read_partitions(marker: pytest.Mark | None) -> int:
    """Return the number of partitions that a marker asks for.

    Raises:
        TypeError: It has an unknown option, or a positional argument.
    """
    if marker is None:
        return 1
    if marker.args:
        raise TypeError("mark.headrace_topic() takes its option by name: partitions=3")
    refuse_unknown("mark.headrace_topic()", marker.kwargs, ["partitions"])
    partitions: int = marker.kwargs.get("partitions", 1)
    return partitions


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "headrace_topic(partitions): how many partitions `headrace_topic` has"
    )


def _start(data: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a node, without the settings of a developer's own node."""
    command = [sys.executable, "-m", "headrace", "dev", "--data", str(data)]
    command += ["--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    own = ("HEADRACE_", "IGGY_")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own command, without a shell
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        has_ended = process.poll() is not None
        said = log.read_text(errors="replace")
        found = _READY.search(said)
        if found is not None:
            return found[1]
        if has_ended or time.monotonic() > deadline:
            what = f"ended with {process.returncode}" if has_ended else "is not ready"
            shown = "\n".join(said.splitlines()[-_LINES_SHOWN:])
            raise ServerError(f"the server {what}; it said:\n{shown}")
        time.sleep(_LOOK_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
