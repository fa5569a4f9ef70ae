"""Accepts TCP connections, bounds their cost, and sends their replies.

```
loop reads -> Connection -> inbox.put          all readable connections of a turn
inbox closes the turn -> core -> send          replies collect at their connection
flush                                          one write per connection; memory is counted again
```

Flow:       receive, reply.
Invariants: a number is used for one connection only (SH-25); the core gets events of a connection
            only from its opened to its closed; no refused connection reaches the core.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from headrace.base.connection_numbers import make_connection_id
from headrace.ports.network import ConnectionClosed, ConnectionOpened, SendToConnection
from headrace.transports.connection import FULL, PAUSED, Connection
from headrace.transports.deadlines import Deadlines
from headrace.transports.inbox import Inbox
from headrace.transports.limits import TcpLimits
from headrace.transports.memory import ReceiveMemory, SendMemory
from headrace.transports.slabs import Slab
from headrace.wire.numbers import Transport
from headrace.wire.old_framing import OLD_FRAMING

if TYPE_CHECKING:
    from collections.abc import Callable

SWEEP_SECONDS = 1.0
BACKLOG = 1024

_OLD_PEERS_MAX = 1024  # bounds the number of log lines
_KEEP_ALIVE_SECONDS = 60  # idle, then three probes: a peer that vanished is noticed (NW7)
_KEEP_ALIVE_PROBES = 3
_KEEP_ALIVE_PROBE_SECONDS = 10

_log = logging.getLogger(__name__)


class TcpListener:
    """The TCP connections of one shard; all calls come from its event loop.

    The owner of its inbox calls `flush` at the end of every turn in which the inbox was filled or a
    reply was sent.
    """

    def __init__(self, limits: TcpLimits, inbox: Inbox, *, shard: int = 0) -> None:
        self.limits = limits
        self.inbox = inbox
        self.slab = Slab()
        self.memory = ReceiveMemory(limits.receive_bytes_max)
        self.sending = SendMemory(limits.replies_bytes_max)
        self.unheard: Deadlines[Connection] = Deadlines(limits.first_frame_seconds)
        self.unknown: Deadlines[Connection] = Deadlines(limits.login_seconds)
        self.unfinished: Deadlines[Connection] = Deadlines(limits.frame_seconds)
        self.lagging: Deadlines[Connection] = Deadlines(limits.send_seconds)
        self.closing: Deadlines[Connection] = Deadlines(limits.close_seconds)
        self.unsent: list[Connection] = []
        self.waiting: dict[Connection, None] = {}
        self.waiting_large: dict[Connection, None] = {}
        self.refused_count = 0
        self.on_gone: Callable[[int], None] = _tell_nobody
        self._shard = shard
        self._counter = 0
        self._connections: dict[int, Connection] = {}
        self._per_address: dict[str, int] = {}
        self._old_peers: dict[str, None] = {}  # addresses whose older framing was logged
        self._is_paused = False
        self._is_full = False
        self._servers: list[asyncio.Server] = []
        self._adopting: dict[asyncio.Task[None], None] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def connection(self, number: int) -> Connection | None:
        """Return an open connection."""
        return self._connections.get(number)

    # Beginning and end.

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections at an address; return the address with the actual port.

        A name with several addresses uses the first, IPv4 before IPv6; `::` also accepts IPv4.

        Raises:
            OSError: The address is in use, or does not belong to this host.
        """
        loop = asyncio.get_running_loop()
        listening = bind(*await resolve(loop, host, port))
        try:
            server = await loop.create_server(
                lambda: Connection(self), sock=listening, backlog=BACKLOG
            )
        except BaseException:
            listening.close()
            raise
        self._servers.append(server)
        self._start_sweeping()
        bound_host, bound_port = listening.getsockname()[:2]
        return bound_host, bound_port

    def _start_sweeping(self) -> None:
        if self._sweeper is None:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep_and_rearm)

    def adopt(self, accepted: socket.socket, number: int) -> None:
        """Take a connection that was accepted and numbered for this shard (SH-24).

        The core hears of it before its first frame, and once when it is gone, in any case.
        """
        self._start_sweeping()
        task = asyncio.get_running_loop().create_task(self._adopt(accepted, number))
        self._adopting[task] = None
        task.add_done_callback(self._adopting.pop)

    async def _adopt(self, accepted: socket.socket, number: int) -> None:
        connection = Connection(self)
        connection.number = number
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except OSError as error:
            accepted.close()
            _log.info("a connection was handed over and could not be used: %s", error)
            # It never opened here: whoever counts it must hear of its end all the same.
            self.inbox.tell(ConnectionOpened(number, Transport.TCP, ""))
            self.inbox.tell(ConnectionClosed(number))
            self.on_gone(number)

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay open."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

    async def close(self, *, grace_seconds: float) -> None:
        """Stop accepting, close every connection after its replies have left, wait for all.

        After the grace period the remaining connections are aborted.
        """
        self.stop_accepting()
        self.flush()
        for connection in list(self._connections.values()):
            connection.close("the node stops")
        await self._wait_until_gone(grace_seconds)
        for connection in list(self._connections.values()):
            connection.abort("the node stops")
        # Aborted connections are reported in the next turn of the loop.
        await self._wait_until_gone(SWEEP_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    async def _wait_until_gone(self, seconds: float) -> None:
        if not self._connections:
            return
        self._all_gone = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._all_gone], timeout=seconds)
        self._all_gone = None

    # Called by the core.

    def send(self, reply: SendToConnection) -> None:
        """Answer one request, at the end of this turn; dropped if the connection is closed."""
        if reply.connection in self._connections:
            self._connections[reply.connection].send(reply.parts)

    def flush(self) -> None:
        """End a turn: write the replies, and continue reading where it had to wait for that."""
        self.memory.turn_bytes = 0
        if self.unsent:
            self.flush_replies()
        if self._is_full or self.waiting_large:
            self._use_room()

    def flush_replies(self) -> None:
        """Write the replies so far in this turn: the next step of it takes a while."""
        unsent, self.unsent = self.unsent, []
        for connection in unsent:
            connection.flush()
        self.tell_written()

    def close_connection(self, number: int, reason: str) -> None:
        """Close a connection after its sent data has left; nothing if it is closed."""
        connection = self._connections.get(number)
        if connection is not None:
            connection.close(reason)

    def set_logged_in(self, number: int) -> None:
        """Lift the limits before login; nothing if the connection is closed."""
        connection = self._connections.get(number)
        if connection is not None:
            self.unknown.end(connection)
            connection.set_logged_in()

    def set_logged_out(self, number: int) -> None:
        """Apply the limits before login again; nothing if the connection is closed."""
        connection = self._connections.get(number)
        if connection is not None:
            self.unknown.begin(connection)
            connection.set_logged_out()

    def pause_all(self) -> None:
        """Stop reading from all connections; received bytes are kept."""
        self._is_paused = True
        for connection in list(self._connections.values()):
            connection.block(PAUSED)

    def resume_all(self) -> None:
        """Continue reading from all connections."""
        self._is_paused = False
        for connection in list(self._connections.values()):
            connection.unblock(PAUSED)

    # Called by connections.

    def tell_written(self) -> None:
        """Report to the core what was written and what waits, if it has changed much."""
        news = self.sending.take_news()
        if news is not None:
            self.inbox.tell(news)

    def opened(self, connection: Connection) -> None:
        """Register a new connection, number it and inform the core; or refuse it (NW12)."""
        is_handed = connection.number > 0  # Shard 0 has looked at the limits of the node.
        refusal = "" if is_handed else self._refuse(connection)
        if refusal:
            self.refused_count += 1
            connection.abort(refusal)
            return
        if not is_handed:
            self._counter += 1
            connection.number = make_connection_id(self._shard, self._counter)
        self._connections[connection.number] = connection
        self._per_address[connection.host] = self._per_address.get(connection.host, 0) + 1
        self.unheard.begin(connection)
        self.unknown.begin(connection)
        self.inbox.tell(ConnectionOpened(connection.number, Transport.TCP, connection.address))
        if self._is_paused:
            connection.block(PAUSED)
        if self._is_full:
            connection.block(FULL)
        if not is_handed and len(self.unknown) > self.limits.connections_before_login_max:
            self._drop_oldest_unheard()

    def lost(self, connection: Connection) -> None:
        """Remove a connection and inform the core, if it knows it."""
        if connection.number == 0:
            return
        del self._connections[connection.number]
        for deadlines in (self.unheard, self.unknown, self.unfinished, self.lagging, self.closing):
            deadlines.end(connection)
        self.waiting.pop(connection, None)
        self.waiting_large.pop(connection, None)
        left = self._per_address[connection.host] - 1
        if left:
            self._per_address[connection.host] = left
        else:
            del self._per_address[connection.host]
        self._tell_lost(connection)
        self.inbox.tell(ConnectionClosed(connection.number))
        self.on_gone(connection.number)
        self.tell_written()
        if self._all_gone is not None and not self._connections and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _tell_lost(self, connection: Connection) -> None:
        """Log the end; the first of an address with the old framing as a warning."""
        level, host = logging.INFO, connection.host
        is_old = connection.reason == OLD_FRAMING
        if is_old and host not in self._old_peers and len(self._old_peers) < _OLD_PEERS_MAX:
            self._old_peers[host] = None
            level = logging.WARNING
        why = connection.reason or "closed by the peer"
        _log.log(level, "%s is gone: %s", connection.address, why)

    def fill_up(self, connection: Connection) -> None:
        """Stop reading all connections except those with memory for their frame.

        A frame may begin again only when no connection waits for memory any more, so that waiting
        connections have read little.
        """
        newly = [connection] if self._is_full else self._connections.values()
        self._is_full = True
        for each in newly:
            if not each.has_reserved():
                each.block(FULL)

    def _refuse(self, connection: Connection) -> str:
        """Return why a new connection cannot be accepted; empty if it can."""
        limits = self.limits
        if not self._servers:
            return "the node stops"
        if not connection.host:
            return "the peer is gone"
        if len(self._connections) >= limits.connections_max:
            return f"{len(self._connections)} connections, which is the limit"
        if self._per_address.get(connection.host, 0) >= limits.connections_per_address_max:
            return f"{limits.connections_per_address_max} connections of one address"
        return ""

    def _drop_oldest_unheard(self) -> None:
        """Close the oldest connection before login; there is one: the new one."""
        oldest = self.unheard.oldest()
        # It is removed in the next turn: it must not be chosen, or counted, again until then.
        self.unheard.end(oldest)
        self.unknown.end(oldest)
        oldest.abort("too many connections that are not logged in")

    def _use_room(self) -> None:
        """Let connections continue that waited for memory: begun frames first, in order, then all.

        A large frame that still waits delays other large ones, and no others.
        """
        if not _give_room(self.waiting):
            return
        _give_room(self.waiting_large)
        if self._is_full and not self.memory.is_full:
            self._is_full = False
            for each in list(self._connections.values()):
                each.unblock(FULL)
                if self._is_full:  # By the bytes of this one: the others keep waiting.
                    break

    # Time.

    def sweep(self) -> None:
        """Advance all deadlines by a second (NW10, NW11)."""
        limits = self.limits
        _expire(self.unheard, f"no whole frame within {limits.first_frame_seconds} s")
        _expire(self.unknown, f"no login within {limits.login_seconds} s")
        for connection in self.unfinished.sweep():
            connection.look_at_frame()
        if self.waiting or self.waiting_large:
            for connection in list(self._connections.values()):
                connection.look_at_room()
        for connection in self.lagging.sweep():
            connection.look_at_lag()
        for connection in self.lagging:
            connection.count_lag()
        self.tell_written()
        for connection in self.closing.sweep():
            connection.abort("replies did not leave in time")

    def _sweep_and_rearm(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_and_rearm)
        self.sweep()


