"""What a shard tells of itself: to people, and to the shard that gathers it from all (O5.9).

Flow: reply.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.metadata.target import groups_of
from headrace.ports.host import HostFacts
from headrace.shard.consensus.believed_time import TICK_MICROS
from headrace.shard.front.counters import Counters
from headrace.shard.metadata import Metadata
from headrace.shard.owned.local import Local
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.wire.bus.feed import Subject
from headrace.wire.bus.gathered import ALL, PartitionSize, Scope
from headrace.wire.commands.counters import NodeCounters
from headrace.wire.commands.holders import TopicHolders
from headrace.wire.commands.reconcile import (
    LISTED_MAX,
    ReconcileFailure,
    ShardReconcile,
    Tombstone,
)
from headrace.wire.commands.shards import FrameDrops, Lane, ShardStatus

if TYPE_CHECKING:
    from headrace.storage.store import Store


class Reports:
    """Makes the reports of one shard; `by_subject` answers what another shard asks."""

    def __init__(
        self,
        settings: ShardSettings,
        metadata: Metadata,
        partitions: Partitions,
        counters: Counters,
    ) -> None:
        self._shard = settings.placement.shard
        self._metadata = metadata
        self._partitions = partitions
        self._counters = counters
        self.facts = HostFacts()
        self.stores: Sequence[Store] = ()  # of the planes that are here
        # How long ago the metadata was confirmed, in ticks; whoever has its group need not ask.
        self.age_ticks: Callable[[], int] = int
        self.by_subject: dict[int, Callable[[Any], object]] = {
            Subject.SIZES: self.sizes,
            Subject.COUNTERS: lambda _: self.counters(),
            Subject.RECONCILER: lambda _: self.reconcile(),
            Subject.SHARD: lambda _: self.shard(),
            Subject.HOLDERS: self.holders,
            Subject.SNAPSHOT: lambda _: self.text(),
        }
        assert list(self.by_subject) == list(Subject), "every subject is answered"

    def shard(self) -> ShardStatus:
        """Return the process of the shard, what it holds, and how it stands with the others."""
        facts = self.facts
        machines = [local.machine for local in self._partitions.locals.values()]
        used = sum(store.journal_used_bytes for store in self.stores)
        size = sum(store.journal_bytes for store in self.stores)
        assert used <= size, "a journal is within its files"
        return ShardStatus(
            shard=self._shard,
            process_id=facts.process_id,
            cpus=facts.cpus,
            cpu_usage=facts.cpu_usage,
            memory_bytes=facts.memory_usage,
            threads_count=facts.threads_count,
            read_bytes=facts.read_bytes,
            written_bytes=facts.written_bytes,
            partitions_count=len(machines),
            segments_count=sum(max(1, each.segments_count) for each in machines),
            messages_count=sum(each.messages_count for each in machines),
            messages_bytes=sum(each.size_bytes for each in machines),
            connections_count=self._counters.connections_count(),
            commit=self._metadata.commit,
            image_age_micros=self.age_ticks() * TICK_MICROS,
            journal_used_bytes=used,
            journal_bytes=size,
            lanes=tuple([Lane(*msgspec.structs.astuple(each)) for each in facts.lanes]),
            drops=tuple([FrameDrops(*row) for row in self._counters.drops()]),
        )

    def counters(self) -> NodeCounters:
        """Return every counter of the shard."""
        return self._counters.read(self.facts)

    def reconcile(self) -> ShardReconcile:
        """Return how far the partitions of the shard are from what metadata says."""
        status = self._partitions.reconcile_status()
        assert status.shard == self._shard, "a shard tells of itself"
        passed = status.passed_revision
        assert passed <= status.revision, "a pass follows the metadata"
        return ShardReconcile(
            shard=status.shard,
            revision=status.revision,
            passed_revision=passed if passed >= 0 else None,
            wanted=status.wanted,
            actual=status.actual,
            routed=status.routed,
            staged=status.staged,
            doubted=status.doubted,
            parked=status.parked,
            is_passing=status.is_passing,
            tombstoned_count=len(status.tombstoned),
            failures_count=len(status.failures),
            tombstoned=tuple(
                [
                    Tombstone(each.partition, each.created_revision, each.phase)
                    for each in status.tombstoned[:LISTED_MAX]
                ]
            ),
            failures=tuple(
                [
                    ReconcileFailure(
                        each.partition,
                        each.cause.value,
                        each.count,
                        each.due_ticks * TICK_MICROS,
                        each.text,
                    )
                    for each in status.failures[:LISTED_MAX]
                ]
            ),
        )

    def sizes(self, scope: Scope) -> tuple[PartitionSize, ...]:
        """Return the partitions of the shard within a scope, in numbers."""
        found = tuple([_size_of(local) for local in self._within(scope)])
        assert len(found) <= len(self._partitions.locals), "a partition is told of once"
        return found

    def _within(self, scope: Scope) -> Iterable[Local]:
        partitions, state = self._partitions.locals, self._metadata.state
        if scope.stream_id == ALL:
            return list(partitions.values())
        topic_ids = [scope.topic_id]
        if scope.topic_id == ALL:
            stream = state.streams.find(scope.stream_id)
            topic_ids = [] if stream is None else [topic.id for topic in stream.topics]
        keys = [(scope.stream_id, topic_id) for topic_id in topic_ids]
        groups = [group for key in keys for group in groups_of(state, key)]
        assert groups == sorted(groups), "partitions are told of in order, once each"
        return [partitions[group] for group in groups if group in partitions]

    def holders(self, scope: Scope) -> TopicHolders:
        """Return who keeps messages of a topic beyond its limits in partitions of this shard."""
        topic = self._metadata.state.find_topic((scope.stream_id, scope.topic_id))
        if topic is None:
            return TopicHolders(0, ())
        found = self._partitions.retention.holders_of(topic)
        assert len(found.holders) <= found.count, "those that are listed are counted"
        return found

    def text(self) -> str:
        """Return what a diagnostic archive says of the shard."""
        parts = (self.shard(), self.reconcile(), *self.counters().counters)
        lines = [f"{name}: {value}" for part in parts[:2] for name, value in _fields(part)]
        counters = [f"{name} {value}" for name, value in map(msgspec.structs.astuple, parts[2:])]
        assert len(lines) + len(counters) > len(parts), "each part has a line, or several"
        return "\n".join([*lines, *counters]) + "\n"


def _fields(struct: msgspec.Struct) -> list[tuple[str, object]]:
    names = struct.__struct_fields__
    assert len(names) > 0, "a report tells something"
    return [(name, getattr(struct, name)) for name in names]


def _size_of(local: Local) -> PartitionSize:
    machine = local.machine
    assert machine.messages_count <= machine.next_offset, "a message has an offset of its own"
    return PartitionSize(
        local.target.group,
        local.target.created_revision,
        max(1, machine.segments_count),  # its first one may not be open yet
        machine.current_offset,
        machine.size_bytes,
        machine.messages_count,
    )
