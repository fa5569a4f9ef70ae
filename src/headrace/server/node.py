"""A node with one shard: core and real world joined.

```
folders -> two stores -> Shard <-> Pump <-> FileDisk x 2, SegmentFiles, CredentialHasher, TCP
```

Flow: recover, receive, reply.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from headrace.base.endpoints import Endpoint
from headrace.ports.audit import Audit
from headrace.ports.credentials import HashPassword, MintToken, VerifyPassword
from headrace.ports.disk import FromStore, OnStore
from headrace.ports.host import HostSampled, MakeSnapshot, StopWanted, TurnBegun, WantTurn
from headrace.ports.network import (
    CloseConnection,
    ConnectionTrusted,
    ReadConnections,
    SendFrame,
    SendToConnection,
)
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentEffect, WriteSegment
from headrace.runtime.credentials import CredentialHasher
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
from headrace.server.config.kinds import SECOND
from headrace.server.config.sections import SETTINGS, ServerConfig
from headrace.server.folders import (
    PARTITIONS_NAME,
    OpenedStore,
    all_configs,
    check_layout,
    check_shard_count,
    draw_cluster,
    format_folder,
    is_new,
    open_one,
    store_folders,
)
from headrace.server.generations import remove_leftovers
from headrace.server.settings import (
    cluster_metadata,
    hash_parameters,
    shard_settings,
    store_configs,
    tcp_limits,
)
from headrace.server.starts import check_starts, next_start
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.shard import Shard
from headrace.storage.layout import LayoutRecord
from headrace.transports.tcp import TcpListener
from headrace.wire.numbers import SnapshotType
from headrace.wire.replica.handshake import cluster_id

_SHARD_COUNT = 1  # ONE SHARD: this process runs one, and no other process runs the rest.
_SAMPLE_SECONDS = 1.0
_NOTICES = ("held", "released")  # findings that are no fault
_READY_SECONDS = 0.002
_SPACE_SECONDS = 5.0  # without a failed attempt: then there is space again

_log = logging.getLogger(__name__)


class Listening(msgspec.Struct, frozen=True):
    """The addresses of the node; none where a listener is off."""

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
    """Opens a data folder and serves it; created and run in one event loop."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        version: str,
        boot_identity: int,
        root_password_hash: Callable[[CredentialHasher], str],
    ) -> None:
        """Open the folder, which this process holds already.

        `root_password_hash` is called only if there is no user yet.

        Raises:
            FolderRefusedError: The folder must not be opened.
            StrangeFolderError: It belongs to something else.
            DiskFailedError: It cannot be read.
        """
        self._config = config
        self._stack = ExitStack()
        self.pump = Pump()
        self._wake = self.pump.wake
        folder = config.server.data_dir
        try:
            self._hasher = CredentialHasher(hash_parameters(config), self._wake)
            self._stack.callback(self._hasher.close)
            stores = self._open_stores(boot_identity)
            is_fresh = not any(_has_ops(group) for group in stores[METADATA_STORE].opened.groups)
            password_hash = root_password_hash(self._hasher) if is_fresh else ""
            settings = shard_settings(config, self._cluster, version, password_hash)
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
        self.tcp = TcpListener(tcp_limits(config), self.pump)
        self._carry_out_on = [disk.submit for disk in self._disks]

    def _open_stores(self, boot_identity: int) -> list[OpenedStore]:
        folder = self._config.server.data_dir
        named = cluster_id(self._config.cluster.name)
        if is_new(folder):
            own = draw_cluster(named)
            format_folder(folder, store_configs(self._config, own, boot_identity))
        asked = store_configs(self._config, named, boot_identity)
        layout = check_layout(folder, asked[0])
        check_shard_count(folder, layout, _SHARD_COUNT)
        self._cluster = layout.cluster
        paths = store_folders(folder, layout)
        start = next_start(paths)
        stores = {}
        configs = store_configs(self._config, self._cluster, boot_identity)
        for path, config in zip(paths, all_configs(configs, layout.shard_count), strict=True):
            numbered = msgspec.structs.replace(config, start=start)
            stores[path] = open_one(
                path, numbered, self._wake, is_preallocating=self._config.journal.preallocate
            )
            self._stack.callback(stores[path].disk.close)
        check_starts({path: store.opened for path, store in stores.items()})
        _remove_leftovers(folder, layout)
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
            ends_turn=self.tcp.flush,
        )

    def _handlers(self) -> dict[type, Callable[[Any], object | None]]:
        """Return the handler of each effect of the shard."""
        carry_out: dict[type, Callable[[Any], object | None]] = {
            OnStore: self._on_store,
            SendToConnection: self.tcp.send,
            ConnectionTrusted: self._trust,
            CloseConnection: lambda effect: self.tcp.close_connection(
                effect.connection, effect.reason
            ),
            ReadConnections: self._read_connections,
            SendFrame: _drop_frame,
            MakeSnapshot: self._snapshots.submit,
            Audit: write_audit,
            WantTurn: self._want_turn,
        }
        for effect in (VerifyPassword, HashPassword, MintToken):
            carry_out[effect] = self._hasher.submit
        for segment_effect in SegmentEffect.__args__:
            carry_out[segment_effect] = self._segments.submit
        carry_out[WriteSegment] = self._write_segment
        return carry_out

    def _want_turn(self, _: WantTurn) -> None:
        """Have a turn begin once what has arrived is taken: sockets are read in between."""
        asyncio.get_running_loop().call_soon(self.pump.tell, TurnBegun())

    def _on_store(self, effect: OnStore) -> FromStore | None:
        store = effect.store
        event = self._carry_out_on[store](effect.effect)
        return None if event is None else FromStore(store, event)

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
        """Copy committed batches to their segment, after the replies of the turn are sent.

        Writing the new pages of a large batch takes longer than the rest of its turn.
        """
        self.tcp.flush_replies()
        self._segments.submit(effect)

    # Running.

    async def listen(self) -> Listening:
        """Wait until everything is open, then accept clients; return the addresses.

        Raises:
            ListenFailedError: A port is taken, or the address is none of this host's.
        """
        await _wait_until(lambda: self.shard.is_ready, math.inf)
        self._clock_mark.keep(self.shard.clock.time.steady)
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
        self.shard.tell_cluster(cluster_metadata(config, tcp))
        return Listening(tcp, http)

    async def sample(self) -> None:
        """Report the host to the shard, and events to the operator, periodically."""
        while True:
            self._tell_findings()
            self._tell_space()
            self._tell_clock()
            if self.shard.is_ready:
                self._clock_mark.keep(self.shard.clock.time.steady)
            facts = msgspec.structs.replace(self._sampler.sample(), counters=self._counters())
            self.pump.tell(HostSampled(facts))
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _tell_findings(self) -> None:
        for finding in self.shard.take_findings():
            level = logging.WARNING if finding.kind in _NOTICES else logging.ERROR
            _log.log(level, "%s: %s: %s", finding.kind, finding.file, finding.text)

    def _tell_space(self) -> None:
        """Report once that the disk is full, and once that it is not any more."""
        now = asyncio.get_running_loop().time()
        if self.shard.is_without_space:
            if self._full_at is None:
                _log.error("%s", lines.full_line(self._config.server.data_dir))
            self._full_at = now
        elif self._full_at is not None and now - self._full_at > _SPACE_SECONDS:
            self._full_at = None
            _log.warning("%s", lines.space_line())

    def _tell_clock(self) -> None:
        """Report once that the clock is not believed, and once that it is again (CK1)."""
        time = self.shard.clock.time
        if self.shard.is_ready and bool(time.lead) != self._is_leap_told:
            self._is_leap_told = bool(time.lead)
            if time.lead:
                _log.error("%s", lines.leap_line(believed=time.now, clock=time.clock))
            else:
                _log.warning("%s", lines.clock_line(time.now))

    def _counters(self) -> tuple[tuple[str, int], ...]:
        """Return the counters of the real world: the shard shows them beside its own."""
        metadata, data = self._disks
        return (
            ("connections.refused", self.tcp.refused_count),
            ("journal.metadata_syncs", metadata.sync_count),
            ("journal.data_syncs", data.sync_count),
            ("quarantine.kept", self._segments.quarantine.kept_count),
            ("quarantine.kept_bytes", self._segments.quarantine.kept_bytes),
        )

    async def drain(self) -> None:
        """Shut down: answer requests in flight, close connections, make everything durable (SH-23).

        Bounded by `server.shutdown_drain_timeout`; recovery does the rest.
        """
        self.tcp.stop_accepting()
        self.tcp.pause_all()
        timeout = self._config.server.shutdown_drain_timeout / SECOND
        await _wait_until(lambda: self.shard.is_idle, timeout)
        await self.tcp.close(grace_seconds=1.0)
        await self._http.close()
        self.pump.tell(StopWanted())
        if not await _wait_until(lambda: self.shard.is_stopped, timeout):
            _log.warning("the stop took too long: the next start recovers from the journal")
        self._tell_findings()
        self.pump.stop()

    def close(self) -> None:
        """End the threads and release the folder."""
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
    """Whether a group has ops: the first one creates the root user."""
    return bool(group.entries) or (
        group.checkpoint is not None and bool(group.checkpoint.commit_header)
    )


def _drop_frame(_: SendFrame) -> None:
    raise AssertionError("a node of a cluster of one has nobody to send frames to")


def _remove_leftovers(folder: Path, layout: LayoutRecord) -> None:
    """Remove what an interrupted change of the shard count left; the stores are known by now."""
    try:
        for path in remove_leftovers(folder, layout):
            _log.warning("%s: removed, the layout record does not name it", path)
    except OSError as error:
        _log.warning("what the layout record does not name cannot be removed: %s", error)


def _tell_opened(path: Path, store: OpenedStore) -> None:
    """Keep what the store will overwrite, and report the findings of recovery."""
    for finding in store.findings:
        place = f"{path.name}/{finding.file} at {finding.position}"
        _log.warning("%s: %s: %s", place, finding.kind, finding.text)
    for name in store.keep_cuts():
        _log.warning("%s/%s keeps the bytes that were cut", path.name, name)
