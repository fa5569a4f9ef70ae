"""From a client's frame to who answers it.

A frame is classified once. Reads are answered here; what must be ordered goes to the group that
orders it, in the form in which it is replicated: names resolved, defaults filled in, secrets
hashed.

Flow:       route.
Invariants: whatever a frame holds, exactly one answer follows, now or from consensus (O4.3); a
            frame that no answer can reach closes its connection.
"""

import struct

from headrace.base.checksum import xxh32
from headrace.base.limits import HEADER_BYTES
from headrace.kernel.layout import BATCH_HEADER_BYTES, MESSAGE_COUNT_AT
from headrace.metadata.access import as_missing, reach
from headrace.ports.network import Buffer, CloseConnection
from headrace.shard.desk import Desk
from headrace.shard.front.connections import Connection
from headrace.shard.front.orders import Orders
from headrace.shard.front.queries import Reads
from headrace.shard.logins.audit import Auditor, describe_segments
from headrace.shard.logins.login import Logins
from headrace.shard.owned.local import Local
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.commands.system import PING
from headrace.wire.commands.table import find_command
from headrace.wire.commands.topics import DELETE_SEGMENTS
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.identifiers import Balanced, ByKey, ToPartition
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.requests import REQUEST, RequestHeader, check_body, without_marks

_SEND = int(Operation.SEND_MESSAGES)
_OPERATION_AT = REQUEST.at("operation")
# client, request number, operation, session: all that a send is routed by
_SEND_FIELDS = REQUEST.struct("client", "request", "operation", "session")
_U32 = struct.Struct("<I")
_ROUTES_MAX = 4096
_ROUTING_BYTES_MAX = 1024