def _give_room(waiting: dict[Connection, None]) -> bool:
    """Give memory to waiting connections, in order; return whether all have it."""
    while waiting:
        connection = next(iter(waiting))
        if not connection.use_room():
            return False
        del waiting[connection]
    return True


def _expire(deadlines: Deadlines[Connection], reason: str) -> None:
    """Close connections whose time is over; one that was not read gets its time again."""
    for connection in deadlines.sweep():
        if connection.blocked:
            deadlines.begin(connection)
        else:
            connection.abort(reason)


def show_address(host: str, port: int) -> str:
    """Return the address of a peer, as logs and the audit log show it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell_nobody(number: int) -> None:
    """Ignore that a connection is gone: only a node of several shards counts them elsewhere."""


async def resolve(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the address to bind for a name or a number.

    Raises:
        OSError: There is no such address.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return socket.AddressFamily(family), (str(address[0]), int(address[1]))


def bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    """Return a socket bound to an address, with the options that connections inherit."""
    is_any = family == socket.AF_INET6 and address[0] == "::"
    bound = socket.create_server(
        address,
        family=family,
        backlog=BACKLOG,
        dualstack_ipv6=is_any and socket.has_dualstack_ipv6(),
    )
    bound.setblocking(False)  # noqa: FBT003 - the name of the method says what it means
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE_SECONDS),
        ("TCP_KEEPINTVL", _KEEP_ALIVE_PROBE_SECONDS),
        ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES),
    ):
        if hasattr(socket, option):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return bound
