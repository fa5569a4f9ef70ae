"""From a client's frame to the part that answers it.

A frame is classified once. Queries are answered here; what must be ordered goes to the group that
orders it, in the form in which it is replicated: names resolved, defaults filled in, secrets
hashed.

Flow:       route.
Invariants: whatever a frame holds, exactly one answer follows, now or from consensus (O4.3); a
            frame that no answer can reach closes its connection.
"""

from typing import Protocol

from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import Buffer
from headrace.shard.consensus.clock import Clock
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.orders import Orders
from headrace.shard.front.queries import Queries
from headrace.shard.front.sends import Sends, read_send_header
from headrace.wire.commands.system import PING
from headrace.wire.commands.table import find_command
from headrace.wire.errors import Code, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.requests import REQUEST, RequestHeader, check_body, without_marks

_REQUEST = int(FrameKind.REQUEST)
_SEND = int(Operation.SEND_MESSAGES)
_OPERATION_AT = REQUEST.at("operation")


class Sessions(Protocol):
    """Who opens and ends sessions: the room of logins, where this shard has it."""

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        """Begin a login; a connection that holds a session keeps it."""

    def logout(self, connection: Connection, header: RequestHeader) -> None:
        """End a session; where there is none it has ended."""


class Router:
    """Takes the frames of all connections."""

    def __init__(
        self,
        sends: Sends,
        orders: Orders,
        queries: Queries,
        sessions: Sessions,
        answers: Answers,
        clock: Clock,
    ) -> None:
        self._sends = sends
        self._orders = orders
        self._queries = queries
        self._sessions = sessions
        self._answers = answers
        self._clock = clock

    def route(self, connection: Connection, frame: Buffer) -> None:
        """Take one frame, and have it answered."""
        assert connection.heard <= self._clock.now, "ticks do not go back"
        connection.heard = self._clock.now
        header: RequestHeader | None = None
        try:
            if frame[KIND_OFFSET] == _REQUEST and frame[_OPERATION_AT] == _SEND:
                header = read_send_header(connection, frame, self._answers.next_ticket)
                if header.session != connection.session or header.client != connection.client:
                    connection.check_session(header.client, header.session)
                self._sends.route(connection, header, frame)
                return
            header = without_marks(REQUEST.decode(frame))
            self._route_other(connection, header, memoryview(frame)[HEADER_BYTES:])
        except RefusedError as error:
            assert header is not None
            # That a session is over is no matter of how current the metadata is.
            code = error.code if connection.is_over else self._answers.refusal(error.code)
            self._answers.refuse(connection.number, header, code)
        except EvictedError as error:
            self._evict(connection, error)
        except RemoteError as error:
            self._answers.close(connection.number, str(error))

    def _evict(self, connection: Connection, error: EvictedError) -> None:
        assert error.reason is not None
        self._answers.evict_asking(connection, error.client, error.reason)

    def _route_other(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        command = find_command(header)
        check_body(header, body)
        operation = command.operation
        is_served = operation == Operation.LOGOUT or command.code == PING.code
        if connection.is_over and not is_served:
            raise RefusedError(Code.UNAUTHORIZED, why="the session is over")
        if operation == Operation.REGISTER:
            self._sessions.register(connection, header, body)
        elif operation == Operation.LOGOUT:
            self._sessions.logout(connection, header)
        elif operation == Operation.NON_REPLICATED:
            if command.code == PING.code:
                self._answers.reply(connection.number, header)
                return
            if not connection.is_bound:
                raise RefusedError(Code.UNAUTHENTICATED, command=command.code)
            assert not connection.is_over, "a session that is over is asked for nothing"
            self._queries.read(connection, header, command, command.decode_request(body))
        else:
            connection.check_session(header.client, header.session)
            assert connection.session == header.session, "what is ordered is of the session of now"
            self._orders.order(connection, header, command, body)
