"""Every counter of a shard under its name: marks of its parts, what its host counts, what is now.

Flow: reply.
"""

from collections.abc import Callable, Mapping, Sequence

from headrace.base.placement import METADATA_SHARD
from headrace.ports.host import HostFacts
from headrace.ports.probes import Probes
from headrace.shard.drops import FRAME_DROPS
from headrace.shard.front.answers import Answers
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.shard.settings import ShardSettings
from headrace.shard.turn import Turn
from headrace.wire.commands.counters import Counter, NodeCounters

# Of the node there is one, and shard 0 has it: they are not added up.
_OF_NODE = ("metadata.commit", "time.clock", "time.believed")
# Shown before they have counted anything, for whoever watches them (SH-19). The last one counts
# nothing: a purge is an op of the partition's log here, so no repair waits for one.
_ALWAYS_SHOWN = (
    "partitions_materialised_total",
    "partitions_removed_total",
    "partitions_reconcile_failures_total",
    "partitions_duplicate_builds_discarded_total",
    "partition_transfer_refusals_total",
    "partition_frames_rejected_stale_total",
    "partition_frames_rejected_ahead_total",
    "partition_requests_denied_transient_total",
    "partition_repair_serves_deferred_purge_total",
)


class Counters:
    """Reads the counters; `marks` returns the marks of all parts."""

    def __init__(
        self,
        settings: ShardSettings,
        marks: Callable[[], Sequence[Probes]],
        metadata: Metadata,
        partitions: Partitions,
        answers: Answers,
        turn: Turn,
    ) -> None:
        self._profile = settings.profile
        self._shard = settings.placement.shard
        self._marks = marks
        self._metadata = metadata
        self._partitions = partitions
        self._answers = answers
        self._clock = turn.clock
        self.drops = turn.drops.rows  # the frames that this shard has dropped

    def read(self, facts: HostFacts) -> NodeCounters:
        """Return all counters in the order of their names; equal names are added up."""
        found = dict.fromkeys(_ALWAYS_SHOWN, 0)
        for probes in self._marks():
            for name, count in probes.counts.items():
                found[name] = found.get(name, 0) + count
        gauges = dict([*self._gauges(), *self._drop_counts()])
        assert not found.keys() & gauges.keys(), "what is now is no mark"
        assert not dict(facts.counters).keys() & gauges.keys(), "the host counts other things"
        for name, count in (*facts.counters, *gauges.items()):
            found[name] = found.get(name, 0) + count
        return NodeCounters(self._profile, _in_order(found))

    def connections_count(self) -> int:
        """Return how many connections have their home here; shard 0 knows all of the node."""
        connections = self._answers.connections
        here = sum(each.home == self._shard for each in connections.all())
        assert here <= len(connections), "who lives here is known here"
        return here

    def _gauges(self) -> tuple[tuple[str, int], ...]:
        """Return what there is now, under names that no mark has."""
        machines = [local.machine for local in self._partitions.locals.values()]
        fenced = sum(each.fence is not None for each in machines)
        assert fenced <= len(self._partitions.locals), "a fence is that of a partition"
        connections = self._answers.connections
        return (
            ("connections.open", self.connections_count()),
            # At their homes; those of them that another shard serves are `requests.forwarded`.
            ("requests.received", connections.requests_count),
            # A request that was forwarded here waits at its home too, and is counted there.
            ("requests.waiting", self._answers.count_own()),
            ("partitions.open", len(machines)),
            ("partitions.fenced_now", fenced),
            ("memory.tail_bytes", self._partitions.shared.tail_bytes),
            ("metadata.commit", self._metadata.commit),
            ("time.clock", self._clock.time.clock),
            ("time.believed", self._clock.time.now),
        )

    def _drop_counts(self) -> list[tuple[str, int]]:
        """Return the dropped frames, a counter for each pair of labels that occurred (SH-18)."""
        rows = self.drops()
        assert all(count > 0 for _, _, count in rows), "a pair shows with its first drop"
        return [
            (f'{FRAME_DROPS}{{variant="{variant}",reason="{reason}"}}', count)
            for variant, reason, count in rows
        ]


def add_up(told: Mapping[int, NodeCounters], missing: tuple[int, ...]) -> NodeCounters:
    """Return the counters of several shards, shard 0 among them, as those of the node."""
    assert METADATA_SHARD in told, "who adds up has counters of its own"
    assert not told.keys() & dict.fromkeys(missing).keys(), "who has told is not missing"
    found: dict[str, int] = {}
    for shard in sorted(told):
        for each in told[shard].counters:
            if shard == METADATA_SHARD or each.name not in _OF_NODE:
                found[each.name] = found.get(each.name, 0) + each.value
    return NodeCounters(told[METADATA_SHARD].profile, _in_order(found), missing)


def _in_order(found: dict[str, int]) -> tuple[Counter, ...]:
    assert all(count >= 0 for count in found.values()), "what is counted is not below nothing"
    return tuple([Counter(name, found[name]) for name in sorted(found)])
