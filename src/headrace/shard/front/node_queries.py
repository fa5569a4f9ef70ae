"""Answers what is asked of the node itself: statistics, counters, options, snapshots.

Flow: route, reply.
"""

from typing import TYPE_CHECKING

from headrace.metadata import admission, lookups
from headrace.metadata.access import Scope, check_access
from headrace.ports.host import HostFacts, MakeSnapshot, SnapshotMade
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.counters import Counters
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.wire.commands import system
from headrace.wire.commands.counters import GET_COUNTERS, NodeCounters
from headrace.wire.errors import Code, RefusedError
from headrace.wire.requests import RequestHeader

if TYPE_CHECKING:
    from headrace.shard.front.queries import Query

_SNAPSHOTS_MAX = 4


class NodeQueries:
    """What a logged-in client may ask of the node."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        partitions: Partitions,
        answers: Answers,
        turn: Turn,
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._partitions = partitions
        self._answers = answers
        self._turn = turn
        self._counters = counters
        self.facts = HostFacts()
        self.cluster = system.ClusterMetadata("", ())  # what clients are told; it comes late
        self._snapshots: dict[int, int] = {}  # tickets, by the tokens of what the host makes
        self.answered: dict[int, Query] = {
            system.GET_STATS.code: self._get_stats,
            GET_COUNTERS.code: self._get_counters,
            system.GET_CLUSTER_METADATA.code: self._get_cluster_metadata,
            system.DESCRIBE_OPTIONS.code: self._describe_options,
        }
        self.begun: dict[int, Query] = {system.GET_SNAPSHOT.code: self._get_snapshot}
        assert not self.answered.keys() & self.begun.keys(), "a command is answered in one way"

    def _check(self, connection: Connection, code: int) -> None:
        check_access(self._metadata.state, connection.user_id, code, Scope())

    def _get_stats(self, connection: Connection, _: RequestHeader, __: None) -> system.Stats:
        self._check(connection, system.GET_STATS.code)
        facts, settings = self.facts, self._settings
        counts = lookups.count(self._metadata.state)
        machines = [local.machine for local in self._partitions.locals.values()]
        assert counts.users > 0, "who asks is a user"
        assert counts.topics == 0 or counts.streams > 0, "a topic is in a stream"
        assert counts.partitions == 0 or counts.topics > 0, "a partition is in a topic"
        return system.Stats(
            process_id=facts.process_id,
            cpu_usage=facts.cpu_usage,
            total_cpu_usage=facts.total_cpu_usage,
            memory_usage=facts.memory_usage,
            total_memory=facts.total_memory,
            available_memory=facts.available_memory,
            run_time=max(0, self._turn.clock.time.clock - facts.start_time),
            start_time=facts.start_time,
            read_bytes=facts.read_bytes,
            written_bytes=facts.written_bytes,
            messages_size_bytes=sum(each.size_bytes for each in machines),
            streams_count=counts.streams,
            topics_count=counts.topics,
            partitions_count=counts.partitions,
            segments_count=sum(max(1, each.segments_count) for each in machines),
            messages_count=sum(each.messages_count for each in machines),
            clients_count=len(self._answers.connections),
            consumer_groups_count=counts.consumer_groups,
            hostname=facts.hostname,
            os_name=facts.os_name,
            os_version=facts.os_version,
            kernel_version=facts.kernel_version,
            server_version=settings.server_version,
            server_semver=settings.server_semver,
            cache_metrics=(),
            threads_count=facts.threads_count,
            free_disk_space=facts.free_disk_space,
            total_disk_space=facts.total_disk_space,
        )

    def _get_counters(self, connection: Connection, _: RequestHeader, __: None) -> NodeCounters:
        self._check(connection, GET_COUNTERS.code)
        return self._counters.read(self.facts)

    def _get_cluster_metadata(
        self, connection: Connection, _: RequestHeader, __: None
    ) -> system.ClusterMetadata:
        return self.cluster

    def _describe_options(
        self, connection: Connection, _: RequestHeader, request: system.DescribeOptions
    ) -> tuple[system.OptionSpec, ...]:
        return admission.describe_options(request.scope, self._settings.topic_defaults)

    def _get_snapshot(
        self, connection: Connection, header: RequestHeader, request: system.GetSnapshot
    ) -> None:
        self._check(connection, system.GET_SNAPSHOT.code)
        if len(self._snapshots) >= _SNAPSHOTS_MAX:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)
        token = self._turn.new_token()
        ticket = self._answers.wait(connection.number, header)
        assert token not in self._snapshots, "a token is given once"
        self._snapshots[token] = ticket
        assert len(self._snapshots) <= _SNAPSHOTS_MAX, "snapshots that are made are bounded"
        self._turn.out.append(MakeSnapshot(token, request.compression, request.types))

    def on_snapshot(self, event: SnapshotMade) -> None:
        """Send an archive that is ready."""
        answers = self._answers
        waiting = answers.end(self._snapshots.pop(event.token))
        if waiting is None:
            return
        if event.data is None:
            code = Code.SNAPSHOT_FILE_COMPLETION_FAILED
            answers.refuse(waiting.connection, waiting.header, code)
        else:
            answers.reply(waiting.connection, waiting.header, event.data)

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        return list(self._snapshots.values())

    def check(self) -> None:
        """Assert that snapshots are bounded, and each is made for one request."""
        assert len(self._snapshots) <= _SNAPSHOTS_MAX, "snapshots that are made are bounded"
        tickets = dict.fromkeys(self._snapshots.values())
        assert len(tickets) == len(self._snapshots), "a request has one snapshot made"
        tokens = list(self._snapshots)
        assert tokens == sorted(tokens), "the host is asked in the order of requests"
        assert list(tickets) == sorted(tickets), "the host is asked in the order of requests"
