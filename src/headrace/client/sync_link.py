"""Carries out a session's effects over a blocking socket."""

import socket
import time

from headrace.base.limits import KIB
from headrace.client.steps import Effect, Open, Pause, Receive, Transmit

RECEIVE_BYTES = 256 * KIB
JOIN_BYTES_MAX = 64 * KIB  # below that one packet is worth a copy


class SyncLink:
    """One connection at a time."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def carry_out(self, effect: Effect) -> bytes:
        """Do what the session asks for; give what was received, if that was it.

        Raises:
            OSError: The connection is of no more use.
        """
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
        elif isinstance(effect, Open):
            self._open(effect)
        elif isinstance(effect, Transmit):
            self._transmit(effect)
        else:
            return self._receive(effect)
        return b""

    def close(self) -> None:
        """Let the connection go, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self, effect: Open) -> None:
        self.close()
        self._socket = socket.create_connection(effect.endpoint, effect.seconds_max)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _transmit(self, effect: Transmit) -> None:
        link = self._connected(effect.seconds_max)
        if len(effect.body) <= JOIN_BYTES_MAX:
            link.sendall(effect.header + effect.body)
        else:
            link.sendall(effect.header)
            link.sendall(effect.body)

    def _receive(self, effect: Receive) -> bytes:
        return self._connected(effect.seconds_max).recv(RECEIVE_BYTES)

    def _connected(self, seconds_max: float) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("not connected")
        self._socket.settimeout(seconds_max)
        return self._socket
