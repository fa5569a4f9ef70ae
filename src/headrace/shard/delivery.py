"""Brings what consensus answers to the client that waits for it, in the form that it waits for.

Flow: reply.
"""

from collections.abc import Callable

from headrace.base.limits import HEADER_BYTES
from headrace.ports.disk import OnStore
from headrace.ports.network import SendFrame, SendReply
from headrace.shard.consensus.plane import Effect
from headrace.shard.effects import ShardEffect
from headrace.shard.front.connections import Connection
from headrace.shard.front.front import Front
from headrace.shard.front.purges import PURGES
from headrace.shard.logins.room import LoginRoom
from headrace.shard.metadata import Metadata
from headrace.wire.evictions import EVICTION, EvictionReason
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind, Operation, is_partition
from headrace.wire.replies import REPLY, with_commit
from headrace.wire.requests import RequestHeader

_OPERATION_AT = REPLY.at("operation")
_REASON_AT = EVICTION.at("reason")
_EVICTION = int(FrameKind.EVICTION)
_SEND = int(Operation.SEND_MESSAGES)


class PartitionDelivery:
    """Takes the replies of partitions; `release` takes the session from a connection."""

    def __init__(
        self,
        metadata: Metadata,
        front: Front,
        release: Callable[[Connection], None],
        out: list[ShardEffect],
    ) -> None:
        self._metadata = metadata
        self._out = out
        self._answers = front.answers
        self._release = release

    def emit(self, store: int, effects: list[Effect]) -> None:
        """Deliver the replies of a plane; the rest leaves the shard."""
        out = self._out
        for effect in effects:
            if type(effect) is SendReply:
                self._deliver(effect)
            elif type(effect) is SendFrame:
                out.append(effect)
            else:
                out.append(OnStore(store, effect))

    def _deliver(self, effect: SendReply) -> None:
        """Send a reply to who waits for it."""
        found = self._answers.take_waiting(effect)
        if found is None:
            return
        connection, asked = found
        if effect.frame[KIND_OFFSET] == FrameKind.EVICTION:
            self._evict(connection, asked, effect)
        else:
            self._settle(connection, asked, effect.frame)

    def _settle(self, connection: Connection, asked: RequestHeader, frame: bytes) -> None:
        """Send what a partition has answered."""
        if asked.operation == Operation.DELETE_SEGMENTS:
            # Clients take the commit of such an operation for a position of the metadata log.
            frame = with_commit(frame, self._metadata.commit)
        self._answers.send_settled(connection, asked, frame)

    def _evict(self, connection: Connection, asked: RequestHeader, effect: SendReply) -> None:
        assert effect.client in (connection.client, asked.client), "who is evicted is told"
        if asked.operation == Operation.REGISTER:
            self._answers.send(connection.number, effect.frame)
        else:
            assert effect.client == connection.client or asked.client, "it is told of its own end"
            reason = EvictionReason(effect.frame[_REASON_AT])
            self._answers.evict_asking(connection, effect.client, reason)
        if connection.client == effect.client:
            self._release(connection)  # It must log in again.


class Delivery(PartitionDelivery):
    """Takes the replies of all groups, the metadata group's too."""

    def __init__(
        self, metadata: Metadata, front: Front, room: LoginRoom, out: list[ShardEffect]
    ) -> None:
        super().__init__(metadata, front, room.disconnects.release, out)
        self._purges = front.purges
        self._logins = room.logins
        self._disconnects = room.disconnects
        self._users = room.users

    def _deliver(self, effect: SendReply) -> None:
        """Send a reply, or pass it to the part that must see it first."""
        answers, frame = self._answers, effect.frame
        is_eviction = frame[KIND_OFFSET] == _EVICTION
        operation = frame[_OPERATION_AT]
        if operation in PURGES and not is_eviction and not REPLY.decode(frame).status:
            self._purges.hold(effect)
            return
        found = answers.take_waiting(effect)
        if found is None:
            if operation == Operation.REGISTER and not is_eviction:
                self._disconnects.on_unheard(effect.client)
            return
        connection, asked = found
        if is_eviction:
            self._evict(connection, asked, effect)
        elif operation == _SEND:
            assert asked.client == effect.client, "an answer reaches the client that asked"
            assert asked.operation == operation, "an answer is of what was asked"
            answers.send_settled(connection, asked, frame)
        else:
            self._deliver_other(connection, asked, operation, frame)

    def _deliver_other(
        self, connection: Connection, asked: RequestHeader, operation: int, frame: bytes
    ) -> None:
        answers = self._answers
        assert (asked.request == 0) == (operation == Operation.REGISTER), "all but logins count"
        is_status = REPLY.decode(frame).status != 0
        if is_partition(Operation(operation)):
            self._settle(connection, asked, frame)
        elif is_status:
            answers.pass_on(connection, frame)
        elif operation == Operation.REGISTER:
            assert asked.operation == Operation.REGISTER, "a session is given to a login"
            self._logins.on_registered(connection, asked, frame[HEADER_BYTES:])
        elif operation == Operation.CREATE_PERSONAL_ACCESS_TOKEN:
            assert asked.operation == operation, "an answer is of what was asked"
            body = self._users.token_reply(asked, frame[HEADER_BYTES:])
            answers.reply(connection.number, asked, body)
        else:
            if operation == Operation.LOGOUT and connection.is_bound:
                self._disconnects.release(connection)
            answers.send(connection.number, frame)
