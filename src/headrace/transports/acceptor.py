"""Accepts the TCP connections of a node of several shards, and gives each of them a home (SH-24).

```
readable -> accept -> refuse (limits of the node) | number -> take it here | hand it to its home
```

Homes are chosen in turn. A shard that is not heard of is left out, for who connects would wait
there; so is one that does not keep up with a burst, for it would refuse. Shard 0, which accepts,
takes what nobody else can.

Nothing is read here. Limits count connections of all shards: the owner reports which of them have
logged in, and which are gone.

Flow:       receive.
Invariants: a connection is counted from its number until it is reported as gone;
            numbers are drawn in one place, so no two connections of the node have the same.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from itertools import cycle, islice

from headrace.base.connection_numbers import ConnectionNumbers
from headrace.base.placement import METADATA_SHARD
from headrace.transports.limits import TcpLimits
from headrace.transports.tcp import bind, resolve, show_address

_ACCEPTS_MAX = 64  # in one turn of the loop
_PAUSE_SECONDS = 1.0  # when the process can open no more files
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


class Accepted:
    """A connection that was accepted and has a home; whoever takes it closes its socket."""

    __slots__ = ("address", "home", "number", "socket")

    def __init__(self, accepted: socket.socket, *, number: int, home: int, address: str) -> None:
        self.socket = accepted
        self.number = number
        self.home = home
        self.address = address


class Acceptor:
    """The listening sockets of a node and the limits on its connections; on shard 0."""

    def __init__(
        self,
        limits: TcpLimits,
        homes: Sequence[int],
        *,
        can_take: Callable[[int], bool],
        take: Callable[[Accepted], bool],
        drop: Callable[[int, str], None],
    ) -> None:
        """Make it; `take` returns whether a connection found its home, `drop` closes one."""
        assert homes
        self._limits = limits
        self._numbers = ConnectionNumbers((METADATA_SHARD, *homes))
        self._homes = cycle(homes)
        self._homes_count = len(homes)
        self._can_take = can_take
        self._take = take
        self._drop = drop
        self._listening: list[socket.socket] = []
        self._resuming: asyncio.TimerHandle | None = None
        self._hosts: dict[int, str] = {}  # of all connections of the node
        self._per_address: dict[str, int] = {}
        self._strangers: dict[int, None] = {}  # that have not logged in, the oldest first
        self.refused_count = 0

    def __len__(self) -> int:
        return len(self._hosts)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections at an address; return the address with the actual port.

        Raises:
            OSError: The address is in use, or does not belong to this host.
        """
        loop = asyncio.get_running_loop()
        listening = bind(*await resolve(loop, host, port))
        self._listening.append(listening)
        loop.add_reader(listening.fileno(), self._accept, listening)
        bound_host, bound_port = listening.getsockname()[:2]
        return bound_host, bound_port

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay open."""
        listening, self._listening = self._listening, []
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        for each in listening:
            asyncio.get_running_loop().remove_reader(each.fileno())
            each.close()

    # What becomes of connections, wherever they live.

    def on_trusted(self, number: int, *, is_trusted: bool) -> None:
        """Count a connection as logged in, or again as one that is not."""
        if is_trusted:
            self._strangers.pop(number, None)
        elif number in self._hosts:
            self._strangers[number] = None

    def on_gone(self, number: int) -> None:
        """Forget a connection; once, however often it is reported."""
        host = self._hosts.pop(number, None)
        if host is None:
            return
        self._strangers.pop(number, None)
        left = self._per_address[host] - 1
        if left:
            self._per_address[host] = left
        else:
            del self._per_address[host]

    # Accepting.

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(listening, error)
                return
            self._place(accepted, peer)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Stop accepting for a while: what waits stays in the backlog."""
        _log.error("no connection can be accepted: %s", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        self._resuming = loop.call_later(
            _PAUSE_SECONDS, loop.add_reader, listening.fileno(), self._accept, listening
        )

    def _place(self, accepted: socket.socket, peer: tuple[str, int]) -> None:
        host = peer[0]
        refusal = self._refuse(host)
        if refusal:
            self.refused_count += 1
            _log.info("%s is refused: %s", show_address(*peer[:2]), refusal)
            accepted.close()
            return
        accepted.setblocking(False)  # noqa: FBT003 - the name of the method says what it means
        home = self._choose_home()
        number = self._numbers.draw(home)
        self._hosts[number] = host
        self._per_address[host] = self._per_address.get(host, 0) + 1
        self._strangers[number] = None
        address = show_address(*peer[:2])
        if not self._take(Accepted(accepted, number=number, home=home, address=address)):
            self.on_gone(number)
        elif len(self._strangers) > self._limits.connections_before_login_max:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]  # It is closed soon, and must not be chosen again.
            self._drop(oldest, "too many connections that are not logged in")

    def _choose_home(self) -> int:
        """Return the next shard that can take a connection."""
        for home in islice(self._homes, self._homes_count):
            if home == METADATA_SHARD or self._can_take(home):
                return home
        return METADATA_SHARD

    def _refuse(self, host: str) -> str:
        """Return why a new connection cannot be accepted; empty if it can."""
        limits = self._limits
        if len(self._hosts) >= limits.connections_max:
            return f"{len(self._hosts)} connections, which is the limit"
        if self._per_address.get(host, 0) >= limits.connections_per_address_max:
            return f"{limits.connections_per_address_max} connections of one address"
        return ""
