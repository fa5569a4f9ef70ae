"""Every counter of a shard under its name: marks of its parts, what its host counts, what is now.

Flow: reply.
"""

from collections.abc import Callable, Sequence

from headrace.ports.host import HostFacts
from headrace.ports.probes import Probes
from headrace.shard.consensus.clock import Clock
from headrace.shard.front.answers import Answers
from headrace.shard.metadata import Metadata
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands.counters import Counter, NodeCounters


class Counters:
    """Reads the counters; `marks` returns the marks of all parts."""

    def __init__(
        self,
        profile: str,
        marks: Callable[[], Sequence[Probes]],
        metadata: Metadata,
        partitions: Partitions,
        answers: Answers,
        clock: Clock,
    ) -> None:
        self._profile = profile
        self._marks = marks
        self._metadata = metadata
        self._partitions = partitions
        self._answers = answers
        self._clock = clock

    def read(self, facts: HostFacts) -> NodeCounters:
        """Return all counters in the order of their names; equal names are added up."""
        found: dict[str, int] = {}
        for probes in self._marks():
            for name, count in probes.counts.items():
                found[name] = found.get(name, 0) + count
        gauges = dict(self._gauges())
        assert not found.keys() & gauges.keys(), "what is now is no mark"
        assert not dict(facts.counters).keys() & gauges.keys(), "the host counts other things"
        for name, count in (*facts.counters, *gauges.items()):
            found[name] = found.get(name, 0) + count
        counters = tuple([Counter(name, found[name]) for name in sorted(found)])
        return NodeCounters(self._profile, counters)

    def _gauges(self) -> tuple[tuple[str, int], ...]:
        """Return what there is now, under names that no mark has."""
        machines = [local.machine for local in self._partitions.locals.values()]
        fenced = sum(each.fence is not None for each in machines)
        assert fenced <= len(self._partitions.locals), "a fence is that of a partition"
        return (
            ("connections.open", len(self._answers.connections)),
            ("requests.waiting", self._answers.waiting_count),
            ("partitions.open", len(machines)),
            ("partitions.fenced_now", fenced),
            ("memory.tail_bytes", self._partitions.shared.tail_bytes),
            ("metadata.commit", self._metadata.commit),
            ("time.clock", self._clock.time.clock),
            ("time.believed", self._clock.time.now),
        )
