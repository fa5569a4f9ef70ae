"""Carries out a session's effects over a blocking socket."""

import socket
import time

from headrace.client.session.steps import JOIN_BYTES_MAX, Effect, Open, Pause, Receive, Transmit


class SyncLink:
    """One connection at a time."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def carry_out(self, effect: Effect) -> int:
        """Carry out an effect; return the number of bytes received, if it was `Receive`.

        Raises:
            OSError: The connection cannot be used any more.
        """
        if isinstance(effect, Receive):
            return self._receive(effect)
        if isinstance(effect, Transmit):
            self._transmit(effect)
        elif isinstance(effect, Pause):
            time.sleep(effect.seconds)
        else:
            self._open(effect)
        return 0

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self, effect: Open) -> None:
        self.close()
        self._socket = socket.create_connection(effect.endpoint, effect.seconds_max)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _transmit(self, effect: Transmit) -> None:
        link = self._connected(effect.seconds_max)
        head, batch = effect.head, effect.batch
        if len(batch) <= JOIN_BYTES_MAX:
            link.sendall(head + batch)
            return
        sent = link.sendmsg((head, batch)) - len(head)
        if sent < 0:
            link.sendall(head[sent:])
            sent = 0
        link.sendall(memoryview(batch)[sent:])

    def _receive(self, effect: Receive) -> int:
        link = self._connected(effect.seconds_max)
        into, wanted = effect.into, effect.bytes_min
        give_up = time.monotonic() + effect.seconds_max
        count = link.recv_into(into)
        while 0 < count < wanted and time.monotonic() < give_up:
            more = link.recv_into(into[count:])
            if not more:
                break  # The next call reports that the peer closed.
            count += more
        return count

    def _connected(self, seconds_max: float) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("not connected")
        self._socket.settimeout(seconds_max)
        return self._socket
