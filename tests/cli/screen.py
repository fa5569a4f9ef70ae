"""A terminal of its own for a command, as a person has one."""

import os
import pty
import subprocess
from contextlib import suppress
from select import select
from typing import IO

WAIT_SECONDS = 30


class Screen:
    """A command whose input and output are a terminal of its own; output may go elsewhere."""

    def __init__(
        self, command: list[str], environment: dict[str, str], output: IO[bytes] | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        self._said = ""
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave if output is None else output,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def wait_for(self, words: str) -> None:
        while words not in self._said:
            assert self._read(), f"{words!r} never came, but {self._said!r}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """Give its exit code and all that the terminal showed."""
        while self._read():
            pass
        return self.process.wait(WAIT_SECONDS), self._said

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        readable, _, _ = select([self._master], [], [], WAIT_SECONDS)
        assert readable, f"nothing more came, only {self._said!r}"
        piece = b""
        with suppress(OSError):  # how the end of a terminal shows on Linux
            piece = os.read(self._master, 65_536)
        self._said += piece.decode()
        return bool(piece)
