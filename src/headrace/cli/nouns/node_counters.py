"""Asks a node for its counters, where it has some. Loaded when a command runs."""

from headrace.client.errors import RefusedByServer
from headrace.client.sync.client import Client
from headrace.wire.commands.counters import NodeCounters
from headrace.wire.errors import Code

# What a server answers that does not know the command, which is ours (O8).
_UNKNOWN = (Code.FEATURE_UNAVAILABLE, Code.INVALID_COMMAND)


def ask_counters(client: Client) -> NodeCounters | None:
    """Give the counters of a node, and how it was started; None from a server without them.

    Raises:
        RefusedByServer: This user may not ask.
    """
    try:
        return client.get_counters()
    except RefusedByServer as error:
        if error.code in _UNKNOWN:
            return None
        raise
