"""Requests the counters of a node, if it has some. Loaded when a command runs."""

from headrace.cli.exits import CommandError, Exit
from headrace.cli.node.shards import name_missing
from headrace.cli.nouns.own_commands import ask_if_supported
from headrace.client.errors import NotFound
from headrace.client.sync.client import Client
from headrace.wire.commands.counters import NodeCounters


def ask_counters(client: Client, shard: int | None = None) -> NodeCounters | None:
    """Return the counters of a node, or of one shard; None if it has none.

    Raises:
        RefusedByServer: This user lacks the permission.
    """
    return ask_if_supported(lambda: client.get_counters(shard))


def ask_shard_counters(client: Client, shard: int) -> NodeCounters:
    """Return the counters of one shard.

    Raises:
        CommandError: The node has no such shard, or it did not answer.
        RefusedByServer: This user lacks the permission.
    """
    try:
        counted = ask_counters(client, shard)
    except NotFound:
        raise CommandError(
            f"the node has no shard {shard}; `headrace node shards` shows those that it has",
            Exit.NOT_FOUND,
        ) from None
    if counted is None:
        raise CommandError("this server does not tell of its shards")
    if counted.missing:
        raise CommandError(name_missing(counted.missing), Exit.UNAVAILABLE)
    return counted
