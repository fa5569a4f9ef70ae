"""The server itself: liveness, statistics, cluster, connections."""

from collections.abc import Sequence

from headrace.client.session.call import Call, make_call, make_get
from headrace.wire.commands import clients, system
from headrace.wire.commands.clients import Client, ClientDetails
from headrace.wire.commands.clock import ACCEPT_TIME, AcceptedTime
from headrace.wire.commands.counters import GET_COUNTERS, GetCounters, NodeCounters
from headrace.wire.commands.reconcile import GET_RECONCILE, NodeReconcile
from headrace.wire.commands.shards import GET_SHARDS, NodeShards
from headrace.wire.commands.system import ClusterMetadata, OptionSpec, Stats
from headrace.wire.errors import Code
from headrace.wire.numbers import OptionsScope, SnapshotCompression, SnapshotType


def ping() -> Call[None]:
    """Ask whether the server answers.

    >>> client.ping()
    """
    return make_call(system.PING, None)


def get_stats() -> Call[Stats]:
    """Return the statistics of the node.

    >>> client.get_stats().streams_count
    0
    """
    return make_call(system.GET_STATS, None)


def get_counters(shard: int | None = None) -> Call[NodeCounters]:
    """Return every counter of the node, and how it was started; a command of Headrace only.

    The counters of all shards are added up, or those of one are returned; `NotFound` if the node
    has no such shard. `missing` are the shards that did not answer in time.

    >>> client.get_counters().profile
    'dev'
    """
    if shard is None:
        return make_call(GET_COUNTERS, None)
    return make_call(GET_COUNTERS, GetCounters(shard), shard)


def get_shards() -> Call[NodeShards]:
    """Return the shards of the node; a command of Headrace only.

    `missing` are the shards that did not answer in time.

    >>> client.get_shards().shard_count
    1
    """
    return make_call(GET_SHARDS, None)


def get_reconcile() -> Call[NodeReconcile]:
    """Return how far each shard is with opening and removing partitions; of Headrace only.

    `missing` are the shards that did not answer in time.

    >>> [shard.failures for shard in client.get_reconcile().shards]
    [()]
    """
    return make_call(GET_RECONCILE, None)


def accept_time() -> Call[AcceptedTime]:
    """Make the node accept the time of its clock, after a jump that is correct.

    Messages that have expired by then are removed. A command of Headrace only.

    >>> accepted = client.accept_time()
    >>> accepted.after >= accepted.before
    True
    """
    return make_call(ACCEPT_TIME, None)


def get_snapshot(
    types: Sequence[SnapshotType] = (SnapshotType.ALL,),
    *,
    compression: SnapshotCompression = SnapshotCompression.DEFLATED,
) -> Call[bytes]:
    """Return an archive (ZIP) of the node's diagnostics, for a problem report.

    >>> client.get_snapshot()[:2]
    b'PK'
    """
    call = make_call(system.GET_SNAPSHOT, system.GetSnapshot(compression, tuple(types)))
    return Call(call.command, call.body, lambda payload: bytes(call.read(payload)), call.asked)


def get_cluster() -> Call[ClusterMetadata]:
    """Return the nodes of the cluster, and which of them is the leader.

    >>> len(client.get_cluster().nodes)
    1
    """
    return make_call(system.GET_CLUSTER_METADATA, None)


def describe_options(scope: OptionsScope = OptionsScope.TOPIC) -> Call[tuple[OptionSpec, ...]]:
    """Return the options that objects of a kind can have, with their defaults.

    >>> "durability" in [option.key for option in client.describe_options()]
    True
    """
    return make_call(system.DESCRIBE_OPTIONS, system.DescribeOptions(scope))


def get_me() -> Call[ClientDetails]:
    """Return this connection as the server sees it.

    >>> client.get_me().client.user_id
    0
    """
    return make_call(clients.GET_ME, None)


def get_client(number: int) -> Call[ClientDetails]:
    """Return one connection of the server by its number; `NotFound` if it does not exist.

    >>> me = client.get_me().client.client_id
    >>> client.get_client(me).client.client_id == me
    True
    """
    request = clients.GetClient(number)
    return make_get(clients.GET_CLIENT, request, number, Code.CLIENT_NOT_FOUND)


def get_clients() -> Call[tuple[Client, ...]]:
    """Return all connections of the server.

    >>> len(client.get_clients()) >= 1
    True
    """
    return make_call(clients.GET_CLIENTS, None)
