"""Answers what needs no op: metadata, clients, statistics, offsets, polls.

Flow: route, reply.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.metadata import admission, reads
from headrace.metadata.access import Scope, check_access, reach
from headrace.metadata.describe import PartitionStats
from headrace.ports.host import HostFacts, MakeSnapshot, SnapshotMade
from headrace.shard.desk import Desk
from headrace.shard.front.connections import NO_USER, Connection
from headrace.shard.front.counters import read_counters
from headrace.shard.front.offset_reads import OffsetReads
from headrace.shard.front.plans import plan_segments
from headrace.shard.front.polls import Polls
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands import (
    clients,
    groups,
    messages,
    segments,
    streams,
    system,
    tokens,
    topics,
    users,
)
from headrace.wire.commands.command import Command
from headrace.wire.commands.counters import GET_COUNTERS, NodeCounters
from headrace.wire.commands.holders import GET_HOLDERS, GetHolders, TopicHolders
from headrace.wire.errors import Code, RefusedError
from headrace.wire.requests import RequestHeader

# In the table each command has a body of its own type.
_Read: TypeAlias = Callable[[Connection, RequestHeader, Any], Any]

_SNAPSHOTS_MAX = 4
# What does not need the metadata of now: a plan names what is committed, as a poll gives it.
_READ_ANYWHERE = (
    system.GET_CLUSTER_METADATA.code,
    segments.PLAN_SEGMENTS.code,
)


class Reads:
    """What a logged-in client may ask."""

    def __init__(self, desk: Desk, partitions: Partitions, polls: Polls) -> None:
        self._desk = desk
        self._partitions = partitions
        self._polls = polls
        self.facts = HostFacts()
        self._snapshots: dict[int, int] = {}  # tickets, by the tokens of what the host makes
        self._flushes: list[tuple[int, int, int]] = []  # tickets, partitions, tokens of those
        self._answered: dict[int, _Read] = {  # give the reply
            system.GET_STATS.code: self._get_stats,
            GET_COUNTERS.code: self._get_counters,
            system.GET_CLUSTER_METADATA.code: self._get_cluster_metadata,
            system.DESCRIBE_OPTIONS.code: self._describe_options,
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
        self._begun: dict[int, _Read] = {  # answer themselves, maybe later
            messages.POLL_MESSAGES.code: polls.poll,
            messages.GET_OFFSET.code: OffsetReads(desk, partitions, polls.commits).get,
            system.GET_SNAPSHOT.code: self._get_snapshot,
            topics.FLUSH_UNSAVED_BUFFER.code: self._flush,
        }

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
        begin = self._begun.get(command.code)
        if begin is not None:
            begin(connection, header, request)
            return
        if command.code not in _READ_ANYWHERE and not self._desk.metadata.is_current:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)
        reply = self._answered[command.code](connection, header, request)
        self._desk.answers.reply(connection.number, header, command.encode_reply(reply))

    def _check(self, connection: Connection, code: int, scope: Scope | None = None) -> None:
        check_access(self._desk.metadata.state, connection.user_id, code, scope or Scope())

    def _stats_of(self, namespace: int) -> PartitionStats | None:
        local = self._partitions.locals.get(namespace)
        if local is None:
            return None
        machine = local.machine
        return PartitionStats(
            segments_count=machine.segments_count,
            current_offset=machine.current_offset,
            size_bytes=machine.size_bytes,
            messages_count=machine.messages_count,
        )

    # The node.

    def _get_stats(self, connection: Connection, _: RequestHeader, __: None) -> system.Stats:
        self._check(connection, system.GET_STATS.code)
        desk, facts = self._desk, self.facts
        counts = reads.count(desk.metadata.state)
        machines = [local.machine for local in self._partitions.locals.values()]
        return system.Stats(
            process_id=facts.process_id,
            cpu_usage=facts.cpu_usage,
            total_cpu_usage=facts.total_cpu_usage,
            memory_usage=facts.memory_usage,
            total_memory=facts.total_memory,
            available_memory=facts.available_memory,
            run_time=max(0, desk.clock.time.clock - facts.start_time),
            start_time=facts.start_time,
            read_bytes=facts.read_bytes,
            written_bytes=facts.written_bytes,
            messages_size_bytes=sum(each.size_bytes for each in machines),
            streams_count=counts.streams,
            topics_count=counts.topics,
            partitions_count=counts.partitions,
            segments_count=sum(max(1, each.segments_count) for each in machines),
            messages_count=sum(each.messages_count for each in machines),
            clients_count=len(desk.connections),
            consumer_groups_count=counts.consumer_groups,
            hostname=facts.hostname,
            os_name=facts.os_name,
            os_version=facts.os_version,
            kernel_version=facts.kernel_version,
            server_version=desk.settings.server_version,
            server_semver=desk.settings.server_semver,
            cache_metrics=(),
            threads_count=facts.threads_count,
            free_disk_space=facts.free_disk_space,
            total_disk_space=facts.total_disk_space,
        )

    def _get_counters(self, connection: Connection, _: RequestHeader, __: None) -> NodeCounters:
        self._check(connection, GET_COUNTERS.code)
        return read_counters(self._desk, self._partitions, self.facts)

    def _get_cluster_metadata(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> system.ClusterMetadata:
        return self._desk.cluster

    def _describe_options(
        self, connection: Connection, _: RequestHeader, request: system.DescribeOptions
    ) -> tuple[system.OptionSpec, ...]:
        return admission.describe_options(request.scope, self._desk.settings.topic_defaults)

    def _get_snapshot(
        self, connection: Connection, header: RequestHeader, request: system.GetSnapshot
    ) -> None:
        self._check(connection, system.GET_SNAPSHOT.code)
        if len(self._snapshots) >= _SNAPSHOTS_MAX:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)
        token = self._desk.next_token()
        ticket = self._desk.answers.wait(connection.number, header, self._desk.clock.now)
        self._snapshots[token] = ticket
        self._desk.out.append(MakeSnapshot(token, request.compression, request.types))

    def on_snapshot(self, event: SnapshotMade) -> None:
        """Send an archive that is ready."""
        answers = self._desk.answers
        waiting = answers.end(self._snapshots.pop(event.token))
        if waiting is None:
            return
        if event.data is None:
            code = Code.SNAPSHOT_FILE_COMPLETION_FAILED
            answers.refuse(waiting.connection, waiting.header, code)
        else:
            answers.reply(waiting.connection, waiting.header, event.data)

    # Clients.

    def _client(self, connection: Connection) -> clients.ClientDetails:
        memberships = reads.memberships_of(self._desk.metadata.state, connection.client)
        user_id = connection.user_id
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
        return self._client(connection)

    def _get_client(
        self, connection: Connection, _: RequestHeader, request: clients.GetClient
    ) -> clients.ClientDetails | None:
        self._check(connection, clients.GET_CLIENT.code)
        found = self._desk.connections.by_short_id(request.client_id)
        return None if found is None else self._client(found)

    def _get_clients(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[clients.Client, ...]:
        self._check(connection, clients.GET_CLIENTS.code)
        return tuple([self._client(each).client for each in self._desk.connections.all()])

    # Users and tokens.

    def _get_user(
        self, connection: Connection, _: RequestHeader, request: users.GetUser
    ) -> users.UserDetails | None:
        self._check(connection, users.GET_USER.code, Scope(user=request.user))
        return reads.get_user(self._desk.metadata.state, request.user)

    def _get_users(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[users.User, ...]:
        self._check(connection, users.GET_USERS.code)
        return reads.get_users(self._desk.metadata.state)

    def _get_tokens(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[tokens.Token, ...]:
        self._check(connection, tokens.GET_TOKENS.code)
        return reads.get_tokens(self._desk.metadata.state, connection.user_id)

    # Streams, topics, groups.

    def _get_stream(
        self, connection: Connection, _: RequestHeader, request: streams.GetStream
    ) -> streams.StreamDetails | None:
        self._check(connection, streams.GET_STREAM.code, Scope(request.stream))
        return reads.get_stream(self._desk.metadata.state, request.stream, self._stats_of)

    def _get_streams(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> tuple[streams.Stream, ...]:
        self._check(connection, streams.GET_STREAMS.code)
        return reads.get_streams(self._desk.metadata.state, self._stats_of)

    def _get_topic(
        self, connection: Connection, _: RequestHeader, request: topics.GetTopic
    ) -> topics.TopicDetails | None:
        self._check(connection, topics.GET_TOPIC.code, Scope(request.stream, request.topic))
        return reads.get_topic(self._desk.metadata.state, request, self._stats_of)

    def _get_topics(
        self, connection: Connection, _: RequestHeader, request: topics.GetTopics
    ) -> tuple[topics.Topic, ...]:
        self._check(connection, topics.GET_TOPICS.code, Scope(request.stream))
        return reads.get_topics(self._desk.metadata.state, request.stream, self._stats_of)

    def _get_group(
        self, connection: Connection, _: RequestHeader, request: groups.GetGroup
    ) -> groups.GroupDetails | None:
        self._check(connection, groups.GET_GROUP.code, Scope(request.stream, request.topic))
        return reads.get_group(self._desk.metadata.state, request)

    def _get_groups(
        self, connection: Connection, _: RequestHeader, request: groups.GetGroups
    ) -> tuple[groups.Group, ...]:
        self._check(connection, groups.GET_GROUPS.code, Scope(request.stream, request.topic))
        return reads.get_groups(self._desk.metadata.state, request)

    def _sync_group(
        self, connection: Connection, _: RequestHeader, request: groups.SyncGroup
    ) -> groups.Assignment | None:
        self._check(connection, groups.SYNC_GROUP.code, Scope(request.stream, request.topic))
        return reads.sync_group(self._desk.metadata.state, request, connection.client)

    # Partitions.

    def _get_holders(
        self, connection: Connection, _: RequestHeader, request: GetHolders
    ) -> TopicHolders:
        user_id = connection.user_id
        topic = reach(
            self._desk.metadata.state, user_id, GET_HOLDERS.code, request.stream, request.topic
        )
        return self._partitions.retention.holders_of(topic)

    def _plan_segments(
        self, connection: Connection, _: RequestHeader, request: segments.PlanSegments
    ) -> segments.SegmentPlan:
        return plan_segments(self._desk, self._partitions, connection, request)

    def _flush(
        self, connection: Connection, header: RequestHeader, request: topics.FlushUnsavedBuffer
    ) -> None:
        """Write what a partition has in memory, and answer when it is synced if that is wanted."""
        code = topics.FLUSH_UNSAVED_BUFFER.code
        topic = reach(
            self._desk.metadata.state, connection.user_id, code, request.stream, request.topic
        )
        if request.partition_id >= len(topic.partitions):
            raise RefusedError(Code.PARTITION_NOT_FOUND, partition=request.partition_id)
        namespace = topic.namespace(request.partition_id)
        machine = self._partitions.find(namespace).machine
        machine.store()
        token = machine.flush() if request.fsync else None
        answers = self._desk.answers
        if token is None:
            answers.reply(connection.number, header)
        else:
            late = Code.TRANSIENT_NOT_COMMITTED  # It goes on, and may yet be done.
            ticket = answers.wait(connection.number, header, self._desk.clock.now, late)
            self._flushes.append((ticket, namespace, token))

    def check_flushes(self) -> None:
        """Answer the flushes that are durable now, or never will be."""
        if self._flushes:
            self._flushes = [each for each in self._flushes if not self._is_over(*each)]

    def _is_over(self, ticket: int, namespace: int, token: int) -> bool:
        """Whether nobody waits for a flush any more; if it is over, that is answered."""
        answers = self._desk.answers
        local = self._partitions.locals.get(namespace)
        if local is None or local.fence is not None:
            code = Code.CANNOT_SYNC_FILE
        elif local.machine.is_flushed(token):
            code = None
        else:
            return not answers.is_waiting(ticket)
        waiting = answers.end(ticket)
        if waiting is not None and code is None:
            answers.reply(waiting.connection, waiting.header)
        elif waiting is not None and code is not None:
            answers.refuse(waiting.connection, waiting.header, code)
        return True
