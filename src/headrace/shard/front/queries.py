"""Answers what needs no op of metadata, clients, users, topics and groups.

Flow: route, reply.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.metadata import lookups
from headrace.metadata.access import Scope, check_access, reach
from headrace.metadata.describe import PartitionStats
from headrace.metadata.target import target_of
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import NO_USER, Connection
from headrace.shard.front.gathered_reads import GatheredReads
from headrace.shard.front.others import Others, join_holders
from headrace.shard.front.plans import plan_segments
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands import clients, groups, segments, streams, system, tokens, topics, users
from headrace.wire.commands.command import Command
from headrace.wire.commands.holders import GET_HOLDERS, GetHolders, TopicHolders
from headrace.wire.errors import Code, RefusedError
from headrace.wire.requests import RequestHeader

# In the tables each command has a body of its own type.
Query: TypeAlias = Callable[[Connection, RequestHeader, Any], Any]

# What does not need the metadata of now: a plan names what is committed, as a poll gives it.
_READ_ANYWHERE = (
    system.GET_CLUSTER_METADATA.code,
    segments.PLAN_SEGMENTS.code,
)


class Queries:
    """What a logged-in client may ask; `answered` return a reply, `begun` answer by themselves."""

    def __init__(
        self,
        metadata: Metadata,
        partitions: Partitions,
        answers: Answers,
        *,
        answered: Mapping[int, Query],
        begun: Mapping[int, Query],
        segments_folder: str,
    ) -> None:
        self._metadata = metadata
        self._others: Others | None = None  # what other shards have told, where they are asked
        self._partitions = partitions
        self._answers = answers
        self._segments_folder = segments_folder
        self._begun = begun
        self._answered: dict[int, Query] = {
            **answered,
            clients.GET_ME.code: self._get_me,
            clients.GET_CLIENT.code: self._get_client,
            clients.GET_CLIENTS.code: self._get_clients,
            users.GET_USER.code: self._get_user,
            users.GET_USERS.code: self._get_users,
            tokens.GET_TOKENS.code: self._get_tokens,
            streams.GET_STREAM.code: self._get_stream,
            streams.GET_STREAMS.code: self._get_streams,
            topics.GET_TOPIC.code: self._get_topic,
            topics.GET_TOPICS.code: self._get_topics,
            groups.GET_GROUP.code: self._get_group,
            groups.GET_GROUPS.code: self._get_groups,
            groups.SYNC_GROUP.code: self._sync_group,
            segments.PLAN_SEGMENTS.code: self._plan_segments,
            GET_HOLDERS.code: self._get_holders,
        }
        assert not self._answered.keys() & begun.keys(), "a command is answered in one way"
        assert all(self._answered[code] is read for code, read in answered.items()), (
            "one takes each"
        )

    def gather_by(self, gathered: GatheredReads, make_snapshot: Callable[[int, Any], None]) -> None:
        """Have reads that need facts of other shards wait for them."""
        self._others = gathered.others
        begun = gathered.take_over(self._answered, make_snapshot)
        self._begun = {**self._begun, **begun}
        assert begun.keys() <= self._begun.keys(), "what is gathered is begun first"

    def read(
        self,
        connection: Connection,
        header: RequestHeader,
        command: Command[Any, Any],
        request: object,
    ) -> None:
        """Answer a read, or begin to.

        Raises:
            RefusedError: It is refused.
        """
        assert connection.session > 0, "who asks is logged in"
        assert connection.user_id != NO_USER, "a session is that of a user"
        begin = self._begun.get(command.code)
        if begin is not None:
            begin(connection, header, request)
            return
        if command.code not in _READ_ANYWHERE and not self._metadata.is_current:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)
        reply = self._answered[command.code](connection, header, request)
        self._answers.reply(connection.number, header, command.encode_reply(reply))

    def _check(self, connection: Connection, code: int, scope: Scope | None = None) -> None:
        check_access(self._metadata.state, connection.user_id, code, scope or Scope())

    def _stats_of(self, namespace: int) -> PartitionStats | None:
        local = self._partitions.locals.get(namespace)
        target = target_of(self._metadata.state, namespace)
        assert target is not None, "what is asked for is in the metadata"
        if local is None or local.target.created_revision != target.created_revision:
            if self._others is None:
                return None
            # A partition that its owner has not opened yet has one segment, and nothing in it.
            told = self._others.stats_of(namespace, target.created_revision)
            return told or PartitionStats(segments_count=1)
        machine = local.machine
        assert local.target.group == namespace, "a partition is found by its number"
        assert machine.messages_count <= machine.next_offset, "a message has an offset of its own"
        return PartitionStats(
            segments_count=machine.segments_count,
            current_offset=machine.current_offset,
            size_bytes=machine.size_bytes,
            messages_count=machine.messages_count,
        )

    # Clients.

    def _client(self, connection: Connection) -> clients.ClientDetails:
        memberships = lookups.memberships_of(self._metadata.state, connection.client)
        user_id = connection.user_id
        assert connection.client or not memberships, "only a session is a member"
        assert (user_id == NO_USER) == (connection.session == 0), "a session is that of a user"
        client = clients.Client(
            client_id=connection.short_id,
            user_id=clients.NOT_LOGGED_IN if user_id == NO_USER else user_id,
            transport=connection.transport,
            address=connection.address,
            groups_count=len(memberships),
        )
        return clients.ClientDetails(client, memberships)

    def _get_me(self, connection: Connection, _: RequestHeader, __: None) -> clients.ClientDetails:
        self._check(connection, clients.GET_ME.code)
        # A guest stands for a connection that lives elsewhere, and may be gone by now.
        found = self._answers.connections.bound(connection.stands_for or connection.number)
        assert found.home == connection.home, "a guest comes from the home of its connection"
        return self._client(found)

    def _get_client(
        self, connection: Connection, _: RequestHeader, request: clients.GetClient
    ) -> clients.ClientDetails | None:
        self._check(connection, clients.GET_CLIENT.code)
        found = self._answers.connections.by_short_id(request.client_id)
        assert found is None or found.short_id == request.client_id, "it is the one asked for"
        return None if found is None else self._client(found)

    def _get_clients(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[clients.Client, ...]:
        self._check(connection, clients.GET_CLIENTS.code)
        return tuple([self._client(each).client for each in self._answers.connections.all()])

    # Users and tokens.

    def _get_user(
        self, connection: Connection, _: RequestHeader, request: users.GetUser
    ) -> users.UserDetails | None:
        self._check(connection, users.GET_USER.code, Scope(user=request.user))
        return lookups.get_user(self._metadata.state, request.user)

    def _get_users(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[users.User, ...]:
        self._check(connection, users.GET_USERS.code)
        return lookups.get_users(self._metadata.state)

    def _get_tokens(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[tokens.Token, ...]:
        self._check(connection, tokens.GET_TOKENS.code)
        return lookups.get_tokens(self._metadata.state, connection.user_id)

    # Streams, topics, groups.

    def _get_stream(
        self, connection: Connection, _: RequestHeader, request: streams.GetStream
    ) -> streams.StreamDetails | None:
        self._check(connection, streams.GET_STREAM.code, Scope(request.stream))
        return lookups.get_stream(self._metadata.state, request.stream, self._stats_of)

    def _get_streams(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[streams.Stream, ...]:
        self._check(connection, streams.GET_STREAMS.code)
        return lookups.get_streams(self._metadata.state, self._stats_of)

    def _get_topic(
        self, connection: Connection, _: RequestHeader, request: topics.GetTopic
    ) -> topics.TopicDetails | None:
        self._check(connection, topics.GET_TOPIC.code, Scope(request.stream, request.topic))
        return lookups.get_topic(self._metadata.state, request, self._stats_of)

    def _get_topics(
        self, connection: Connection, _: RequestHeader, request: topics.GetTopics
    ) -> tuple[topics.Topic, ...]:
        self._check(connection, topics.GET_TOPICS.code, Scope(request.stream))
        return lookups.get_topics(self._metadata.state, request.stream, self._stats_of)

    def _get_group(
        self, connection: Connection, _: RequestHeader, request: groups.GetGroup
    ) -> groups.GroupDetails | None:
        self._check(connection, groups.GET_GROUP.code, Scope(request.stream, request.topic))
        return lookups.get_group(self._metadata.state, request)

    def _get_groups(
        self, connection: Connection, _: RequestHeader, request: groups.GetGroups
    ) -> tuple[groups.Group, ...]:
        self._check(connection, groups.GET_GROUPS.code, Scope(request.stream, request.topic))
        return lookups.get_groups(self._metadata.state, request)

    def _sync_group(
        self, connection: Connection, _: RequestHeader, request: groups.SyncGroup
    ) -> groups.Assignment | None:
        self._check(connection, groups.SYNC_GROUP.code, Scope(request.stream, request.topic))
        found = lookups.sync_group(self._metadata.state, request, connection.client)
        is_member = connection.client in self._metadata.state.memberships
        assert found is None or is_member, "only a member is dealt partitions"
        return found

    # Partitions.

    def _get_holders(
        self, connection: Connection, _: RequestHeader, request: GetHolders
    ) -> TopicHolders:
        user_id = connection.user_id
        topic = reach(
            self._metadata.state, user_id, GET_HOLDERS.code, request.stream, request.topic
        )
        found = self._partitions.retention.holders_of(topic)
        if self._others is not None:
            found = join_holders([found, *self._others.told.values()], self._others.missing)
        assert all(each.partition_id < len(topic.partitions) for each in found.holders), (
            "a holder keeps messages of a partition that there is"
        )
        return found

    def _plan_segments(
        self, connection: Connection, _: RequestHeader, request: segments.PlanSegments
    ) -> segments.SegmentPlan:
        return plan_segments(
            self._metadata, self._partitions, self._segments_folder, connection, request
        )
