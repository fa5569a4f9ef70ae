"""Answers which offset is stored for a consumer or a group.

An offset that a poll stores by itself counts as stored for the next question: it waits until the op
is applied, as a `next` poll does (O3.6).

Flow: route, reply.
"""

from functools import partial

from headrace.metadata import resolve
from headrace.metadata.access import Scope, check_access
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.auto_commits import AutoCommits, OffsetKey
from headrace.shard.front.connections import Connection
from headrace.shard.front.consumers import consumer_key
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands.messages import GET_OFFSET, GetOffset, StoredOffset
from headrace.wire.errors import Code, RefusedError
from headrace.wire.requests import RequestHeader


class OffsetReads:
    """All questions for stored offsets of a shard."""

    def __init__(
        self,
        metadata: Metadata,
        plane: Plane,
        partitions: Partitions,
        answers: Answers,
        commits: AutoCommits,
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._answers = answers
        self._commits = commits

    def get(self, connection: Connection, header: RequestHeader, request: GetOffset) -> None:
        """Answer which offset is stored, or begin to.

        Raises:
            RefusedError: It is refused.
        """
        self._begin(connection, header, request, 0)

    def _begin(
        self, connection: Connection, header: RequestHeader, request: GetOffset, ticket: int
    ) -> bool:
        """Answer a question or have it wait; return whether it is answered."""
        answers = self._answers
        assert ticket == 0 or answers.is_waiting(ticket), "who goes on has waited until now"
        assert connection.session > 0, "who asks is logged in"
        key = self._find(connection, request)
        if key is not None and self._commits.is_pending(key):
            ticket = ticket or answers.wait(connection.number, header)
            again = partial(self._go_on, connection.number, header, request, ticket)
            self._commits.park(key, ticket, again)
            return False
        stored = None if key is None else self._read(key, request.partition_id or 0)
        answers.reply(connection.number, header, GET_OFFSET.encode_reply(stored))
        return True

    def _go_on(self, number: int, header: RequestHeader, request: GetOffset, ticket: int) -> bool:
        """Begin again: user, group and topic may be others by now."""
        assert ticket > 0, "a question that goes on has waited"
        return self._begin(self._answers.connections.bound(number), header, request, ticket)

    def _find(self, connection: Connection, request: GetOffset) -> OffsetKey | None:
        """Return whose offset is asked for; nothing where the topic or group does not exist."""
        state = self._metadata.state
        scope = Scope(request.stream, request.topic)
        check_access(state, connection.user_id, GET_OFFSET.code, scope)
        try:
            topic = resolve.route(state, request.stream, request.topic)
            key_id = consumer_key(topic, request.consumer)
        except RefusedError as error:
            if self._answers.refusal(error.code) != error.code:
                raise
            return None
        partition = request.partition_id or 0
        if partition >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=partition)
        key = OffsetKey(topic.namespace(partition), request.consumer.kind, key_id)
        if not self._plane.is_current(self._partitions.find(topic, partition).replica):
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)  # O6.2
        return key

    def _read(self, key: OffsetKey, partition: int) -> StoredOffset | None:
        machine = self._partitions.locals[key.group].machine  # `_find` has found it.
        stored = machine.stored_offset(key.kind, key.id)
        assert stored is None or stored <= machine.current_offset, "a stored offset was consumed"
        assert key not in self._commits.pending, "an offset that is pending is waited for"
        return None if stored is None else StoredOffset(partition, machine.current_offset, stored)
