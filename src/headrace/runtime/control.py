"""The line between the supervisor and one shard: one message a packet, both ways.

```
supervisor   ->  Setup   ->  Go  ->  Begin  ->  Listen
shard        <-  Opened  <-  StoresOpen  <-  Loaded  <-  Listening  <-  Finished     or Failed
```

The end of the line is the end of the process at its other side.
"""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from headrace.base.secret import Secret

_MESSAGE_BYTES_MAX = 128 * 1024


def make_line() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a line; one is inherited by a child."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Line:
    """One end, which receives messages of the given types; neither sending nor receiving waits."""

    def __init__(self, end: socket.socket, received: object) -> None:
        end.setblocking(False)  # noqa: FBT003 - the name of the method says what it means
        self._socket = end
        self._decoder = msgspec.json.Decoder(
            cast("Any", received), dec_hook=_read
        )  # a union is no type[T]
        self._take: Callable[[Any], None] = _ignore
        self._loop: asyncio.AbstractEventLoop | None = None

    def tell(self, message: object) -> bool:
        """Send a message; return whether the other end is still there."""
        data = msgspec.json.encode(message, enc_hook=_write)
        assert len(data) <= _MESSAGE_BYTES_MAX
        try:
            self._socket.send(data)
        except OSError:
            return False
        return True

    def attach(self, take: Callable[[Any], None]) -> None:
        """Receive from now on, in the running loop; None is the end of the line."""
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        while True:
            try:
                data = self._socket.recv(_MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._stop_reading()
                self._take(None)
                return
            self._take(self._decoder.decode(data))

    def _stop_reading(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop = None

    def close(self) -> None:
        """Close this end."""
        self._stop_reading()
        self._socket.close()


def _ignore(message: object) -> None:
    """Take nothing: the line is not attached."""


def _write(value: object) -> object:
    """Return what is sent for a value that the encoding does not know."""
    assert isinstance(value, Path | Secret), type(value)
    return str(value) if isinstance(value, Path) else value.hex()


def _read(kind: type, raw: object) -> Path | Secret:
    """Return the value of a kind that the encoding does not know."""
    assert kind in (Path, Secret), kind
    assert isinstance(raw, str), type(raw)
    return Path(raw) if kind is Path else Secret.fromhex(raw)
