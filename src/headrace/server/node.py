"""A node with one shard: core and real world joined.

```
folders -> two stores -> Shard <-> Pump <-> FileDisk x 2, SegmentFiles, CredentialHasher, TCP
```

Flow: recover, receive, reply.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.base.limits import HEADER_BYTES
from headrace.metadata.admission import TopicDefaults
from headrace.partitions.options import AheadPolicy
from headrace.ports.audit import Audit
from headrace.ports.credentials import HashPassword, MintToken, VerifyPassword
from headrace.ports.disk import FromStore, OnStore
from headrace.ports.host import HostSampled, MakeSnapshot, StopWanted
from headrace.ports.network import (
    CloseConnection,
    ConnectionTrusted,
    ReadConnections,
    SendFrame,
    SendToConnection,
)
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentEffect, WriteSegment
from headrace.runtime.credentials import CredentialHasher, HashParameters
from headrace.runtime.diagnostics import (
    SnapshotMaker,
    describe_folder,
    describe_processes,
    describe_usage,
)
from headrace.runtime.files.disk import FileDisk
from headrace.runtime.files.segments import SegmentFiles
from headrace.runtime.host import HostSampler
from headrace.runtime.http_ping import HttpPing
from headrace.runtime.pump import Pump
from headrace.server import lines
from headrace.server.audit_log import write_audit
from headrace.server.clock_mark import ClockMark, supported_time
from headrace.server.config.sections import SETTINGS, JournalSection, ServerConfig
from headrace.server.folders import (
    PARTITIONS_NAME,
    OpenedStore,
    check_layout,
    draw_cluster,
    format_folder,
    is_new,
    open_one,
    store_folders,
)
from headrace.server.starts import check_starts, next_start
from headrace.shard.config import PlaneConfig
from headrace.shard.logins.lockout import LockoutSettings
from headrace.shard.settings import ShardSettings
from headrace.shard.shard import DATA_STORE, METADATA_STORE, Shard
from headrace.storage.config import StoreConfig, file_bytes_of
from headrace.transports.limits import TcpLimits
from headrace.transports.tcp import TcpListener
from headrace.vsr.timeouts import Timeouts
from headrace.wire.commands.system import ClusterMetadata
from headrace.wire.commands.system import Node as NodeRecord
from headrace.wire.numbers import NodeStatus, Role, SnapshotType, Transport
from headrace.wire.replica.handshake import cluster_id
from headrace.wire.topic_options import RESPECT_CONSUMERS

_TICK_MICROS = 10_000
_SECOND = 1_000_000
_SAMPLE_SECONDS = 1.0
_NOTICES = ("held", "released")  # findings that are no fault of anybody
_READY_SECONDS = 0.002
_SPACE_SECONDS = 5.0  # without a try that failed: then there is space again

_log = logging.getLogger(__name__)


class Listening(msgspec.Struct, frozen=True):
    """Where the node can be reached; nothing where that is off."""

    tcp: Endpoint | None
    http: Endpoint | None


class ListenFailedError(Exception):
    """A listener could not be bound."""

    def __init__(self, path: str, endpoint: Endpoint, why: OSError) -> None:
        self.path = path
        self.endpoint = endpoint
        self.why = why
        super().__init__(f"{path} {endpoint}")


class _Disk:
    """A store's disk as a world of the pump: its events say which store they are of."""

    def __init__(self, store: int, disk: FileDisk) -> None:
        self._store = store
        self._disk = disk

    def take_events(self) -> list[FromStore]:
        return [FromStore(self._store, event) for event in self._disk.take_events()]


