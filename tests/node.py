"""A real node in a process of its own, as a user starts it, for tests that need one.

```python
with running_node() as node:          # a new folder, free ports, gone at the end
    connect(node.tcp.host, node.tcp.port)
    node.kill()                       # SIGKILL: nothing is said, nothing is flushed
    node.start()                      # the same folder and the same ports
```

What it printed is part of every failure that is raised here, and `node.output()` gives it.

`NODE_SHARDS=2 pytest ...` starts nodes with two shards, unless their test says how many they have.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.base.endpoints import Endpoint, parse_endpoint

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
_LAST_WORDS_SECONDS = 10.0
_LOOK_SECONDS = 0.01
_LINES_SHOWN = 40
_READY = re.compile(r"^.* is ready: .*$", re.MULTILINE)
_TCP = re.compile(r", tcp (\S+?),")
_HTTP = re.compile(r", http http://(\S+?),")
ANY_PORT = Endpoint("127.0.0.1", 0)
SHARDS = int(os.environ.get("NODE_SHARDS", "1"))
# Shards of one test share the cores with those of others, and there may be more of them than cores.
UNPINNED = {"HEADRACE_SERVER_PIN_CORES": "false"}
_SHARDS_ENVIRONMENT = {"HEADRACE_SERVER_SHARDS": str(SHARDS), **UNPINNED} if SHARDS > 1 else {}


class NodeError(Exception):
    """The node did not do what was asked; the message has its last lines."""


class Node:
    """A node that can be started, stopped and killed, any number of times on one folder.

    Its first start picks free ports, later ones bind the same again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        profile: str = "dev",
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Say how it is to be started; `folder` will hold its data and its output."""
        self.data = folder / "data"
        self.tcp = ANY_PORT
        self.http = ANY_PORT
        self._command = [sys.executable, "-m", "headrace", profile, "--data", str(self.data)]
        self._arguments = arguments
        self._environment = _clean_environment() | _SHARDS_ENVIRONMENT | dict(environment or {})
        self._log = folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait for its ready line.

        Raises:
            NodeError: It ended, or was not ready in time.
        """
        assert self._process is None
        addresses = ["--tcp", str(self.tcp), "--http", str(self.http)]
        said_before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *addresses, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        try:
            self._read_ready_line(said_before)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end with SIGTERM and wait until it has.

        Raises:
            NodeError: It did not end in time, or not with 0.
        """
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            failure = self._describe(f"no end {STOP_SECONDS_MAX} s after SIGTERM")
            self.kill()
            raise failure from None
        self._process = None
        if code:
            raise self._describe(f"ended with {code} after SIGTERM")

    def kill(self) -> None:
        """End it with SIGKILL; also right for one that has ended by itself.

        Its shards end with it, as the kernel does it: none is left when this returns.
        """
        process = self._running()
        shards = self.shard_pids if process.poll() is None else []
        process.kill()
        process.wait()
        self._process = None
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while any(Path(f"/proc/{pid}").exists() for pid in shards):
            if time.monotonic() > deadline:
                raise self._describe(f"shards {shards} live on after SIGKILL")
            time.sleep(_LOOK_SECONDS)

    def check_alive(self) -> None:
        """Fail unless the process that was started last still runs.

        Raises:
            NodeError: It has ended by itself.
        """
        if (code := self._running().poll()) is not None:
            raise self._describe(f"ended by itself with {code}")

    @property
    def is_started(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process that was started last."""
        return self._running().pid

    @property
    def shard_pids(self) -> list[int]:
        """The processes of its shards, in the order of their numbers; none if it is one process."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return sorted(map(int, children))  # They are started in this order.

    @property
    def pids(self) -> list[int]:
        """All its processes."""
        return [self.pid, *self.shard_pids]

    def resident_bytes(self) -> int:
        """Return how much memory its largest process has in use now."""
        return max(map(_resident_bytes, self.pids))

    def output(self) -> str:
        """Give all that it printed, over all its starts."""
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        """Give all that it printed; one that fails says why last, so it may end first."""
        with suppress(subprocess.TimeoutExpired):
            self._running().wait(_LAST_WORDS_SECONDS)
        return self.output()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _read_ready_line(self, said_before: int) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            has_ended = self._running().poll() is not None
            said = self._log.read_bytes()[said_before:].decode(errors="replace")
            if said.endswith("\n") and (ready := _READY.search(said)):
                break
            if has_ended:
                raise self._describe(f"ended with {self._running().returncode} before it was ready")
            if time.monotonic() > deadline:
                raise self._describe(f"not ready after {START_SECONDS_MAX} s")
            time.sleep(_LOOK_SECONDS)
        self.tcp = self._bound(_TCP, ready[0])
        self.http = self._bound(_HTTP, ready[0])

    def _bound(self, pattern: re.Pattern[str], line: str) -> Endpoint:
        found = pattern.search(line)
        if found is None:
            raise self._describe(f"no {pattern.pattern} in its ready line")
        return parse_endpoint(found[1])

    def _describe(self, what: str) -> NodeError:
        lines = self.output().splitlines()[-_LINES_SHOWN:]
        return NodeError("\n".join([f"the node: {what}; its last lines:", *lines]))


@contextmanager
def running_node(
    *,
    profile: str = "dev",
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Node]:
    """Give a started node on a new folder; stop it at the end and remove the folder.

    A node that still runs at the end must stop cleanly, and have left no secret in its folder
    (`watched_nodes.py`), or the test that had it fails.
    """
    # Not pytest's temporary folder: that one outlives the run, and a node's journal is big.
    with TemporaryDirectory(prefix="headrace-test-") as folder:
        node = Node(Path(folder), profile=profile, arguments=arguments, environment=environment)
        node.start()
        try:
            yield node
            if node.is_started:
                node.stop()
        finally:
            if node.is_started:
                node.kill()


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _clean_environment() -> dict[str, str]:
    """Give the environment without settings of a node, which a developer may have set."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("HEADRACE_", "IGGY_"))
    }
