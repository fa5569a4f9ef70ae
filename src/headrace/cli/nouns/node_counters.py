"""Requests the counters of a node, if it has some. Loaded when a command runs."""

from headrace.cli.nouns.own_commands import ask_if_supported
from headrace.client.sync.client import Client
from headrace.wire.commands.counters import NodeCounters


def ask_counters(client: Client) -> NodeCounters | None:
    """Return the counters of a node, and how it was started; None if it has none.

    Raises:
        RefusedByServer: This user lacks the permission.
    """
    return ask_if_supported(client.get_counters)
