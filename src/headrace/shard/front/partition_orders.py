"""Orders for partitions, except sends: stored offsets, and segments that are to go.

Flow: route, replicate.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from headrace.metadata.access import as_missing, reach
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.consumers import consumer_key, owns_partition
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.owned.partitions import Partitions
from headrace.wire.codec import encode
from headrace.wire.commands import messages, topics
from headrace.wire.commands.internal import (
    OFFSET_KEY,
    OFFSET_MARK,
    TRIM_UP_TO,
    OffsetKey,
    OffsetMark,
    TrimUpTo,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import ConsumerKind
from headrace.wire.requests import RequestHeader

if TYPE_CHECKING:
    from headrace.shard.front.orders import Order

# Writes to the audit log what a user asked for.
AuditDeletion: TypeAlias = Callable[[Connection, topics.DeleteSegments], None]


class _Place(NamedTuple):
    """Where an offset is stored, and whether who asks may store there."""

    kind: ConsumerKind
    key: int  # of the consumer
    local: Local
    is_owned: bool


class PartitionOrders:
    """Makes requests ready and hands them to the group of their partition."""

    def __init__(
        self,
        metadata: Metadata,
        plane: Plane,
        partitions: Partitions,
        answers: Answers,
        audit_deletion: AuditDeletion,
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._answers = answers
        self._audit_deletion = audit_deletion
        self.by_code: dict[int, Order] = {
            messages.STORE_OFFSET.code: self._store_offset,
            messages.DELETE_OFFSET.code: self._delete_offset,
            topics.DELETE_SEGMENTS.code: self._delete_segments,
        }

    def _store_offset(
        self,
        connection: Connection,
        header: RequestHeader,
        request: messages.StoreOffset,
        body: memoryview,
    ) -> None:
        place = self._find_place(header, messages.STORE_OFFSET.code, request)
        data = encode(OFFSET_MARK, OffsetMark(place.kind, place.key, request.offset))
        self._submit_offset(connection, header, place, data)
        self._partitions.retention.touch(place.local.target.group, place.kind, place.key)

    def _delete_offset(
        self,
        connection: Connection,
        header: RequestHeader,
        request: messages.DeleteOffset,
        body: memoryview,
    ) -> None:
        place = self._find_place(header, messages.DELETE_OFFSET.code, request)
        data = encode(OFFSET_KEY, OffsetKey(place.kind, place.key))
        self._submit_offset(connection, header, place, data)

    def _find_place(
        self,
        header: RequestHeader,
        code: int,
        request: messages.StoreOffset | messages.DeleteOffset,
    ) -> _Place:
        """Return whose offset it is, in which partition.

        Raises:
            RefusedError: The user may not, or something is missing.
        """
        try:
            return self._look_up_place(header, code, request)
        except RefusedError as error:
            raise as_missing(error) from None

    def _look_up_place(
        self,
        header: RequestHeader,
        code: int,
        request: messages.StoreOffset | messages.DeleteOffset,
    ) -> _Place:
        topic = reach(self._metadata.state, header.user_id, code, request.stream, request.topic)
        partition = request.partition_id
        if partition is None or partition >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=partition)
        kind, key = request.consumer.kind, consumer_key(topic, request.consumer)
        is_owned = kind != ConsumerKind.GROUP or owns_partition(
            topic, key, header.client, partition
        )
        return _Place(kind, key, self._partitions.find(topic, partition), is_owned)

    def _submit_offset(
        self, connection: Connection, header: RequestHeader, place: _Place, body: bytes
    ) -> None:
        """Hand over what is to happen to an offset, if the partition is dealt to who asks (O7.3).

        Whoever asks again is told what came of it, though the partition is another's by now, if
        that is known here. Who leads the metadata knows the owner, who leads the partition knows
        the request: where these are two nodes, a refusal says nothing of earlier tries.

        Raises:
            RefusedError: The partition belongs to another member.
        """
        if place.is_owned:
            self._submit_to_partition(connection, header, place.local, body)
            return
        replica, group = place.local.replica, place.local.target.group
        assert replica.group == group, "a partition has the group of its number"
        if self._plane.answer_again(replica, header, body):
            self._answers.expect(connection, header)
            return
        if replica.is_in_flight(header):
            raise RefusedError(Code.TRANSIENT_NOT_COMMITTED, request=header.request)
        raise RefusedError(Code.CONSUMER_GROUP_PARTITION_NOT_OWNED, partition=group)

    def _delete_segments(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.DeleteSegments,
        _: memoryview,
    ) -> None:
        code = topics.DELETE_SEGMENTS.code
        topic = reach(self._metadata.state, header.user_id, code, request.stream, request.topic)
        if request.partition_id >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=request.partition_id)
        local = self._partitions.find(topic, request.partition_id)
        end = local.machine.sealed_end(request.segments_count)
        if end is None:
            connection.spend(header)
            self._answers.reply(connection.number, header)
        else:
            assert end < local.machine.next_offset, "only what is there goes"
            body = encode(TRIM_UP_TO, TrimUpTo(end))
            self._submit_to_partition(connection, header, local, body)
        self._audit_deletion(connection, request)

    def _submit_to_partition(
        self, connection: Connection, header: RequestHeader, local: Local, body: bytes
    ) -> None:
        if local.fence is not None:
            raise RefusedError(Code.CANNOT_APPEND_MESSAGE, why=local.fence)
        group = local.target.group
        assert self._partitions.locals[group] is local, "an order is for a partition that is here"
        assert local.replica.group == group, "a partition has the group of its number"
        assert header.session == connection.session, "the session was checked"
        assert header.ticket == 0, "a request is handed over once"
        answers = self._answers
        ticketed = msgspec.structs.replace(header, ticket=answers.kept or answers.next_ticket)
        answers.expect_ticketed(connection, ticketed)
        self._plane.put_request(local.replica, ticketed, body)
