"""From a client's frame to the part that answers it.

A frame is classified once. Queries are answered here; what must be ordered goes to the group that
orders it, in the form in which it is replicated: names resolved, defaults filled in, secrets
hashed.

Flow:       route.
Invariants: whatever a frame holds, exactly one answer follows, now or from consensus (O4.3); a
            frame that no answer can reach closes its connection.
"""

from typing import Protocol

import msgspec

from headrace.base.ids import METADATA_GROUP, GroupId
from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD
from headrace.ports.network import Buffer
from headrace.shard.consensus.clock import Clock
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.early_requests import EarlyRequests
from headrace.shard.front.orders import Orders
from headrace.shard.front.queries import Queries
from headrace.shard.front.sends import Sends, read_send_header
from headrace.shard.owned.early import EarlyError
from headrace.shard.owned.elsewhere import ElsewhereError, metadata_elsewhere
from headrace.shard.owned.parked import ParkedRequest
from headrace.wire.bus.forwarded import ForwardedRequestHeader
from headrace.wire.commands import messages, segments, topics
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
# What is asked of a partition; everything else is asked of the metadata, or of the node.
_OF_PARTITIONS = (
    messages.SEND_MESSAGES.code,
    messages.POLL_MESSAGES.code,
    messages.GET_OFFSET.code,
    messages.STORE_OFFSET.code,
    messages.DELETE_OFFSET.code,
    topics.DELETE_SEGMENTS.code,
    topics.FLUSH_UNSAVED_BUFFER.code,
    segments.PLAN_SEGMENTS.code,
)


