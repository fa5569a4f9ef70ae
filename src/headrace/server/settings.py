"""What a configuration means to the parts of a node: stores, shard, credentials, listener."""

import secrets

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import Placement
from headrace.metadata.admission import TopicDefaults
from headrace.partitions.options import AheadPolicy
from headrace.runtime.credentials import HashParameters
from headrace.server.config.kinds import SECOND
from headrace.server.config.sections import (
    TICK,
    JournalSection,
    MetadataJournalSection,
    ServerConfig,
)
from headrace.server.folders import PARTITIONS_NAME
from headrace.shard.config import PlaneConfig
from headrace.shard.settings import LockoutSettings, ShardSettings
from headrace.storage.config import StoreConfig, file_bytes_of
from headrace.transports.limits import TcpLimits
from headrace.vsr.timeouts import Timeouts
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.commands.system import Node as NodeRecord
from headrace.wire.numbers import NodeStatus, Role, Transport
from headrace.wire.topic_options import RESPECT_CONSUMERS


def store_configs(
    config: ServerConfig, cluster: int, boot_identity: int
) -> tuple[StoreConfig, StoreConfig]:
    """Return the configurations of the metadata store and the shard's store."""

    def make(journal: int, section: JournalSection | MetadataJournalSection) -> StoreConfig:
        made = StoreConfig(
            cluster=cluster,
            replica=0,
            replica_count=1,
            journal_bytes_max=section.bytes_max,
            journal_files=section.files,
            record_bytes_max=0,
            boot_identity=boot_identity,
            journal=journal,
        )
        return msgspec.structs.replace(made, record_bytes_max=file_bytes_of(made))

    return make(0, config.metadata_journal), make(1, config.journal)


def hash_parameters(config: ServerConfig) -> HashParameters:
    """Return what a password hash may cost."""
    security = config.security
    return HashParameters(
        time_cost=security.argon2_time_cost,
        memory_bytes=security.argon2_memory,
        parallelism=security.argon2_parallelism,
        at_once=security.hashes_at_once,
        waiting_max=security.hashes_waiting_max,
    )


def _plane_config(config: ServerConfig, number: int, journal: int) -> PlaneConfig:
    cluster = config.cluster
    return PlaneConfig(
        cluster=number,
        replica=0,
        replica_count=1,
        timeouts=Timeouts(
            heartbeat_interval=_ticks(cluster.heartbeat_interval),
            heartbeat_timeout=_ticks(cluster.heartbeat_timeout),
            prepare_retransmit_interval=_ticks(cluster.prepare_retransmit_interval),
            view_change_retransmit_interval=_ticks(cluster.view_change_retransmit_interval),
            view_change_status_timeout=_ticks(cluster.view_change_status_timeout),
            request_start_view_retransmit_interval=_ticks(
                cluster.request_start_view_retransmit_interval
            ),
            view_probe_attempts_max=cluster.view_probe_attempts_max,
            repair_retry_interval=_ticks(cluster.repair_retry_interval),
            transfer_retry_interval=_ticks(cluster.transfer_retry_interval),
        ),
        seed=secrets.randbits(64),
        journal=journal,
        pipeline_max=cluster.pipeline_ops_max,
        repair_ops_max=cluster.repair_ops_max,
    )


def shard_settings(
    config: ServerConfig,
    cluster: int,
    version: str,
    root_password_hash: str,
    *,
    placement: Placement,
    supported_time: int,
) -> ShardSettings:
    """Return the settings of one shard."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    policy = (
        AheadPolicy.CLAMP if config.consumers.offset_ahead_policy == "clamp" else (AheadPolicy.FAIL)
    )
    return ShardSettings(
        metadata=_plane_config(config, cluster, 0),
        data=_plane_config(config, cluster, 1),
        placement=placement,
        supported_time=supported_time,
        topic_defaults=TopicDefaults(
            message_expiry=config.topics.message_expiry,
            max_topic_size=config.topics.max_topic_size,
            segment_size=config.segments.segment_size,
            durability=config.topics.durability_minimum,
            consumer_offset_durability=config.topics.durability_minimum,
            durability_minimum=config.topics.durability_minimum,
        ),
        profile=config.profile,
        server_version=version,
        server_semver=major * 1_000_000 + minor * 1_000 + patch,
        root_username=config.root.username,
        root_password_hash=root_password_hash,
        password_bytes_min=config.security.password_min,
        offsets_ahead=policy,
        piece_bytes=config.segments.piece_bytes,
        tail_bytes_max=config.segments.tail_bytes_max,
        poll_bytes_max=_poll_bytes(config.tcp.reply_bytes_max),
        poll_bytes_max_of={
            Transport.WEBSOCKET: _poll_bytes(config.websocket.reply_bytes_max),
            Transport.QUIC: _poll_bytes(config.quic.reply_bytes_max),
        },
        replies_bytes_max=config.segments.replies_bytes_max,
        segments_folder=_told_folder(config),
        retention_ticks=_ticks(config.retention.interval),
        reconcile_ticks=_ticks(config.server.reconcile_interval),
        is_waiting_for_consumers=config.retention.consumers == RESPECT_CONSUMERS,
        consumers_idle_ticks=_ticks(config.retention.consumers_idle),
        clock_tolerance=config.clock.tolerance,
        lockout=LockoutSettings(
            config.security.lockout_failures, _ticks(config.security.lockout_pause_max)
        ),
        stale_ticks=_ticks(int(config.sessions.heartbeat_interval * config.sessions.stale_factor)),
    )


def _poll_bytes(reply_bytes_max: int) -> int:
    """Return how much of a reply its messages may take."""
    return reply_bytes_max - 2 * HEADER_BYTES


def _told_folder(config: ServerConfig) -> str:
    """Return the folder of segments for readers on this host; empty if they must not read it."""
    if not config.segments.direct_reads:
        return ""
    return str((config.server.data_dir / PARTITIONS_NAME).resolve())


def tcp_limits(config: ServerConfig) -> TcpLimits:
    """Return the limits of the TCP listener."""
    tcp = config.tcp
    return TcpLimits(
        frame_bytes_max=tcp.frame_bytes_max,
        frame_bytes_max_before_login=tcp.frame_bytes_max_before_login,
        connections_max=tcp.connections_max,
        connections_per_address_max=tcp.connections_per_address_max,
        connections_before_login_max=tcp.unauthenticated_max,
        requests_in_flight_max=tcp.in_flight_max,
        receive_bytes_max=config.segments.receive_bytes_max,
        replies_bytes_max=config.segments.replies_bytes_max,
        send_bytes_high=tcp.write_buffer_bytes_pause,
        send_bytes_max=tcp.write_buffer_bytes_max,
        first_frame_seconds=tcp.handshake_timeout // SECOND,
        login_seconds=tcp.login_timeout // SECOND,
        frame_seconds=tcp.frame_timeout // SECOND,
        send_seconds=tcp.write_timeout // SECOND,
    )


def cluster_metadata(config: ServerConfig, tcp: Endpoint | None) -> ClusterMetadata:
    """Return the one node of the cluster, at the address that clients can dial.

    Ports are those of transports that serve the whole protocol: HTTP serves only a ping, so its
    port is 0.
    """
    node = NodeRecord(
        name=config.server.name,
        ip=config.tcp.address.host,
        tcp_port=tcp.port if tcp else 0,
        quic_port=0,
        http_port=0,
        websocket_port=0,
        role=Role.LEADER,
        status=NodeStatus.HEALTHY,
    )
    return ClusterMetadata(config.cluster.name, (node,))


def _ticks(micros: int) -> int:
    return max(1, micros // TICK)
