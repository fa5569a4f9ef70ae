"""A node whose end is not its own choice: killed at any moment, its start included."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.node import ANY_PORT, Node, NodeError

# So small that a second of load rolls segments, wraps the journal and takes checkpoints; and
# passwords that cost nothing, for every restart logs in again.
SMALL = {
    "HEADRACE_JOURNAL_BYTES_MAX": "4 MiB",
    "HEADRACE_JOURNAL_PREALLOCATE": "true",  # as `serve` has it
    "HEADRACE_METADATA_JOURNAL_BYTES_MAX": "4 MiB",
    "HEADRACE_TCP_FRAME_BYTES_MAX": "1 MiB",
    "HEADRACE_SEGMENTS_SEGMENT_SIZE": "1 MiB",
    "HEADRACE_SEGMENTS_PIECE_BYTES": "256 KiB",
    "HEADRACE_SEGMENTS_TAIL_BYTES_MAX": "2 MiB",
    "HEADRACE_SECURITY_ARGON2_TIME_COST": "1",
    "HEADRACE_SECURITY_ARGON2_MEMORY": "8 KiB",
}


class CrashNode(Node):
    """A node that may also be killed before it is ready, and that ends by itself."""

    def __init__(
        self,
        folder: Path,
        *,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
        boot_identity: int | None = None,
    ) -> None:
        """Say how it is to be started; `data` lies elsewhere where its disk is to fail."""
        super().__init__(folder, environment=SMALL | dict(environment or {}))
        self.last_code = 0  # with which it ended by itself
        if data is not None:
            self.data = data
        if boot_identity is not None:
            self.set_boot_identity(boot_identity)
        else:
            self._command[-1] = str(self.data)

    def set_boot_identity(self, number: int) -> None:
        """Have the next start believe that the machine was started anew."""
        driver = Path(__file__).with_name("booted_node.py")
        self._command = [sys.executable, str(driver), str(number), str(self.data)]

    def set_environment(self, **values: str) -> None:
        """Change what the next start finds in its environment."""
        self._environment = {**self._environment, **values}

    def begin(self) -> None:
        """Start the process and wait for nothing."""
        assert self._process is None
        self._said_before = self._log.stat().st_size if self._log.exists() else 0
        addresses = ["--tcp", str(ANY_PORT), "--http", str(ANY_PORT)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *addresses, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    def said(self) -> str:
        """Give what the start that was begun last has printed so far."""
        return self._log.read_bytes()[self._said_before :].decode(errors="replace")

    def wait_end(self, seconds: float = 20.0) -> int:
        """Wait until it has ended by itself; give its code.

        Raises:
            NodeError: It has not.
        """
        try:
            code = self._running().wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._describe(f"still runs after {seconds} s") from None
        self._process = None
        self.last_code = code
        return code

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def wait_ready(self) -> None:
        """Wait for the ready line of a start that was begun."""
        self._read_ready_line(self._said_before)

    def start_or_end(self) -> bool:
        """Start it; return whether it became ready, or else has ended.

        Raises:
            NodeError: Neither.
        """
        self.begin()
        try:
            self.wait_ready()
        except NodeError:
            if not self.has_ended:
                raise
            self.wait_end()
            return False
        return True

    def stop_or_end(self) -> int:
        """Ask it to end, unless it has already; give its code."""
        if not self.has_ended:
            self._running().send_signal(signal.SIGTERM)
        return self.wait_end()

    def kill_at(self, seconds: float) -> None:
        """Begin a start and kill it after a while, wherever it is then (PR5)."""
        self.begin()
        time.sleep(seconds)
        self.kill()

    def restart(self) -> None:
        """Start on ports of its own choice again: the old ones may be taken meanwhile."""
        self.tcp = self.http = ANY_PORT
        self.start()

    def refusal(self) -> str:
        """Start it where it must refuse to; give the sentence it says.

        Raises:
            NodeError: It started, or said nothing.
        """
        before = len(self.output()) if self._log.exists() else 0
        self.begin()
        code = self.wait_end()
        said = [
            line for line in self.output()[before:].splitlines() if line.startswith("headrace: ")
        ]
        if code == 0 or len(said) != 1:
            raise NodeError(f"ended with {code}: {self.output()[before:]}")
        return said[0]


@contextmanager
def crash_node(
    *, environment: Mapping[str, str] | None = None, data: Path | None = None
) -> Iterator[CrashNode]:
    """Give a node on a new folder, not started; end it and remove the folder afterwards."""
    with TemporaryDirectory(prefix="headrace-crash-") as folder:
        node = CrashNode(Path(folder), environment=environment, data=data)
        try:
            yield node
        finally:
            if node.is_started:
                node.kill()
