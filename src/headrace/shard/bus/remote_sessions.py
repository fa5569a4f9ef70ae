"""On a shard without logins: sessions are given and taken by shard 0 (SH-2).

A login, and a logout, is forwarded; shard 0 answers by orders about the connection, in their order:
trust it, send it this, end its session. What a connection has on its way is answered before its end
closes it.

Flow: route, reply.
"""

from collections.abc import Callable
from typing import NoReturn, TypeAlias

from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD
from headrace.ports.bus import SendToMember
from headrace.ports.network import Buffer, ConnectionTrusted
from headrace.shard.bus.forwards import Forwards
from headrace.shard.bus.numbered import Incoming, Outgoing
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection, Phase
from headrace.shard.front.credential import Credential
from headrace.shard.owned.elsewhere import metadata_elsewhere
from headrace.shard.turn import Turn
from headrace.wire.bus.handover import (
    CONNECTION_GONE,
    ConnectionGoneHeader,
    ConnectionOrderHeader,
    Order,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import decode_eviction
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replies import REPLY
from headrace.wire.requests import RequestHeader

_OF_SESSIONS = (Operation.REGISTER, Operation.LOGOUT)
_OPERATION_AT = REPLY.at("operation")

Withdraw: TypeAlias = Callable[[int, int, int], bool]


class RemoteSessions:
    """Logins and logouts of the connections that live here."""

    def __init__(
        self,
        answers: Answers,
        forwards: Forwards,
        turn: Turn,
        withdraw: Withdraw,
    ) -> None:
        """Make it; `withdraw` takes a request back that no group here has ordered yet."""
        self._answers = answers
        self._connections = answers.connections
        self._forwards = forwards
        self._turn = turn
        self._withdraw = withdraw
        self.orders = Incoming()
        self.departures = Outgoing()
        # Connections whose end waits for answers that are on their way, and why they close.
        self._closing: dict[int, str] = {}

    # What the router asks.

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        """Have shard 0 begin a login."""
        self._leave_to_shard_zero(connection)

    def logout(self, connection: Connection, header: RequestHeader) -> None:
        """Have shard 0 end a session."""
        self._leave_to_shard_zero(connection)

    def _leave_to_shard_zero(self, connection: Connection) -> NoReturn:
        if self._forwards.is_of_session(connection):
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED)  # One at a time.
        raise metadata_elsewhere()

    # What shard 0 orders.

    def on_order(self, header: ConnectionOrderHeader, body: Buffer) -> None:
        """Carry out an order, once, in its order; one that is missing is sent again."""
        if not self.orders.is_next(header.number):
            return
        assert self.orders.taken == header.number, "an order is carried out once"
        connection = self._connections.get(header.connection)
        if connection is None:
            return  # It has closed meanwhile; shard 0 hears of that.
        match header.order:
            case Order.TRUST:
                self._trust(connection, header)
            case Order.DISTRUST | Order.END:
                self._distrust(connection, is_over=header.order == Order.END)
            case Order.SEND:
                self._send(connection, bytes(body))
            case _:
                self._closing[connection.number] = bytes(body).decode()
                self.close_answered()

    def _trust(self, connection: Connection, header: ConnectionOrderHeader) -> None:
        credential = Credential(header.user_id, 0, "")  # Shard 0 knows on what the session rests.
        assert header.session > 0, "who is trusted holds a session"
        if connection.is_over:
            connection.enter(Phase.FREE)
        self._connections.bind(
            connection, client=header.client, credential=credential, session=header.session
        )
        assert connection.session == header.session, "it holds the session that shard 0 gave"
        self._turn.out.append(ConnectionTrusted(connection.number))

    def _distrust(self, connection: Connection, *, is_over: bool) -> None:
        if connection.is_bound:
            self._connections.unbind(connection)
            self._turn.out.append(ConnectionTrusted(connection.number, is_trusted=False))
        if is_over and not connection.is_over:
            connection.enter(Phase.OVER)
            self._answers.refuse_undone(connection.number, Code.UNAUTHORIZED, self._withdraw)
        assert not connection.is_bound, "who is not trusted holds no session"
        assert connection.is_over or not is_over, "it may log out, and no more"

    def _send(self, connection: Connection, frame: bytes) -> None:
        """Send what shard 0 says of a session; it ends the wait of a login or a logout."""
        assert len(frame) >= HEADER_BYTES, "whole frames are sent"
        is_eviction = frame[KIND_OFFSET] == FrameKind.EVICTION
        if is_eviction or frame[_OPERATION_AT] in _OF_SESSIONS:
            self._forwards.settle(connection)
            assert not self._forwards.is_of_session(connection), "it was answered"
        if is_eviction:
            eviction = decode_eviction(frame)
            assert eviction.reason is not None
            self._answers.evict_asking(connection, eviction.client, eviction.reason)
        else:
            self._answers.send(connection.number, frame)

    def close_answered(self) -> None:
        """Close the connections whose session was ended and that have been told everything else."""
        for number, reason in list(self._closing.items()):
            if self._connections.get(number) is None:
                del self._closing[number]
            elif not self._answers.is_awaited(number):
                del self._closing[number]
                assert number not in self._connections.guests, "guests are answered or forgotten"
                self._answers.close(number, reason)

    # What shard 0 is told.

    def release(self, connection: Connection) -> None:
        """Take the session from a connection that a partition has evicted.

        A guest holds none: its home takes the session of whom it stands for, by the same answer.
        """
        if connection.number in self._connections.guests:
            return
        self._connections.unbind(connection)
        assert connection.session == 0, "a session that is over is not asked in"
        self._turn.out.append(ConnectionTrusted(connection.number, is_trusted=False))
        self._tell(connection.number, is_open=True)

    def lose(self, connection: Connection) -> None:
        """Tell shard 0 that a connection has closed."""
        assert connection.number not in self._connections.by_number, "only who is gone is lost"
        self._tell(connection.number, is_open=False)

    def _tell(self, number: int, *, is_open: bool) -> None:
        header = ConnectionGoneHeader(
            connection=number, number=self.departures.next_number(), is_open=int(is_open)
        )
        parts = (CONNECTION_GONE.encode(header),)
        self.departures.keep(parts)
        assert self.departures.last == header.number, "it is kept under its number"
        self._turn.out.append(SendToMember(METADATA_SHARD, parts))

    def on_taken(self, number: int) -> None:
        """Take how many departures shard 0 has taken; send again what a lane has dropped."""
        self.departures.on_taken(number)
        assert self.departures.taken == number, "what shard 0 has taken is not kept for it"
        for parts in self.departures.take_again():
            self._turn.out.append(SendToMember(METADATA_SHARD, parts))

    def check(self) -> None:
        """Assert that what closes is open yet, and numbers are in order."""
        self.departures.check()
        for number in self._closing:
            assert number not in self._connections.guests, "shard 0 orders nothing of guests"
            is_open = self._connections.get(number) is not None
            assert not is_open or self._answers.is_awaited(number), "it waits for an answer"
