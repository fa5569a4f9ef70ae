"""Every counter of a shard under its name: marks of its parts, what its host counts, what is now.

Flow: reply.
"""

from headrace.ports.host import HostFacts
from headrace.shard.desk import Desk
from headrace.shard.owned.partitions import Partitions
from headrace.wire.commands.counters import Counter, NodeCounters


def read_counters(desk: Desk, partitions: Partitions, facts: HostFacts) -> NodeCounters:
    """Give all counters in the order of their names; equal names of several parts are added up."""
    found: dict[str, int] = {}
    planes = (desk.metadata.plane, desk.data_plane)
    marks = [
        desk.probes,
        *(each for plane in planes for each in (plane.probes, plane.store.probes)),
    ]
    for probes in marks:
        for name, count in probes.counts.items():
            found[name] = found.get(name, 0) + count
    for name, count in (*facts.counters, *_gauges(desk, partitions)):
        found[name] = found.get(name, 0) + count
    counters = tuple([Counter(name, found[name]) for name in sorted(found)])
    return NodeCounters(desk.settings.profile, counters)


def _gauges(desk: Desk, partitions: Partitions) -> tuple[tuple[str, int], ...]:
    """Give what there is now, under names that no mark has."""
    machines = [local.machine for local in partitions.locals.values()]
    return (
        ("connections.open", len(desk.connections)),
        ("requests.waiting", desk.answers.waiting_count),
        ("partitions.open", len(machines)),
        ("partitions.fenced_now", sum(each.fence is not None for each in machines)),
        ("memory.tail_bytes", partitions.shared.tail_bytes),
        ("metadata.commit", desk.metadata.commit),
        ("time.clock", desk.clock.time.clock),
        ("time.believed", desk.clock.time.now),
    )
