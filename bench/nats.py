"""NATS JetStream beside the node: file storage, one stream, one connection in lockstep.

A batch is that many messages published one after another and then awaited, because JetStream
stores and acknowledges each by itself; Headrace takes the batch as one record. Acknowledged means
in the page cache for both: the class `replicated` is what compares. Used only where `nats-server`
is installed.
"""

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from bench.frames import Shape
from bench.load import Lap, Limits, compile_program, read_lap
from bench.server import find_free_port

START_SECONDS_MAX = 30
REPLY_SECONDS_MAX = 10
SUBJECT = "bench"
_INBOX = "_INBOX.setup"


class NatsError(Exception):
    """The server did not start, or refused the stream."""


def find_nats() -> str | None:
    """Give the path of nats-server, if there is one."""
    return shutil.which("nats-server") or shutil.which(
        "/usr/sbin/nats-server"
    )  # where Debian has it


class Nats:
    """A nats-server with one stream, and the generator for it."""

    def __init__(self, program: str, folder: Path) -> None:
        """Start it and create the stream.

        Raises:
            NatsError: It did not start, or refused the stream.
            NoCompilerError: The generator could not be compiled.
        """
        self._port = find_free_port()
        self._generator = compile_program("nats.c", folder)
        address = ["-a", "127.0.0.1", "-p", str(self._port)]
        self._output = folder / "nats.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603  # found on PATH
                [program, *address, "-js", "-sd", folder / "nats-data"],
                stdout=output,
                stderr=output,
            )
        try:
            self._create_stream()
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def publish(self, shape: Shape, limits: Limits) -> Lap:
        """Publish batches in lockstep; a batch counts as one request."""
        return read_lap(
            self._generator,
            f"port={self._port}",
            f"subject={SUBJECT}",
            f"messages={shape.messages}",
            f"payload={shape.payload_bytes}",
            f"seconds_ms={round(limits.seconds * 1000)}",
            f"bytes_max={limits.sent_bytes}",
        )

    def _create_stream(self) -> None:
        stream = {"name": "BENCH", "subjects": [SUBJECT], "storage": "file", "num_replicas": 1}
        asked = json.dumps(stream)
        with self._connect() as connection:
            connection.settimeout(REPLY_SECONDS_MAX)
            connection.sendall(
                b'CONNECT {"verbose":false,"pedantic":false}\r\n'
                + f"SUB {_INBOX} 1\r\n".encode()
                + f"PUB $JS.API.STREAM.CREATE.BENCH {_INBOX} {len(asked)}\r\n{asked}\r\n".encode()
            )
            seen = b""
            while b"\nMSG " not in seen or not seen.endswith(b"}\r\n"):
                part = connection.recv(65536)
                if not part:
                    raise NatsError(f"closed: {seen!r}")
                seen += part
        if b'"error"' in seen or b'"config"' not in seen:
            raise NatsError(f"stream refused: {seen!r}")

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    lines = self._output.read_text(errors="replace")
                    raise NatsError(f"nats-server did not start:\n{lines}") from None
                time.sleep(0.05)

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
