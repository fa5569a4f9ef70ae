"""Prepares what consensus must order, except sends, and hands it to its group.

A request that a client sent gains here what every replica must decide alike (MD-11): defaults, the
member's client, numbers instead of names.

Flow: route, replicate.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from headrace.metadata import admission
from headrace.metadata.admission import TopicDefaults
from headrace.shard.consensus.clock import Clock
from headrace.shard.front.connections import NO_USER, Connection
from headrace.shard.front.metadata_requests import MetadataRequests
from headrace.wire.codec import encode
from headrace.wire.commands import clock, groups, streams, topics, users
from headrace.wire.commands.command import Command
from headrace.wire.commands.internal import (
    ACCEPT_TIME,
    CREATE_TOPIC_WITH_ASSIGNMENTS,
    JOIN_GROUP_AS,
    LEAVE_GROUP_AS,
    AcceptTime,
    JoinGroupAs,
    LeaveGroupAs,
)
from headrace.wire.numbers import Operation, is_metadata, is_partition
from headrace.wire.requests import RequestHeader

# In the tables each command has a body of its own type.
Order: TypeAlias = Callable[[Connection, RequestHeader, Any, memoryview], None]


class Orders:
    """Makes requests ready and hands them over; `others` are those that need more than metadata."""

    def __init__(
        self,
        requests: MetadataRequests,
        topic_defaults: TopicDefaults,
        shard_clock: Clock,
        others: Mapping[int, Order],
    ) -> None:
        self._requests = requests
        self._topic_defaults = topic_defaults
        self._clock = shard_clock
        self._by_code: dict[int, Order] = {
            **others,
            streams.CREATE_STREAM.code: self._without_options,
            streams.UPDATE_STREAM.code: self._without_options,
            topics.CREATE_TOPIC.code: self._create_topic,
            topics.UPDATE_TOPIC.code: self._update_topic,
            topics.CREATE_PARTITIONS.code: self._count_partitions,
            topics.DELETE_PARTITIONS.code: self._count_partitions,
            groups.JOIN_GROUP.code: self._join,
            groups.LEAVE_GROUP.code: self._leave,
            users.UPDATE_USER.code: self._without_options,
            clock.ACCEPT_TIME.code: self._accept_time,
        }
        assert all(self._by_code[code] is order for code, order in others.items()), "one takes each"

    def order(
        self,
        connection: Connection,
        header: RequestHeader,
        command: Command[Any, Any],
        body: memoryview,
    ) -> None:
        """Take a request whose session is checked.

        Raises:
            RefusedError: It is malformed, or refused before consensus.
        """
        assert header.session == connection.session, "the session was checked"
        assert header.client == connection.client, "the session was checked"
        assert connection.user_id != NO_USER, "a session is that of a user"
        assert header.ticket == 0, "only a server sets marks"
        request = command.decode_request(body)
        is_anew = is_partition(command.operation) and header.request in connection.spent
        stamped = msgspec.structs.replace(header, user_id=connection.user_id, is_anew=int(is_anew))
        if is_metadata(command.operation) and self._requests.is_answered_again(connection, stamped):
            return
        make = self._by_code.get(command.code, self._as_it_is)
        make(connection, stamped, request, body)

    def _as_it_is(
        self, connection: Connection, header: RequestHeader, request: object, body: memoryview
    ) -> None:
        self._requests.submit(connection, header, body)

    def _accept_time(
        self, connection: Connection, header: RequestHeader, request: None, body: memoryview
    ) -> None:
        time = self._clock.time
        accepted = AcceptTime(before=time.now, clock=max(time.now, time.clock))
        assert accepted.before <= accepted.clock, "an accepted time does not go back"
        self._requests.submit(connection, header, encode(ACCEPT_TIME, accepted))

    # Streams, topics, groups.

    def _without_options(
        self,
        connection: Connection,
        header: RequestHeader,
        request: streams.CreateStream | streams.UpdateStream | users.UpdateUser,
        body: memoryview,
    ) -> None:
        admission.check_no_options(request.options)
        self._requests.submit(connection, header, body)

    def _create_topic(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.CreateTopic,
        body: memoryview,
    ) -> None:
        resolved = admission.resolve_topic_options(request, self._topic_defaults)
        assert resolved.request.partitions_count == request.partitions_count, "as it was asked for"
        data = encode(CREATE_TOPIC_WITH_ASSIGNMENTS, resolved)
        self._requests.submit(connection, header, data, Operation.CREATE_TOPIC_WITH_ASSIGNMENTS)

    def _update_topic(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.UpdateTopic,
        body: memoryview,
    ) -> None:
        resolved = admission.resolve_topic_update(request, self._topic_defaults)
        self._requests.submit(connection, header, topics.UPDATE_TOPIC.encode_request(resolved))

    def _count_partitions(
        self,
        connection: Connection,
        header: RequestHeader,
        request: topics.CreatePartitions | topics.DeletePartitions,
        body: memoryview,
    ) -> None:
        admission.check_partitions_count(request.partitions_count)
        self._requests.submit(connection, header, body)

    def _join(
        self,
        connection: Connection,
        header: RequestHeader,
        request: groups.JoinGroup,
        body: memoryview,
    ) -> None:
        assert header.client == connection.client, "a member joins by itself"
        data = encode(JOIN_GROUP_AS, JoinGroupAs(request, header.client, ()))
        self._requests.submit(connection, header, data)

    def _leave(
        self,
        connection: Connection,
        header: RequestHeader,
        request: groups.LeaveGroup,
        body: memoryview,
    ) -> None:
        assert header.client == connection.client, "a member leaves by itself"
        data = encode(LEAVE_GROUP_AS, LeaveGroupAs(request, header.client))
        self._requests.submit(connection, header, data)
