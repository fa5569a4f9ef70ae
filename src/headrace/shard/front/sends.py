"""Sends: the path that must be short.

Flow: route.
"""

import struct
from typing import TypeAlias

from headrace.base.checksum import xxh32
from headrace.base.ids import GroupId
from headrace.base.limits import HEADER_BYTES
from headrace.kernel.layout import BATCH_HEADER_BYTES, MESSAGE_COUNT_AT
from headrace.metadata.access import as_missing, reach
from headrace.metadata.state import TopicKey
from headrace.ports.network import Buffer
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.metadata import Metadata
from headrace.shard.owned.elsewhere import ElsewhereError
from headrace.shard.owned.local import Local
from headrace.shard.owned.partitions import Partitions
from headrace.shard.owned.table import topic_of
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.errors import Code, DecodeError, RefusedError, RemoteError
from headrace.wire.identifiers import Balanced, ByKey, ToPartition
from headrace.wire.requests import REQUEST, RequestHeader

# client, request number, operation, session: all that a send is routed by
_SEND_FIELDS = REQUEST.struct("client", "request", "operation", "session")
_U32 = struct.Struct("<I")

Incarnation: TypeAlias = tuple[GroupId, int]  # a partition, and when it was created
_ROUTES_MAX = 4096
_ROUTING_BYTES_MAX = 1024


def read_send_header(connection: Connection, frame: Buffer, ticket: int) -> RequestHeader:
    """Read what a send is routed by; it will wait under the given ticket.

    Raises:
        RemoteError: No answer could reach this client.
    """
    raw_client, request, operation, session = _SEND_FIELDS.unpack_from(frame)
    if raw_client == connection.raw_client:
        client = connection.client
    else:
        client = int.from_bytes(raw_client, "little")
    if client == 0:
        raise RemoteError("request without a client id")
    spent = connection.spent
    assert not connection.session or spent.client == connection.client, "they are its own"
    return RequestHeader(
        client=client,
        request=request,
        operation=operation,
        session=session,
        user_id=connection.user_id,
        is_anew=int(request <= spent.highest and request in spent),
        ticket=ticket,
    )


