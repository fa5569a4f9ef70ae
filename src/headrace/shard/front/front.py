"""Joins the parts of this room."""

from collections.abc import Callable, Mapping, Sequence

from headrace.base.placement import METADATA_SHARD
from headrace.ports.probes import Probes
from headrace.shard.consensus.plane import Plane
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connections
from headrace.shard.front.counters import Counters
from headrace.shard.front.early_requests import EarlyRequests
from headrace.shard.front.flush_requests import FlushRequests
from headrace.shard.front.gathered_reads import Asking, GatheredReads, Told
from headrace.shard.front.metadata_requests import MetadataRequests
from headrace.shard.front.node_queries import NodeQueries
from headrace.shard.front.offset_reads import OffsetReads
from headrace.shard.front.orders import Order, Orders
from headrace.shard.front.others import Others
from headrace.shard.front.partition_orders import AuditDeletion, PartitionOrders
from headrace.shard.front.polls import Polls
from headrace.shard.front.purges import Purges
from headrace.shard.front.queries import Queries
from headrace.shard.front.reports import Reports
from headrace.shard.front.router import Doubts, Forwarding, Router, Sessions
from headrace.shard.front.sends import Sends
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.wire.commands import messages, topics


class Front:
    """What clients ask of a shard, whether it has the metadata group or not."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        plane: Plane,
        partitions: Partitions,
        turn: Turn,
        marks: Callable[[], Sequence[Probes]],
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._plane = plane
        self._partitions = partitions
        self._clock = turn.clock
        self.connections = Connections()
        self.answers = answers = Answers(self.connections, metadata, turn)
        self.requests = MetadataRequests(metadata, answers)
        self.polls = Polls(settings, metadata, plane, partitions, answers, turn)
        self.sends = Sends(metadata, plane, partitions, answers)
        self.flushes = FlushRequests(metadata, partitions, answers)
        self.purges = Purges(partitions, answers)
        self.early = EarlyRequests(partitions.parking, answers)
        self.counters = Counters(settings, marks, metadata, partitions, answers, turn)
        self.reports = Reports(settings, metadata, partitions, self.counters)
        self._others: Others | None = None
        self._gathered: GatheredReads | None = None
        placement = settings.placement
        if placement.shard_count > 1 and placement.shard == METADATA_SHARD:
            self._others = Others(metadata)
            self._gathered = GatheredReads(placement, metadata, answers, self._others)
        self.node = NodeQueries(settings, metadata, answers, turn, self.reports, self._others)

    def check(self) -> None:
        """Assert that connections, requests and what they wait for agree, and `check_awake`."""
        self.check_awake()
        assert self.answers.connections is self.connections, "answers go to these connections"
        self.connections.check(self._clock.now)
        self.answers.check_connections()
        self.sends.check()
        self.polls.check()
        self.node.check()
        self.early.check()
        if self._gathered is not None:
            self._gathered.check()

    def check_awake(self) -> None:
        """Assert that whatever waits will be looked at."""
        self.answers.check()
        self.polls.check_awake()
        self.flushes.check()
        self.purges.check()

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait in this room, for anything but consensus."""
        parts = (self.polls, self.flushes, self.purges, self.node, self.early)
        gathered = [] if self._gathered is None else self._gathered.tickets()
        return [*gathered, *(ticket for part in parts for ticket in part.tickets())]

    def gather_by(self, asking: Asking) -> Told:
        """Take the way to other shards; return who takes what comes of a question."""
        assert self._gathered is not None
        assert self._settings.placement.shard == METADATA_SHARD, "shard 0 gathers"
        self._gathered.asking = asking
        return self._gathered.on_told

    def make_router(
        self,
        sessions: Sessions,
        user_orders: Mapping[int, Order],
        audit_deletion: AuditDeletion,
        forwarding: Forwarding | None = None,
        doubts: Doubts | None = None,
    ) -> Router:
        """Return the router, with what the room of logins does for it."""
        metadata, plane, partitions = self._metadata, self._plane, self._partitions
        answers, settings = self.answers, self._settings
        on_partitions = PartitionOrders(metadata, plane, partitions, answers, audit_deletion)
        assert not user_orders.keys() & on_partitions.by_code.keys(), "an order has one maker"
        others = {**user_orders, **on_partitions.by_code}
        orders = Orders(self.requests, settings.topic_defaults, self._clock, others)
        offsets = OffsetReads(metadata, plane, partitions, answers, self.polls.commits)
        queries = Queries(
            metadata,
            partitions,
            answers,
            answered=self.node.answered,
            begun={
                **self.node.begun,
                messages.POLL_MESSAGES.code: self.polls.poll,
                messages.GET_OFFSET.code: offsets.get,
                topics.FLUSH_UNSAVED_BUFFER.code: self.flushes.flush,
            },
            segments_folder=settings.segments_folder,
        )
        if self._gathered is not None:
            queries.gather_by(self._gathered, self.node.make_snapshot)
        router = Router(
            self.sends,
            orders,
            queries,
            sessions,
            answers,
            self._clock,
            early=self.early,
            forwarding=forwarding,
            doubts=doubts,
        )
        self.early.begin(router.route_parked)
        return router