class Node:
    """Opens what a folder holds, and serves it; made and run in one event loop."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        version: str,
        boot_identity: int,
        root_password_hash: Callable[[CredentialHasher], str],
    ) -> None:
        """Open the folder, which this process holds already.

        `root_password_hash` is asked only if there is no user yet.

        Raises:
            FolderRefusedError: The folder must not be opened.
            StrangeFolderError: It is somebody else's.
            DiskFailedError: It cannot be read.
        """
        self._config = config
        self._stack = ExitStack()
        self.pump = Pump()
        self._wake = self.pump.wake
        folder = config.server.data_dir
        try:
            self._hasher = CredentialHasher(_hash_parameters(config), self._wake)
            self._stack.callback(self._hasher.close)
            stores = self._open_stores(boot_identity)
            is_fresh = not any(_has_ops(group) for group in stores[METADATA_STORE].opened.groups)
            password_hash = root_password_hash(self._hasher) if is_fresh else ""
            settings = _settings(config, self._cluster, version, password_hash)
            supported = supported_time(folder, boot_identity)
            self.shard = Shard(
                msgspec.structs.replace(settings, supported_time=supported),
                stores[0].opened,
                stores[1].opened,
            )
            self._disks = [store.disk for store in stores]
            self._segments = SegmentFiles(
                folder / PARTITIONS_NAME, self._wake, complain=lambda told: _log.error("%s", told)
            )
            self._stack.callback(self._segments.close)
            self._snapshots = SnapshotMaker(self._sources(), self._wake)
            self._stack.callback(self._snapshots.close)
        except BaseException:
            self._stack.close()
            raise
        self._sampler = HostSampler(folder)
        self._http = HttpPing()
        self._full_at: float | None = None  # when something last waited for space
        self._is_leap_told = False
        self._clock_mark = ClockMark(folder, boot_identity)
        self.tcp = TcpListener(_tcp_limits(config), self.pump)
        self._carry_out_on = [disk.submit for disk in self._disks]

    def _open_stores(self, boot_identity: int) -> list[OpenedStore]:
        folder = self._config.server.data_dir
        named = cluster_id(self._config.cluster.name)
        if is_new(folder):
            own = draw_cluster(named)
            format_folder(folder, _store_configs(self._config, own, boot_identity))
        asked = _store_configs(self._config, named, boot_identity)
        self._cluster = check_layout(folder, asked[0])
        start = next_start(store_folders(folder))
        stores = {}
        configs = _store_configs(self._config, self._cluster, boot_identity)
        for path, config in zip(store_folders(folder), configs, strict=True):
            numbered = msgspec.structs.replace(config, start=start)
            stores[path] = open_one(
                path, numbered, self._wake, is_preallocating=self._config.journal.preallocate
            )
            self._stack.callback(stores[path].disk.close)
        check_starts({path: store.opened for path, store in stores.items()})
        for path, store in stores.items():
            _tell_opened(path, store)
        return list(stores.values())

    def _sources(self) -> dict[SnapshotType, Callable[[], str]]:
        config = self._config
        folder = config.server.data_dir
        return {
            SnapshotType.FILESYSTEM_OVERVIEW: lambda: describe_folder(folder),
            SnapshotType.PROCESS_LIST: describe_processes,
            SnapshotType.RESOURCE_USAGE: describe_usage,
            SnapshotType.SERVER_CONFIG: lambda: "".join(
                f"{path} = {config.show(path)}\n" for path in SETTINGS
            ),
        }

    async def run(self) -> None:
        """Run the shard until the pump is stopped.

        Raises:
            PumpFailedError: The shard or the disk has failed.
        """
        await self.pump.run(
            self.shard,
            carry_out=self._handlers(),
            worlds=[
                _Disk(METADATA_STORE, self._disks[0]),
                _Disk(DATA_STORE, self._disks[1]),
                self._segments,
                self._hasher,
                self._snapshots,
            ],
            ends_turn=self._end_turn,
        )

    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        """Give who carries out what the shard wants."""
        carry_out: dict[type, Callable[[Any], None]] = {
            OnStore: self._on_store,
            SendToConnection: self._send,
            ConnectionTrusted: self._trust,
            CloseConnection: lambda effect: self.tcp.close_connection(
                effect.connection, effect.reason
            ),
            ReadConnections: self._read_connections,
            SendFrame: _drop_frame,
            MakeSnapshot: self._snapshots.submit,
            Audit: write_audit,
        }
        for effect in (VerifyPassword, HashPassword, MintToken):
            carry_out[effect] = self._hasher.submit
        for segment_effect in SegmentEffect.__args__:
            carry_out[segment_effect] = self._segments.submit
        carry_out[WriteSegment] = self._write_segment
        return carry_out

    def _on_store(self, effect: OnStore) -> None:
        self._carry_out_on[effect.store](effect.effect)

    def _send(self, effect: SendToConnection) -> None:
        self.tcp.send(effect.connection, effect.parts)

    def _trust(self, effect: ConnectionTrusted) -> None:
        if effect.is_trusted:
            self.tcp.set_logged_in(effect.connection)
        else:
            self.tcp.set_logged_out(effect.connection)

    def _read_connections(self, effect: ReadConnections) -> None:
        if effect.is_reading:
            self.tcp.resume_all()
        else:
            self.tcp.pause_all()

    def _write_segment(self, effect: WriteSegment) -> None:
        """Copy committed batches to their segment, once those who have an answer have got it.

        To write the new pages of a large batch takes longer than all the rest of its turn.
        """
        self.tcp.flush_replies()
        self._segments.submit(effect)

    def _end_turn(self) -> None:
        self.tcp.flush()

    # Running.

    async def listen(self) -> Listening:
        """Wait until everything is taken up, then accept clients; give where.

        Raises:
            ListenFailedError: A port is taken, or the address is none of this host's.
        """
        await _wait_until(lambda: self.shard.is_ready, math.inf)
        self._clock_mark.keep(self.shard.clock.time.now)
        tcp = http = None
        config = self._config
        if config.tcp.enabled:
            address = config.tcp.address
            try:
                tcp = Endpoint(*await self.tcp.listen(address.host, address.port))
            except OSError as error:
                raise ListenFailedError("tcp.address", address, error) from error
        if config.http.enabled:
            try:
                http = await self._http.listen(config.http.address)
            except OSError as error:
                raise ListenFailedError("http.address", config.http.address, error) from error
        self.shard.tell_cluster(_cluster(config, tcp))
        return Listening(tcp, http)

    async def sample(self) -> None:
        """Tell the shard of its host, and people what happened to it, again and again."""
        while True:
            self._tell_findings()
            self._tell_space()
            self._tell_clock()
            if self.shard.is_ready:
                self._clock_mark.keep(self.shard.clock.time.now)
            facts = msgspec.structs.replace(self._sampler.sample(), counters=self._counters())
            self.pump.tell(HostSampled(facts))
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _tell_findings(self) -> None:
        for finding in self.shard.take_findings():
            level = logging.WARNING if finding.kind in _NOTICES else logging.ERROR
            _log.log(level, "%s: %s: %s", finding.kind, finding.file, finding.text)

    def _tell_space(self) -> None:
        """Say once that the disk is full, and once that it is not any more."""
        now = asyncio.get_running_loop().time()
        if self.shard.is_without_space:
            if self._full_at is None:
                _log.error("%s", lines.full_line(self._config.server.data_dir))
            self._full_at = now
        elif self._full_at is not None and now - self._full_at > _SPACE_SECONDS:
            self._full_at = None
            _log.warning("%s", lines.space_line())

    def _tell_clock(self) -> None:
        """Say once that the clock is not believed, and once that it is again (CK1)."""
        time = self.shard.clock.time
        if self.shard.is_ready and bool(time.lead) != self._is_leap_told:
            self._is_leap_told = bool(time.lead)
            if time.lead:
                _log.error("%s", lines.leap_line(believed=time.now, clock=time.clock))
            else:
                _log.warning("%s", lines.clock_line(time.now))

    def _counters(self) -> tuple[tuple[str, int], ...]:
        """Give what only the real world counts: the shard shows it beside its own."""
        metadata, data = self._disks
        return (
            ("connections.refused", self.tcp.refused_count),
            ("journal.metadata_syncs", metadata.sync_count),
            ("journal.data_syncs", data.sync_count),
            ("quarantine.kept", self._segments.quarantine.kept_count),
            ("quarantine.kept_bytes", self._segments.quarantine.kept_bytes),
        )

    async def drain(self) -> None:
        """End well: answer what is in flight, close connections, make everything durable (SH-23).

        Bounded by `server.shutdown_drain_timeout`; what is not done then is done by recovery.
        """
        self.tcp.stop_accepting()
        self.tcp.pause_all()
        timeout = self._config.server.shutdown_drain_timeout / _SECOND
        await _wait_until(lambda: self.shard.is_idle, timeout)
        await self.tcp.close(grace_seconds=1.0)
        await self._http.close()
        self.pump.tell(StopWanted())
        if not await _wait_until(lambda: self.shard.is_stopped, timeout):
            _log.warning("the stop took too long: the next start recovers from the journal")
        self._tell_findings()
        self.pump.stop()

    def close(self) -> None:
        """End the threads and give the folder free."""
        self._stack.close()


async def _wait_until(is_done: Callable[[], bool], seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    while not is_done():
        if loop.time() >= due:
            return False
        await asyncio.sleep(_READY_SECONDS)
    return True


def _has_ops(group: RecoveredGroup) -> bool:
    """Whether a group has a past: then its first op, the root user, is there."""
    return bool(group.entries) or (
        group.checkpoint is not None and bool(group.checkpoint.commit_header)
    )


def _drop_frame(_: SendFrame) -> None:
    raise AssertionError("a node of a cluster of one has nobody to send frames to")


# From configuration to what the parts are told.


def _store_configs(
    config: ServerConfig, cluster: int, boot_identity: int
) -> tuple[StoreConfig, StoreConfig]:
    def make(journal: int, section: JournalSection) -> StoreConfig:
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

    metadata: Any = config.metadata_journal
    return make(0, metadata), make(1, config.journal)


def _tell_opened(path: Path, store: OpenedStore) -> None:
    """Keep what the store will overwrite, and say what recovery noticed."""
    for finding in store.findings:
        place = f"{path.name}/{finding.file} at {finding.position}"
        _log.warning("%s: %s: %s", place, finding.kind, finding.text)
    for name in store.keep_cuts():
        _log.warning("%s/%s keeps the bytes that were cut", path.name, name)


def _hash_parameters(config: ServerConfig) -> HashParameters:
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


def _settings(
    config: ServerConfig, cluster: int, version: str, root_password_hash: str
) -> ShardSettings:
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    policy = (
        AheadPolicy.CLAMP if config.consumers.offset_ahead_policy == "clamp" else (AheadPolicy.FAIL)
    )
    return ShardSettings(
        metadata=_plane_config(config, cluster, 0),
        data=_plane_config(config, cluster, 1),
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
    """Give where readers of this host are told to find segments; nothing if they are not."""
    if not config.segments.direct_reads:
        return ""
    return str((config.server.data_dir / PARTITIONS_NAME).resolve())


def _tcp_limits(config: ServerConfig) -> TcpLimits:
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
        first_frame_seconds=tcp.handshake_timeout // _SECOND,
        login_seconds=tcp.login_timeout // _SECOND,
        frame_seconds=tcp.frame_timeout // _SECOND,
        send_seconds=tcp.write_timeout // _SECOND,
    )


def _cluster(config: ServerConfig, tcp: Endpoint | None) -> ClusterMetadata:
    """Tell clients of the one node that there is, at the address that they can dial.

    A port is that of a transport over which the whole protocol is served: over HTTP it is only a
    ping, so its port is not named (0).
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
    return max(1, micros // _TICK_MICROS)
