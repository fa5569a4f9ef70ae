"""Requests the counters of a node, if it has some. Loaded when a command runs."""

from headrace.client.errors import RefusedByServer
from headrace.client.sync.client import Client
from headrace.wire.commands.counters import NodeCounters
from headrace.wire.errors import Code

# The answers of a server that does not support this command of Headrace (O8).
_UNKNOWN = (Code.FEATURE_UNAVAILABLE, Code.INVALID_COMMAND)


def ask_counters(client: Client) -> NodeCounters | None:
    """Return the counters of a node, and how it was started; None if it has none.

    Raises:
        RefusedByServer: This user lacks the permission.
    """
    try:
        return client.get_counters()
    except RefusedByServer as error:
        if error.code in _UNKNOWN:
            return None
        raise
