"""Every request is answered: at once, or when its op is applied, or when its time has run out.

Flow:       reply.
Invariants: a request that was handed to consensus is in `_waiting` until its answer leaves (O4.3).
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import Buffer, SendReply, SendToConnection
from headrace.shard.connections import Connection, Connections
from headrace.shard.effects import ShardEffect
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replies import REPLY, ReplyHeader, encode_reply
from headrace.wire.requests import RequestHeader

DEADLINE_TICKS = 1000  # 10 s
_REQUEST_AT = slice(200, 208)


class _Waiting(NamedTuple):
    connection: int
    header: RequestHeader
    due: int


class Answers:
    """Sends what a client is told, and knows who still waits."""

    def __init__(self, connections: Connections, out: list[ShardEffect]) -> None:
        self._connections = connections
        self._out = out
        self._waiting: dict[tuple[int, int], _Waiting] = {}  # by client and request, oldest first

    @property
    def waiting_count(self) -> int:
        """How many requests consensus still owes an answer."""
        return len(self._waiting)

    def send(self, connection: int, *parts: Buffer) -> None:
        """Send the parts of one frame."""
        self._out.append(SendToConnection(connection, parts))

    def reply(self, connection: int, header: RequestHeader, body: Buffer = b"") -> None:
        """Answer with a body, maybe none."""
        self._out.append(SendToConnection(connection, (encode_reply(header, body),)))

    def reply_parts(
        self, connection: int, header: RequestHeader, parts: tuple[Buffer, ...], size: int
    ) -> None:
        """Answer with a body of several parts, which are not copied."""
        reply = ReplyHeader(
            cluster=header.cluster,
            size=HEADER_BYTES + size,
            client=header.client,
            op=header.session,
            timestamp=header.timestamp,
            request=header.request,
            operation=header.operation,
        )
        self._out.append(SendToConnection(connection, (REPLY.encode(reply), *parts)))

    def refuse(self, connection: int, header: RequestHeader, code: Code) -> None:
        """Answer with a code."""
        self.send(connection, encode_reply(header, b"", status=code))

    def evict(self, connection: int, client: int, reason: EvictionReason) -> None:
        """Answer that the session is over."""
        self.send(connection, encode_eviction(reason, client))

    def expect(self, connection: Connection, header: RequestHeader, now: int) -> None:
        """Note that consensus will answer this request; if it does not, we do.

        Raises:
            RefusedError: A request of this number waits already: an answer could not tell them
                apart, and the one that came first would be left without.
        """
        key = (header.client, header.request)
        if key in self._waiting:
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED, request=header.request)
        self._waiting[key] = _Waiting(connection.number, header, now + DEADLINE_TICKS)

    def take_waiting(self, effect: SendReply) -> tuple[Connection, RequestHeader] | None:
        """Give who waits for what consensus answers, if anybody still does."""
        frame = effect.frame
        is_eviction = frame[KIND_OFFSET] == FrameKind.EVICTION
        request = effect.request if is_eviction else int.from_bytes(frame[_REQUEST_AT], "little")
        waiting = self._waiting.pop((effect.client, request), None)
        if waiting is not None:
            found = self._connections.get(waiting.connection)
            return None if found is None else (found, waiting.header)
        # Whose session is over is told so, even if nobody waits any more.
        bound = self._connections.of_client(effect.client) if is_eviction else None
        return None if bound is None else (bound, RequestHeader())

    def expire(self, now: int, withdraw: Callable[[int, int], bool]) -> None:
        """Tell those whose time has run out that the outcome is unknown.

        One that `withdraw` takes back was never ordered, and is told that: it may try again.
        """
        while self._waiting:
            key = next(iter(self._waiting))
            waiting = self._waiting[key]
            if waiting.due > now:
                return
            del self._waiting[key]
            code = Code.TRANSIENT_NOT_ACCEPTED if withdraw(*key) else Code.TRANSIENT_NOT_COMMITTED
            self.refuse(waiting.connection, waiting.header, code)

    def forget(self, connection: int) -> None:
        """Nobody waits on a connection that is gone."""
        for key in [key for key, each in self._waiting.items() if each.connection == connection]:
            del self._waiting[key]
