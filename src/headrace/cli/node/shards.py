"""The shards of a node as values for programs, and the note of those that did not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.show.output import Values
    from headrace.wire.commands.reconcile import NodeReconcile, ShardReconcile
    from headrace.wire.commands.shards import NodeShards, ShardStatus

NOT_IN_HERE = "what is shown is without it"


def tell_missing(missing: Sequence[int], what: str = NOT_IN_HERE) -> None:
    """Name the shards that did not answer, on stderr; `what` says what that means for the data."""
    if missing:
        click.echo(f"headrace: {name_missing(missing)}; {what}", err=True)


def name_missing(missing: Sequence[int]) -> str:
    """Return a sentence that names the shards that did not answer."""
    words = "shard" if len(missing) == 1 else "shards"
    return f"{words} {', '.join(map(str, missing))} did not answer within 3 s"


def check_told(told: Sequence[object], missing: Sequence[int]) -> None:
    """Name the missing shards, if others have answered.

    Raises:
        CommandError: Nobody has.
    """
    if not told:
        raise CommandError(name_missing(missing) or "no shard has answered", Exit.UNAVAILABLE)
    tell_missing(missing)


def describe_node(found: NodeShards, *, name: str, profile: str | None) -> Values:
    """Return what all shards of a node are and hold together."""
    shards = found.shards
    return {
        "name": name,
        "profile": profile,
        "shards_count": found.shard_count,
        "missing_shards": list(found.missing),
        "commit": found.commit,
        "lag": max((_lag(found, each) for each in shards), default=0),
        "partitions_count": sum(each.partitions_count for each in shards),
        "segments_count": sum(each.segments_count for each in shards),
        "messages_count": sum(each.messages_count for each in shards),
        "messages_size_bytes": sum(each.messages_bytes for each in shards),
        "connections_count": sum(each.connections_count for each in shards),
        "cpu_percent": round(sum(each.cpu_usage for each in shards), 1),
        "memory_bytes": sum(each.memory_bytes for each in shards),
        "threads_count": sum(each.threads_count for each in shards),
        "journal_used_bytes": sum(each.journal_used_bytes for each in shards),
        "journal_bytes": sum(each.journal_bytes for each in shards),
        "drops_count": sum(drops.count for each in shards for drops in each.drops),
    }


def describe_shards(found: NodeShards) -> Values:
    """Return each shard, then the lanes between them and the frames that were dropped."""
    lanes: list[Values] = [
        {
            "shard": each.shard,
            "to_shard": lane.member,
            "main": lane.main,
            "reply": lane.reply,
            "places": lane.places,
        }
        for each in found.shards
        for lane in each.lanes
    ]
    drops: list[Values] = [
        {
            "shard": each.shard,
            "variant": dropped.variant,
            "reason": dropped.reason,
            "count": dropped.count,
        }
        for each in found.shards
        for dropped in each.drops
    ]
    return {
        "shards_count": found.shard_count,
        "missing_shards": list(found.missing),
        "commit": found.commit,
        "shards": [_describe_shard(found, each) for each in found.shards],
        "lanes": lanes,
        "drops": drops,
    }


def _describe_shard(found: NodeShards, each: ShardStatus) -> Values:
    return {
        "shard": each.shard,
        "process_id": each.process_id,
        "cpus": " ".join(map(str, each.cpus)) or None,
        "cpu_percent": round(each.cpu_usage, 1),
        "memory_bytes": each.memory_bytes,
        "partitions_count": each.partitions_count,
        "messages_count": each.messages_count,
        "connections_count": each.connections_count,
        "lag": _lag(found, each),
        "image_age_micros": each.image_age_micros,
        "journal_used_bytes": each.journal_used_bytes,
        "journal_bytes": each.journal_bytes,
        "waiting_count": sum(lane.main + lane.reply for lane in each.lanes),
        "drops_count": sum(dropped.count for dropped in each.drops),
    }


def _lag(found: NodeShards, each: ShardStatus) -> int:
    """Return by how many ops of the metadata a shard is behind shard 0."""
    return max(0, found.commit - each.commit)


def describe_reconcile(found: NodeReconcile) -> Values:
    """Return how far each shard is, then what is being removed and what fails."""
    tombstoned: list[Values] = [
        {
            "shard": each.shard,
            "partition": one.partition,
            "created_revision": one.created_revision,
            "phase": one.phase,
        }
        for each in found.shards
        for one in each.tombstoned
    ]
    failures: list[Values] = [
        {
            "shard": each.shard,
            "partition": one.partition,
            "cause": one.cause,
            "count": one.count,
            "next_try_micros": one.due_micros,
            "text": one.text,
        }
        for each in found.shards
        for one in each.failures
    ]
    return {
        "revision": found.revision,
        "missing_shards": list(found.missing),
        "shards": [_describe_progress(each) for each in found.shards],
        "tombstoned": tombstoned,
        "failures": failures,
    }


def _describe_progress(each: ShardReconcile) -> Values:
    return {
        "shard": each.shard,
        "revision": each.revision,
        "passed_revision": each.passed_revision,
        "is_passing": each.is_passing,
        "wanted_count": each.wanted,
        "actual_count": each.actual,
        "routed_count": each.routed,
        "staged_count": each.staged,
        "tombstoned_count": each.tombstoned_count,
        "failures_count": each.failures_count,
        "doubted_count": each.doubted,
        "parked_count": each.parked,
    }
