"""Ping, statistics, diagnostic snapshot, cluster metadata, options."""

import msgspec

from headrace.wire.codec import (
    F32,
    NAME,
    NOTHING,
    REST,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Counted,
    Enumerated,
    Reader,
    Record,
)
from headrace.wire.commands.command import Command
from headrace.wire.numbers import (
    NodeStatus,
    Operation,
    OptionsScope,
    Role,
    SnapshotCompression,
    SnapshotType,
)

PING = Command(1, "ping", Operation.NON_REPLICATED, NOTHING, NOTHING)


class CacheMetrics(msgspec.Struct, frozen=True):
    """How often reads of one partition were served from memory."""

    stream_id: int
    topic_id: int
    partition_id: int
    hits: int
    misses: int
    hit_ratio: float


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A node in numbers; times and durations in microseconds."""

    process_id: int
    cpu_usage: float
    total_cpu_usage: float
    memory_usage: int
    total_memory: int
    available_memory: int
    run_time: int
    start_time: int
    read_bytes: int
    written_bytes: int
    messages_size_bytes: int
    streams_count: int
    topics_count: int
    partitions_count: int
    segments_count: int
    messages_count: int
    clients_count: int
    consumer_groups_count: int
    hostname: str
    os_name: str
    os_version: str
    kernel_version: str
    server_version: str
    server_semver: int  # major * 1,000,000 + minor * 1,000 + patch; 0 if unknown
    cache_metrics: tuple[CacheMetrics, ...]
    threads_count: int
    free_disk_space: int
    total_disk_space: int


_STATS = Record(
    Stats,
    process_id=U32,
    cpu_usage=F32,
    total_cpu_usage=F32,
    memory_usage=U64,
    total_memory=U64,
    available_memory=U64,
    run_time=U64,
    start_time=U64,
    read_bytes=U64,
    written_bytes=U64,
    messages_size_bytes=U64,
    streams_count=U32,
    topics_count=U32,
    partitions_count=U32,
    segments_count=U32,
    messages_count=U64,
    clients_count=U32,
    consumer_groups_count=U32,
    hostname=TEXT,
    os_name=TEXT,
    os_version=TEXT,
    kernel_version=TEXT,
    server_version=TEXT,
    server_semver=U32,
    cache_metrics=Counted(
        U32,
        Record(
            CacheMetrics,
            stream_id=U32,
            topic_id=U32,
            partition_id=U32,
            hits=U64,
            misses=U64,
            hit_ratio=F32,
        ),
    ),
    threads_count=U32,
    free_disk_space=U64,
    total_disk_space=U64,
)

GET_STATS = Command(10, "get stats", Operation.NON_REPLICATED, NOTHING, _STATS)


class GetSnapshot(msgspec.Struct, frozen=True):
    """Asks for an archive of the state of a node."""

    compression: SnapshotCompression
    types: tuple[SnapshotType, ...]


GET_SNAPSHOT = Command(
    11,
    "get snapshot file",
    Operation.NON_REPLICATED,
    Record(
        GetSnapshot,
        compression=Enumerated(U8, SnapshotCompression),
        types=Counted(U8, Enumerated(U8, SnapshotType)),
    ),
    REST,
)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node as clients may dial it."""

    name: str
    ip: str
    tcp_port: int
    quic_port: int
    http_port: int
    websocket_port: int
    role: Role
    status: NodeStatus


class ClusterMetadata(msgspec.Struct, frozen=True):
    """The nodes of the cluster; with one node a client never looks for another leader."""

    name: str
    nodes: tuple[Node, ...]


GET_CLUSTER_METADATA = Command(
    12,
    "get cluster metadata",
    Operation.NON_REPLICATED,
    NOTHING,
    Record(
        ClusterMetadata,
        name=TEXT,
        nodes=Counted(
            U32,
            Record(
                Node,
                name=TEXT,
                ip=TEXT,
                tcp_port=U16,
                quic_port=U16,
                http_port=U16,
                websocket_port=U16,
                role=Enumerated(U8, Role),
                status=Enumerated(U8, NodeStatus),
            ),
        ),
    ),
)


class DescribeOptions(msgspec.Struct, frozen=True):
    """Asks which options an object of that kind may have."""

    scope: OptionsScope


class OptionSpec(msgspec.Struct, frozen=True):
    """One option: its key, the kind and bytes of its default, what it does."""

    key: str
    kind: int
    default: bytes
    description: str


class _LongBytes:
    """Bytes behind a length of four bytes."""

    def read(self, reader: Reader) -> bytes:
        return bytes(reader.take(U32.read(reader)))

    def write(self, out: bytearray, value: bytes) -> None:
        U32.write(out, len(value))
        out += value


DESCRIBE_OPTIONS = Command(
    13,
    "describe options",
    Operation.NON_REPLICATED,
    Record(DescribeOptions, scope=Enumerated(U8, OptionsScope)),
    Counted(
        U32,
        Record(OptionSpec, key=NAME, kind=U8, default=_LongBytes(), description=TEXT),
    ),
)

COMMANDS = (PING, GET_STATS, GET_SNAPSHOT, GET_CLUSTER_METADATA, DESCRIBE_OPTIONS)
