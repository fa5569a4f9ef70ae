"""Answers what is asked of the node itself: statistics, counters, shards, options, snapshots.

Flow: route, reply.
"""

from typing import TYPE_CHECKING, TypeVar

from headrace.metadata import admission, lookups
from headrace.metadata.access import Scope, check_access
from headrace.ports.host import MakeSnapshot, SnapshotMade
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.counters import add_up
from headrace.shard.front.others import Others
from headrace.shard.front.reports import Reports
from headrace.shard.metadata import Metadata
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.wire.commands import system
from headrace.wire.commands.counters import GET_COUNTERS, GetCounters, NodeCounters
from headrace.wire.commands.reconcile import GET_RECONCILE, NodeReconcile
from headrace.wire.commands.shards import GET_SHARDS, NodeShards
from headrace.wire.errors import Code, RefusedError
from headrace.wire.requests import RequestHeader

if TYPE_CHECKING:
    from headrace.shard.front.queries import Query

_SNAPSHOTS_MAX = 4

T = TypeVar("T")


class NodeQueries:
    """What a logged-in client may ask of the node."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        answers: Answers,
        turn: Turn,
        reports: Reports,
        others: Others | None = None,
    ) -> None:
        """Make it; with `others` what they have told belongs to the answers."""
        self._settings = settings
        self._shard_count = settings.placement.shard_count
        self._metadata = metadata
        self._answers = answers
        self._turn = turn
        self._reports = reports
        self._others = others
        self.cluster = system.ClusterMetadata("", ())  # what clients are told; it comes late
        self._snapshots: dict[int, int] = {}  # tickets, by the tokens of what the host makes
        self.answered: dict[int, Query] = {
            system.GET_STATS.code: self._get_stats,
            GET_COUNTERS.code: self._get_counters,
            GET_SHARDS.code: self._get_shards,
            GET_RECONCILE.code: self._get_reconcile,
            system.GET_CLUSTER_METADATA.code: self._get_cluster_metadata,
            system.DESCRIBE_OPTIONS.code: self._describe_options,
        }
        self.begun: dict[int, Query] = {system.GET_SNAPSHOT.code: self._get_snapshot}
        assert not self.answered.keys() & self.begun.keys(), "a command is answered in one way"

    def _check(self, connection: Connection, code: int) -> None:
        check_access(self._metadata.state, connection.user_id, code, Scope())

    def _get_stats(self, connection: Connection, _: RequestHeader, __: None) -> system.Stats:
        self._check(connection, system.GET_STATS.code)
        facts, settings = self._reports.facts, self._settings
        counts = lookups.count(self._metadata.state)
        # Of a shard that is silent the last that it has told: there is no room for its name.
        known = [] if self._others is None else self._others.statuses()
        all_shards = [self._reports.shard(), *known]
        assert len(all_shards) <= self._shard_count, "a shard is counted once"
        assert counts.users > 0, "who asks is a user"
        assert counts.topics == 0 or counts.streams > 0, "a topic is in a stream"
        assert counts.partitions == 0 or counts.topics > 0, "a partition is in a topic"
        return system.Stats(
            process_id=facts.process_id,
            cpu_usage=sum(each.cpu_usage for each in all_shards),
            total_cpu_usage=facts.total_cpu_usage,
            memory_usage=sum(each.memory_bytes for each in all_shards),
            total_memory=facts.total_memory,
            available_memory=facts.available_memory,
            run_time=max(0, self._turn.clock.time.clock - facts.start_time),
            start_time=facts.start_time,
            read_bytes=sum(each.read_bytes for each in all_shards),
            written_bytes=sum(each.written_bytes for each in all_shards),
            messages_size_bytes=sum(each.messages_bytes for each in all_shards),
            streams_count=counts.streams,
            topics_count=counts.topics,
            partitions_count=counts.partitions,
            segments_count=sum(each.segments_count for each in all_shards),
            messages_count=sum(each.messages_count for each in all_shards),
            clients_count=len(self._answers.connections),
            consumer_groups_count=counts.consumer_groups,
            hostname=facts.hostname,
            os_name=facts.os_name,
            os_version=facts.os_version,
            kernel_version=facts.kernel_version,
            server_version=settings.server_version,
            server_semver=settings.server_semver,
            cache_metrics=(),
            threads_count=sum(each.threads_count for each in all_shards),
            free_disk_space=facts.free_disk_space,
            total_disk_space=facts.total_disk_space,
        )

    def _told(self, own: T) -> tuple[dict[int, T], tuple[int, ...]]:
        """Return what this shard and the others tell, by shard, and who is missing."""
        shard, others = self._settings.placement.shard, self._others
        if others is None:
            return {shard: own}, ()
        assert shard not in others.told, "nobody asks itself"
        return {shard: own, **others.told}, others.missing

    def _get_counters(
        self, connection: Connection, _: RequestHeader, request: GetCounters | None
    ) -> NodeCounters:
        self._check(connection, GET_COUNTERS.code)
        told, missing = self._told(self._reports.counters())
        if request is None:
            return add_up(told, missing)
        if request.shard >= self._shard_count:
            raise RefusedError(Code.RESOURCE_NOT_FOUND, shard=request.shard)
        nothing = NodeCounters(self._settings.profile, (), missing)
        assert request.shard in told or missing == (request.shard,), "it was asked, or is here"
        return told.get(request.shard, nothing)

    def _get_shards(self, connection: Connection, _: RequestHeader, __: None) -> NodeShards:
        self._check(connection, GET_SHARDS.code)
        told, missing = self._told(self._reports.shard())
        assert len(told) + len(missing) == self._shard_count, "every shard is told of, or missing"
        shards = tuple([told[shard] for shard in sorted(told)])
        return NodeShards(self._shard_count, self._metadata.commit, shards, missing)

    def _get_reconcile(self, connection: Connection, _: RequestHeader, __: None) -> NodeReconcile:
        self._check(connection, GET_RECONCILE.code)
        told, missing = self._told(self._reports.reconcile())
        assert len(told) + len(missing) == self._shard_count, "every shard is told of, or missing"
        shards = tuple([told[shard] for shard in sorted(told)])
        return NodeReconcile(self._metadata.state.revision, shards, missing)

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
        self._check_snapshots()
        self.make_snapshot(self._answers.wait(connection.number, header), request)

    def _check_snapshots(self) -> None:
        if len(self._snapshots) >= _SNAPSHOTS_MAX:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)

    def make_snapshot(self, ticket: int, request: system.GetSnapshot) -> None:
        """Have the archive made for which a request waits, with what other shards have told.

        Raises:
            RefusedError: Too many are made already.
        """
        self._check_snapshots()
        token = self._turn.new_token()
        assert token not in self._snapshots, "a token is given once"
        self._snapshots[token] = ticket
        assert len(self._snapshots) <= _SNAPSHOTS_MAX, "snapshots that are made are bounded"
        effect = MakeSnapshot(token, request.compression, request.types, self._texts())
        self._turn.out.append(effect)

    def _texts(self) -> tuple[tuple[str, str], ...]:
        """Return an entry for each shard, if others were asked: what it told, if anything."""
        others = self._others
        if others is None or not (others.told or others.missing):
            return ()
        told, missing = self._told(self._reports.text())
        told |= dict.fromkeys(missing, "missing: it did not answer within 3 s\n")
        assert len(told) == self._shard_count, "every shard has an entry"
        return tuple([(f"shard-{shard}.txt", told[shard]) for shard in sorted(told)])

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
