"""A server under measurement: started as a user would, watched from outside, stopped as asked.

How a node is told what it shall do stands here and nowhere else in `bench`.
"""

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench import machine
from bench.frames import REPLICATED, Account, Connection
from headrace.server.config.sections import SETTINGS, SegmentsSection
from headrace.wire.errors import RefusedError

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30
LINES_SHOWN = 20

IDLE_BYTES_MAX = 80 << 20
# What the configuration allows a shard beyond what it has when idle.
LOADED_BYTES_MAX = (
    IDLE_BYTES_MAX + SegmentsSection().tail_bytes_max + SegmentsSection().receive_bytes_max
)

# For the shortest forms, which log in more often than they send: hashes cost next to nothing.
_HASTY = "env HEADRACE_SECURITY_ARGON2_TIME_COST=1 HEADRACE_SECURITY_ARGON2_MEMORY=8192 "


def make_command(shards: int, *, is_hasty: bool = False) -> str:
    """Return the command of a node of so many shards; {python} {port} and {data} are filled in."""
    return (
        f"{_HASTY if is_hasty else ''}{{python}} -m headrace serve --data {{data}}"
        f" --shards {shards} --tcp 127.0.0.1:{{port}} --http 127.0.0.1:0"
    )


NODE = make_command(1)
HASTY_NODE = make_command(1, is_hasty=True)
TOY = "{python} -m bench.bare toy {port}"


class ServerError(Exception):
    """The server did not start, or did not end well; the message has its last lines."""


def make_account() -> Account:
    """Give the root user of a run."""
    return Account("bench", secrets.token_hex(16))


class Server:
    """A process, its descendants, and the port that it serves."""

    def __init__(self, command: str, folder: Path, account: Account) -> None:
        """Start it and wait until a login succeeds.

        Raises:
            ServerError: It ended, or nobody could log in for a minute.
        """
        self.port = find_free_port()
        self._account = account
        self._output = folder / "server.log"
        filled = command.format(python=sys.executable, port=self.port, data=folder / "data")
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # the command of whoever runs this
                shlex.split(filled), stdout=output, stderr=output, env=_environment(account)
            )
        try:
            self._wait_for_login()
        except BaseException:
            self._kill()
            raise

    def connect(self) -> Connection:
        """Give a connection that has logged in."""
        return Connection(self.port, self._account)

    def cpu_seconds(self) -> float:
        """Give the processor time of the process and its descendants."""
        return machine.cpu_seconds(machine.family_of(self._process.pid))

    def memory(self) -> list[machine.Memory]:
        """Give the memory of each process, the largest first."""
        family = [machine.memory_of(pid) for pid in machine.family_of(self._process.pid)]
        there = [memory for memory in family if memory is not None]
        return sorted(there, key=lambda memory: -memory.resident)

    def stop(self) -> None:
        """Ask it to end.

        Raises:
            ServerError: It did not, or ended with an error.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._kill()
            what = f"no end {STOP_SECONDS_MAX} s after SIGTERM"
            raise ServerError(self._describe(what)) from None
        if code:
            raise ServerError(self._describe(f"ended with {code}"))

    def end(self, *, is_asked: bool) -> None:
        """Stop it, or end it at once when the run has failed anyway."""
        if is_asked:
            self.stop()
        else:
            self._kill()

    def _wait_for_login(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.connect().close()
            except (OSError, RefusedError) as error:
                if (code := self._process.poll()) is not None:
                    raise ServerError(self._describe(f"ended with {code}")) from None
                if time.monotonic() > deadline:
                    raise ServerError(self._describe(f"no login: {error}")) from None
                time.sleep(0.05)
            else:
                return

    def _kill(self) -> None:
        for pid in machine.family_of(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _describe(self, what: str) -> str:
        lines = self._output.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        return "\n".join([f"the server: {what}; its last lines:", *lines])


def find_free_port() -> int:
    """Give a port on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        port: int = made.getsockname()[1]
        return port


def _environment(account: Account) -> dict[str, str]:
    given = {
        "root.username": account.username,
        "root.password": account.password,
        "topics.durability_minimum": REPLICATED,  # so that there are topics of both classes
    }
    variables = {SETTINGS[path].variable: value for path, value in given.items()}
    return {**os.environ, **variables}
