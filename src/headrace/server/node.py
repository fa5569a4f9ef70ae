"""One shard in this process, with the real world: alone it is a node, else one shard of several.

```
stores -> Shard | PeerShard <-> Pump <-> FileDisk, SegmentFiles, CredentialHasher, TCP, Bus
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
from headrace.base.placement import METADATA_SHARD, Placement
from headrace.ports.audit import Audit
from headrace.ports.bus import ReleaseReply, SendToMember
from headrace.ports.credentials import HashPassword, MintToken, VerifyPassword
from headrace.ports.disk import FromStore, OnStore
from headrace.ports.host import (
    HostFacts,
    HostSampled,
    MakeSnapshot,
    NodeOpened,
    StopWanted,
    TurnBegun,
    WantTurn,
)
from headrace.ports.network import (
    CloseConnection,
    ConnectionLeft,
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
from headrace.runtime.pump import Pump, World
from headrace.server.audit_log import write_audit
from headrace.server.clock_mark import ClockMark, supported_time
from headrace.server.config.kinds import SECOND
from headrace.server.config.sections import SETTINGS, ServerConfig
from headrace.server.folders import PARTITIONS_NAME, OpenedStore
from headrace.server.joined import Doors, Joined
from headrace.server.messages import Listening
from headrace.server.opening import (
    Prepared,
    finish_opening,
    open_store_at,
    prepare_folder,
    tell_opened,
)
from headrace.server.reports import Reports
from headrace.server.settings import (
    cluster_metadata,
    hash_parameters,
    shard_settings,
    tcp_limits,
)
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.peer import PeerShard
from headrace.shard.shard import Shard
from headrace.storage.moments import Moment
from headrace.transports.acceptor import Acceptor
from headrace.transports.tcp import TcpListener
from headrace.wire.numbers import SnapshotType

_SAMPLE_SECONDS = 1.0
_READY_SECONDS = 0.002

_log = logging.getLogger(__name__)


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
    """Opens the stores of a shard and serves it; created and run in one event loop."""

    shard: Shard | PeerShard

    def __init__(
        self,
        config: ServerConfig,
        *,
        version: str,
        boot_identity: int,
        root_password_hash: Callable[[CredentialHasher], str],
        joined: Joined | None = None,
    ) -> None:
        """Open the stores; alone also the folder, which this process holds already.

        One of several waits with all else for `take_up`. `root_password_hash` is called only if
        there is no user yet.

        Raises:
            FolderRefusedError: The folder must not be opened.
            StrangeFolderError: It belongs to something else.
            DiskFailedError: It cannot be read.
        """
        self._config = config
        self._version = version
        self._boot_identity = boot_identity
        self._root_password_hash = root_password_hash
        self._joined = joined
        self._placement = Placement() if joined is None else joined.placement
        self._stack = ExitStack()
        self.pump = Pump()
        self._wake = self.pump.wake
        try:
            self._prepared = self._prepare()
            self._stores = self._open_stores()
            if joined is None:
                finish_opening(config.server.data_dir, self._prepared.layout, self.moments)
                self.take_up()
        except BaseException:
            self._stack.close()
            raise

    def _prepare(self) -> Prepared:
        if self._joined is not None:
            return self._joined.prepared
        return prepare_folder(self._config, shard_count=1, boot_identity=self._boot_identity)

    def _open_stores(self) -> dict[Path, OpenedStore]:
        stores: dict[Path, OpenedStore] = {}
        for path in self._prepared.paths_of(self._placement.shard):
            stores[path] = open_store_at(
                self._prepared,
                path,
                self._config,
                boot_identity=self._boot_identity,
                wake=self._wake,
            )
            self._stack.callback(stores[path].disk.close)
        return stores

    @property
    def moments(self) -> dict[Path, Moment]:
        """Which start each store knows, to be compared with all others of the node (DK16)."""
        return {path: store.opened.moment for path, store in self._stores.items()}

    def take_up(self) -> None:
        """Take up what the stores hold: all stores of the node are open and of one moment."""
        config, folder = self._config, self._config.server.data_dir
        for path, store in self._stores.items():
            tell_opened(path, store)
        self._hasher = CredentialHasher(hash_parameters(config), self._wake)
        self._stack.callback(self._hasher.close)
        self.shard = self._make_shard()
        has_metadata = self._placement.shard == METADATA_SHARD
        self._reports = Reports(self.shard, config, tells_clock=has_metadata)
        self._disks = self._disks_by_store()
        self._carry_out_on = {number: disk.submit for number, disk in self._disks.items()}
        self._segments = SegmentFiles(
            folder / PARTITIONS_NAME, self._wake, complain=lambda told: _log.error("%s", told)
        )
        self._stack.callback(self._segments.close)
        self._snapshots = SnapshotMaker(self._sources(), self._wake)
        self._stack.callback(self._snapshots.close)
        self._sampler = HostSampler(folder)
        self._http = HttpPing()
        self._clock_mark = ClockMark(folder, self._boot_identity)
        self.tcp = TcpListener(tcp_limits(config), self.pump, shard=self._placement.shard)
        self._doors: Doors | None = None
        if self._joined is not None:
            self._doors = Doors(self._joined, config, self.tcp, self.pump, self._hears)

    def _make_shard(self) -> Shard | PeerShard:
        config = self._config
        opened = [store.opened for store in self._stores.values()]
        has_metadata = self._placement.shard == METADATA_SHARD
        is_fresh = has_metadata and not any(_has_ops(group) for group in opened[0].groups)
        password_hash = self._root_password_hash(self._hasher) if is_fresh else ""
        settings = shard_settings(
            config,
            self._prepared.layout.cluster,
            self._version,
            password_hash,
            placement=self._placement,
            supported_time=supported_time(config.server.data_dir, self._boot_identity),
        )
        return Shard(settings, *opened) if has_metadata else PeerShard(settings, *opened)

    def _disks_by_store(self) -> dict[int, FileDisk]:
        disks = [store.disk for store in self._stores.values()]
        numbers = (METADATA_STORE, DATA_STORE) if len(disks) > 1 else (DATA_STORE,)
        return dict(zip(numbers, disks, strict=True))

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
        worlds: list[World] = [_Disk(number, disk) for number, disk in self._disks.items()]
        worlds += [self._segments, self._hasher, self._snapshots]
        ends_turn = self.tcp.flush
        if self._joined is not None and self._doors is not None:
            bus = self._joined.bus
            worlds.append(bus)
            bus.attach(asyncio.get_running_loop(), self.pump.ask)
            self._doors.open()
            ends_turn = self._end_turn
        await self.pump.run(
            self.shard, carry_out=self._handlers(), worlds=worlds, ends_turn=ends_turn
        )

    def _end_turn(self) -> None:
        """Write what a turn has for clients and for other shards."""
        assert self._joined is not None
        self.tcp.flush()
        self._joined.bus.flush()

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
        if self._joined is not None:
            bus = self._joined.bus
            carry_out |= {
                SendToMember: bus.send,
                ReleaseReply: bus.release,
                ConnectionLeft: lambda effect: self._acceptor.on_gone(effect.connection),
            }
        return carry_out

    def _want_turn(self, _: WantTurn) -> None:
        """Have a turn begin once what has arrived is taken: sockets are read in between."""
        asyncio.get_running_loop().call_soon(self.pump.tell, TurnBegun())

    def _on_store(self, effect: OnStore) -> FromStore | None:
        store = effect.store
        event = self._carry_out_on[store](effect.effect)
        return None if event is None else FromStore(store, event)

    def _trust(self, effect: ConnectionTrusted) -> None:
        if self._doors is not None and self._doors.acceptor is not None:
            number = effect.connection
            self._doors.acceptor.on_trusted(number, is_trusted=effect.is_trusted)
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

    def _hears(self, member: int) -> bool:
        assert isinstance(self.shard, Shard), "shard 0 accepts"
        return self.shard.hears(member)

    @property
    def _acceptor(self) -> Acceptor:
        assert self._doors is not None
        assert self._doors.acceptor is not None, "shard 0 counts the connections of the node"
        return self._doors.acceptor

    # Running.

    async def wait_open(self) -> None:
        """Wait until the stores of this shard know of this start."""
        await _wait_until(lambda: self.shard.is_open, math.inf)

    async def begin(self) -> None:
        """Have the groups begin: all stores of the node know of this start; wait until all is open.

        Only one of several is told; who is alone begins by itself.
        """
        self.pump.tell(NodeOpened())
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Wait until everything that the disk held is taken up."""
        await _wait_until(lambda: self.shard.is_ready, math.inf)
        if self._placement.shard == METADATA_SHARD:
            self._clock_mark.keep(self.shard.clock.time.steady)

    async def listen(
        self, *, tcp: Endpoint | None = None, http: Endpoint | None = None
    ) -> Listening:
        """Wait until everything is open, then accept clients; return the addresses.

        They are those of the configuration, if none are given.

        Raises:
            ListenFailedError: A port is taken, or the address is none of this host's.
        """
        await self.wait_ready()
        config = self._config
        tcp_at, http_at = tcp or config.tcp.address, http or config.http.address
        tcp = http = None
        if config.tcp.enabled:
            listener = self.tcp if self._doors is None else self._acceptor
            try:
                tcp = Endpoint(*await listener.listen(tcp_at.host, tcp_at.port))
            except OSError as error:
                raise ListenFailedError("tcp.address", tcp_at, error) from error
        if config.http.enabled:
            try:
                http = await self._http.listen(http_at)
            except OSError as error:
                raise ListenFailedError("http.address", http_at, error) from error
        self.shard.tell_cluster(cluster_metadata(config, tcp))
        return Listening(tcp, http)

    async def sample(self) -> None:
        """Report the host to the shard, and events to the operator, periodically."""
        while True:
            self._reports.tell()
            if self.shard.is_ready and self._placement.shard == METADATA_SHARD:
                self._clock_mark.keep(self.shard.clock.time.steady)
            self.pump.tell(HostSampled(self._facts()))
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _facts(self) -> HostFacts:
        """Return the host as it is now, and what this process has beside it."""
        facts = msgspec.structs.replace(self._sampler.sample(), counters=self._counters())
        if self._joined is None:
            return facts
        return msgspec.structs.replace(facts, cpus=self._joined.cpus, lanes=self._joined.lanes())

    def _counters(self) -> tuple[tuple[str, int], ...]:
        """Return the counters of the real world: the shard shows them beside its own."""
        names = {METADATA_STORE: "journal.metadata_syncs", DATA_STORE: "journal.data_syncs"}
        refused = self.tcp.refused_count
        if self._doors is not None and self._doors.acceptor is not None:
            refused += self._doors.acceptor.refused_count
        return (
            ("connections.refused", refused),
            *((names[number], disk.sync_count) for number, disk in self._disks.items()),
            ("quarantine.kept", self._segments.quarantine.kept_count),
            ("quarantine.kept_bytes", self._segments.quarantine.kept_bytes),
        )

    async def drain(self) -> None:
        """Shut down: answer requests in flight, close connections, make everything durable (SH-23).

        Bounded by `server.shutdown_drain_timeout`; recovery does the rest.
        """
        await self.finish()
        await self.end()

    async def finish(self) -> None:
        """Take no more requests, and answer those in flight."""
        if self._doors is not None and self._doors.acceptor is not None:
            self._doors.acceptor.stop_accepting()
        self.tcp.stop_accepting()
        self.tcp.pause_all()
        await _wait_until(lambda: self.shard.is_idle, self._drain_seconds)

    async def end(self) -> None:
        """Close connections, make everything durable, and stop the pump."""
        await self.tcp.close(grace_seconds=1.0)
        await self._http.close()
        self.pump.tell(StopWanted())
        if not await _wait_until(lambda: self.shard.is_stopped, self._drain_seconds):
            _log.warning("the stop took too long: the next start recovers from the journal")
        self._reports.tell_findings()
        self.pump.stop()

    @property
    def _drain_seconds(self) -> float:
        return self._config.server.shutdown_drain_timeout / SECOND

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
