"""The nodes of a simulated cluster: their turns, their effects, their lives, and what strikes them.

Nodes take turns: what arrived since the last turn goes in, effects come out and are carried out one
by one. A crash can fall between any two effects of one step.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.base.prng import Prng
from headrace.metadata.machine import MetadataMachine
from headrace.metadata.target import PartitionTarget
from headrace.partitions.machine import PartitionMachine
from headrace.ports.audit import Audit
from headrace.ports.credentials import HashPassword, MintToken, VerifyPassword
from headrace.ports.disk import DiskEvent, FromStore, OnStore
from headrace.ports.host import StopWanted
from headrace.ports.machine import StateMachine
from headrace.ports.network import (
    CloseConnection,
    ConnectionClosed,
    ConnectionTrusted,
    ReadConnections,
    SendFrame,
    SendToConnection,
    Ticked,
)
from headrace.ports.segments import (
    ListPartitions,
    OpenSegments,
    QuarantinePartition,
    ReadIndex,
    ReadSegment,
    RemovePartition,
    RemoveSegments,
    SegmentEvent,
    SyncSegments,
    WriteIndex,
    WriteSegment,
)
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.sim.agenda import MILLISECOND, SECOND, Agenda, draw_delay
from headrace.sim.astray import Astray
from headrace.sim.disk import Disk, DiskOptions
from headrace.sim.folder import Folder, FolderOptions
from headrace.sim.inbox import Connected
from headrace.sim.links import Links
from headrace.sim.network import Network
from headrace.sim.nodes import secrets
from headrace.sim.nodes.checkers import METADATA, Checkers
from headrace.sim.nodes.clients import ROOT
from headrace.sim.nodes.history import Applied, Incarnation, Reign
from headrace.sim.nodes.host import Host, owners_of
from headrace.sim.nodes.options import NEVER_IDLE_TICKS, NodeOptions
from headrace.sim.nodes.product import Product
from headrace.sim.nodes.watched import WatchedMachine
from headrace.sim.trace import Trace
from headrace.sim.violation import SimViolationError
from headrace.storage.config import journal_name
from headrace.storage.moments import find_older
from headrace.storage.store import Opened, Refused, Wiped
from headrace.vsr.state import Status

TICK = 10 * MILLISECOND
WALL_START = 1_700_000_000 * SECOND

_TURN_MEAN = 40
_STALL_TICKS = 2
_HASH_MEAN = 500


class Cluster:
    """All nodes, and what connects them; `on_down` is told of every node that ends."""

    def __init__(
        self,
        options: NodeOptions,
        prng: Prng,
        agenda: Agenda,
        trace: Trace,
        on_down: Callable[[int], None],
    ) -> None:
        self.options = options
        self.replica_count = options.replica_count
        self.atlas = options.atlas
        self.is_power_for_all = options.is_power_for_all
        self.agenda = agenda
        self.trace = trace
        self.checkers = Checkers(
            options.sizes.clock_tolerance,
            lambda: agenda.now,
            is_waiting=options.sizes.consumers_idle_ticks >= NEVER_IDLE_TICKS,
        )
        self.network = Network(options.network, prng.fork("network"), agenda, options.replica_count)
        self.probes: dict[str, int] = {}
        self.schedule = prng.fork("schedule")
        self._on_down = on_down
        self._product = Product(options, (ROOT[0], secrets.hash_of(ROOT[1])))
        self._seeds = prng.fork("seeds")
        self._events: dict[str, int] = {}
        self._is_canary = options.canary
        self.hosts = [self._make_host(index, prng) for index in range(options.replica_count)]
        self.links = Links(options.links, prng.fork("links"), agenda, self._connected)
        self._carriers: dict[type, Callable[[Host, Any], None]] = {
            OnStore: self._on_store,
            SendFrame: self._on_frame,
            SendToConnection: self._on_reply,
            ConnectionTrusted: _on_nothing,
            CloseConnection: self._on_close,
            ReadConnections: self._on_reading,
            VerifyPassword: self._on_secret,
            HashPassword: self._on_secret,
            MintToken: self._on_secret,
            Audit: _on_nothing,
            **dict.fromkeys(
                (
                    WriteSegment,
                    SyncSegments,
                    ReadSegment,
                    WriteIndex,
                    ReadIndex,
                    OpenSegments,
                    RemoveSegments,
                    RemovePartition,
                    QuarantinePartition,
                    ListPartitions,
                ),
                _on_segment,
            ),
        }

    def _make_host(self, index: int, prng: Prng) -> Host:
        disk_options, folder_options = self.options.disk, self.options.folder
        if index not in self.atlas or self.replica_count == 1:
            disk_options = _without_damage(disk_options)
            folder_options = msgspec.structs.replace(folder_options, read_error=0)
        if index not in self.atlas:
            folder_options = _without_mix_up(folder_options)
        if not (self.is_power_for_all or index in self.atlas):
            disk_options = msgspec.structs.replace(disk_options, write_error=0)
        draws = prng.fork("disk")
        disks = tuple(self._make_disk(index, store, disk_options, draws) for store in (0, 1))
        folder = Folder(
            folder_options,
            draws.fork("folder"),
            self.agenda,
            lambda event: self._completed(index, event),
            Astray(Prng(self.options.seed).fork(f"astray {index}")),  # apart from other draws
        )
        assert len(disks) == 2
        host = Host(index, disks, folder)
        host.tick_length = TICK + draws.between(-400, 400)
        host.wall_skew = draws.between(-3_600, 3_600) * SECOND
        self._format(host)
        self.network.attach(index, lambda source, frame: self._arrived(index, source, frame))
        return host

    def _make_disk(self, index: int, store: int, options: DiskOptions, prng: Prng) -> Disk:
        def answer(event: DiskEvent) -> None:
            self._completed(index, FromStore(store, event))

        def fail() -> None:
            self.crash(index, is_power=True)

        disk = Disk(options, prng.fork(f"store {store}"), self.agenda, answer, fail)
        disk.journal_name = journal_name
        return disk

    def _format(self, host: Host) -> None:
        files = self._product.format(host.index, host.incarnation)
        for disk, image in zip(host.disks, files, strict=True):
            disk.format(image)
        host.folder.wipe()

    # A node's turns

    def _tick(self, argument: tuple[Host, int]) -> None:
        host, life = argument
        if host.life != life:
            return
        self.agenda.after(host.tick_length, self._tick, argument)
        if host.is_paused:
            return
        self._tell_time(host)
        if host.life == life:
            self._observe(host)

    def _tell_time(self, host: Host) -> None:
        host.told_ticks = host.ticks_at(self.agenda.now)
        self._step(host, Ticked(host.told_ticks, self._wall(host)))

    def _wall(self, host: Host) -> int:
        return max(0, WALL_START + host.wall_skew + self.agenda.now)

    def _observe(self, host: Host) -> None:
        replicas = host.replicas()
        fence = host.fence
        if fence is not None and not (host.folder.is_damaged or host.folder.has_failed):
            raise SimViolationError("P7", why="fenced, and sound", node=host.index, fence=fence)
        self._check_quarantine(host)
        self.checkers.promises.removed(host.index, replicas)
        for key, replica in replicas.items():
            self.checkers.promises.observe(host.index, key, replica)

    def _check_quarantine(self, host: Host) -> None:
        """Check that only what a power cut may take from the log was found beyond its end."""
        for file in host.folder.quarantined:
            history = self.checkers.histories[Incarnation(file.namespace, file.created_revision)]
            if not (history.is_shortenable or host.folder.is_damaged):
                raise SimViolationError("P7", why="quarantine of what the log has", file=file)

    def _plan_turn(self, host: Host) -> None:
        if not (host.is_turn_planned or host.is_paused):
            host.is_turn_planned = True
            delay = draw_delay(self.schedule, _TURN_MEAN)
            self.agenda.after(delay, self._turn, (host, host.life))

    def _turn(self, argument: tuple[Host, int]) -> None:
        host, life = argument
        if host.life != life:
            return
        host.is_turn_planned = False
        if host.is_paused:
            return
        if host.ticks_at(self.agenda.now) - host.told_ticks >= _STALL_TICKS:
            self._tell_time(host)  # As the loop of a real node does, before requests.
            if host.life != life:
                return
        for event in host.inbox.take(self._wall(host), is_reading=host.is_reading):
            self._step(host, event)
            if host.life != life:
                return

    def _step(self, host: Host, event: ShardEvent) -> None:
        shard = host.shard
        assert shard is not None
        self.trace.add(self.agenda.now, host.index, event)
        effects = shard.step(event)
        shard.answers.check()
        self._carry_out(host, effects)

    def _carry_out(self, host: Host, effects: list[ShardEffect]) -> None:
        """Do what a step asks for, in order; the node may crash between any two."""
        now, trace, index, life = self.agenda.now, self.trace, host.index, host.life
        for effect in effects:
            if host.effects_left >= 0:
                host.effects_left -= 1
                if host.effects_left < 0:
                    self.count("world.crashed_between_effects")
                    self.crash(index, is_power=host.is_power_next)
                    return
            trace.add(now, index, effect)
            self._carriers[type(effect)](host, effect)
            assert host.life == life

    def _on_store(self, host: Host, effect: OnStore) -> None:
        host.disks[effect.store].submit(effect.effect)

    def _on_frame(self, host: Host, effect: SendFrame) -> None:
        self.checkers.promises.sent(host.index, effect.frame, host.replicas())
        self.network.send(host.index, effect.replica, effect.frame)

    def _on_reply(self, host: Host, effect: SendToConnection) -> None:
        self.links.reply(effect.connection, b"".join(effect.parts))

    def _on_close(self, host: Host, effect: CloseConnection) -> None:
        self.count("world.connection_closed")
        self.links.closed_by_node(effect.connection)
        host.inbox.put_connected(ConnectionClosed(effect.connection))
        self._plan_turn(host)

    def _on_reading(self, host: Host, effect: ReadConnections) -> None:
        host.is_reading = effect.is_reading
        self.count("world.reading_stopped" if not effect.is_reading else "world.reading_resumed")
        self._plan_turn(host)

    def _on_secret(self, host: Host, effect: secrets.SecretEffect) -> None:
        delay = draw_delay(self.schedule, _HASH_MEAN)
        self.agenda.after(delay, self._secret_ready, (host, host.life, secrets.answer(effect)))

    def _secret_ready(self, argument: tuple[Host, int, ShardEvent]) -> None:
        host, life, event = argument
        if host.life == life:
            host.inbox.put(event)
            self._plan_turn(host)

    def _completed(self, index: int, event: FromStore | SegmentEvent) -> None:
        host = self.hosts[index]
        host.inbox.put(event)
        self._plan_turn(host)

    def _arrived(self, index: int, source: int, frame: bytes) -> None:
        host = self.hosts[index]
        if host.is_up:
            host.inbox.put_frame(source, frame)
            self._plan_turn(host)

    def _connected(self, index: int, event: Connected) -> bool:
        host = self.hosts[index]
        if host.is_up:
            host.inbox.put_connected(event)
            self._plan_turn(host)
        return host.is_up

    # A node's life

    def boot(self, node: int) -> None:
        """Start a node from what its disks hold."""
        host = self.hosts[node]
        if host.is_up or host.is_refused:
            return
        host.life += 1
        opened = self._open(host)
        if any(isinstance(each, Wiped) for each in opened):
            self._replace_disk(host)
            opened = self._open(host)
        stores = [each for each in opened if isinstance(each, Opened)]
        if len(stores) < len(opened):
            raise SimViolationError("P7", why="refused to start", node=node, reason=opened)
        for store in stores:
            for finding in store.findings:
                self.add_probe(f"recovered: {finding.kind}", 1)
        if any(disk.is_damaged for disk in host.disks):
            self.checkers.promises.damaged(node)  # A disk rots while its node is down, too.
        seeds = (self._seeds.u64(), self._seeds.u64())
        host.shard = self._product.start(node, seeds, stores, self._watcher(host))
        host.is_suspect = any(store.is_suspect for store in stores)
        host.booted_at = self.agenda.now
        host.told_ticks = 0
        host.is_paused = host.is_turn_planned = False
        host.is_reading = True
        self.count("world.booted")
        self.trace.add(self.agenda.now, node, f"boot {host.life}")
        self.checkers.promises.booted(node)
        self.agenda.after(host.tick_length, self._tick, (host, host.life))
        self._carry_out(host, host.shard.start())

    def _open(self, host: Host) -> list[Opened | Wiped | Refused]:
        images = [disk.open() for disk in host.disks]
        opened = self._product.open_stores(host.index, host.boot_identity, host.life + 1, images)
        if self.replica_count == 1:
            moments = {
                str(store): each.moment
                for store, each in enumerate(opened)
                if isinstance(each, Opened)
            }
            if moments and (older := find_older(moments)) is not None:
                raise SimViolationError("DK16", why=older[1])
        return opened

    def _replace_disk(self, host: Host) -> None:
        """Format disks that hold nothing usable; only damage may have brought them there."""
        if host.index not in self.atlas:
            raise SimViolationError("P7", why="a sound disk seems empty", node=host.index)
        self.count("world.replaced")
        self.trace.add(self.agenda.now, host.index, "disk replaced")
        self.checkers.promises.wiped(host.index)
        host.incarnation += 1
        self._format(host)

    def _watcher(
        self, host: Host
    ) -> Callable[[PartitionTarget | None, StateMachine], StateMachine]:
        life = host.life

        def watch(target: PartitionTarget | None, machine: StateMachine) -> StateMachine:
            key = METADATA if target is None else self.checkers.known(target, host.name_of(target))

            def tell(applied: Applied, partition: PartitionMachine | None) -> None:
                assert host.life == life, "a machine of an earlier life was used"
                is_first = self._applied(host, key, applied, partition)
                if is_first and isinstance(machine, MetadataMachine):
                    moment = self.checkers.witness.registers.moment()
                    owners = owners_of(machine.state)
                    self.checkers.ownership.assigned(applied.header.op, moment, owners)

            stamped = self.checkers.ages.stamped
            return WatchedMachine(machine, lambda: host.table_of(key), tell, stamped)

        return watch

    def _applied(
        self, host: Host, key: Incarnation, applied: Applied, partition: PartitionMachine | None
    ) -> bool:
        if self._is_canary and self.checkers.applied_count > 20 and applied.reply:
            applied = applied._replace(state_hash=applied.state_hash ^ 1, reply=b"\xff" * 24)
        return self.checkers.applied(host.index, key, applied, partition)

    # What faults may do

    def is_up(self, node: int) -> bool:
        """Whether a node runs, paused or not."""
        return self.hosts[node].is_up

    def leaders(self) -> list[int]:
        """Return the nodes that serve as primary of a group."""
        return [
            host.index
            for host in self.hosts
            if any(replica.is_serving for replica in host.replicas().values())
        ]

    def reign_of(self, node: int, name: str) -> tuple[int, Reign] | None:
        """Give the life of a node and what it serves under a name: the oldest, if there are two."""
        host = self.hosts[node]
        found = [
            Reign(key.origin, machine.history_epoch)
            for key, machine in host.machines().items()
            if self.checkers.histories[key].name == name
        ]
        return (host.life, min(found)) if found else None

    def is_unreadable(self, node: int, name: str, since: int) -> bool:
        """Whether a node may lawfully fail to read a partition that it was asked for since then.

        Its files are damaged, or one was read wrongly meanwhile; a mixed up index is no excuse.
        """
        folder = self.hosts[node].folder
        keys = [key for key, history in self.checkers.histories.items() if history.name == name]
        return self.options.has_segment_errors or any(
            key in folder.harmed_at or folder.misread_at.get(key, -1) >= since for key in keys
        )

    def is_electing(self) -> bool:
        """Whether some replica has left a view and is in no other one yet."""
        return any(
            replica.status == Status.VIEW_CHANGE
            for host in self.hosts
            for replica in host.replicas().values()
        )

    def stop(self, node: int) -> None:
        """Ask a node to stop cleanly; its shard says when it has."""
        host = self.hosts[node]
        self.trace.add(self.agenda.now, node, "stop wanted")
        host.inbox.put(StopWanted())
        self._plan_turn(host)

    def crash(self, node: int, *, is_power: bool, is_clean: bool = False) -> None:
        """End a node's life; unsent output and unsynced writes are gone.

        After a clean stop there are none that count.
        """
        host = self.hosts[node]
        if host.shard is None:
            return
        self.count("world.power_cut" if is_power else "world.killed")
        self.trace.add(self.agenda.now, node, "power cut" if is_power else "killed")
        self.collect(host)
        replicas = host.replicas()
        self.checkers.promises.removed(node, replicas)
        host.shard = None
        host.life += 1
        host.effects_left = -1
        host.inbox.clear()
        for disk in host.disks:
            disk.crash(is_power=is_power)
        host.folder.crash(is_power=is_power)
        self.links.node_down(node)
        if is_power:
            host.boot_identity += 1
            if not is_clean:
                self._lose_tails(host, list(replicas))
        self._on_down(node)

    def _lose_tails(self, host: Host, keys: list[Incarnation]) -> None:
        """Take note of what a power cut takes from groups that wait for no sync."""
        if self.replica_count == 1:
            self.checkers.lose_power_alone()
        for key in keys:
            if self.checkers.histories[key].is_shortenable:
                self.checkers.promises.lost_tail(host.index, key)

    def crash_between_effects(self, node: int, effects: int, *, is_power: bool) -> None:
        """Crash a node once it has carried out that many effects."""
        self.hosts[node].effects_left = effects
        self.hosts[node].is_power_next = is_power

    def wipe(self, node: int) -> None:
        """Empty the disks of a node that is down."""
        host = self.hosts[node]
        assert node in self.atlas
        if host.shard is None and not host.is_refused:
            self.count("world.wiped")
            self.trace.add(self.agenda.now, node, "disk wiped")
            for disk in host.disks:
                disk.wipe()
            host.folder.wipe()

    def pause(self, node: int) -> None:
        """Stop a node without ending it; its clock goes on."""
        self.count("world.paused")
        self.trace.add(self.agenda.now, node, "paused")
        self.hosts[node].is_paused = True

    def resume(self, node: int) -> None:
        """Let a paused node go on with all that waits."""
        host = self.hosts[node]
        if host.is_up and host.is_paused:
            host.is_paused = False
            self.trace.add(self.agenda.now, node, "resumed")
            self._plan_turn(host)

    def rot(self, node: int) -> None:
        """Damage what a disk has long held: a journal's, or a segment."""
        assert node in self.atlas
        host = self.hosts[node]
        if self.schedule.below(100) < self.options.segment_rot:
            is_done = host.folder.rot()
        else:
            is_done = self.schedule.choice(host.disks).rot()
        if is_done:
            self.trace.add(self.agenda.now, node, "disk rots")

    def fill(self, node: int, *, is_full: bool) -> None:
        """Take the free space of a disk, or give it back."""
        host = self.hosts[node]
        self.trace.add(self.agenda.now, node, "disk full" if is_full else "disk freed")
        host.folder.is_full = is_full
        for disk in host.disks:
            disk.is_full = is_full

    def jump_clock(self, node: int, by: int) -> None:
        """Move a node's wall clock."""
        self.count("world.clock_jumped")
        self.hosts[node].wall_skew += by

    def heal_host(self, host: Host, *, is_core: bool) -> None:
        """Let nothing go wrong on a node any more; one outside of the core stays down."""
        host.effects_left = -1
        host.folder.is_full = False
        host.folder.options = FolderOptions()
        for disk in host.disks:
            disk.is_full = False
            disk.options = DiskOptions()
        if is_core and host.folder.rotten and self.replica_count > 1:
            # Nothing repairs a segment in place yet: its disk is replaced, as an operator would.
            self.crash(host.index, is_power=False)
            self.wipe(host.index)
            self.count("world.replaced_rotten")
        elif is_core and host.folder.has_failed:
            # An error of a segment is gone with a restart, which writes it again.
            self.crash(host.index, is_power=False)
            self.count("world.restarted_fenced")
        if not is_core:
            self.crash(host.index, is_power=False)
        elif host.is_paused:
            self.resume(host.index)
        if is_core and host.shard is None:
            self.boot(host.index)

    # What happened

    def count(self, event: str) -> None:
        """Count something that happened."""
        self._events[event] = self._events.get(event, 0) + 1

    def add_probe(self, name: str, count: int) -> None:
        """Count marks that were reached."""
        self.probes[name] = self.probes.get(name, 0) + count

    def collect(self, host: Host) -> None:
        """Take over the marks that a node has reached in this life."""
        if host.shard is not None:
            for part in host.shard.probes:
                for name, count in part.counts.items():
                    self.add_probe(name, count)
            self.add_probe("metadata.checkpointed", host.shard.metadata.plane.checkpoints_done)
            self.add_probe("data.checkpointed", host.shard.data_plane.checkpoints_done)

    def events(self) -> dict[str, int]:
        """Give all that happened, counted."""
        events = dict(self._events)
        parts = [self.network.events, self.links.events]
        for host in self.hosts:
            parts += [host.folder.events, *(disk.events for disk in host.disks)]
        for part in parts:
            for name, count in part.items():
                events[name] = events.get(name, 0) + count
        return events

    @property
    def fault_count(self) -> int:
        """How much went wrong."""
        return sum(self.events().values()) - self._events.get("world.booted", 0)


def _on_segment(host: Host, effect: Any) -> None:  # noqa: ANN401  # any of the segment effects
    host.folder.submit(effect)


def _on_nothing(host: Host, effect: object) -> None:
    """Carry out what changes nothing here."""


def _without_damage(options: DiskOptions) -> DiskOptions:
    return msgspec.structs.replace(options, lost=0, misdirected=0, read_error=0)


def _without_mix_up(options: FolderOptions) -> FolderOptions:
    return msgspec.structs.replace(
        options, read_astray=0, write_astray=0, index_astray=0, misplaced=0
    )