class Router:
    """Takes the frames of all connections."""

    def __init__(
        self,
        desk: Desk,
        partitions: Partitions,
        logins: Logins,
        orders: Orders,
        reads: Reads,
        auditor: Auditor,
    ) -> None:
        self._desk = desk
        self._partitions = partitions
        self._logins = logins
        self._orders = orders
        self._reads = reads
        self._auditor = auditor
        # Where sends go, by their routing as it travels and by user; valid for one commit of the
        # metadata, because names, permissions and partitions may change with the next.
        self._routes: dict[tuple[bytes, int], Local] = {}
        self._routes_commit = -1
        self._turns: dict[tuple[int, int], int] = {}  # of balanced sends, by stream and topic

    def route(self, connection: Connection, frame: Buffer) -> None:
        """Take one frame, and have it answered."""
        desk = self._desk
        connection.heard = desk.clock.now
        header: RequestHeader | None = None
        try:
            if frame[KIND_OFFSET] == FrameKind.REQUEST and frame[_OPERATION_AT] == _SEND:
                header = self._send_header(connection, frame)
                self._check_session(connection, header.client, header.session)
                self._route_send(connection, header, frame)
                return
            header = without_marks(REQUEST.decode(frame))
            self._route_other(connection, header, memoryview(frame)[HEADER_BYTES:])
        except RefusedError as error:
            assert header is not None
            # That a session is over is no matter of how current the metadata is.
            code = error.code if connection.is_over else desk.refusal(error.code)
            desk.answers.refuse(connection.number, header, code)
        except EvictedError as error:
            self._evict(connection, error)
        except RemoteError as error:
            desk.out.append(CloseConnection(connection.number, str(error)))

    def _evict(self, connection: Connection, error: EvictedError) -> None:
        assert error.reason is not None
        self._desk.answers.evict_asking(connection, error.client, error.reason)

    # Sends: the path that must be short.

    def _send_header(self, connection: Connection, frame: Buffer) -> RequestHeader:
        """Read what a send is routed by.

        Raises:
            RemoteError: No answer could reach this client.
        """
        raw_client, request, operation, session = _SEND_FIELDS.unpack_from(frame)
        client = int.from_bytes(raw_client, "little")
        if client == 0:
            raise RemoteError("request without a client id")
        return RequestHeader(
            client=client,
            request=request,
            operation=operation,
            session=session,
            user_id=connection.user_id,
            is_anew=int(request in connection.spent),
        )

    def _check_session(self, connection: Connection, client: int, session: int) -> None:
        """Refuse what is asked in another session than the one that the connection holds.

        Raises:
            EvictedError: It holds none, or another one.
            RefusedError: The session that it held is over, and it may log out.
        """
        if connection.session == session and connection.client == client:
            return
        if connection.is_over:
            raise RefusedError(Code.UNAUTHORIZED, why="the session is over")
        reason = EvictionReason.NO_SESSION
        if connection.client == client and session < connection.session:
            reason = EvictionReason.SESSION_TOO_LOW
        raise EvictedError(reason, client=client)

    def _route_send(self, connection: Connection, header: RequestHeader, frame: Buffer) -> None:
        desk = self._desk
        if header.request == 0:
            raise RefusedError(Code.INVALID_COMMAND, request=0)
        local, start = self._find_route(header.user_id, frame)
        if local.fence is not None:
            raise RefusedError(Code.CANNOT_APPEND_MESSAGE, why=local.fence)
        if local.lost_until and local.is_short:
            is_full = desk.data_plane.is_without_space
            code = Code.CANNOT_APPEND_MESSAGE if is_full else Code.TRANSIENT_NOT_ACCEPTED
            raise RefusedError(code, why="a lost range comes first (FM-7)")
        ticketed = desk.answers.expect_ticketed(connection, header, desk.clock.now)
        desk.data_plane.put_request(local.replica, ticketed, memoryview(frame)[start:])

    def _find_route(self, user_id: int, frame: Buffer) -> tuple[Local, int]:
        """Give the partition of a send, and where its batch begins.

        Raises:
            RefusedError: The send names nothing that this user may send to, or contradicts itself.
        """
        if len(frame) < HEADER_BYTES + 4:
            raise DecodeError(f"send of {len(frame)} bytes")
        (routing_bytes,) = _U32.unpack_from(frame, HEADER_BYTES)
        start = HEADER_BYTES + 4 + routing_bytes
        if start + BATCH_HEADER_BYTES > len(frame) or routing_bytes > _ROUTING_BYTES_MAX:
            raise DecodeError(f"routing of {routing_bytes} bytes in a send of {len(frame)}")
        raw = bytes(frame[HEADER_BYTES:start])
        (count,) = _U32.unpack_from(frame, start + MESSAGE_COUNT_AT)
        if raw[-4:] != count.to_bytes(4, "little"):
            raise DecodeError(f"batch of {count} messages, its routing says otherwise")
        if self._routes_commit != self._desk.metadata.commit:
            self._routes.clear()
            self._routes_commit = self._desk.metadata.commit
        key = (raw[:-4], user_id)
        local = self._routes.get(key)
        if local is None:
            request = SEND_MESSAGES.decode_request(frame_body(frame))
            try:
                local, is_fixed = self._resolve(user_id, request)
            except RefusedError as error:
                raise as_missing(error) from None
            if is_fixed and len(self._routes) < _ROUTES_MAX:
                self._routes[key] = local
        return local, start

    def _resolve(self, user_id: int, request: SendMessages) -> tuple[Local, bool]:
        """Give the partition that a send goes to, and whether the next one goes there too."""
        topic = reach(
            self._desk.metadata.state, user_id, SEND_MESSAGES.code, request.stream, request.topic
        )
        count = len(topic.partitions)
        partitioning = request.partitioning
        if isinstance(partitioning, ToPartition):
            chosen = partitioning.partition_id
        elif isinstance(partitioning, ByKey):
            chosen = xxh32(partitioning.key) % count if count else 0
        else:
            turn = self._turns.get((topic.stream_id, topic.id), 0)
            self._turns[topic.stream_id, topic.id] = turn + 1
            chosen = turn % count if count else 0
        if chosen >= count:
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=chosen)
        return self._partitions.find(topic.namespace(chosen)), not isinstance(
            partitioning, Balanced
        )

    # Everything else.

    def _route_other(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        command = find_command(header)
        check_body(header, body)
        operation = command.operation
        is_served = operation == Operation.LOGOUT or command.code == PING.code
        if connection.is_over and not is_served:
            raise RefusedError(Code.UNAUTHORIZED, why="the session is over")
        if operation == Operation.REGISTER:
            self._logins.register(connection, header, body)
        elif operation == Operation.LOGOUT:
            self._logins.logout(connection, header)
        elif operation == Operation.NON_REPLICATED:
            if command.code == PING.code:
                self._desk.answers.reply(connection.number, header)
                return
            if not connection.is_bound:
                raise RefusedError(Code.UNAUTHENTICATED, command=command.code)
            self._reads.read(connection, header, command, command.decode_request(body))
        else:
            self._check_session(connection, header.client, header.session)
            self._orders.order(connection, header, command, body)
            if operation == Operation.DELETE_SEGMENTS:
                request = DELETE_SEGMENTS.decode_request(body)
                self._auditor.asked(connection, "delete_segments", describe_segments(request))


def frame_body(frame: Buffer) -> memoryview:
    """Give what follows the header of a frame."""
    return memoryview(frame)[HEADER_BYTES:]