class Sessions(Protocol):
    """Who opens and ends sessions: the room of logins, where this shard has it."""

    def register(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        """Begin a login; a connection that holds a session keeps it."""

    def logout(self, connection: Connection, header: RequestHeader) -> None:
        """End a session; where there is none it has ended."""


class Doubts(Protocol):
    """Where requests wait that would be refused by metadata which may be old."""

    def put(self, connection: Connection, header: RequestHeader, frame: Buffer) -> bool:
        """Have a request wait until it can be refused; return whether there is room for it."""


class Forwarding(Protocol):
    """The way to other shards, where there are any."""

    def forward(
        self,
        elsewhere: ElsewhereError,
        connection: Connection,
        header: RequestHeader,
        frame: Buffer,
    ) -> int:
        """Have another shard serve a request; return the ticket by which it waits here."""


class Router:
    """Takes the frames of all connections."""

    def __init__(  # noqa: PLR0913 - it joins the parts
        self,
        sends: Sends,
        orders: Orders,
        queries: Queries,
        sessions: Sessions,
        answers: Answers,
        clock: Clock,
        *,
        early: EarlyRequests,
        forwarding: Forwarding | None = None,
        doubts: Doubts | None = None,
    ) -> None:
        """Make it; with `doubts` the metadata group is on another shard."""
        assert doubts is None or forwarding is not None, "what is in doubt can be asked for"
        self._early = early
        self._forwarding = forwarding
        self._doubts = doubts
        self._has_metadata = doubts is None
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
        except EarlyError as error:
            assert header is not None
            self._early.park(connection, header, frame, error)
        except RefusedError as error:
            assert header is not None
            # That a session is over is no matter of how current the metadata is.
            code = error.code if connection.is_over else self._answers.refusal(error.code)
            doubts = None if code == error.code else self._doubts
            if doubts is None or not doubts.put(connection, header, frame):
                self._answers.refuse(connection.number, header, code)
        except ElsewhereError as error:
            assert header is not None
            self._forward(connection, header, frame, error)
        except EvictedError as error:
            self._evict(connection, error)
        except RemoteError as error:
            self._answers.close(connection.number, str(error))

    def _forward(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: Buffer,
        elsewhere: ElsewhereError,
    ) -> None:
        """Have another shard serve a request; one that was forwarded here stays here (O5.6)."""
        if connection.number in self._answers.connections.guests:
            self._answers.refuse(connection.number, header, Code.TRANSIENT_NOT_ACCEPTED)
            return
        is_of_metadata = elsewhere.group == METADATA_GROUP
        assert not is_of_metadata or elsewhere.owner == METADATA_SHARD, "metadata is on shard 0"
        assert not is_of_metadata or not self._has_metadata, "what is here is not elsewhere"
        assert self._forwarding is not None, "only one of several shards has something elsewhere"
        self._forwarding.forward(elsewhere, connection, header, frame)

    def route_guest(
        self, guest: Connection, envelope: ForwardedRequestHeader, frame: Buffer
    ) -> None:
        """Take the frame of a guest: its home has checked the session, and chosen the partition."""
        assert guest.number in self._answers.connections.guests, "it leaves with its answer"
        assert guest.session == envelope.session, "it holds the session of who asked"
        if envelope.operation != Operation.SEND_MESSAGES:
            if envelope.is_anew:
                guest.spent.note(envelope.request)
            self.route(guest, frame)
            return
        assert envelope.group != METADATA_GROUP, "messages are sent to partitions"
        assert guest.client == envelope.client, "it asks for who has asked"
        header = RequestHeader(
            client=envelope.client,
            request=envelope.request,
            operation=envelope.operation,
            session=envelope.session,
            user_id=envelope.user_id,
            is_anew=envelope.is_anew,
            ticket=self._answers.next_ticket,
        )
        try:
            chosen = (GroupId(envelope.group), envelope.origin)
            self._sends.route(guest, header, frame, chosen)
        except EarlyError as error:
            self._early.park(guest, header, frame, error)
        except ElsewhereError:
            self._answers.refuse(guest.number, header, Code.TRANSIENT_NOT_ACCEPTED)
        except RefusedError as error:
            self._answers.refuse(guest.number, header, error.code)
        except RemoteError as error:
            self._answers.close(guest.number, str(error))

    def route_parked(self, connection: Connection, parked: ParkedRequest) -> None:
        """Take a frame again that waited for its partition: session and rights may have changed.

        It does not wait for a partition again, and so keeps its stamp (O5.4): what is elsewhere by
        now, or not here yet, is refused and may come again.
        """
        header, answers = parked.header, self._answers
        assert answers.kept == parked.ticket, "it keeps its ticket"
        try:
            if header.operation == Operation.SEND_MESSAGES:
                connection.check_session(header.client, header.session)
                header = msgspec.structs.replace(header, ticket=parked.ticket)
                chosen = (GroupId(parked.group), parked.stamp)
                self._sends.route_parked(connection, header, parked.frame, chosen)
            else:
                self._route_other(connection, header, memoryview(parked.frame)[HEADER_BYTES:])
        except RefusedError as error:
            code = error.code if connection.is_over else answers.refusal(error.code)
            answers.refuse(connection.number, header, code)
        except ElsewhereError:
            answers.refuse(connection.number, header, Code.TRANSIENT_NOT_ACCEPTED)
        except EvictedError as error:
            self._evict(connection, error)

    def refuse_of_partition(self, connection: Connection, frame: Buffer, code: Code) -> bool:
        """Refuse what is asked of a partition, in a session; return whether it is that."""
        try:
            header = REQUEST.decode(frame)
            command = find_command(header)
        except (RemoteError, EvictedError, RefusedError):
            return False
        is_refused = connection.is_bound and command.code in _OF_PARTITIONS
        assert not is_refused or connection.session > 0, "others are told to log in"
        if is_refused:
            self._answers.refuse(connection.number, without_marks(header), code)
        return is_refused

    def _evict(self, connection: Connection, error: EvictedError) -> None:
        assert error.reason is not None
        self._answers.evict_asking(connection, error.client, error.reason)

    def _route_other(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        command = find_command(header)
        check_body(header, body)
        operation = command.operation
        is_here = self._has_metadata or command.code in _OF_PARTITIONS
        is_served = operation == Operation.LOGOUT or command.code == PING.code
        if connection.is_over and not is_served:
            raise RefusedError(Code.UNAUTHORIZED, why="the session is over")
        is_of_session = operation in (Operation.REGISTER, Operation.LOGOUT)
        assert not is_of_session or not connection.stands_for, "a guest has no session of its own"
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
            if not is_here:
                raise metadata_elsewhere()
            self._queries.read(connection, header, command, command.decode_request(body))
        else:
            connection.check_session(header.client, header.session)
            assert connection.session == header.session, "what is ordered is of the session of now"
            if not is_here:
                raise metadata_elsewhere()
            self._orders.order(connection, header, command, body)
