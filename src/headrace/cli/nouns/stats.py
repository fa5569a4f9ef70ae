"""`headrace stats`: the statistics and all counters of a node."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from headrace.base.placement import SHARDS_MAX
from headrace.cli.connect.target import with_client
from headrace.cli.node.shards import tell_missing
from headrace.cli.show.output import Record, Values, with_output

if TYPE_CHECKING:
    from headrace.client.sync.client import Client
    from headrace.wire.commands.counters import NodeCounters
    from headrace.wire.commands.system import Stats

COUNTERS_MODULE = "headrace.cli.nouns.node_counters"  # loads the client's errors


@click.command(short_help="Show a node in numbers.")
@click.option(
    "--shard",
    metavar="K",
    type=click.IntRange(0, SHARDS_MAX - 1),
    help="The counters of this shard alone; without it, those of all added up.",
)
@with_output
@with_client
def stats(client: Client, shard: int | None) -> Record:
    """Show a node in numbers: its machine, what it holds, and every counter.

    The counters of all shards are added up; a shard that does not answer within 3 s is named.

    A counter is there once it has counted. Most count since the node started; those of `memory`,
    and those that end in `open`, `waiting` and `now`, say how much there is. Those of `time` are
    what the node goes by and what its clock says, in microseconds since 1970.

    Example: headrace stats -o json
    """
    module = importlib.import_module(COUNTERS_MODULE)
    if shard is not None:
        return Record(describe_counters(shard, module.ask_shard_counters(client, shard)))
    counted = module.ask_counters(client)
    found = client.get_stats()
    if counted:
        tell_missing(counted.missing, "its counters are not here, other figures are the last known")
    return Record(describe_stats(found, counted))


def describe_counters(shard: int, counted: NodeCounters) -> Values:
    """Return the counters of one shard as values for programs."""
    return {"shard": shard, "profile": counted.profile, "counters": _counters(counted)}


def _counters(counted: NodeCounters) -> list[Values]:
    return [{"name": each.name, "value": each.value} for each in counted.counters]


def describe_stats(found: Stats, counted: NodeCounters | None) -> Values:
    """Return the statistics of a node as values for programs; None without counters."""
    caches: list[Values] = [
        {
            "stream_id": each.stream_id,
            "topic_id": each.topic_id,
            "partition_id": each.partition_id,
            "hits": each.hits,
            "misses": each.misses,
        }
        for each in found.cache_metrics
    ]
    return {
        "version": found.server_version,
        "profile": counted.profile if counted else None,
        "process_id": found.process_id,
        "started_at": found.start_time,
        "run_time_micros": found.run_time,
        "hostname": found.hostname,
        "os": f"{found.os_name} {found.os_version}".strip(),
        "kernel": found.kernel_version,
        "cpu_percent": round(found.cpu_usage, 1),
        "total_cpu_percent": round(found.total_cpu_usage, 1),
        "threads_count": found.threads_count,
        "memory_bytes": found.memory_usage,
        "available_memory_bytes": found.available_memory,
        "total_memory_bytes": found.total_memory,
        "read_bytes": found.read_bytes,
        "written_bytes": found.written_bytes,
        "free_disk_bytes": found.free_disk_space,
        "total_disk_bytes": found.total_disk_space,
        "streams_count": found.streams_count,
        "topics_count": found.topics_count,
        "partitions_count": found.partitions_count,
        "segments_count": found.segments_count,
        "messages_count": found.messages_count,
        "messages_size_bytes": found.messages_size_bytes,
        "clients_count": found.clients_count,
        "consumer_groups_count": found.consumer_groups_count,
        "missing_shards": list(counted.missing) if counted else [],
        "cache": caches,
        "counters": _counters(counted) if counted else [],
    }