class Sends:
    """Finds the partition of each send."""

    def __init__(
        self, metadata: Metadata, plane: Plane, partitions: Partitions, answers: Answers
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._answers = answers
        # Where sends go, by their routing as it travels and by user; valid for one commit of the
        # metadata, because names, permissions and partitions may change with the next.
        self._routes: dict[tuple[bytes, int], Local] = {}
        self._away: dict[
            tuple[bytes, int], tuple[int, GroupId, int]
        ] = {}  # likewise, on other shards
        self._routes_commit = -1
        self._turns: dict[TopicKey, int] = {}  # of balanced sends
        self._turns_revision = 0  # of the metadata whose topics these are

    def route(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: Buffer,
        chosen: Incarnation | None = None,
    ) -> None:
        """Hand a send whose session is checked to the group of its partition.

        With `chosen`, its home has judged the send and chosen that partition.

        Raises:
            RefusedError: It names nothing that this user may send to, or cannot be stored now.
            ElsewhereError: The partition is another shard's.
        """
        if header.request == 0:
            raise RefusedError(Code.INVALID_COMMAND, request=0)
        assert header.session == connection.session, "the session was checked"
        local, start = self._find_route(header.user_id, frame, chosen)
        if local.lost_until and local.is_short:
            is_full = self._plane.is_without_space
            code = Code.CANNOT_APPEND_MESSAGE if is_full else Code.TRANSIENT_NOT_ACCEPTED
            raise RefusedError(code, why="a lost range comes first (FM-7)")
        self._answers.expect_ticketed(connection, header)
        self._plane.put_request(local.replica, header, memoryview(frame)[start:])

    def route_parked(
        self, connection: Connection, header: RequestHeader, frame: Buffer, chosen: Incarnation
    ) -> None:
        """Hand over a send that waited for its partition, if its user may still send there.

        Raises:
            RefusedError: As `route`; or another topic has the name by now.
        """
        request = SEND_MESSAGES.decode_request(memoryview(frame)[HEADER_BYTES:])
        state, code = self._metadata.state, SEND_MESSAGES.code
        try:
            topic = reach(state, header.user_id, code, request.stream, request.topic)
        except RefusedError as error:
            raise as_missing(error) from None
        if topic_of(chosen[0]) != (topic.stream_id, topic.id):
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, why="another topic has its name")
        assert header.ticket == self._answers.kept, "it keeps its ticket"
        self.route(connection, header, frame, chosen)

    def _find_route(
        self, user_id: int, frame: Buffer, chosen: Incarnation | None
    ) -> tuple[Local, int]:
        """Return the partition of a send, and where its batch begins.

        Raises:
            RefusedError: The send names nothing that this user may send to, or contradicts itself.
            ElsewhereError: The partition is another shard's.
        """
        size = len(frame)
        if size < HEADER_BYTES + 4:
            raise DecodeError(f"send of {size} bytes")
        (routing_bytes,) = _U32.unpack_from(frame, HEADER_BYTES)
        start = HEADER_BYTES + 4 + routing_bytes
        if start + BATCH_HEADER_BYTES > size or routing_bytes > _ROUTING_BYTES_MAX:
            raise DecodeError(f"routing of {routing_bytes} bytes in a send of {size}")
        count_at = start + MESSAGE_COUNT_AT
        if frame[start - 4 : start] != frame[count_at : count_at + 4]:
            raise DecodeError("batch of another number of messages than its routing says")
        if chosen is not None:
            return self._partitions.find_epoch(*chosen), start
        commit = self._metadata.commit
        if self._routes_commit != commit:
            self._routes.clear()
            self._away.clear()
            self._routes_commit = commit
        key = (bytes(frame[HEADER_BYTES : start - 4]), user_id)
        if key in self._routes:
            local = self._routes[key]
            assert self._partitions.locals[local.target.group] is local, "a route leads to one here"
        else:
            local = self._find_new_route(user_id, frame, key)
        return local, start

    def _find_new_route(self, user_id: int, frame: Buffer, key: tuple[bytes, int]) -> Local:
        if key in self._away:
            raise ElsewhereError(*self._away[key])
        request = SEND_MESSAGES.decode_request(memoryview(frame)[HEADER_BYTES:])
        is_fixed = not isinstance(request.partitioning, Balanced)
        try:
            local = self._resolve(user_id, request)
        except RefusedError as error:
            raise as_missing(error) from None
        except ElsewhereError as elsewhere:
            if is_fixed and len(self._away) < _ROUTES_MAX:
                self._away[key] = (elsewhere.owner, elsewhere.group, elsewhere.epoch)
            raise
        if is_fixed and len(self._routes) < _ROUTES_MAX:
            self._routes[key] = local
        return local

    def _resolve(self, user_id: int, request: SendMessages) -> Local:
        """Return the partition that a send goes to."""
        topic = reach(
            self._metadata.state, user_id, SEND_MESSAGES.code, request.stream, request.topic
        )
        count = len(topic.partitions)
        partitioning = request.partitioning
        if isinstance(partitioning, ToPartition):
            chosen = partitioning.partition_id
        elif isinstance(partitioning, ByKey):
            chosen = xxh32(partitioning.key) % count if count else 0
        else:
            chosen = self._take_turn((topic.stream_id, topic.id)) % count if count else 0
        if chosen >= count:
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=chosen)
        return self._partitions.find(topic, chosen)

    def _take_turn(self, key: TopicKey) -> int:
        """Return how many balanced sends a topic had before this one."""
        state = self._metadata.state
        if self._turns_revision != state.revision:
            self._forget_gone()
        assert self._turns_revision == state.revision, "turns are those of the topics of now"
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        return turn

    def _forget_gone(self) -> None:
        """Forget the turns of topics that were deleted since the last look."""
        state = self._metadata.state
        assert self._turns_revision < state.revision, "revisions count up"
        changed = state.topics_changed_since(self._turns_revision)
        for key in list(self._turns) if changed is None else changed:
            if key in self._turns and state.find_topic(key) is None:
                del self._turns[key]
        self._turns_revision = state.revision

    def check(self) -> None:
        """Assert that routes and turns are of partitions and topics that there are."""
        state, commit = self._metadata.state, self._metadata.commit
        assert self._routes_commit <= commit, "routes are of metadata that is applied"
        assert len(self._routes) <= _ROUTES_MAX, "routes are bounded"
        assert len(self._away) <= _ROUTES_MAX, "routes are bounded"
        if self._routes_commit == commit:
            here = self._partitions.locals
            for local in self._routes.values():
                assert here.get(local.target.group) is local, "a route leads to a partition here"
        assert self._turns_revision <= state.revision, "turns are of metadata that is applied"
        for key, turn in self._turns.items():
            assert turn > 0, "a topic that has its turns has taken one"
            if self._turns_revision == state.revision:
                assert state.find_topic(key), "a turn goes with its topic"
